"""Converts rows of the files of commitlog to the form that readers see, without a Spark session."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.commitlog import IPV6_STORE_HOST, NAME_SEPARATOR, NAMED_PROPERTIES, SLOTS, VIEW

PROPERTIES = pa.map_(pa.string(), pa.string())
NEEDED_FOR = {
    "properties": ("property_names", *SLOTS, *NAMED_PROPERTIES.values(), "more_properties"),
    "msg_id": ("msg_id", "msg_id_host", "commitlog_offset", "sys_flag"),
    "body_crc": ("body_crc", "body"),
}
"""The columns of the files from which a column of the view is computed, if it is not just the one of its name."""


def file_columns(columns: Sequence[str]) -> list[str]:
    """The columns of the files that some columns of the view need."""
    return list(dict.fromkeys(needed for name in columns for needed in NEEDED_FOR.get(name, (name,))))


def view(rows: pa.Table, columns: Sequence[str] = VIEW) -> pa.Table:
    """The rows in the form that readers see.

    ``rows`` has the columns that :func:`file_columns` names. ``columns`` are of VIEW.
    """
    computed = {"properties": properties, "msg_id": _msg_ids, "body_crc": _body_crcs}
    arrays = [computed[name](rows) if name in computed else rows[name] for name in columns]
    return pa.table(arrays, names=list(columns))


def properties(rows: pa.Table) -> pa.MapArray:
    """The properties of each message, null if its record has none."""
    count = len(rows)
    shapes = rows["property_names"].combine_chunks().dictionary_encode()
    names_of_shape = [text.split(NAME_SEPARATOR) for text in shapes.dictionary.to_pylist()]
    shape_of = shapes.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    texts: list[pa.Array] = []
    parts: list[np.ndarray] = []
    names: list[np.ndarray] = []
    number = {
        name: i for i, name in enumerate(dict.fromkeys([*NAMED_PROPERTIES, *chain.from_iterable(names_of_shape)]))
    }
    for slot, column in enumerate([*NAMED_PROPERTIES.values(), *SLOTS]):
        values = rows[column].combine_chunks()
        present = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False) & (shape_of >= 0))
        if not len(present):
            continue
        if slot < len(NAMED_PROPERTIES):
            name_of_row = np.full(len(present), slot)
        else:
            place = slot - len(NAMED_PROPERTIES)
            numbers = [number[found[place]] if place < len(found) else -1 for found in names_of_shape]
            name_of_row = np.array(numbers)[shape_of[present]]
        texts.append(values.take(pa.array(present)))
        parts.append(present)
        names.append(name_of_row)
    keys = list(number)
    others = rows["more_properties"].combine_chunks()
    with_others = np.flatnonzero(others.is_valid().to_numpy(zero_copy_only=False)).tolist()
    if with_others:
        # Numba, which reading and checksums of logs need, takes longer to import than most questions to answer.
        from schemas.rocketmq_store.property_columns import message_properties
    for row in with_others:
        for name, value in message_properties(others[row].as_py()).items():
            texts.append(pa.array([value], pa.string()))
            parts.append(np.array([row]))
            names.append(np.array([len(keys)]))
            keys.append(name)
    row_of = np.concatenate([np.empty(0, np.int64), *parts])
    name_of = np.concatenate([np.empty(0, np.int64), *names])
    order = np.argsort(row_of, kind="stable")
    lengths = np.bincount(row_of, minlength=count) if count else np.empty(0, np.int64)
    offsets = pa.array(np.append(0, np.cumsum(lengths)).astype(np.int32))
    values = pa.concat_arrays([pa.array([], pa.string()), *texts]).take(pa.array(order))
    named = pa.array(keys, pa.string()).take(pa.array(name_of[order]))
    valid = pa.py_buffer(np.packbits(shape_of >= 0, bitorder="little"))
    entries = pa.StructArray.from_arrays([named, values], fields=[PROPERTIES.key_field, PROPERTIES.item_field])
    return pa.Array.from_buffers(PROPERTIES, count, [valid, offsets.buffers()[1]], children=[entries])


def _msg_ids(rows: pa.Table) -> pa.Array:
    """MessageDecoder.createMessageId; RocketMQ leaves zeros behind an IPv4 address in the place of an IPv6 one."""
    columns = (rows[name].to_pylist() for name in NEEDED_FOR["msg_id"])
    computed = [
        given if host is None else f"{host}{offset:016X}".ljust(56 if flag & IPV6_STORE_HOST else 32, "0")
        for given, host, offset, flag in zip(*columns, strict=True)
    ]
    return pa.array(computed, pa.string())


def _body_crcs(rows: pa.Table) -> pa.Array:
    claimed = rows["body_crc"].combine_chunks()
    if not claimed.null_count:
        return claimed
    from schemas.rocketmq_store.crc import crc_of

    computed = [None if body is None else crc_of(body) for body in rows["body"].to_pylist()]
    return pc.coalesce(claimed, pa.array(computed, pa.int32()))
