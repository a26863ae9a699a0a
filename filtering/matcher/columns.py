"""Reads the properties of a batch of messages from different Arrow layouts."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from filtering.matcher.column import Column
from filtering.matcher.kernels import kernels

_TEXTS = (pa.string(), pa.large_string(), pa.string_view(), pa.null())


def columns(properties: pa.RecordBatch | pa.Array, names: tuple[str, ...]) -> dict[str, Column]:
    """The columns of the properties ``names`` that the batch has. Raises TypeError for another kind of batch."""
    if isinstance(properties, pa.MapArray):
        return _of_map(properties, names)
    if isinstance(properties, pa.StructArray):
        properties = pa.RecordBatch.from_arrays(properties.flatten(), properties.type.names)
    if not isinstance(properties, pa.RecordBatch):
        raise TypeError(f"properties must be a RecordBatch, StructArray or MapArray, not {type(properties).__name__}.")
    present = set(properties.schema.names)
    return {name: _column(properties.column(name), name) for name in names if name in present}


def _column(array: pa.Array, name: str) -> Column:
    if not pa.types.is_dictionary(array.type):
        return Column(_strings(array, name))
    if len(array.dictionary) > len(array):
        return Column(_strings(array.dictionary_decode(), name))
    return Column(_strings(array.dictionary, name), array.indices.cast(pa.int32()).fill_null(-1).to_numpy())


def _strings(array: pa.Array, name: str) -> pa.StringArray:
    """The texts, or only nulls. Raises TypeError for other types: the text of a number is not known."""
    type_ = array.type.value_type if pa.types.is_dictionary(array.type) else array.type
    if type_ not in _TEXTS:
        raise TypeError(f"properties are texts: {name} has the type {type_}")
    return array if array.type == pa.string() else array.cast(pa.string())


def _of_map(properties: pa.MapArray, names: tuple[str, ...]) -> dict[str, Column]:
    # A slice of a MapArray has its own offsets, but all keys and items of the original array.
    offsets = properties.offsets.to_numpy()
    first, last = int(offsets[0]), int(offsets[-1])
    keys = _strings(properties.keys.slice(first, last - first), "a key of the map")
    items = _strings(properties.items.slice(first, last - first), "an item of the map")
    numbers = np.arange(len(names) + 2, dtype=np.int32)
    name_of = kernels.find_texts(Column(keys), kernels.index_texts(names, numbers))
    positions = kernels.pivot(name_of, offsets - first, len(names))
    if properties.null_count:
        positions[:, properties.is_null().to_numpy(zero_copy_only=False)] = -1
    return {name: Column(items, positions[i]) for i, name in enumerate(names)}
