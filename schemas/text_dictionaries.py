"""Columns of few distinct texts, as Arrow dictionaries: Parquet's writer does not hash their rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa


def chosen(texts: pa.StringArray, numbers: pa.Int32Array) -> pa.DictionaryArray:
    """The text of each number, null where the number is."""
    return pa.DictionaryArray.from_arrays(numbers, texts)


def repeated(text: str, rows: int) -> pa.DictionaryArray:
    """One text for all rows."""
    return chosen(pa.array([text]), pa.array(np.zeros(rows, np.int32)))
