"""Message logs other than a broker's store: JSON lines (.jsonl) and Parquet, one message per line or row.

    {"topic": "OrderEvents", "store_timestamp": 1795237513466, "properties": {"TAGS": "paid", "price": "51.5"}}

docs/MESSAGE_LOG.md has all columns and their names. A line or row that is not a message goes to quarantine; its offset
there is its number, from 1.
"""

from __future__ import annotations

import hashlib
import json
from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, field
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from filtering.frozen import frozen
from schemas.messages.json_lines import line_ends
from schemas.messages.message_lines import form_of_lines, read_content, read_lines
from schemas.messages.message_log_rows import (
    KNOWN,
    NEEDED,
    POSITION,
    TIMES,
    LogForm,
    MessageBatch,
    RejectedRow,
    column_names,
    other_spelling,
)  # fmt: skip
from schemas.messages.message_row_groups import read_row_groups, rejected_first_rows
from schemas.rocketmq_store.segments import CommitLogError

SUFFIXES = (".jsonl", ".parquet")
PART_BYTES = 32 << 20
"""Bytes of a file that a task reads. They stay in memory, as columns, until they are sorted."""
FIRST_LINES = 1_000
"""Lines of a file that show its form, and whether it has messages at all."""


@frozen
class LogPart:
    """A part of a file of a message log, of ``size`` bytes. ``first`` is the number of its first line or row, from 1.

    ``count``: of its lines or rows. ``lines``: where its lines begin and end in the file (bytes); ``row_groups``: those
    of a Parquet file.
    """

    file: Path
    first: int
    count: int
    size: int
    form: LogForm
    lines: tuple[int, int] = (0, 0)
    row_groups: tuple[int, ...] = ()

    def messages(self) -> tuple[list[MessageBatch], list[RejectedRow]]:
        """Its messages, and its lines or rows that are none. Raises CommitLogError if the file is damaged."""
        if self.row_groups:
            return read_row_groups(self.file, self.row_groups, self.first, self.form)
        return read_lines(self.file, *self.lines, self.first, self.form)

    def end(self, is_last_whole: bool) -> tuple[int, int]:
        """Up to where the file is read, in bytes, and the number of the line there.

        ``is_last_whole``: whether the last line is a message. If not, and nothing ends it, it may be half written.
        """
        if self.row_groups:
            return self.file.stat().st_size, self.first + self.count
        start, stop = self.lines
        with self.file.open("rb") as opened:
            opened.seek(start)
            content = opened.read(stop - start)
        ends = line_ends(content)
        return start + (len(content) if is_last_whole else content.rfind(b"\n") + 1), self.first + ends


def is_message_log(source: Path) -> bool:
    """Whether a path is a message log: a .jsonl or .parquet file, or a folder with some directly in it."""
    return source.suffix in SUFFIXES or (source.is_dir() and any(file.suffix in SUFFIXES for file in source.iterdir()))


def files(source: Path) -> list[Path]:
    """The files of a message log. Raises CommitLogError if there is none, or if a file holds no messages."""
    if (source / "store" / "commitlog").is_dir():
        raise CommitLogError(f"{source} is not a store folder, but {source / 'store'} is: give that")
    log_files = [source] if source.is_file() else []
    if source.is_dir():
        log_files = sorted(file for file in source.iterdir() if file.suffix in SUFFIXES)
    if not log_files:
        raise CommitLogError(f"{source} does not exist; give a store folder, or a .jsonl or .parquet file")
    if len({file.suffix for file in log_files}) > 1:
        raise CommitLogError(f"{source} mixes .jsonl and .parquet files; give a folder with one kind")
    for file in log_files:
        if file.suffix == ".parquet":
            _check_columns(file)
    return log_files


def log_forms(log: Sequence[Path], has_positions: bool = True) -> dict[Path, LogForm]:
    """The form of each file of a message log, from its first lines. ``has_positions``: where they have no message.

    Raises CommitLogError if they cannot be the first ones of a message log.
    """
    columns: dict[Path, tuple[set[str], str]] = {}
    first: dict[Path, list[bytes]] = {}
    for file in log:
        if file.suffix == ".parquet":
            columns[file] = set(column_names(pq.read_schema(file).names)), "hex"
        else:
            first[file] = _first_lines(file)
            columns[file] = form_of_lines(first[file])
    without = {file for file, (names, _) in columns.items() if not names.intersection(POSITION)}
    for file, (names, _) in columns.items():
        missing = [name for name in POSITION if name not in names]
        if missing and file not in without:
            present = [name for name in POSITION if name in names]
            raise CommitLogError(
                f"{file} has {' and '.join(present)}, but no {' and no '.join(missing)}: write all three of "
                f"{', '.join(POSITION)}, or none of them, and they follow the order of the lines"
            )
    with_messages = [file for file, (names, _) in columns.items() if names]
    with_positions = [file for file in with_messages if file not in without]
    if with_positions and (others := without.intersection(with_messages)):
        raise CommitLogError(
            f"{min(others)} has no {', '.join(POSITION)}, and {with_positions[0]} has them: write them in all files "
            "of a message log, or in none"
        )
    if with_messages:
        has_positions = bool(with_positions)
    forms = {file: LogForm(has_positions, body) for file, (_, body) in columns.items()}
    for file, form in forms.items():
        _check_first_lines(file, first.get(file), form)
    return forms


def _first_lines(file: Path) -> list[bytes]:
    with file.open("rb") as opened:
        return list(islice(opened, FIRST_LINES))


def _check_first_lines(file: Path, lines: Sequence[bytes] | None, form: LogForm) -> None:
    """Raises CommitLogError if FIRST_LINES lines or rows are no messages, all for one reason."""
    if lines is None:
        rejected = rejected_first_rows(file, FIRST_LINES, form)
    elif len(lines) == FIRST_LINES:
        _, rejected = read_content(b"".join(lines).removeprefix(BOM_UTF8), 1, form)
    else:
        return
    reasons = {row.reason for row in rejected}
    if len(rejected) == FIRST_LINES and len(reasons) == 1:
        what = "lines" if lines is not None else "rows"
        raise CommitLogError(
            f"{file}: none of its first {FIRST_LINES:,} {what} is a message: {reasons.pop()}; docs/MESSAGE_LOG.md has "
            "the fields"
        )


def parts(file: Path, form: LogForm, start: int = 0, first: int = 1) -> Iterator[LogPart]:
    """The parts of a file of a message log, of about PART_BYTES, in order.

    Of JSON lines: those from byte ``start`` on, which is in line ``first``.
    """
    return _parquet_parts(file, form) if file.suffix == ".parquet" else _line_parts(file, form, start, first)


def _line_parts(file: Path, form: LogForm, start: int, first: int) -> Iterator[LogPart]:
    with file.open("rb") as opened:
        opened.seek(start)
        while content := opened.read(PART_BYTES):
            content += opened.readline()
            ends = line_ends(content)
            count = ends + (not content.endswith(b"\n"))
            yield LogPart(file, first, count, len(content), form, lines=(start, start + len(content)))
            start += len(content)
            first += ends


def _parquet_parts(file: Path, form: LogForm) -> Iterator[LogPart]:
    metadata = pq.read_metadata(file)
    first, rows, size = 1, 0, 0
    waiting: list[int] = []
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        waiting.append(number)
        rows, size = rows + group.num_rows, size + group.total_byte_size
        if size >= PART_BYTES or number == metadata.num_row_groups - 1:
            yield LogPart(file, first, rows, size, form, row_groups=tuple(waiting))
            first, rows, size, waiting = first + rows, 0, 0, []


def _check_columns(file: Path) -> None:
    try:
        schema = pq.read_schema(file)
    except (pa.ArrowInvalid, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise CommitLogError(f"{file} is not a Parquet file; give JSON lines or Parquet") from None
    names = column_names(schema.names)
    times = "" if names.keys() & TIMES else "store_timestamp"
    missing = [name for name in (*NEEDED[:1], times) if name and name not in names]
    if missing:
        others = [other for name in missing if (other := other_spelling(name, schema.names)) is not None]
        renamed = f": rename {', '.join(others)}" if others else ""
        raise CommitLogError(f"{file} has no column {', '.join(missing)}, which every message needs{renamed}")
    if len(set(schema.names)) < len(schema.names):
        raise CommitLogError(f"{file} has two columns of one name: leave one out or rename it")
    for column, name in names.items():
        given = schema.field(name).type
        if not _fits(column, KNOWN[column], given):
            how = "; docs/MESSAGE_LOG.md shows how to make one" if pa.types.is_struct(given) else ""
            raise CommitLogError(f"{file}: column {name} has the type {given}, not {KNOWN[column]}{how}")


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


@frozen
class ReadFile:
    """What nights have read of a file whose messages have no positions.

    ``size``: up to where, in bytes, which is in or before line ``next_line``; ``digest``: of these bytes.
    """

    name: str
    size: int
    digest: str
    next_line: int

    def is_begin_of(self, file: Path) -> bool:
        """Whether a file has these bytes, and only in JSON lines more."""
        size = file.stat().st_size
        is_long_enough = size == self.size if file.suffix == ".parquet" else size >= self.size
        return is_long_enough and digest_of(file, self.size) == self.digest


@frozen
class NumberedLines:
    """The messages without positions that nights have read.

    ``end``: the physical offset of the next message; ``queue_ends``: the queue offset of the next one of each topic.
    """

    end: int = 0
    queue_ends: Mapping[str, int] = field(default_factory=dict)
    files: Sequence[ReadFile] = ()

    @classmethod
    def from_text(cls, text: str) -> NumberedLines:
        """Of the text that :attr:`text` is."""
        end, queue_ends, read = json.loads(text)
        return cls(end, queue_ends, [ReadFile(*file) for file in read])

    @property
    def text(self) -> str:
        """For the ledger."""
        return json.dumps([self.end, self.queue_ends, [astuple(file) for file in self.files]])

    def read_of(self, file: Path) -> ReadFile | None:
        """What was read of a file, under this name or another one; None if nothing was.

        Raises CommitLogError if it has the name of a file that was read, but is another one.
        """
        for read in sorted(self.files, key=lambda read: (read.name != file.name, -read.size)):
            if read.is_begin_of(file):
                return read
            if read.name == file.name:
                raise CommitLogError(
                    f"{file} is not the file that an earlier night read under this name, with more lines after it. Its "
                    "messages have no offsets, so mqsieve cannot know which are new: give new messages in a file of "
                    "another name, or all messages with a new --warehouse"
                )
        return None


def digest_of(file: Path, size: int) -> str:
    """A hash of the first ``size`` bytes of a file."""
    digest = hashlib.sha256()
    with file.open("rb") as opened:
        while size > 0 and (content := opened.read(min(size, PART_BYTES))):
            digest.update(content)
            size -= len(content)
    return digest.hexdigest()
