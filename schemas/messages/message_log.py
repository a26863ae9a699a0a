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

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from schemas.messages.message_checks import KNOWN, NEEDED, LogRow, other_spelling
from schemas.messages.message_lines import read_lines
from schemas.messages.message_row_groups import read_row_groups
from schemas.rocketmq_store.commitlog.segments import CommitLogError

TIMES = ("born_timestamp", "store_timestamp")
"""Columns of milliseconds, which Parquet files may hold as timestamps, too."""
SUFFIXES = (".jsonl", ".parquet")
PART_BYTES = 32 << 20
"""Bytes of a file that a task reads. They stay in memory, as columns, until they are sorted."""


@dataclass(frozen=True)
class LogPart:
    """A part of a file of a message log. ``first`` is the number of its first line or row, from 1.

    ``lines``: where its lines begin and end in the file (bytes); ``row_groups``: those of a Parquet file.
    """

    file: Path
    first: int
    lines: tuple[int, int] = (0, 0)
    row_groups: tuple[int, ...] = ()

    def rows(self) -> Iterator[LogRow]:
        """Its lines or rows."""
        if self.row_groups:
            return read_row_groups(self.file, self.row_groups, self.first)
        return read_lines(self.file, *self.lines, self.first)


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


def parts(file: Path) -> Iterator[LogPart]:
    """The parts of a file of a message log, of about PART_BYTES, in order."""
    return _parquet_parts(file) if file.suffix == ".parquet" else _line_parts(file)


def _line_parts(file: Path) -> Iterator[LogPart]:
    start, first = 0, 1
    with file.open("rb") as opened:
        while content := opened.read(PART_BYTES):
            content += opened.readline()
            yield LogPart(file, first, lines=(start, start + len(content)))
            start += len(content)
            first += content.count(b"\n")


def _parquet_parts(file: Path) -> Iterator[LogPart]:
    metadata = pq.read_metadata(file)
    first, rows, size = 1, 0, 0
    waiting: list[int] = []
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        waiting.append(number)
        rows, size = rows + group.num_rows, size + group.total_byte_size
        if size >= PART_BYTES or number == metadata.num_row_groups - 1:
            yield LogPart(file, first, row_groups=tuple(waiting))
            first, rows, size, waiting = first + rows, 0, 0, []


def _check_columns(file: Path) -> None:
    try:
        schema = pq.read_schema(file)
    except (pa.ArrowInvalid, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise CommitLogError(f"{file} is not a Parquet file; give JSON lines or Parquet") from None
    missing = [name for name in NEEDED if name not in schema.names]
    if missing:
        others = [other for name in missing if (other := other_spelling(name, schema.names)) is not None]
        renamed = f": rename {', '.join(others)}" if others else ""
        raise CommitLogError(f"{file} has no column {', '.join(missing)}, which every message needs{renamed}")
    if len(set(schema.names)) < len(schema.names):
        raise CommitLogError(f"{file} has two columns of one name: leave one out or rename it")
    for column in schema:
        kind = KNOWN.get(column.name, "")
        if kind and not _fits(column.name, kind, column.type):
            how = "; docs/MESSAGE_LOG.md shows how to make one" if pa.types.is_struct(column.type) else ""
            raise CommitLogError(f"{file}: column {column.name} is a {column.type}, not a {kind}{how}")


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
