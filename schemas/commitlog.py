"""The messages of a broker's commitlog, one row per message, as stored.

Readers see the columns of :func:`read`. The files store less: they leave out values that follow from others, and split
the properties into columns. ``property_names`` lists the names of a message's topic, joined by U+0001, and
``property_0`` … have the values in that order. Columns with one kind of value take half the space of a text with
all of them, and a filter reads only the columns of the properties that it names. Properties without a column are in
``more_properties``, in RocketMQ's own form: name U+0001 value U+0002 name …
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

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
IPV6_STORE_HOST = 0x20

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
