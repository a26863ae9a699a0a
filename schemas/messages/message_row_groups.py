"""The messages of a message log in Parquet."""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from schemas.arrow_batches import decoded
from schemas.messages.message_checks import ENDS, KNOWN, LogRow, NotAMessage
from schemas.rocketmq_store.commitlog.segments import CommitLogError

_TICKS_IN_A_MILLISECOND = {"ms": 1, "us": 1_000, "ns": 1_000_000}
"""By the units that Parquet has."""
_INTEGER = re.compile(r"\s*[+-]?[0-9]+\s*", re.ASCII)
_PLAIN: dict[str, tuple[pa.DataType, ...]] = {
    "int": (pa.int32(),),
    "bigint": (pa.int64(), pa.int32()),
    "string": (pa.string(),),
    "binary": (pa.binary(),),
    "map<string, string>": (pa.map_(pa.string(), pa.string()),),
}
"""The types of columns whose values are as KNOWN names them."""
ROWS_AT_ONCE = 1 << 14


def read_row_groups(file: Path, row_groups: Sequence[int], first: int) -> Iterator[LogRow]:
    """The rows of some consecutive row groups of a file. ``first`` is the number of the first row.

    Raises CommitLogError if the file is damaged.
    """
    try:
        with pq.ParquetFile(file, page_checksum_verification=True) as opened:
            for batch in opened.iter_batches(ROWS_AT_ONCE, row_groups):
                yield from _rows(batch, first)
                first += batch.num_rows
    except (pa.ArrowInvalid, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        reason = str(error).strip().splitlines()[0]
        raise CommitLogError(f"{file} is damaged ({reason}): write it again, or leave it out") from None


def _rows(batch: pa.RecordBatch, first: int) -> Iterator[LogRow]:
    names = [name for name in batch.schema.names if name in KNOWN]
    columns = [_column(name, batch[name]) for name in names]
    for row, values in enumerate(zip(*columns, strict=True)):
        reason = next((value for value in values if isinstance(value, NotAMessage)), None)
        found = reason or {name: value for name, value in zip(names, values, strict=True) if value is not None}
        yield LogRow(first + row, found, partial(_as_json, batch, row))


def _column(name: str, column: pa.Array) -> list[Any]:
    """The values of a column as those of the type that KNOWN names. Instead of some, why they are not."""
    kind, column = KNOWN[name], decoded(column)
    if pa.types.is_timestamp(column.type):
        ticks = _TICKS_IN_A_MILLISECOND[column.type.unit]
        return [None if time is None else time // ticks for time in column.cast(pa.int64()).to_pylist()]
    values: list[Any] = column.to_pylist()
    if column.type in _PLAIN[kind]:
        return values
    return [None if value is None else _read(name, kind, value) for value in values]


def _read(name: str, kind: str, value: Any) -> Any:
    read: Callable[[Any], Any] = _READERS.get(kind, _pairs)
    try:
        return read(value)
    except UnicodeDecodeError:
        return NotAMessage(f"{name} is not UTF-8")
    except ValueError:
        return NotAMessage(f"{name} is not of type {kind}")


def _whole(end: int, value: Any) -> int:
    """A whole number that fits: it is less than ``end``. pandas writes whole numbers with gaps as doubles."""
    if isinstance(value, str):
        is_whole = _INTEGER.fullmatch(value) is not None
    else:
        is_whole = math.isfinite(value) and value == int(value) and not isinstance(value, bool)
    if not is_whole or not -end <= int(value) < end:
        raise ValueError
    return int(value)


def _text(value: Any) -> str:
    """A text. Some writers store texts as binary columns."""
    if isinstance(value, bytes):
        return value.decode()
    return str(value).lower() if isinstance(value, bool) else str(value)


def _octets(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


def _pairs(value: Sequence[tuple[Any, Any]]) -> list[tuple[str, str | None]]:
    return [(_text(name), None if each is None else _text(each)) for name, each in value]


_READERS: dict[str, Callable[[Any], Any]] = {kind: partial(_whole, end) for kind, end in ENDS.items()} | {
    "string": _text,
    "binary": _octets,
}
"""Reads a value as one of a type of KNOWN. Other types are maps."""


def _as_json(batch: pa.RecordBatch, row: int) -> bytes:
    """A row without its nulls, as an object. Binary values are in base64."""
    present = {}
    for field, column in zip(batch.schema, batch.columns, strict=True):
        value = column[row].as_py()
        if value is not None and pa.types.is_map(field.type):
            value = {name if isinstance(name, str) else _json_text(name): each for name, each in value}
        if value is not None:
            present[field.name] = value
    return json.dumps(present, ensure_ascii=False, default=_json_text).encode(errors="replace")


def _json_text(value: Any) -> str:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)
