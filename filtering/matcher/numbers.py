"""The numbers of a column, as Java parses and orders them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from filtering.matcher.column import Column
from filtering.matcher.kernels import kernels
from filtering.predicate import NumberType
from filtering.predicate_value import order, parse

_ALIKE = r"^-?[0-9]{1,99}(\.[0-9]{1,99})?([eE]-?[0-9]{1,2})?$"
"""Doubles that Arrow parses like Java."""


def numbers(column: Column, type: NumberType) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """The number of each message (an integer, or the double_order of a double), and whether it has one."""
    asked = column.asked
    values, is_number, odd = kernels.most_numbers(asked, type)
    if len(odd):
        values[odd], is_number[odd] = _odd_numbers(asked, odd, type)
    return column.spread(values, 0), column.spread(is_number, False)


def number_classes(column: Column, type: NumberType, index: Any) -> npt.NDArray[np.int32]:
    """The class of each message's number. ``index``: kernels.index_cuts."""
    classes, odd = kernels.most_number_classes(column, type, index)
    if len(odd):
        classes[odd] = kernels.number_classes(*_odd_numbers(column, odd, type), index)
    return classes


def _odd_numbers(
    column: Column, rows: npt.NDArray[np.int64], type: NumberType
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """The numbers of some rows whose texts the kernels leave."""
    distinct = column.text_of_each().take(pa.array(rows)).dictionary_encode()
    values, is_number = _numbers_of_texts(distinct.dictionary, type)
    indices = distinct.indices.to_numpy()
    return values[indices], is_number[indices]


def _numbers_of_texts(texts: pa.StringArray, type: NumberType) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Arrow parses most doubles; other texts are parsed one by one."""
    values, is_number = np.zeros(len(texts), np.int64), np.zeros(len(texts), np.bool_)
    if type is NumberType.DOUBLE:
        alike = pc.match_substring_regex(texts, _ALIKE)
        is_number = alike.to_numpy(zero_copy_only=False).copy()
        values[is_number] = _order_of_doubles(texts.filter(alike).cast(pa.float64()).to_numpy())
    for i in np.flatnonzero(~is_number).tolist():
        number = parse(type, texts[i].as_py())
        if number is not None:
            values[i], is_number[i] = order(type, number), True
    return values, is_number


def _order_of_doubles(values: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """double_order of doubles that are not NaN."""
    bits = values.view(np.int64)
    return np.where(bits >= 0, bits, bits ^ np.int64(2**63 - 1))
