"""Message logs other than a broker's store: JSON lines (.jsonl) and Parquet, one message per line or row.

    {"topic": "OrderEvents", "queue_id": 0, "queue_offset": 0, "commitlog_offset": 0,
     "store_timestamp": 1795237513466, "properties": {"TAGS": "paid", "price": "51.5"}}

topic, queue_id, queue_offset, commitlog_offset (unique) and store_timestamp (ms) are required. The other
columns of commitlog are optional: store_size is 1 by default, tags and keys are those in properties, and
the rest is null. body is hex in JSON. Unknown columns are ignored, and so are properties without a name or value.
``./spark-submit.sh export commitlog`` writes such a log.

A line or row that is not such a message goes to quarantine; its offset there is its number, from 1.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

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
UNREADABLE = ("Float16", "Time(", "UUID")
"""The beginnings of Parquet's names of types that Spark cannot read, in unknown columns, too."""
ParquetColumns: TypeAlias = tuple[tuple[str, str, str], ...]
"""The path, the physical type and the logical type of each column of a Parquet file, as Parquet names them."""


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
        if file.name.startswith(("_", ".")):
            raise CommitLogError(f"{file}: Spark ignores files whose name begins with _ or a dot: rename it")
        if file.suffix == ".parquet":
            _check_columns(file)
    return found


def parquet_columns(file: Path) -> ParquetColumns:
    """The columns of a Parquet file, those in nested columns one by one."""
    schema = pq.read_metadata(file).schema
    columns = map(schema.column, range(len(schema)))
    return tuple((column.path, column.physical_type, str(column.logical_type)) for column in columns)


def _check_columns(file: Path) -> None:
    try:
        schema = pq.read_schema(file)
    except (pa.ArrowInvalid, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise CommitLogError(f"{file} is not a Parquet file; give JSON lines or Parquet") from None
    missing = [name for name in NEEDED if name not in schema.names]
    if missing:
        raise CommitLogError(f"{file} has no column {', '.join(missing)}, which every message needs")
    seen: dict[str, str] = {}
    for name in schema.names:
        if name.lower() in seen:
            raise CommitLogError(
                f"{file} has two columns {seen[name.lower()]} and {name}, which are one for Spark: "
                "leave one out or rename it"
            )
        seen[name.lower()] = name
    for path, _, kind in parquet_columns(file):
        if kind.startswith(UNREADABLE):
            raise CommitLogError(f"{file}: Spark cannot read column {path}, a {kind}: leave it out or change its type")
    for column in schema:
        kind = KNOWN.get(column.name, "")
        if kind and not _fits(column.name, kind, column.type):
            raise CommitLogError(f"{file}: column {column.name} is a {column.type}, not a {kind}")


def _fits(name: str, kind: str, given: pa.DataType) -> bool:
    """Whether the values of a column may be of a known kind. A column of Arrow's null type has none."""
    if pa.types.is_dictionary(given):
        given = given.value_type
    if pa.types.is_null(given):
        return True
    if kind.startswith("map") or pa.types.is_nested(given):
        return kind.startswith("map") and pa.types.is_map(given)
    if pa.types.is_temporal(given):
        return name in TIMES and pa.types.is_timestamp(given)
    is_binary = "binary" in str(given)
    return is_binary or "string" in str(given) if kind == "binary" else kind == "string" or not is_binary
