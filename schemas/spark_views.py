"""Spark SQL for tables whose files store less than readers see, or store it differently: messages and deliveries.

The same texts are DataFrames (:func:`messages`, :func:`pairs`), and views in a schema of a Spark catalog
(:func:`register_tables`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pyarrow as pa

from schemas.commitlog import COMMITLOG, NAMED_PROPERTIES, SLOTS, VIEW, VIEW_COMMENTS
from schemas.deliveries import DELIVERY_BLOCKS, DELIVERY_COLUMNS, PLANNED
from schemas.delta.warehouse import Warehouse
from schemas.errors import WarehouseUnusable
from schemas.rocketmq_store.record_layout import STORE_HOST_V6
from schemas.run_ledger import RUN_LEDGER
from schemas.storage import Storage, spark_path
from schemas.tables import TABLES, TIMES, UTC_SUFFIX

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NAMES = "split(property_names, chr(1))"
_NAMED = ", ".join(f"'{name}', {column}" for name, column in NAMED_PROPERTIES.items())
_PROPERTIES = f"""if(property_names IS NULL, NULL, map_concat(
    map_filter(
      map_concat(map_from_arrays({_NAMES}, slice(array({", ".join(SLOTS)}), 1, size({_NAMES}))), map({_NAMED})),
      (name, value) -> value IS NOT NULL),
    coalesce(str_to_map(more_properties, chr(2), chr(1)), CAST(map() AS MAP<STRING, STRING>))))"""
_COMPUTED = {
    "properties": _PROPERTIES,
    # MessageDecoder.createMessageId pads an IPv4 address with zeros to the length of an IPv6 one.
    "msg_id": f"""coalesce(msg_id, rpad(concat(msg_id_host, lpad(hex(commitlog_offset), 16, '0')),
    if(sys_flag & {STORE_HOST_V6} != 0, 56, 32), '0'))""",
    "body_crc": "coalesce(body_crc, CAST(crc32(body) & 2147483647 AS INT))",
}
MESSAGES = f"""
  SELECT {", ".join(f"{_COMPUTED[name]} AS {name}" if name in _COMPUTED else name for name in VIEW)}
  FROM {{rows}}"""
"""The columns of VIEW, from the files of commitlog."""

# Positions are expanded directly; words of bits in two loops, so that Spark compiles them.
PAIRS = f"""
  WITH matched AS (
    SELECT broker_name, topic, messages, queue_id, queue_offset, commitlog_offset, store_timestamp, source, run,
      match.outcome, match.positions, match.bits, inline(match.recipients)
    FROM (SELECT *, explode(matches) AS match FROM {{rows}})
  ), words AS (
    SELECT *, posexplode(coalesce(bits, array_repeat(-1L, CAST((messages + 63) DIV 64 AS INT)))) AS (at, word)
    FROM matched WHERE positions IS NULL
  ), spread AS (
    SELECT * EXCEPT (positions, bits), explode(positions) AS position FROM matched WHERE positions IS NOT NULL
    UNION ALL
    SELECT * EXCEPT (positions, bits, at, word, n), at * 64 + n AS position
    FROM (SELECT *, explode(array({", ".join(map(str, range(64)))})) AS n FROM words)
    WHERE at * 64 + n < messages AND shiftright(word, n) & 1 = 1
  )
  SELECT consumer_group, broker_name, topic, get(queue_id, position) AS queue_id,
    get(queue_offset, position) AS queue_offset, get(commitlog_offset, position) AS commitlog_offset, outcome,
    coalesce(available_at, get(store_timestamp, position)) AS available_at, subscription_from,
    coalesce(source, '{PLANNED}') AS source, run
  FROM spread"""
"""A row for each pair of message and group, from rows of delivery_blocks."""


def messages(rows: DataFrame) -> DataFrame:
    """Converts rows of the files of commitlog to the columns of VIEW."""
    return rows.sparkSession.sql(MESSAGES, rows=rows)


def with_properties(rows: DataFrame) -> DataFrame:
    """Adds a column ``properties`` to rows of the files of commitlog."""
    from pyspark.sql import functions as F

    return rows.withColumn("properties", F.expr(_PROPERTIES))


def pairs(blocks: DataFrame) -> DataFrame:
    """Expands rows of delivery_blocks to pairs of message and group.

    A filter on topic is applied to the blocks, one on consumer_group before the messages are expanded.
    """
    return blocks.sparkSession.sql(PAIRS, rows=blocks)


# Warehouses in a schema of a Spark catalog, where SQL users find the tables by name.


_CATALOG_NAME = re.compile(r"\w+\.\w+")


def is_catalog_name(text: str) -> bool:
    """``catalog.schema`` names a catalog; everything else is a folder (``./a.b`` for one named so)."""
    return _CATALOG_NAME.fullmatch(text) is not None


def catalog_warehouse(spark: SparkSession, name: str) -> Warehouse:
    """The warehouse in a schema of a catalog, ``catalog.schema``. Raises WarehouseUnusable if there is none."""
    try:
        rows = spark.sql(f"DESCRIBE SCHEMA EXTENDED {name}").collect()
    except Exception as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise WarehouseUnusable(
            f"there is no schema {name} ({reason}): create it first; for a folder write ./{name}"
        ) from None
    location = next((row[1] for row in rows if row[0] == "Location"), None)
    if location is None:
        raise WarehouseUnusable(f"the schema {name} has no location; give a schema that has one")
    return Warehouse(Storage.at(location), name)


def register_tables(spark: SparkSession, warehouse: Warehouse) -> None:
    """Registers the tables of a warehouse in its catalog as external tables; registered ones stay.

    The views ``messages`` and ``deliveries`` have the rows of commitlog and of delivery_blocks as readers see them.
    """
    for table in (*TABLES, RUN_LEDGER):
        if warehouse.exists(table):
            location = _quoted(spark_path(warehouse.log(table).storage))
            spark.sql(f"CREATE TABLE IF NOT EXISTS {warehouse.catalog}.{table.name} USING delta LOCATION {location}")
    if warehouse.exists(COMMITLOG):
        comments = {name: VIEW_COMMENTS.get(name) or _comment(COMMITLOG.schema.field(name)) for name in VIEW}
        _create_view(spark, f"{warehouse.catalog}.messages", MESSAGES, f"{warehouse.catalog}.commitlog", comments)
    if warehouse.exists(DELIVERY_BLOCKS):
        comments = {field.name: _comment(field) for field in DELIVERY_COLUMNS}
        _create_view(spark, f"{warehouse.catalog}.deliveries", PAIRS, f"{warehouse.catalog}.delivery_blocks", comments)


def _comment(field: pa.Field) -> str:
    comment: bytes = (field.metadata or {}).get(b"comment", b"")
    return comment.decode()


def _create_view(spark: SparkSession, view: str, query: str, table: str, comments: dict[str, str]) -> None:
    """Creates a view, or brings it up to date, with a timestamp beside each time. ``comments``: by column."""
    times = [name for name in comments if name in TIMES]
    described = comments | {name + UTC_SUFFIX: f"{name} as a timestamp" for name in times}
    listed = ", ".join(f"{name} COMMENT {_quoted(comment)}" for name, comment in described.items())
    timestamps = "".join(f", timestamp_millis({name}) AS {name}{UTC_SUFFIX}" for name in times)
    spark.sql(f"CREATE OR REPLACE VIEW {view} ({listed}) AS SELECT *{timestamps} FROM ({query.format(rows=table)})")


def _quoted(text: str) -> str:
    """The text as a literal of SQL."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
