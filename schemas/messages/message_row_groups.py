"""The messages of a message log in Parquet."""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from filtering.kernels.compile import Array, Int, compiled
from filtering.kernels.registers import load_word
from schemas.arrow_batches import decoded
from schemas.messages.message_log_rows import (
    ENDS,
    KNOWN,
    TIMES,
    LogForm,
    MessageBatch,
    NotAMessage,
    RejectedRow,
    column_names,
    fits,
    read_each,
    time_in_ms,
)  # fmt: skip
from schemas.rocketmq_store.record_layout import Bytes, store
from schemas.rocketmq_store.segments import SLACK, CommitLogError

_TICKS_IN_A_MILLISECOND = {"ms": 1, "us": 1_000, "ns": 1_000_000}
"""By the units that Parquet has."""
_INTEGER = re.compile(r"\s*[+-]?[0-9]+\s*", re.ASCII)
_ARROW_TYPES = {
    "int": pa.int32(), "bigint": pa.int64(), "string": pa.string(), "binary": pa.binary(),
    "map<string, string>": pa.map_(pa.string(), pa.string()),
}  # fmt: skip
"""The types of KNOWN, as Arrow has them."""
ROWS_AT_ONCE = 1 << 16


def read_row_groups(
    file: Path, row_groups: Sequence[int], first: int, form: LogForm
) -> tuple[list[MessageBatch], list[RejectedRow]]:
    """The messages in some consecutive row groups of a file, and the rows that are none.

    ``first`` is the number of the first row. Raises CommitLogError if the file is damaged.
    """
    batches: list[MessageBatch] = []
    rejected: list[RejectedRow] = []
    try:
        with pq.ParquetFile(file, page_checksum_verification=True) as opened:
            for batch in opened.iter_batches(ROWS_AT_ONCE, row_groups):
                for messages in _messages(batch, first, form, rejected):
                    batches.append(messages)
                first += batch.num_rows
    except (pa.ArrowInvalid, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        reason = str(error).strip().splitlines()[0]
        raise CommitLogError(f"{file} is damaged ({reason}): write it again, or leave it out") from None
    return batches, rejected


def rejected_first_rows(file: Path, rows: int, form: LogForm) -> list[RejectedRow]:
    """Those of the first ``rows`` rows of a file that are not messages."""
    rejected: list[RejectedRow] = []
    with pq.ParquetFile(file) as opened:
        for batch in opened.iter_batches(rows):
            list(_messages(batch, 1, form, rejected))
            break
    return rejected


def _messages(batch: pa.RecordBatch, first: int, form: LogForm, rejected: list[RejectedRow]) -> Iterator[MessageBatch]:
    """The messages of some rows: as columns where all values have the types of KNOWN, the others row by row."""
    good = np.zeros(batch.num_rows, np.bool_)
    columns, texts, starts, lengths = _NO_COLUMNS, np.frombuffer(b"", np.uint8), _NO_PLACES, _NO_PLACES
    names = column_names(batch.schema.names)
    plain = {column: _plain_column(column, batch[name]) for column, name in names.items()}
    if None not in plain.values():
        columns = {column: values for column, values in plain.items() if values is not None}
        properties = columns.pop("properties", None)
        given = {column: values.is_valid().to_numpy(zero_copy_only=False) for column, values in columns.items()}
        numbers = {
            column: values.fill_null(0).cast(pa.int64()).to_numpy()
            for column, values in columns.items()
            if KNOWN[column] in ENDS
        }
        texts, starts, lengths, fit = _property_texts(properties, batch.num_rows)
        good = fits(numbers, given | {"topic": given.get("topic", good)}, form) & fit & _has_no_separator(columns)
        columns = {column: values for column, values in columns.items() if values.null_count < len(values)}

    def bytes_of(number: int) -> bytes:
        return _as_json(batch, number - first)

    lines = np.arange(first, first + batch.num_rows)
    fast = MessageBatch(lines, columns, texts, starts, lengths, bytes_of)
    if good.all():
        yield fast
        return
    if good.any():
        yield fast.take(np.flatnonzero(good))
    others = np.flatnonzero(~good)
    slow, wrong = read_each(
        zip(lines[others].tolist(), _rows(batch.take(pa.array(others)), names), strict=True),
        partial(_values, [*names]),
        bytes_of,
        form,
    )
    rejected += wrong
    yield slow


def _rows(batch: pa.RecordBatch, names: Mapping[str, str]) -> Iterable[Sequence[Any]]:
    """The values of each row in the columns ``names``; for one that has the wrong type, why, as a NotAMessage."""
    columns = [_column(column, batch[name]) for column, name in names.items()]
    return zip(*columns, strict=True) if columns else [()] * batch.num_rows


def _values(names: Sequence[str], row: Sequence[Any]) -> dict[str, Any]:
    """Those of a row that are not null. Raises NotAMessage."""
    wrong = next((value for value in row if isinstance(value, NotAMessage)), None)
    if wrong is not None:
        raise wrong
    return {name: value for name, value in zip(names, row, strict=True) if value is not None}


_NO_PLACES = np.zeros(0, np.int64)
_NO_COLUMNS: dict[str, pa.Array] = {}


def _is_time(column: pa.Array) -> bool:
    return bool(pa.types.is_timestamp(column.type))


def _plain_column(name: str, column: pa.Array) -> pa.Array | None:
    """A column as one of the type that commitlog has; None if some of its values must be read one by one."""
    column = decoded(column)
    kind, is_number = column.type, pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
    if pa.types.is_null(kind):
        return pa.nulls(len(column), _ARROW_TYPES[KNOWN[name]])
    if _is_time(column):
        return pa.array(_milliseconds(column), mask=column.is_null().to_numpy(zero_copy_only=False))
    if KNOWN[name] in ENDS and is_number:
        try:
            return column.cast(_ARROW_TYPES[KNOWN[name]])
        except pa.ArrowInvalid:
            return None
    if pa.types.is_large_string(kind) and KNOWN[name] in ("string", "binary"):
        return column.cast(_ARROW_TYPES[KNOWN[name]])
    if pa.types.is_string(kind) and KNOWN[name] == "binary":
        return column.cast(pa.binary())
    return column if kind == _ARROW_TYPES[KNOWN[name]] else None


def _milliseconds(times: pa.TimestampArray) -> NDArray[np.int64]:
    ticks: NDArray[np.int64] = times.cast(pa.int64()).fill_null(0).to_numpy()
    return ticks // _TICKS_IN_A_MILLISECOND[times.type.unit]


def _has_no_separator(columns: Mapping[str, pa.Array]) -> NDArray[np.bool_]:
    """For each message, whether its tags and keys can be in a property text. RocketMQ ends values at U+0002."""
    has_none: Any = np.True_
    for name in ("tags", "keys"):
        if name in columns:
            is_in = pc.match_substring(columns[name], "\u0002").fill_null(False)
            has_none = has_none & ~is_in.to_numpy(zero_copy_only=False)
    return has_none  # type: ignore[no-any-return]


def _property_texts(
    maps: pa.MapArray | None, rows: int
) -> tuple[Bytes, NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """Maps as property texts: their bytes, where each begins, and its length; and which maps can be one."""
    if maps is None or maps.null_count == rows:
        places = np.zeros(rows, np.int64)
        return np.frombuffer(bytes(SLACK), np.uint8), places, places, np.ones(rows, np.bool_)
    pairs = np.frombuffer(maps.buffers()[1], np.int32)[maps.offset : maps.offset + rows + 1]
    missing = maps.is_null().to_numpy(zero_copy_only=False)
    names, values = _spans(maps.keys), _spans(maps.items)
    is_value = maps.items.is_valid().to_numpy(zero_copy_only=False)
    texts, starts, lengths = _joined(pairs, missing, *names, *values, is_value)
    texts.flags.writeable = False  # as the bytes of a log: the same compiled loops read both
    return texts, starts, lengths, _fit_in_texts(maps, pairs, names[1], values[1])


def _fit_in_texts(maps: pa.MapArray, pairs: NDArray[np.int32], names: Bytes, values: Bytes) -> NDArray[np.bool_]:
    """For each map, whether no name has U+0001 or U+0002, and no value U+0002."""
    if not (names == 1).any() and not (names == 2).any() and not (values == 2).any():
        return np.ones(len(maps), np.bool_)
    in_name = pc.match_substring_regex(maps.keys, "[\u0001\u0002]")
    in_value = pc.match_substring(maps.items, "\u0002").fill_null(False)
    has_separator = pc.or_(in_name, in_value).to_numpy(zero_copy_only=False)
    before = np.concatenate([[0], np.cumsum(has_separator)])
    none: NDArray[np.bool_] = before[pairs[1:]] == before[pairs[:-1]]
    return none


def _spans(texts: pa.StringArray) -> tuple[NDArray[np.int32], Bytes]:
    _, offsets, data = texts.buffers()
    bounds = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    return bounds, np.frombuffer(data if data is not None else b"", np.uint8)


@compiled
def _joined(
    pairs: Array, missing: Array, name_ends: Array, names: Bytes, value_ends: Array, values: Bytes, is_value: Array
) -> tuple[Bytes, Array, Array]:
    rows = len(pairs) - 1
    size: Int = np.int64(name_ends[-1]) + np.int64(value_ends[-1]) + 2 * np.int64(len(is_value))
    texts = np.empty(size + SLACK, np.uint8)
    starts, lengths = np.zeros(rows, np.int64), np.zeros(rows, np.int64)
    out: Int = np.int64(0)
    for row in range(rows):
        starts[row] = out
        if not missing[row]:
            for pair in range(pairs[row], pairs[row + 1]):
                if is_value[pair] and name_ends[pair + 1] > name_ends[pair] and value_ends[pair + 1] > value_ends[pair]:
                    out = _append(texts, out, names, name_ends[pair], name_ends[pair + 1])
                    texts[out] = 1
                    out = _append(texts, out + 1, values, value_ends[pair], value_ends[pair + 1])
                    texts[out] = 2
                    out += 1
        lengths[row] = out - starts[row]
    return texts, starts, lengths


@compiled
def _append(texts: Bytes, out: Int, octets: Bytes, start: Int, end: Int) -> Int:
    """Copies octets[start:end] to texts[out:], and may write SLACK bytes more. Returns where the copy ends."""
    at: Int = np.int64(start)
    shift = out - at
    while at < end and at + 8 <= len(octets):
        store(texts, shift + at, load_word(octets, at))
        at += 8
    while at < end:
        texts[shift + at] = octets[at]
        at += 1
    return shift + np.int64(end)


def _column(name: str, column: pa.Array) -> list[Any]:
    """The values of a column as those of the type that KNOWN names. Instead of some, why they are not."""
    kind, column = KNOWN[name], decoded(column)
    if _is_time(column):
        return [
            None if time is None else time // _TICKS_IN_A_MILLISECOND[column.type.unit]
            for time in column.cast(pa.int64()).to_pylist()
        ]
    if name in TIMES and pa.types.is_string(column.type):
        return [None if text is None else _time(name, text) for text in column.to_pylist()]
    values: list[Any] = column.to_pylist()
    if column.type == _ARROW_TYPES[kind]:
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


def _time(name: str, text: str) -> Any:
    try:
        return _read(name, "bigint", text) if _INTEGER.fullmatch(text) else time_in_ms(name, text)
    except NotAMessage as reason:
        return reason


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
    return [(_text(name), None if item is None else _text(item)) for name, item in value]


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
            value = {name if isinstance(name, str) else _json_text(name): item for name, item in value}
        if value is not None:
            present[field.name] = value
    return json.dumps(present, ensure_ascii=False, default=_json_text).encode(errors="replace")


def _json_text(value: Any) -> str:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)
