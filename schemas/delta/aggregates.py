"""Sums and extremes of columns by group."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Key = tuple[Any, ...]


def group_numbers(rows: pa.Table, by: Sequence[str]) -> tuple[list[Key], NDArray[np.int64]]:
    """The distinct values of some columns, and for each row the index of its values."""
    codes = np.zeros(len(rows), np.int64)
    dictionaries = []
    for name in by:
        encoded = rows[name].combine_chunks().dictionary_encode(null_encoding="encode")
        dictionaries.append(encoded.dictionary.to_pylist())
        codes = codes * max(1, len(dictionaries[-1])) + encoded.indices.to_numpy()
    distinct, numbers = np.unique(codes, return_inverse=True)
    keys = []
    for code in distinct.tolist():
        parts = []
        for dictionary in reversed(dictionaries):
            code, at = divmod(code, max(1, len(dictionary)))
            parts.append(dictionary[at])
        keys.append(tuple(reversed(parts)))
    return keys, numbers.reshape(-1)


def sums(rows: pa.Table, by: Sequence[str], columns: Sequence[str]) -> dict[Key, dict[str, int]]:
    """By the values of ``by``, the sums of some integer columns."""
    keys, numbers = group_numbers(rows, by)
    totals = {}
    for name in columns:
        total = np.zeros(len(keys), np.int64)
        np.add.at(total, numbers, rows[name].to_numpy())
        totals[name] = total.tolist()
    return {key: {name: totals[name][i] for name in columns} for i, key in enumerate(keys)}


def sums_of_parts(parts: Iterable[pa.Table], by: Sequence[str], columns: Sequence[str]) -> dict[Key, dict[str, int]]:
    """The same of rows that come in parts, of which only one is in memory."""
    totals: dict[Key, dict[str, int]] = {}
    for part in parts:
        for key, more in sums(part, by, columns).items():
            known = totals.setdefault(key, more)
            if known is not more:
                for name in columns:
                    known[name] += more[name]
    return totals


def greatest(rows: pa.Table, by: Sequence[str], column: str) -> dict[Key, int]:
    """By the values of ``by``, the greatest value of an integer column."""
    return _extremes(rows, by, column, np.maximum, np.iinfo(np.int64).min)


def least(rows: pa.Table, by: Sequence[str], column: str) -> dict[Key, int]:
    """By the values of ``by``, the least value of an integer column."""
    return _extremes(rows, by, column, np.minimum, np.iinfo(np.int64).max)


def _extremes(rows: pa.Table, by: Sequence[str], column: str, chosen: np.ufunc, first: int) -> dict[Key, int]:
    keys, numbers = group_numbers(rows, by)
    found = np.full(len(keys), first)
    chosen.at(found, numbers, rows[column].to_numpy())
    return dict(zip(keys, found.tolist(), strict=True))
