"""The numbers of a column, as Java parses and orders them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from filtering.matcher.column import Column
from filtering.matcher.kernels import kernels
from filtering.predicate import NumberType
from filtering.predicate_value import order, parse


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
    parsed = [parse(type, text) for text in distinct.dictionary.to_pylist()]
    values = np.array([0 if number is None else order(type, number) for number in parsed], np.int64)
    is_number = np.array([number is not None for number in parsed], np.bool_)
    indices = distinct.indices.to_numpy()
    return values[indices], is_number[indices]
