"""Reads message logs with Spark: their messages, and the lines that are none."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from functools import reduce
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from filtering.java.numbers import LONG_MAX
from filtering.time_spans import AFTER_YEAR_9999
from schemas.messages.message_log import KNOWN, NEEDED, ParquetColumns, files, parquet_columns
from schemas.rocketmq_store.record_layout import GREATEST_QUEUE_OFFSET
from schemas.storage import spark_file

_TEXTS = [name for name, kind in KNOWN.items() if kind == "string"]
_FRACTIONS = re.compile(r"double|float|decimal\(\d+,[1-9]\d*\)")
"""Spark's types whose values may have a fraction. pandas writes whole numbers with gaps as doubles."""


def read(spark: SparkSession, source: Path, broker_name: str) -> tuple[DataFrame, DataFrame]:
    """The messages as MappedRows takes them, and all other lines in the shape of quarantine."""
    found = files(source)
    rows = _json_lines(spark, found) if found[0].suffix == ".jsonl" else _parquet(spark, found)
    same_offset = Window.partitionBy("message.commitlog_offset", "reason").orderBy("source_file", "offset")
    rows = rows.withColumn("reason", _reason()).withColumn("copy", F.row_number().over(same_offset))
    again = F.when(F.col("copy") > 1, "another message has this commitlog_offset")
    rows = rows.withColumn("reason", F.coalesce("reason", again))
    broker = F.lit(broker_name).alias("broker_name")
    messages = rows.where("reason IS NULL").select(broker, *_columns())
    rejected = rows.where("reason IS NOT NULL").select(broker, "source_file", "offset", "reason", "bytes")
    return messages, rejected


def _json_lines(spark: SparkSession, found: Sequence[Path]) -> DataFrame:
    """source_file, offset (the line, from 1), bytes, message (a struct) and not_fit, for each non-blank line."""
    types = ", ".join(f"`{name}` {'string' if name == 'body' else kind}" for name, kind in KNOWN.items())
    in_file = Window.partitionBy("source_file").orderBy("block", "line")
    lines = spark.read.text(_paths(found)).select(
        _file_name().alias("source_file"),
        F.col("_metadata.file_block_start").alias("block"),
        F.monotonically_increasing_id().alias("line"),
        F.col("value"),
    )
    return (
        lines.withColumn("offset", F.row_number().over(in_file).cast("bigint"))
        .where(F.col("value").rlike(r"\S"))
        .select(
            "source_file",
            "offset",
            F.col("value").cast("binary").alias("bytes"),
            F.when(~F.is_valid_utf8("value"), "not UTF-8").alias("not_utf8"),
            F.from_json("value", f"{types}, corrupt string", {"columnNameOfCorruptRecord": "corrupt"}).alias("message"),
        )
        .withColumn(
            "not_json", F.when(F.col("message.corrupt").isNotNull(), "not JSON with the types of a message log")
        )
        .withColumn("body", F.unhex("message.body"))
        .withColumn("no_body", _unreadable("body", F.col("message.body"), F.col("body"), "hex"))
        .withColumn("not_fit", F.coalesce("not_utf8", "not_json", "no_body"))
        .withColumn("message", F.col("message").withField("body", F.col("body")))
    )


def _parquet(spark: SparkSession, found: Sequence[Path]) -> DataFrame:
    """source_file, offset (the row, from 1), bytes (the row as JSON), message (a struct) and not_fit.

    Files with the same columns are read together: Spark reads no files in which a column has different types.
    """
    alike: defaultdict[ParquetColumns, list[Path]] = defaultdict(list)
    for file in found:
        alike[parquet_columns(file)].append(file)
    return reduce(DataFrame.unionAll, (_rows(spark, files, columns) for columns, files in alike.items()))


def _rows(spark: SparkSession, found: Sequence[Path], columns: ParquetColumns) -> DataFrame:
    """The rows of Parquet files that all have these columns."""
    nanoseconds = {path for path, _, kind in columns if "timeUnit=nanoseconds" in kind}
    without_values = {path for path, _, kind in columns if kind == "Null"}
    if nanoseconds:
        spark.conf.set("spark.sql.legacy.parquet.nanosAsLong", "true")
    rows = spark.read.parquet(*_paths(found))
    known = {
        name: F.expr(f"{name} div 1000000") if name in nanoseconds else _value(name, given, KNOWN[name])
        for name, given in rows.dtypes
        if name in KNOWN and name not in without_values
    }
    fields = [known.get(name, F.lit(None).cast(kind)).alias(name) for name, kind in KNOWN.items()]
    return rows.select(
        _file_name().alias("source_file"),
        (F.col("_metadata.row_index") + 1).alias("offset"),
        F.to_json(F.struct("*")).cast("binary").alias("bytes"),
        F.struct(*fields).alias("message"),
        F.coalesce(
            *(_unreadable(name, F.col(name), read, f"of type {KNOWN[name]}") for name, read in known.items())
        ).alias("not_fit"),
    )


def _value(name: str, given: str, kind: str) -> Column:
    """A column of Spark's type ``given`` as one of the type ``kind``; null where that would change a value."""
    if given.startswith("timestamp"):
        return F.unix_millis(F.col(name).cast("timestamp"))
    value = F.col(name).try_cast(kind)
    if kind not in ("int", "bigint"):
        return value
    if given == "boolean":
        return F.lit(None).cast(kind)
    return F.when(value == F.col(name), value) if _FRACTIONS.fullmatch(given) else value


def _paths(found: Sequence[Path]) -> list[str]:
    return [spark_file(str(file)) for file in found]


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
    not_utf8 = [F.when(~F.is_valid_utf8(f"message.{name}"), f"{name} is not UTF-8") for name in _TEXTS]
    not_utf8.append(F.when(F.exists(F.map_entries("message.properties"), _is_not_utf8), "properties is not UTF-8"))
    return F.coalesce("not_fit", *not_utf8, *absent, *negative, no_size, *too_great, no_property)


def _has_separator(entry: Column) -> Column:
    """Whether the property would be another one after it was stored (MessageDecoder.messageProperties2String)."""
    return entry["key"].rlike("[\u0001\u0002]") | F.contains(entry["value"], F.lit("\u0002"))


def _is_not_utf8(entry: Column) -> Column:
    return ~F.is_valid_utf8(entry["key"]) | ~F.coalesce(F.is_valid_utf8(entry["value"]), F.lit(True))


def _columns() -> list[Column]:
    # RocketMQ drops a property without a name or value when it decodes a message.
    properties = F.map_filter("message.properties", lambda name, value: (name != "") & (value != ""))
    special = {
        "store_size": F.coalesce("message.store_size", F.lit(1)),
        "properties": F.when(F.size(properties) > 0, properties),
    }
    return [special.get(name, F.col(f"message.{name}")).alias(name) for name in KNOWN]
