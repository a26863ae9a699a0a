"""Evaluates the leaves of a program on a batch of messages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from filtering.matcher import numbers
from filtering.matcher.axes import NumberAxis, TextAxis
from filtering.matcher.column import Column
from filtering.matcher.kernels import kernels
from filtering.matcher.packed_bits import Words
from filtering.matcher.text_search import TextSearch
from filtering.predicate import DoublesCompare, NumberType, PropertyPairLeaf, TextsEqual
from filtering.predicate_value import COMPARE

Bools = npt.NDArray[np.bool_]


def text_classes(axis: TextAxis, column: Column | None, index: Any, rows: int) -> npt.NDArray[np.int32]:
    """The class of each message on ``axis``. ``index``: kernels.index_texts of the axis."""
    if column is None:
        return np.full(rows, axis.text_classes[-1])
    return column.answer(lambda texts: kernels.find_texts(texts, index), axis.registers - 1)


def number_classes(axis: NumberAxis, column: Column | None, index: Any, rows: int) -> npt.NDArray[np.int32]:
    """The class of each message on ``axis``. ``index``: kernels.index_cuts of the axis."""
    if column is None:
        return np.full(rows, axis.registers, np.int32)
    return column.answer(lambda texts: numbers.number_classes(texts, axis.type, index), axis.registers)


def tags_code_classes(
    axis: NumberAxis, tags_code: pa.Int64Array | None, index: Any, rows: int
) -> npt.NDArray[np.int32]:
    """The class of each message on the axis of tags codes. The broker compares their lower 32 bits."""
    if tags_code is None:
        return np.full(rows, axis.registers, np.int32)
    cut = tags_code.fill_null(0).to_numpy().astype(np.int32).astype(np.int64)
    return kernels.number_classes(cut, tags_code.is_valid().to_numpy(zero_copy_only=False), index)


def searches(search: TextSearch, column: Column) -> Words:
    """For each leaf of a search, the messages for which it is true: packed bits, shape (leaves, words)."""
    asked = column.asked
    found = search.holds(asked)
    if asked is column:
        return found
    assert column.positions is not None
    return kernels.spread(found, len(asked), column.positions)


def pairs(pair_leaves: Iterable[PropertyPairLeaf], columns: Mapping[str, Column]) -> Iterator[Bools | None]:
    """The messages for which each leaf about two properties is true; None: no message. Each property is read once."""
    texts = cache(lambda name: columns[name].text_of_each())
    doubles = cache(lambda name: numbers.numbers(columns[name], NumberType.DOUBLE))
    for leaf in pair_leaves:
        if leaf.left not in columns or leaf.right not in columns:
            yield None
            continue
        match leaf:
            case TextsEqual():
                yield _true(pc.equal(texts(leaf.left), texts(leaf.right)))
            case DoublesCompare(comparison=comparison):
                (left, is_left), (right, is_right) = doubles(leaf.left), doubles(leaf.right)
                yield np.asarray(COMPARE[comparison](left, right)) & is_left & is_right
            case _:
                raise TypeError(f"There is no leaf {type(leaf).__name__} in a predicate.")


def _true(array: pa.BooleanArray) -> Bools:
    result: Bools = array.fill_null(False).to_numpy(zero_copy_only=False)
    return result
