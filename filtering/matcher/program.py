"""Compiles the predicates of a matcher into one program over packed bits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from filtering.matcher.axes import Axis, AxisKey, Signal, TextAxis, axis_key, axis_of
from filtering.matcher.gates import ALWAYS, NEVER, Gates, invert
from filtering.predicate import And, Constant, Not, Or, Predicate, TextIn, postorder

MOST_GATES = 64
"""A list of texts that would take more gates is a leaf without an axis. Few lists overlap so much."""


@dataclass(frozen=True, eq=False)
class Program:
    """Instructions that combine registers of bits, with one bit for each message (see Gates).

    Register 0 is zero. The registers of the axes follow, then one register for each of ``singles``: the leaves without
    an axis, and long lists of texts.
    """

    axes: tuple[Axis, ...]
    singles: tuple[Predicate, ...]
    instructions: npt.NDArray[np.int32]
    registers: int
    outputs: int

    @property
    def first_single(self) -> int:
        """The register of the first of ``singles``."""
        return 1 + sum(axis.registers for axis in self.axes)

    @property
    def properties(self) -> tuple[str, ...]:
        """The properties that the program reads, in order of first use."""
        on_axes = [axis.name for axis in self.axes if axis.name is not None]
        return tuple(dict.fromkeys([*on_axes, *(name for leaf in self.singles for name in leaf.properties)]))


def compile_program(predicates: Sequence[Predicate]) -> Program:
    """The program whose outputs are the predicates, in their order. Equal parts of them are computed once."""
    nodes = list(postorder(predicates))
    by_axis = defaultdict(list)
    singles = []
    for node in nodes:
        if (key := axis_key(node)) is not None:
            by_axis[key].append(node)
        elif not isinstance(node, And | Or | Not | Constant):
            singles.append(node)
    long_lists = {leaf for leaves in by_axis.values() for leaf in _long_lists(leaves)}
    singles += [node for node in nodes if node in long_lists]
    on_axes = {key: [leaf for leaf in leaves if leaf not in long_lists] for key, leaves in by_axis.items()}
    axes: dict[AxisKey, Axis] = {}
    start = 1
    for key, leaves in on_axes.items():
        if leaves:
            axes[key] = axis_of(key, leaves, start)
            start += axes[key].registers
    gates = Gates(start - 1 + len(singles))
    signal_on = {key: axis.signal(gates) for key, axis in axes.items()}
    signals = _signals(nodes, gates, signal_on, {leaf: 2 * (start + i) for i, leaf in enumerate(singles)})
    instructions, registers = gates.instructions([signals[predicate] for predicate in predicates])
    return Program(tuple(axes.values()), tuple(singles), instructions, registers, len(predicates))


def _long_lists(leaves: Sequence[Predicate]) -> list[Predicate]:
    """The lists of texts among the leaves of one axis that would take too many gates."""
    if not any(isinstance(leaf, TextIn) and len(leaf.texts) > MOST_GATES for leaf in leaves):
        return []
    gates_of = TextAxis.of("", leaves, 0).gates()
    return [leaf for leaf in leaves if isinstance(leaf, TextIn) and gates_of(leaf) > MOST_GATES]


def _signals(
    nodes: Sequence[Predicate], gates: Gates, signal_on: dict[AxisKey, Signal], single: dict[Predicate, int]
) -> dict[Predicate, int]:
    signals = dict(single)
    for node in nodes:
        match node:
            case Constant(value=value):
                signals[node] = ALWAYS if value else NEVER
            case Not(operand=operand):
                signals[node] = invert(signals[operand])
            case And(terms=terms):
                signals[node] = gates.all_of(signals[term] for term in terms)
            case Or(terms=terms):
                signals[node] = gates.any_of(signals[term] for term in terms)
            case _:
                if node not in signals and (key := axis_key(node)) is not None:
                    signals[node] = signal_on[key](node)
    return signals
