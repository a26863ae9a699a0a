"""The messages of a broker's commitlog, one row per message, as stored.

Readers see the columns of :func:`read`. The files store less: they leave out values that follow from others, and split
the properties into columns. ``property_names`` lists the names of a message's topic, joined by U+0001, and
``property_0`` … have the values in that order. Columns with one kind of value take half the space of a text with
all of them, and a filter reads only the columns of the properties that it names. Properties without a column are in
``more_properties``, in RocketMQ's own form: name U+0001 value U+0002 name …
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from schemas.delta.table import Table, column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from schemas.delta.warehouse import Warehouse

PROPERTY_COLUMNS = 24
"""Columns for properties other than those in NAMED_PROPERTIES."""
NAMED_PROPERTIES = {"TAGS": "tags", "KEYS": "keys", "UNIQ_KEY": "uniq_key"}
"""Properties that most messages have, and their columns."""
SLOTS = tuple(f"property_{i}" for i in range(PROPERTY_COLUMNS))
NAME_SEPARATOR = "\u0001"

COMMITLOG = Table(
    "commitlog",
    "The messages of brokers' commitlogs, as stored. Key: broker_name, commitlog_offset.",
    [
        column("broker_name", pa.string(), "brokerName of broker.conf", nullable=False),
        column("commitlog_offset", pa.int64(), "physical offset of the record in the log, bytes", nullable=False),
        column("topic", pa.string(), nullable=False),
        column("queue_id", pa.int32(), nullable=False),
        column("queue_offset", pa.int64(), "index in the consume queue", nullable=False),
        column("store_size", pa.int32(), "bytes of the whole record", nullable=False),
        column("tags", pa.string(), "property TAGS"),
        column("keys", pa.string(), "property KEYS"),
        column("uniq_key", pa.string(), "property UNIQ_KEY, which RocketMQ's clients call the message id"),
        column("property_names", pa.string(), "names of property_0 …, joined by U+0001; null if there are none"),
        *(column(name, pa.string(), "values of the properties that property_names lists") for name in SLOTS),
        column("more_properties", pa.string(), "the other properties: name U+0001 value U+0002 name …"),
        column("born_timestamp", pa.int64(), "ms since the epoch, producer clock"),
        column("store_timestamp", pa.int64(), "ms since the epoch, broker clock", nullable=False),
        column(
            "sys_flag",
            pa.int32(),
            "0x1 compressed, 0x700 kind, 0xC transaction, 0x10 IPv6 born host, 0x20 IPv6 store host",
        ),
        column("flag", pa.int32(), "as set by the producer"),
        column("body_crc", pa.int32(), "CRC-32 of the body in the record; null if it is that of the stored body"),
        column("reconsume_times", pa.int32(), "how often a consumer sent the message back"),
        column("prepared_transaction_offset", pa.int64(), "of the record; set in transactions"),
        column("born_host", pa.string(), "address and port of the producer"),
        column("store_host", pa.string(), "address and port of the broker"),
        column("msg_id_host", pa.string(), "first part of msg_id: store host and port in upper-case hex"),
        column("msg_id", pa.string(), "given msg_id of an imported message; null if it follows from the row"),
        column("magic_code", pa.int32(), "V1 -626843481, V2 -626843477"),
        column("body_length", pa.int32(), "bytes of the body as stored"),
        column("body_is_damaged", pa.bool_(), "crc32 of the body is not body_crc"),
        column("body", pa.binary(), "as stored: compressed if sys_flag says so; null if it was not kept"),
        column("store_date", pa.date32(), "day of store_timestamp, UTC"),
        column("run", pa.string(), "the run that read the message", nullable=False),
    ],
    constraints={"offset_not_negative": "commitlog_offset >= 0", "size_positive": "store_size > 0"},
    statistics_on=("commitlog_offset", "topic", "queue_offset", "store_timestamp", "run"),
    dictionary_encoded=(
        "topic", "queue_id", "store_size", "tags", "keys", "property_names", *SLOTS, "sys_flag", "flag",
        "reconsume_times", "prepared_transaction_offset", "born_host", "store_host", "msg_id_host", "magic_code",
        "body_length", "body_is_damaged", "store_date", "run",
    ),
    delta_encoded=("commitlog_offset", "queue_offset", "born_timestamp", "store_timestamp"),
    bloom_filtered=("uniq_key",),
)  # fmt: skip


VIEW = (
    "broker_name", "commitlog_offset", "topic", "queue_id", "queue_offset", "store_size", "msg_id", "tags", "keys",
    "properties", "born_timestamp", "store_timestamp", "sys_flag", "flag", "body_crc", "reconsume_times",
    "prepared_transaction_offset", "born_host", "store_host", "magic_code", "body_length", "body_is_damaged", "body",
    "uniq_key", "store_date", "run",
)  # fmt: skip
"""The columns that readers see: those of the files, except the ones that properties are split into, and instead of
them ``msg_id`` (upper-case hex of store host, port and physical offset), ``properties`` (map of strings, null if the
record has none) and ``body_crc`` as in the record."""

VIEW_COMMENTS = {
    "properties": "all properties of the message, TAGS, KEYS and UNIQ_KEY among them; null if its record has none",
    "msg_id": "upper-case hex of store host, port and physical offset; of a message log, what it gives",
    "body_crc": "CRC-32 of the body, as in the record",
}
"""What those columns are that the files have in another form."""


def read(spark: SparkSession, warehouse: Warehouse) -> DataFrame:
    """The messages as a DataFrame, with the columns of VIEW."""
    from schemas.spark_views import messages

    return messages(warehouse.read(spark, COMMITLOG))


# The rows of its files as readers see them, without a Spark session.


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
    used = {stored for stored in (*NAMED_PROPERTIES.values(), *SLOTS) if rows[stored].null_count < len(rows)}
    for name, stored in NAMED_PROPERTIES.items():
        if stored not in used:
            continue
        present, texts = _present(rows[stored], shape_of)
        pairs.add(present, np.full(len(present), pairs.number(name)), texts)
    for slot, stored in enumerate(SLOTS):
        if stored not in used:
            continue
        present, texts = _present(rows[stored], shape_of)
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
    from schemas.rocketmq_store.message_decoder import message_ids

    given, hosts, offsets, sys_flags = (rows[name] for name in NEEDED_FOR["msg_id"])
    return pc.coalesce(message_ids(hosts, offsets.to_numpy(), sys_flags.fill_null(0).to_numpy()), given)


def _body_crcs(rows: pa.Table) -> pa.Array:
    claimed = rows["body_crc"].combine_chunks()
    if not claimed.null_count:
        return claimed
    from schemas.rocketmq_store.commitlog_walk import crc_of

    computed = [None if body is None else crc_of(body) for body in rows["body"].to_pylist()]
    return pc.coalesce(claimed, pa.array(computed, pa.int32()))
