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
