"""Message logs other than a broker's store: JSON lines (.jsonl) and Parquet, one message per line or row.

    {"topic": "OrderEvents", "queue_id": 0, "queue_offset": 0, "commitlog_offset": 0,
     "store_timestamp": 1795237513466, "properties": {"TAGS": "paid", "price": "51.5"}}

topic, queue_id, queue_offset, commitlog_offset (unique) and store_timestamp (ms) are required. The other
columns of commitlog are optional: store_size is 1 by default, tags and keys are those in properties, and
the rest is null. body is hex in JSON. Unknown columns are ignored.
``./spark-submit.sh export commitlog`` writes such a log.

A line or row that is not such a message goes to quarantine; its offset there is its number, from 1.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from schemas.rocketmq_store.segments import CommitLogError

NEEDED = {
    "topic": "string", "queue_id": "int", "queue_offset": "bigint", "commitlog_offset": "bigint",
    "store_timestamp": "bigint",
}  # fmt: skip
KNOWN = NEEDED | {
    "store_size": "int", "msg_id": "string", "tags": "string", "keys": "string", "properties": "map<string, string>",
    "born_timestamp": "bigint", "sys_flag": "int", "flag": "int", "body_crc": "int", "reconsume_times": "int",
    "prepared_transaction_offset": "bigint", "born_host": "string", "store_host": "string", "magic_code": "int",
    "body_length": "int", "body": "binary",
}  # fmt: skip
TIMES = ("born_timestamp", "store_timestamp")
"""Columns of milliseconds, which Parquet files may hold as timestamps, too."""
SUFFIXES = (".jsonl", ".parquet")


def is_message_log(source: Path) -> bool:
    """Whether a path is a message log: a .jsonl or .parquet file, or a folder with some directly in it."""
    return source.suffix in SUFFIXES or (source.is_dir() and any(file.suffix in SUFFIXES for file in source.iterdir()))


def files(source: Path) -> list[Path]:
    """The files of a message log. Raises CommitLogError if there is none, or if a file holds no messages."""
    if (source / "store" / "commitlog").is_dir():
        raise CommitLogError(f"{source} is not a store folder, but {source / 'store'} is: give that")
    found = [source] if source.is_file() else []
    if source.is_dir():
        found = sorted(file for file in source.iterdir() if file.suffix in SUFFIXES)
    if not found:
        raise CommitLogError(f"{source} does not exist; give a store folder, or a .jsonl or .parquet file")
    if len({file.suffix for file in found}) > 1:
        raise CommitLogError(f"{source} mixes .jsonl and .parquet files; give a folder with one kind")
    for file in found:
        if file.suffix == ".parquet":
            _check_columns(file)
    return found


def _check_columns(file: Path) -> None:
    try:
        schema = pq.read_schema(file)
    except pa.ArrowInvalid:
        raise CommitLogError(f"{file} is not a Parquet file; give JSON lines or Parquet") from None
    missing = [name for name in NEEDED if name not in schema.names]
    if missing:
        raise CommitLogError(f"{file} has no column {', '.join(missing)}, which every message needs")
    for column in schema:
        kind = KNOWN.get(column.name, "")
        fits = pa.types.is_map(column.type) if kind.startswith("map") else not pa.types.is_nested(column.type)
        if pa.types.is_temporal(column.type):
            fits = column.name in TIMES and pa.types.is_timestamp(column.type)
        if kind and not fits:
            raise CommitLogError(f"{file}: column {column.name} is a {column.type}, not a {kind}")


def read(spark: SparkSession, source: Path, broker_name: str) -> tuple[DataFrame, DataFrame]:
    """The messages in the shape of commitlog, and all other lines in the shape of quarantine."""
    paths = [str(file) for file in files(source)]
    json_lines = paths[0].endswith(".jsonl")
    rows = _json_lines(spark, paths) if json_lines else _parquet(spark, paths)
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
        F.col("_metadata.file_name").alias("source_file"),
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
        F.col("_metadata.file_name").alias("source_file"),
        (F.col("_metadata.row_index") + 1).alias("offset"),
        F.to_json(F.struct(*(F.col(name) for name in rows.columns))).cast("binary").alias("bytes"),
        F.struct(*fields).alias("message"),
        F.coalesce(
            *(_unreadable(name, F.col(name), cast, f"of type {KNOWN[name]}") for name, cast in known.items())
        ).alias("not_fit"),
    )


def _unreadable(name: str, given: Column, read: Column, kind: str) -> Column:
    """A reason if a value was given but could not be read."""
    return F.when(given.isNotNull() & read.isNull(), f"{name} is not {kind}")


def _reason() -> Column:
    """Why a row is not a message; null if it is one."""
    absent = [F.when(F.col(f"message.{name}").isNull(), f"no {name}") for name in NEEDED]
    negative = [
        F.when(F.col(f"message.{name}") < 0, f"{name} is negative") for name in ("commitlog_offset", "queue_offset")
    ]
    no_size = F.when(F.col("message.store_size") < 1, "store_size is not 1 or more")
    return F.coalesce("not_fit", *absent, *negative, no_size)


def _columns() -> list[Column]:
    properties = F.map_filter("message.properties", lambda _, value: value.isNotNull())
    special = {
        "store_size": F.coalesce("message.store_size", F.lit(1)),
        "properties": F.when(F.size(properties) > 0, properties),
        "tags": F.coalesce("message.tags", properties["TAGS"]),
        "keys": F.coalesce("message.keys", properties["KEYS"]),
    }
    return [special.get(name, F.col(f"message.{name}")).alias(name) for name in KNOWN]
