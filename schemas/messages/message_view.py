"""Rows of the files of commitlog in the form that readers see, without a Spark session."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from schemas.commitlog import IPV6_STORE_HOST, NAME_SEPARATOR, NAMED_PROPERTIES, SLOTS, VIEW
from schemas.delta.table_rows import tuples

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
    shapes = rows["property_names"].combine_chunks().dictionary_encode()
    names_of_shape = [text.split(NAME_SEPARATOR) for text in shapes.dictionary.to_pylist()]
    shape_of = shapes.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    pairs = _Pairs()
    used = {column for column in (*NAMED_PROPERTIES.values(), *SLOTS) if rows[column].null_count < len(rows)}
    for name, column in NAMED_PROPERTIES.items():
        if column not in used:
            continue
        present, texts = _present(rows[column], shape_of)
        pairs.add(present, np.full(len(present), pairs.number(name)), texts)
    for slot, column in enumerate(SLOTS):
        if column not in used:
            continue
        present, texts = _present(rows[column], shape_of)
        numbers = [pairs.number(names[slot]) if slot < len(names) else -1 for names in names_of_shape]
        pairs.add(present, np.array(numbers, np.int64)[shape_of[present]], texts)
    others = rows["more_properties"].combine_chunks()
    with_others = np.flatnonzero(others.is_valid().to_numpy(zero_copy_only=False)).tolist()
    if with_others:
        # Numba, which reading and checksums of logs need, takes longer to import than most questions to answer.
        from schemas.rocketmq_store.properties import message_properties
    for row in with_others:
        more = message_properties(others[row].as_py())
        numbers = [pairs.number(name) for name in more]
        pairs.add(np.full(len(more), row), np.array(numbers, np.int64), pa.array(list(more.values()), pa.string()))
    return pairs.maps(len(rows), shape_of >= 0)


def _present(column: pa.ChunkedArray, shape_of: NDArray[np.int64]) -> tuple[NDArray[np.int64], pa.StringArray]:
    """The rows of messages that have properties and a value in a column, and those values."""
    values = column.combine_chunks()
    present = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False) & (shape_of >= 0))
    return present, values.take(pa.array(present))


class _Pairs:
    """Names and values of properties, of the messages in some rows."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._rows = [np.empty(0, np.int64)]
        self._names = [np.empty(0, np.int64)]
        self._texts = [pa.array([], pa.string())]

    def number(self, name: str) -> int:
        """The number that stands for a name."""
        return self._numbers.setdefault(name, len(self._numbers))

    def add(self, rows: NDArray[np.int64], names: NDArray[np.int64], texts: pa.StringArray) -> None:
        """Adds a pair for each row. ``names`` are numbers."""
        self._rows.append(rows)
        self._names.append(names)
        self._texts.append(texts)

    def maps(self, count: int, valid: NDArray[np.bool_]) -> pa.MapArray:
        """A map for each of ``count`` rows, with its pairs in the order in which they were added; null if not valid."""
        row_of = np.concatenate(self._rows)
        order = np.argsort(row_of, kind="stable")
        lengths = np.bincount(row_of, minlength=count) if count else np.empty(0, np.int64)
        offsets = pa.array(np.append(0, np.cumsum(lengths)).astype(np.int32))
        names = pa.array(list(self._numbers), pa.string()).take(pa.array(np.concatenate(self._names)[order]))
        texts = pa.concat_arrays(self._texts).take(pa.array(order))
        entries = pa.StructArray.from_arrays([names, texts], fields=[PROPERTIES.key_field, PROPERTIES.item_field])
        validity = pa.py_buffer(np.packbits(valid, bitorder="little"))
        return pa.Array.from_buffers(PROPERTIES, count, [validity, offsets.buffers()[1]], children=[entries])


def _msg_ids(rows: pa.Table) -> pa.Array:
    """MessageDecoder.createMessageId; RocketMQ leaves zeros behind an IPv4 address in the place of an IPv6 one."""
    computed = [
        given if host is None else f"{host}{offset:016X}".ljust(56 if flag & IPV6_STORE_HOST else 32, "0")
        for given, host, offset, flag in tuples(rows, *NEEDED_FOR["msg_id"])
    ]
    return pa.array(computed, pa.string())


def _body_crcs(rows: pa.Table) -> pa.Array:
    claimed = rows["body_crc"].combine_chunks()
    if not claimed.null_count:
        return claimed
    from schemas.rocketmq_store.commitlog_walk import crc_of

    computed = [None if body is None else crc_of(body) for body in rows["body"].to_pylist()]
    return pc.coalesce(claimed, pa.array(computed, pa.int32()))
