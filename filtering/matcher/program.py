"""Compiles the predicates of a matcher into one program over registers of packed bits, one bit for each message.

1. **Leaves become classes.** All leaves that read one property as one type share an *axis*. It divides messages into
   classes, so that a leaf is true for all messages of a class or for none: classes of texts, by the leaves in which
   they are listed (TextAxis), or intervals between the numbers in leaves (NumberAxis). So the value of a property is
   looked up once for each message, however many thousand leaves read it. Each class is a register: it has the messages
   of the class, and on a NumberAxis those of the classes before it, too.
2. **Leaves without an axis** (``singles``) are registers that the matcher fills: searches in texts, comparisons of two
   properties, and lists of texts that would take too many gates (MOST_GATES).
3. **Predicates become gates.** A *signal* is the bits of a register or their opposite, and a gate is the AND of two
   signals (Gates). Equal gates are one gate, so what many expressions have in common is computed once. This is the
   and-inverter graph of logic synthesis (Kuehlmann et al., "Robust Boolean Reasoning for Equivalence Checking and
   Functional Property Verification", 2002).
4. **Gates become instructions**, in an order in which registers are soon used again. The outputs are the predicates.

``price > 50 AND region = 'hz'`` reads two axes and takes two gates: "has a price" AND NOT "price up to 50", and the
result AND "region is hz". An instruction does this for 64 messages a word.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import chain

import numpy as np
import numpy.typing as npt

from filtering.frozen import frozen
from filtering.java import double_order
from filtering.predicate import (
    TRUE_TEXTS,
    And,
    Comparison,
    Constant,
    IsNumber,
    IsPresent,
    IsTrueText,
    Not,
    NumberIs,
    NumberType,
    Or,
    Predicate,
    TagsCodeIn,
    TextIn,
    postorder,
)

NEVER = 0
ALWAYS = 1


_NOBODY = _NOWHERE = -1
"""Instead of the number of a node that reads another, or of a register."""


def invert(signal: int) -> int:
    """The signal that is true where ``signal`` is false."""
    return signal ^ 1


class Gates:
    """A graph of gates. Node 0 is the constant false; ``inputs`` registers follow, numbered from 1.

    A signal is twice the number of its node, plus one if it is inverted.
    """

    def __init__(self, inputs: int) -> None:
        self._first_gate = inputs + 1
        self._operands: list[tuple[int, int]] = []
        self._known: dict[tuple[int, int], int] = {}

    def all_of(self, signals: Iterable[int]) -> int:
        """The AND of some signals; ALWAYS without any."""
        ordered = sorted(set(signals))
        if not ordered:
            return ALWAYS
        result = ordered[0]
        for signal in ordered[1:]:
            result = self.both(result, signal)
        return result

    def any_of(self, signals: Iterable[int]) -> int:
        """The OR of some signals; NEVER without any."""
        return invert(self.all_of(map(invert, signals)))

    def both(self, left: int, right: int) -> int:
        """The AND of two signals."""
        if left > right:
            left, right = right, left
        if left == NEVER or left == invert(right):
            return NEVER
        if left in (ALWAYS, right):
            return right
        gate = self._known.get((left, right))
        if gate is None:
            gate = self._known[left, right] = 2 * (self._first_gate + len(self._operands))
            self._operands.append((left, right))
        return gate

    def instructions(self, outputs: Sequence[int]) -> tuple[npt.NDArray[np.int32], int]:
        """Instructions that compute the signals ``outputs``, shape (instructions, 4), and how many registers they use.

        An instruction (target, left, right, inverted) stores the AND of the signals left and right in register
        ``target``. A negative target means output ~target, which is inverted if ``inverted`` is 1. Signals here have
        numbers of registers instead of nodes. Register 0 holds zeros; the inputs follow. A register is used again
        after the last instruction that reads its gate.
        """
        wanted: dict[int, list[int]] = {}
        for output, signal in enumerate(outputs):
            wanted.setdefault(signal >> 1, []).append(output)
        last_reader = self._last_readers(wanted)
        register = [*range(self._first_gate), *[_NOWHERE] * len(self._operands)]
        free: list[int] = []
        registers = self._first_gate
        instructions: list[tuple[int, int, int, int]] = []

        def put_out(node: int) -> None:
            for output in wanted.get(node, ()):
                instructions.append((~output, register[node] << 1, register[node] << 1, outputs[output] & 1))

        for node in sorted(node for node in wanted if node < self._first_gate):
            put_out(node)
        for node, (left, right) in enumerate(self._operands, self._first_gate):
            last = last_reader[node]
            if last == _NOBODY:
                continue
            placed_left, placed_right = register[left >> 1] << 1 | left & 1, register[right >> 1] << 1 | right & 1
            readers = wanted.get(node, ())
            if last == node and len(readers) == 1:
                instructions.append((~readers[0], placed_left, placed_right, outputs[readers[0]] & 1))
            else:
                if not free:
                    free.append(registers)
                    registers += 1
                register[node] = free.pop()
                instructions.append((register[node], placed_left, placed_right, 0))
                put_out(node)
            for done in (left >> 1, right >> 1, node):
                if last_reader[done] == node and register[done] != _NOWHERE:
                    free.append(register[done])
                    register[done] = _NOWHERE
        flat = np.fromiter(chain.from_iterable(instructions), np.int32, 4 * len(instructions))
        return flat.reshape(-1, 4), registers

    def _last_readers(self, wanted: Iterable[int]) -> list[int]:
        """By node, the last gate that reads it, itself if it is only an output; _NOBODY for inputs and other gates."""
        first = self._first_gate
        last_reader = [_NOBODY] * (first + len(self._operands))
        for node in wanted:
            if node >= first:
                last_reader[node] = node
        for node in range(len(last_reader) - 1, first - 1, -1):
            if last_reader[node] != _NOBODY:
                for signal in self._operands[node - first]:
                    operand = signal >> 1
                    if operand >= first and last_reader[operand] in (_NOBODY, operand):
                        last_reader[operand] = node
        return last_reader


# Axes.


SignalOf = Callable[[Predicate], int]
"""Returns the signal of a leaf (see Gates)."""

_LEAST = -(2**63)
_BEYOND = 2**63


@frozen(eq=False)
class TextAxis:
    """The axis of texts. Of its n classes, n-2 has any other text, and n-1 the messages without the property.

    ``text_classes`` (int32): the class of each of ``texts``, then of any other text, then of a missing property.
    Register ``start + c`` has the messages of class c.
    """

    name: str
    texts: tuple[str, ...]
    text_classes: npt.NDArray[np.int32]
    start: int

    @property
    def missing(self) -> int:
        """The class of messages without the property."""
        return int(self.text_classes[-1])

    @property
    def registers(self) -> int:
        return self.missing + 1

    @classmethod
    def of(cls, name: str, leaves: Iterable[Predicate], start: int) -> TextAxis:
        """Texts that occur in the same leaves share a class."""
        leaves_of: dict[str, list[int]] = defaultdict(list)
        for i, leaf in enumerate(leaves):
            for text in _texts(leaf):
                leaves_of[text].append(i)
        class_of: dict[tuple[int, ...], int] = {}
        classes = [class_of.setdefault(tuple(numbers), len(class_of)) for numbers in leaves_of.values()]
        text_classes = np.array([*classes, len(class_of), len(class_of) + 1], np.int32)
        return cls(name, tuple(leaves_of), text_classes, start)

    def _class_of(self) -> dict[str, int]:
        return dict(zip(self.texts, self.text_classes.tolist(), strict=False))

    def gates(self) -> Callable[[TextIn], int]:
        """Returns the number of gates that a leaf takes, about."""
        class_of = self._class_of()

        def gates_of(leaf: TextIn) -> int:
            count = len({class_of[text] for text in leaf.texts})
            return min(count, self.registers - count)

        return gates_of

    def signal(self, gates: Gates) -> SignalOf:
        """Signals of leaves on this axis: true in the classes of a leaf, or false in the others if these are fewer."""
        class_of = self._class_of()
        everything = range(self.registers)

        def signal_of(leaf: Predicate) -> int:
            if isinstance(leaf, IsPresent):
                return invert(2 * (self.start + everything[-1]))
            classes = {class_of[text] for text in _texts(leaf)}
            if 2 * len(classes) <= len(everything):
                return gates.any_of(2 * (self.start + c) for c in classes)
            return gates.all_of(invert(2 * (self.start + c)) for c in everything if c not in classes)

        return signal_of


@frozen(eq=False)
class NumberAxis:
    """The axis of numbers. Class c holds the numbers in [cuts[c-1], cuts[c]).

    The last class holds the messages without a number of the type; it has no register. ``name`` is None on the axis of
    tags codes. ``cuts`` are int64: integers, or the double_order of doubles. Register ``start + c`` has the messages of
    class c and of all classes before it.
    """

    name: str | None
    type: NumberType
    cuts: npt.NDArray[np.int64]
    start: int

    @property
    def missing(self) -> int:
        """The class of messages without a number."""
        return self.registers

    @property
    def registers(self) -> int:
        return len(self.cuts) + 1

    @classmethod
    def of(cls, name: str | None, type: NumberType, leaves: Iterable[Predicate], start: int) -> NumberAxis:
        """The axis whose cuts are the bounds of all leaves. ``start``: its first register."""
        cuts = {cut for leaf in leaves for bounds in _ranges(leaf) for cut in bounds}
        return cls(name, type, np.array(sorted(cuts - {_LEAST, _BEYOND}), np.int64), start)

    def signal(self, gates: Gates) -> SignalOf:
        """Signals of leaves on this axis: true in the ranges of a leaf."""
        below = {cut: 2 * (self.start + i) for i, cut in enumerate([*self.cuts.tolist(), _BEYOND])}
        below[_LEAST] = NEVER

        def signal_of(leaf: Predicate) -> int:
            ranges = [gates.both(below[upper], invert(below[lower])) for lower, upper in _ranges(leaf)]
            return ranges[0] if len(ranges) == 1 else gates.any_of(ranges)

        return signal_of


Axis = TextAxis | NumberAxis
AxisKey = tuple[str | None, NumberType | None]


def axis_key(leaf: Predicate) -> AxisKey | None:
    """The property and type of a leaf's axis; None for a leaf that has no axis."""
    match leaf:
        case NumberIs(name=name, type=type) | IsNumber(name=name, type=type):
            return name, type
        case TextIn(name=name) | IsPresent(name=name) | IsTrueText(name=name):
            return name, None
        case TagsCodeIn():
            return None, NumberType.INT
    return None


def axis_of(key: AxisKey, leaves: Sequence[Predicate], start: int) -> Axis:
    """The axis of all leaves with this :func:`axis_key`. ``start``: its first register."""
    name, type = key
    if type is not None:
        return NumberAxis.of(name, type, leaves, start)
    assert name is not None
    return TextAxis.of(name, leaves, start)


def _texts(leaf: Predicate) -> frozenset[str]:
    """The texts for which a leaf is true. IsPresent has none."""
    match leaf:
        case TextIn(texts=texts):
            return texts
        case IsTrueText():
            return TRUE_TEXTS
    return frozenset()


def _ranges(leaf: Predicate) -> list[tuple[int, int]]:
    """The numbers for which a leaf is true, as half-open ranges of int64."""
    if isinstance(leaf, TagsCodeIn):
        return [(code, code + 1) for code in leaf.codes]
    if not isinstance(leaf, NumberIs):
        return [(_LEAST, _BEYOND)]
    value = double_order(leaf.value) if leaf.type is NumberType.DOUBLE else int(leaf.value)
    first, after = min(max(value, _LEAST), _BEYOND), min(max(value + 1, _LEAST), _BEYOND)
    match leaf.comparison:
        case Comparison.EQUAL:
            return [(first, after)]
        case Comparison.LESS:
            return [(_LEAST, first)]
        case Comparison.LESS_OR_EQUAL:
            return [(_LEAST, after)]
        case Comparison.GREATER:
            return [(after, _BEYOND)]
        case Comparison.GREATER_OR_EQUAL:
            return [(first, _BEYOND)]


_COMBINATIONS = (And, Or, Not, Constant)
"""The nodes that are no leaves."""
MOST_GATES = 64
"""A list of texts that would take more gates is a leaf without an axis. Few lists overlap so much."""


@frozen(eq=False)
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
        if isinstance(node, _COMBINATIONS):
            continue
        if (key := axis_key(node)) is not None:
            by_axis[key].append(node)
        else:
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
    signal_of = {leaf: signal_on[key] for key, leaves in on_axes.items() for leaf in leaves}
    signals = _signals(nodes, gates, signal_of, {leaf: 2 * (start + i) for i, leaf in enumerate(singles)})
    instructions, registers = gates.instructions([signals[predicate] for predicate in predicates])
    return Program(tuple(axes.values()), tuple(singles), instructions, registers, len(predicates))


def _long_lists(leaves: Sequence[Predicate]) -> list[Predicate]:
    """The lists of texts among the leaves of one axis that would take too many gates."""
    if not any(isinstance(leaf, TextIn) and len(leaf.texts) > MOST_GATES for leaf in leaves):
        return []
    gates_of = TextAxis.of("", leaves, 0).gates()
    return [leaf for leaf in leaves if isinstance(leaf, TextIn) and gates_of(leaf) > MOST_GATES]


def _signals(
    nodes: Sequence[Predicate], gates: Gates, signal_of: dict[Predicate, SignalOf], single: dict[Predicate, int]
) -> dict[Predicate, int]:
    """The signal of each node. ``signal_of``: for each leaf on an axis, what returns its signal."""
    signals = dict(single)
    for node in nodes:
        match node:
            case Not(operand=operand):
                signals[node] = invert(signals[operand])
            case And(terms=terms):
                signals[node] = gates.all_of([signals[term] for term in terms])
            case Or(terms=terms):
                signals[node] = gates.any_of([signals[term] for term in terms])
            case Constant(value=value):
                signals[node] = ALWAYS if value else NEVER
            case _ if node not in single:
                signals[node] = signal_of[node](node)
    return signals
