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

_TICKS_IN_A_MILLISECOND = {"us": 1_000, "ns": 1_000_000}
_INTEGER = re.compile(r"\s*[+-]?[0-9]+\s*", re.ASCII)
_ROWS_AT_ONCE = 1 << 14


def read_row_groups(file: Path, row_groups: Sequence[int], first: int) -> Iterator[LogRow]:
    """The rows of some consecutive row groups of a file. ``first`` is the number of the first row."""
    with pq.ParquetFile(file) as opened:
        for batch in opened.iter_batches(_ROWS_AT_ONCE, row_groups):
            names = [name for name in batch.schema.names if name in KNOWN]
            columns = [_column(name, batch[name]) for name in names]
            for row, values in enumerate(zip(*columns, strict=True)):
                reason = next((value for value in values if isinstance(value, NotAMessage)), None)
                found = reason or {name: value for name, value in zip(names, values, strict=True) if value is not None}
                yield LogRow(first + row, found, partial(_as_json, batch, row))
            first += batch.num_rows


def _column(name: str, column: pa.Array) -> list[Any]:
    """The values of a column as those of the type that KNOWN names. Instead of some, why they are not."""
    kind, column = KNOWN[name], decoded(column)
    if pa.types.is_timestamp(column.type):
        ticks = column.cast(pa.int64()).to_pylist()
        return [None if time is None else _milliseconds(column.type.unit, time) for time in ticks]
    read = {"int": _whole, "bigint": _whole, "string": _text, "binary": _octets}.get(kind, _pairs)
    return [None if value is None else _read(name, kind, read, value) for value in column.to_pylist()]


def _read(name: str, kind: str, read: Callable[[str, Any], Any], value: Any) -> Any:
    try:
        return read(kind, value)
    except UnicodeDecodeError:
        return NotAMessage(f"{name} is not UTF-8")
    except ValueError:
        return NotAMessage(f"{name} is not of type {kind}")


def _milliseconds(unit: str, time: int) -> int:
    return time * 1_000 if unit == "s" else time // _TICKS_IN_A_MILLISECOND.get(unit, 1)


def _whole(kind: str, value: Any) -> int:
    """A whole number that fits. pandas writes whole numbers with gaps as doubles."""
    if isinstance(value, str):
        is_whole = _INTEGER.fullmatch(value) is not None
    else:
        is_finite = not isinstance(value, float) or math.isfinite(value)
        is_whole = is_finite and value == int(value) and not isinstance(value, bool)
    if not is_whole or not -ENDS[kind] <= int(value) < ENDS[kind]:
        raise ValueError
    return int(value)


def _text(_: str, value: Any) -> str:
    """A text. Some writers store texts as binary columns."""
    if isinstance(value, bytes):
        return value.decode()
    return str(value).lower() if isinstance(value, bool) else str(value)


def _octets(_: str, value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


def _pairs(kind: str, value: Sequence[tuple[Any, Any]]) -> list[tuple[str, str | None]]:
    return [(_text(kind, name), None if each is None else _text(kind, each)) for name, each in value]


def _as_json(batch: pa.RecordBatch, row: int) -> bytes:
    """A row without its nulls, as an object. Binary values are in base64."""
    (values,) = batch.slice(row, 1).to_pylist()
    present = {name: _json_value(value) for name, value in values.items() if value is not None}
    return json.dumps(present, ensure_ascii=False, default=str).encode(errors="replace")


def _json_value(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, list) and all(isinstance(each, tuple) for each in value):  # a map
        return {str(_json_value(name)): _json_value(each) for name, each in value}
    return value
