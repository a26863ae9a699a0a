"""The numbers of a column, as Java reads and orders them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from filtering.java.numbers import double_order, parse_double, parse_int, parse_long
from filtering.matcher import kernels
from filtering.matcher.column import Column
from filtering.matcher.kernels import in_numpy
from filtering.predicate import NumberType


def numbers(column: Column, type: NumberType) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Each message's number (an integer, or the double_order of a double), and whether it has one."""
    if column.positions is not None and len(column.texts) <= len(column.positions):
        values, is_number = numbers(Column(column.texts), type)
        return np.append(values, 0)[column.positions], np.append(is_number, False)[column.positions]
    values, is_number, odd = kernels.backend.plain_numbers(column, type)
    if odd.any():
        rows = np.flatnonzero(odd)
        distinct = column.text_of_each().take(pa.array(rows)).dictionary_encode()
        odd_values, odd_is_number = _odd_numbers(distinct.dictionary, type)
        each = distinct.indices.to_numpy()
        values[rows], is_number[rows] = odd_values[each], odd_is_number[each]
    return values, is_number


def _odd_numbers(texts: pa.StringArray, type: NumberType) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    values, is_number, odd = in_numpy.plain_numbers(Column(texts), type)
    for i in np.flatnonzero(odd).tolist():
        number = _parse(texts[i].as_py(), type)
        values[i], is_number[i] = number or 0, number is not None
    return values, is_number


def _parse(text: str, type: NumberType) -> int | None:
    match type:
        case NumberType.INT:
            return parse_int(text)
        case NumberType.LONG:
            return parse_long(text)
        case NumberType.DOUBLE:
            value = parse_double(text)
            return None if value is None else double_order(value)
