"""Spark DataFrames in the form that readers see, for tables whose files store less, or store it differently."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from schemas.commitlog import IPV6_STORE_HOST, NAME_SEPARATOR, NAMED_PROPERTIES, SLOTS, VIEW
from schemas.pops import PLANNED

_MESSAGE_COLUMNS = ("queue_id", "queue_offset", "commitlog_offset", "store_timestamp")


def messages(rows: DataFrame) -> DataFrame:
    """Converts rows of the files of commitlog to the columns of VIEW."""
    computed = {"msg_id": _msg_id().alias("msg_id"), "body_crc": _body_crc().alias("body_crc")}
    return with_properties(rows).select(*(computed.get(name, F.col(name)) for name in VIEW))


def with_properties(rows: DataFrame) -> DataFrame:
    """Adds a column ``properties`` to rows of the files of commitlog."""
    return rows.withColumn("properties", _properties())


def _msg_id() -> Column:
    """MessageDecoder.createMessageId. It pads an IPv4 address with zeros to the length of an IPv6 one."""
    length = F.when(F.col("sys_flag").bitwiseAND(IPV6_STORE_HOST) != 0, 56).otherwise(32)
    offset = F.lpad(F.hex("commitlog_offset"), 16, "0")
    computed = F.rpad(F.concat("msg_id_host", offset), length, "0")
    return F.coalesce("msg_id", computed)


def _body_crc() -> Column:
    return F.coalesce("body_crc", F.crc32("body").bitwiseAND(0x7FFFFFFF).cast("int"))


def _properties() -> Column:
    names = F.split("property_names", NAME_SEPARATOR)
    cut = F.map_from_arrays(names, F.slice(F.array(*SLOTS), 1, F.size(names)))
    named = F.map_from_arrays(F.array(*map(F.lit, NAMED_PROPERTIES)), F.array(*map(F.col, NAMED_PROPERTIES.values())))
    more = F.coalesce(
        F.str_to_map("more_properties", F.lit("\u0002"), F.lit(NAME_SEPARATOR)),
        F.create_map().cast("map<string,string>"),
    )
    present = F.map_filter(F.map_concat(cut, named), lambda _, value: value.isNotNull())
    return F.when(F.col("property_names").isNotNull(), F.map_concat(present, more))


def pairs(blocks: DataFrame) -> DataFrame:
    """Expands rows of delivery_blocks to pairs of message and group.

    A filter on topic is applied to the blocks, one on consumer_group before the messages are expanded.
    """
    matched = blocks.select("*", F.explode("matches").alias("match")).select(
        "broker_name", "topic", "messages", *_MESSAGE_COLUMNS, "source", "run", "match.outcome", "match.positions",
        "match.bits", F.inline("match.recipients"),
    )  # fmt: skip
    # Positions are expanded directly; words of bits in two loops, so that Spark compiles them.
    by_position = matched.where(F.col("positions").isNotNull()).select("*", F.explode("positions").alias("position"))
    every = F.expr("array_repeat(-1L, CAST((messages + 63) DIV 64 AS INT))")
    words = matched.where(F.col("positions").isNull()).select(
        "*", F.posexplode(F.coalesce("bits", every)).alias("at", "word")
    )
    spread = words.select("*", F.explode(F.array(*map(F.lit, range(64)))).alias("n"))
    position = F.col("at") * 64 + F.col("n")
    is_set = (position < F.col("messages")) & F.expr("shiftright(word, n) & 1 = 1")
    by_bit = spread.where(is_set).withColumn("position", position)
    return _pairs(by_position).unionAll(_pairs(by_bit))


def _pairs(spread: DataFrame) -> DataFrame:
    stored = _message_value("store_timestamp")
    return spread.select(
        "consumer_group", "broker_name", "topic", *map(_message_value, _MESSAGE_COLUMNS[:3]), "outcome",
        F.coalesce("available_at", stored).alias("available_at"), "subscription_from",
        F.coalesce("source", F.lit(PLANNED)).alias("source"), "run",
    )  # fmt: skip


def _message_value(name: str) -> Column:
    return F.get(name, F.col("position")).alias(name)
