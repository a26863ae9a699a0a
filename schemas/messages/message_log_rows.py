"""Reads message logs with Spark: their messages, and the lines that are none."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from filtering.java.numbers import LONG_MAX
from filtering.time_spans import AFTER_YEAR_9999
from schemas.messages.message_log import KNOWN, NEEDED, TIMES, files
from schemas.rocketmq_store.record_layout import GREATEST_QUEUE_OFFSET
from schemas.storage import spark_file


def read(spark: SparkSession, source: Path, broker_name: str) -> tuple[DataFrame, DataFrame]:
    """The messages as MappedRows takes them, and all other lines in the shape of quarantine."""
    found = files(source)
    paths = [spark_file(str(file)) for file in found]
    rows = _json_lines(spark, paths) if found[0].suffix == ".jsonl" else _parquet(spark, paths)
    same_offset = Window.partitionBy("message.commitlog_offset", "reason").orderBy("source_file", "offset")
    rows = rows.withColumn("reason", _reason()).withColumn("copy", F.row_number().over(same_offset))
    again = F.when(F.col("copy") > 1, "another message has this commitlog_offset")
    rows = rows.withColumn("reason", F.coalesce("reason", again))
    broker = F.lit(broker_name).alias("broker_name")
    messages = rows.where("reason IS NULL").select(broker, *_columns())
    rejected = rows.where("reason IS NOT NULL").select(broker, "source_file", "offset", "reason", "bytes")
    return messages, rejected


def _json_lines(spark: SparkSession, paths: list[str]) -> DataFrame:
    """source_file, offset (the line, from 1), bytes, message (a struct) and not_fit, for each non-blank line."""
    types = ", ".join(f"`{name}` {'string' if name == 'body' else kind}" for name, kind in KNOWN.items())
    in_file = Window.partitionBy("source_file").orderBy("block", "line")
    lines = spark.read.text(paths).select(
        _file_name().alias("source_file"),
        F.col("_metadata.file_block_start").alias("block"),
        F.monotonically_increasing_id().alias("line"),
        F.col("value"),
    )
    return (
        lines.withColumn("offset", F.row_number().over(in_file).cast("bigint"))
        .where("trim(value) <> ''")
        .select(
            "source_file",
            "offset",
            F.col("value").cast("binary").alias("bytes"),
            F.from_json("value", f"{types}, corrupt string", {"columnNameOfCorruptRecord": "corrupt"}).alias("message"),
        )
        .withColumn("not_fit", F.when(F.col("message.corrupt").isNotNull(), "not JSON with the types of a message log"))
        .withColumn("body", F.unhex("message.body"))
        .withColumn("not_fit", F.coalesce("not_fit", _unreadable("body", F.col("message.body"), F.col("body"), "hex")))
        .withColumn("message", F.col("message").withField("body", F.col("body")))
    )


def _parquet(spark: SparkSession, paths: list[str]) -> DataFrame:
    """source_file, offset (the row, from 1), bytes (the row as JSON), message (a struct) and not_fit."""
    rows = spark.read.option("mergeSchema", "true").parquet(*paths)
    kinds = dict(rows.dtypes)
    known = {
        name: F.unix_millis(F.col(name).cast("timestamp"))
        if name in TIMES and kinds[name].startswith("timestamp")
        else F.col(name).try_cast(kind)
        for name, kind in KNOWN.items()
        if name in rows.columns
    }
    fields = [known.get(name, F.lit(None).cast(kind)).alias(name) for name, kind in KNOWN.items()]
    return rows.select(
        _file_name().alias("source_file"),
        (F.col("_metadata.row_index") + 1).alias("offset"),
        F.to_json(F.struct(*(F.col(name) for name in rows.columns))).cast("binary").alias("bytes"),
        F.struct(*fields).alias("message"),
        F.coalesce(
            *(_unreadable(name, F.col(name), cast, f"of type {KNOWN[name]}") for name, cast in known.items())
        ).alias("not_fit"),
    )


def _file_name() -> Column:
    """Spark's name of a file is encoded as in a URL, but a plus stands for itself."""
    return F.url_decode(F.replace(F.col("_metadata.file_name"), F.lit("+"), F.lit("%2B")))


def _unreadable(name: str, given: Column, read: Column, kind: str) -> Column:
    """A reason if a value was given but could not be read."""
    return F.when(given.isNotNull() & read.isNull(), f"{name} is not {kind}")


def _reason() -> Column:
    """Why a row is not a message; null if it is one."""
    absent = [F.when(F.col(f"message.{name}").isNull(), f"no {name}") for name in NEEDED]
    negative = [
        F.when(F.col(f"message.{name}") < 0, f"{name} is negative")
        for name in ("commitlog_offset", "queue_offset", "store_timestamp")
    ]
    no_size = F.when(F.col("message.store_size") < 1, "store_size is not 1 or more")
    last_start = F.lit(LONG_MAX) - F.coalesce("message.store_size", F.lit(1))
    too_great = [
        F.when(F.col("message.queue_offset") > GREATEST_QUEUE_OFFSET, f"queue_offset is over {GREATEST_QUEUE_OFFSET}"),
        F.when(F.col("message.commitlog_offset") > last_start, "the message ends beyond the last physical offset"),
        F.when(
            F.col("message.store_timestamp") >= AFTER_YEAR_9999,
            "store_timestamp is after the year 9999; write milliseconds since 1970",
        ),
    ]
    unstorable = F.exists(F.map_entries("message.properties"), _has_separator)
    no_property = F.when(
        unstorable, "a property has U+0001 in its name, or U+0002: RocketMQ ends names and values there"
    )
    return F.coalesce("not_fit", *absent, *negative, no_size, *too_great, no_property)


def _has_separator(entry: Column) -> Column:
    """Whether the property would be another one after it was stored (MessageDecoder.messageProperties2String)."""
    return entry["key"].rlike("[\u0001\u0002]") | F.contains(entry["value"], F.lit("\u0002"))


def _columns() -> list[Column]:
    # RocketMQ drops a property without a name or value when it decodes a message.
    properties = F.map_filter("message.properties", lambda name, value: (name != "") & (value != ""))
    special = {
        "store_size": F.coalesce("message.store_size", F.lit(1)),
        "properties": F.when(F.size(properties) > 0, properties),
    }
    return [special.get(name, F.col(f"message.{name}")).alias(name) for name in KNOWN]
