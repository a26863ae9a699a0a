"""Spark SQL for tables whose files store less than readers see, or store it differently: messages and deliveries.

The same texts are DataFrames (:func:`messages`, :func:`pairs`) and views in a catalog (schemas/catalog_tables.py).
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from schemas.commitlog import IPV6_STORE_HOST, NAMED_PROPERTIES, SLOTS, VIEW
from schemas.pops import PLANNED

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
    if(sys_flag & {IPV6_STORE_HOST} != 0, 56, 32), '0'))""",
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
    return rows.withColumn("properties", F.expr(_PROPERTIES))


def pairs(blocks: DataFrame) -> DataFrame:
    """Expands rows of delivery_blocks to pairs of message and group.

    A filter on topic is applied to the blocks, one on consumer_group before the messages are expanded.
    """
    return blocks.sparkSession.sql(PAIRS, rows=blocks)
