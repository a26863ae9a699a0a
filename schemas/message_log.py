"""Message logs that are no broker's store: JSON lines and Parquet with the columns of commitlog.

Needed of every message: topic, queue_id, queue_offset, commitlog_offset and store_timestamp (ms).
Known besides: the other columns of commitlog, null where absent; store_size counts as 1, tags and
keys are taken from properties, and body is lower-case hex in JSON. This is what ``export commitlog``
writes. Columns not known are left out.
"""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from schemas.store.segments import CommitLogError

NEEDED = {
    "topic": "string", "queue_id": "int", "queue_offset": "bigint", "commitlog_offset": "bigint",
    "store_timestamp": "bigint",
}  # fmt: skip
KNOWN = NEEDED | {
    "store_size": "int", "msg_id": "string", "tags": "string", "keys": "string", "properties": "map<string, string>",
    "born_timestamp": "bigint", "sys_flag": "int", "flag": "int", "body_crc": "int", "reconsume_times": "int",
    "prepared_transaction_offset": "bigint", "born_host": "string", "store_host": "string", "magic_code": "int",
    "body_length": "int", "body_crc_computed": "int", "body": "binary",
}  # fmt: skip
SUFFIXES = (".jsonl", ".parquet")


def is_message_log(source: Path) -> bool:
    """Whether a path is a message log: a .jsonl or .parquet file, or a folder with some directly in it."""
    return source.suffix in SUFFIXES or (source.is_dir() and any(file.suffix in SUFFIXES for file in source.iterdir()))


def files(source: Path) -> list[Path]:
    """The files of a message log. Raises CommitLogError where there is none, or of both kinds."""
    found = [source] if source.is_file() else []
    if source.is_dir():
        found = sorted(file for file in source.iterdir() if file.suffix in SUFFIXES)
    if not found:
        raise CommitLogError(f"{source} does not exist; give a store folder, or a .jsonl or .parquet file")
    if len({file.suffix for file in found}) > 1:
        raise CommitLogError(f"{source} mixes .jsonl and .parquet files; give a folder with one kind")
    return found


def read(spark: SparkSession, source: Path, broker_name: str) -> tuple[DataFrame, DataFrame]:
    """The messages in the shape of commitlog, and what is none in the shape of quarantine."""
    paths = [str(file) for file in files(source)]
    json_lines = paths[0].endswith(".jsonl")
    rows = _json_lines(spark, paths) if json_lines else _parquet(spark, paths)
    rows = rows.withColumn("reason", _reason())
    broker = F.lit(broker_name).alias("broker_name")
    messages = rows.where("reason IS NULL").select(broker, *_columns())
    rejected = rows.where("reason IS NOT NULL").select(broker, "source_file", "offset", "reason", "bytes")
    return messages, rejected


def _json_lines(spark: SparkSession, paths: list[str]) -> DataFrame:
    """source_file, offset (the line, from 1), bytes, and message (a struct), a row a line that is not blank."""
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
        .withColumn("message", F.col("message").withField("body", F.unhex("message.body")))
    )


def _parquet(spark: SparkSession, paths: list[str]) -> DataFrame:
    """source_file, offset (the row, from 1), bytes (the row as JSON), and message (a struct)."""
    rows = spark.read.parquet(*paths)
    missing = [name for name in NEEDED if name not in rows.columns]
    if missing:
        raise CommitLogError(f"{paths[0]} has no column {', '.join(missing)}, which every message needs")
    fields = [
        (F.col(name) if name in rows.columns else F.lit(None)).cast(kind).alias(name) for name, kind in KNOWN.items()
    ]
    return rows.select(
        F.col("_metadata.file_name").alias("source_file"),
        (F.col("_metadata.row_index") + 1).alias("offset"),
        F.to_json(F.struct(*(F.col(name) for name in rows.columns))).cast("binary").alias("bytes"),
        F.struct(*fields, F.lit(None).cast("string").alias("corrupt")).alias("message"),
    )


def _reason() -> Column:
    """Why a row is no message; null if it is one."""
    reasons = [
        F.when(F.col(f"message.{name}").isNull(), f"no {name}, or not a {kind}") for name, kind in NEEDED.items()
    ]
    not_json = F.when(F.col("message.corrupt").isNotNull(), "not JSON with the types of a message log")
    negative = F.when(F.col("message.commitlog_offset") < 0, "commitlog_offset is negative")
    return F.coalesce(not_json, *reasons, negative)


def _columns() -> list[Column]:
    properties = F.map_filter("message.properties", lambda _, value: value.isNotNull())
    special = {
        "store_size": F.coalesce("message.store_size", F.lit(1)),
        "properties": F.when(F.size(properties) > 0, properties),
        "tags": F.coalesce("message.tags", properties["TAGS"]),
        "keys": F.coalesce("message.keys", properties["KEYS"]),
    }
    return [special.get(name, F.col(f"message.{name}")).alias(name) for name in KNOWN]
