"""Axes: they divide messages into classes, so that a leaf of a predicate is a set of classes.

All leaves that read one property as one type share an axis. The axis puts each message into one class, so that a leaf
is true for all messages of a class or for none. Classes are the texts in leaves, or the intervals between the numbers
in leaves.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from filtering.java.numbers import double_order
from filtering.matcher.gates import NEVER, Gates, invert
from filtering.predicate import (
    TRUE_TEXTS,
    Comparison,
    IsNumber,
    IsPresent,
    IsTrueText,
    NumberIs,
    NumberType,
    Predicate,
    TagsCodeIn,
    TextIn,
)

Signal = Callable[[Predicate], int]
"""Returns the signal of a leaf (see :mod:`filtering.matcher.gates`)."""

_LEAST = -(2**63)
_BEYOND = 2**63


@dataclass(frozen=True, eq=False)
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
    def registers(self) -> int:
        return int(self.text_classes[-1]) + 1

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

    def gates(self) -> Callable[[TextIn], int]:
        """Returns the number of gates that a leaf takes, about."""
        class_of = dict(zip(self.texts, self.text_classes.tolist(), strict=False))

        def gates_of(leaf: TextIn) -> int:
            chosen = len({class_of[text] for text in leaf.texts})
            return min(chosen, self.registers - chosen)

        return gates_of

    def signal(self, gates: Gates) -> Signal:
        """Signals of leaves on this axis: true in the classes of a leaf, or false in the others if these are fewer."""
        class_of = dict(zip(self.texts, self.text_classes.tolist(), strict=False))
        everything = range(self.registers)

        def signal_of(leaf: Predicate) -> int:
            if isinstance(leaf, IsPresent):
                return invert(2 * (self.start + everything[-1]))
            chosen = {class_of[text] for text in _texts(leaf)}
            if 2 * len(chosen) <= len(everything):
                return gates.any_of(2 * (self.start + c) for c in chosen)
            return gates.all_of(invert(2 * (self.start + c)) for c in everything if c not in chosen)

        return signal_of


@dataclass(frozen=True, eq=False)
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
    def registers(self) -> int:
        return len(self.cuts) + 1

    @classmethod
    def of(cls, name: str | None, type: NumberType, leaves: Iterable[Predicate], start: int) -> NumberAxis:
        """The axis whose cuts are the bounds of all leaves. ``start``: its first register."""
        cuts = {cut for leaf in leaves for bounds in _ranges(leaf) for cut in bounds}
        return cls(name, type, np.array(sorted(cuts - {_LEAST, _BEYOND}), np.int64), start)

    def signal(self, gates: Gates) -> Signal:
        """Signals of leaves on this axis: true in the ranges of a leaf."""
        below = {cut: 2 * (self.start + i) for i, cut in enumerate([*self.cuts.tolist(), _BEYOND])}
        below[_LEAST] = NEVER

        def signal_of(leaf: Predicate) -> int:
            return gates.any_of(gates.all_of((below[upper], invert(below[lower]))) for lower, upper in _ranges(leaf))

        return signal_of


Axis = TextAxis | NumberAxis
AxisKey = tuple[str | None, NumberType | None]


def axis_key(leaf: Predicate) -> AxisKey | None:
    """The property and type of a leaf's axis; None for a leaf that has no axis."""
    match leaf:
        case IsPresent(name=name) | TextIn(name=name) | IsTrueText(name=name):
            return name, None
        case IsNumber(name=name, type=type) | NumberIs(name=name, type=type):
            return name, type
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
    first, after = (min(max(cut, _LEAST), _BEYOND) for cut in (value, value + 1))
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
