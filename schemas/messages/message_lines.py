"""The messages of a message log in JSON lines.

Most lines are read by compiled loops, which take strict JSON of flat values. They leave out every other line, good or
bad: Python's own decoder decides on those (:func:`read_by_decoder`). On the lines that both take, both say the same.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from codecs import BOM_UTF8
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from filtering.java import is_utf8
from filtering.kernels.compile import Array, Int, compiled
from schemas.messages.json_lines import DIGITS, REGULAR, REGULAR_NOT_ASCII, Lines, scan
from schemas.messages.message_log_rows import (
    ENDS,
    KNOWN,
    NEEDED,
    POSITION,
    SPELLINGS,
    TIMES,
    LogForm,
    MessageBatch,
    NotAMessage,
    RejectedRow,
    column_names,
    fits,
    other_spelling,
    read_each,
    time_in_ms,
)  # fmt: skip
from schemas.rocketmq_store.commitlog_walk import crc_of
from schemas.rocketmq_store.properties import PropertyValues
from schemas.rocketmq_store.record_layout import Bytes, binary_array, spans

SMALL = 1 << 20
"""Bytes of lines that Python's decoder reads in less time than the loops take to compile."""
_BLANK = b" \t\n\v\f\r"
_HEX = re.compile("[0-9a-fA-F]*")
_TOO_DEEP = "nested too deep"
_BODY_FORMS = ("hex", "base64", "text")
_TYPES = {
    "int": "a whole number of 32 bits", "bigint": "a whole number of 64 bits", "map<string, string>": "a JSON object",
}  # fmt: skip


class _Object(list[tuple[str, Any]]):
    """The pairs of a JSON object: names may be repeated."""


class _Number(str):
    """A number with a fraction or an exponent, or NaN or Infinity, as it is written."""


class _Integer(_Number):
    """A number of digits only."""


_DECODER = json.JSONDecoder(object_pairs_hook=_Object, parse_int=_Integer, parse_float=_Number, parse_constant=_Number)

_FEW_VALUES = ("topic", "tags", "keys", "msg_id", "born_host", "store_host")


def read_lines(
    file: Path, start: int, stop: int, first: int, form: LogForm
) -> tuple[list[MessageBatch], list[RejectedRow]]:
    """The messages in the lines of a file that begin from ``start`` on and before ``stop`` (bytes), and other lines.

    ``first`` is the number of the first line. Blank lines are left out.
    """
    with file.open("rb") as opened:
        opened.seek(start)
        content = opened.read(stop - start)
    return read_content(content.removeprefix(BOM_UTF8) if first == 1 else content, first, form)


def read_content(content: bytes, first: int, form: LogForm) -> tuple[list[MessageBatch], list[RejectedRow]]:
    """The messages in some lines, and the lines that are none. ``first`` is the number of the first line."""
    read = read_by_decoder if len(content) <= SMALL else read_by_loops
    return read(content, first, form)


def read_by_loops(content: bytes, first: int, form: LogForm) -> tuple[list[MessageBatch], list[RejectedRow]]:
    """Like :func:`read_by_decoder`, and much faster for many lines."""
    lines = scan(content, first)
    regular, others = _regular(lines, form)
    slow, rejected = read_each(lines.at(others), partial(_decoded, form), lines.line, form)
    return [batch for batch in (regular, slow) if len(batch.lines)], rejected


def read_by_decoder(content: bytes, first: int, form: LogForm) -> tuple[list[MessageBatch], list[RejectedRow]]:
    """What the lines say, by Python's own decoder. Blank lines are left out."""
    lines = {number: line for number, line in enumerate(content.split(b"\n"), first) if line.strip(_BLANK)}
    lines = {number: line.removesuffix(b"\r") for number, line in lines.items()}
    batch, rejected = read_each(lines.items(), partial(_decoded, form), lines.__getitem__, form)
    return [batch] if len(batch.lines) else [], rejected


def _regular(read: Lines, form: LogForm) -> tuple[MessageBatch, NDArray[np.int64]]:
    """The messages that the loops read, and the rows of the other lines."""
    good = read.states == REGULAR
    if np.any(read.states == REGULAR_NOT_ASCII) and is_utf8(np.array([0, len(read.data)], np.int32), read.data):
        good |= read.states == REGULAR_NOT_ASCII
    good &= fits(read.numbers, read.given, form)
    good &= read.places["topic"][1] > 0
    bodies, fit = _bodies(read, form, good & read.given["body"])
    good &= fit
    rows = np.flatnonzero(good)
    given = {name: is_given[rows] for name, is_given in read.given.items()}
    columns: dict[str, pa.Array] = {}
    for name, values in read.numbers.items():
        if given[name].any():
            kind = pa.int32() if KNOWN[name] == "int" else pa.int64()
            missing = None if given[name].all() else ~given[name]
            columns[name] = pa.array(values[rows], mask=missing).cast(kind)
    for name in _FEW_VALUES:
        if given[name].any():
            columns[name] = _few_values(read, name, rows, given[name])
    if bodies is not None:
        columns["body" if form.body != "text" else "message_body"] = bodies.take(pa.array(rows))
    if given["message_body"].any():
        texts = binary_array(*spans(read.texts, *_spans(read, "message_body", rows)), ~given["message_body"])
        known = columns.get("message_body", pa.nulls(len(rows), pa.binary()))
        columns["message_body"] = pc.coalesce(texts, known)
    batch = MessageBatch(read.lines[0, rows], columns, read.texts, *_spans(read, "properties", rows), read.line)
    return batch, np.flatnonzero(~good)


def _few_values(read: Lines, name: str, rows: NDArray[np.int64], given: NDArray[np.bool_]) -> pa.Array:
    starts, lengths = (places[rows] for places in read.places[name])
    values = PropertyValues().read(read.texts, starts, lengths)
    is_empty = given & (lengths == 0)
    return pc.if_else(is_empty, "", pc.cast(values, pa.string())) if is_empty.any() else values


def _spans(read: Lines, name: str, rows: Any = slice(None)) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    starts, lengths = read.places[name]
    return starts[rows].astype(np.int64), lengths[rows].astype(np.int64)


def _bodies(read: Lines, form: LogForm, given: NDArray[np.bool_]) -> tuple[pa.BinaryArray | None, NDArray[np.bool_]]:
    """The body of each line, null where it is not ``given``; and which lines are right in that."""
    fit = np.ones(len(given), np.bool_)
    if not given.any():
        return None, fit
    starts, lengths = _spans(read, "body")
    lengths[~given] = 0
    if form.body == "hex":
        offsets, octets = _from_hex(read.texts, starts, lengths, fit)
    elif form.body == "base64":
        offsets, octets = _from_base64(read.texts, starts, lengths, fit)
    else:
        offsets, octets = spans(read.texts, starts, lengths)
    return binary_array(offsets, octets, ~given), fit


def form_of_lines(lines: Sequence[bytes]) -> tuple[set[str], str]:
    """The columns of a file's first lines, and how they write their bodies (LogForm.body).

    Where their CRCs match bodies of one form, that is it. Otherwise bodies are hex if at least half of them are, base64
    if all are, or else texts.
    """
    columns: set[str] = set()
    bodies: list[tuple[str, int | None]] = []
    for line in lines:
        try:
            fields = _DECODER.decode(line.decode())
        except (ValueError, RecursionError):
            continue
        if not isinstance(fields, _Object):
            continue
        given = {name: value for name, value in fields if value is not None and name in SPELLINGS}
        names = column_names(given)
        columns |= names.keys()
        body = given[names["body"]] if "body" in names else None
        if isinstance(body, str) and body:
            crc = given[names["body_crc"]] if "body_crc" in names else None
            bodies.append((body, int(crc) if isinstance(crc, _Integer) else None))
    octets = {form: [_octets(body, form) for body, _ in bodies] for form in _BODY_FORMS}
    matching = {
        form: sum(each is not None and crc == crc_of(each) for each, (_, crc) in zip(decoded, bodies, strict=True))
        for form, decoded in octets.items()
    }
    if any(matching.values()):
        return columns, max(_BODY_FORMS, key=matching.__getitem__)
    count = {form: sum(each is not None for each in decoded) for form, decoded in octets.items()}
    if 2 * count["hex"] >= len(bodies):
        return columns, "hex"
    return columns, "base64" if count["base64"] == len(bodies) else "text"


def _octets(body: str, form: str) -> bytes | None:
    """The bytes of a body; None if it does not have this form. In hex, a first 0 may be left out."""
    if form == "text":
        return body.encode(errors="replace")
    if form == "hex":
        return bytes.fromhex(body if len(body) % 2 == 0 else f"0{body}") if _HEX.fullmatch(body) else None
    try:
        return base64.b64decode(body, validate=True)
    except (ValueError, binascii.Error):
        return None


def _decoded(form: LogForm, line: bytes) -> dict[str, Any]:
    try:
        text = line.decode()
    except UnicodeDecodeError:
        raise NotAMessage("not UTF-8") from None
    try:
        fields = _DECODER.decode(text)
    except ValueError:
        raise NotAMessage("not JSON") from None
    except RecursionError:
        raise NotAMessage(_TOO_DEEP) from None
    if not isinstance(fields, _Object):
        raise NotAMessage("not a JSON object")
    # Of one name, the last value counts that is not null.
    given = {name: value for name, value in fields if value is not None and name in SPELLINGS}
    names = column_names(given)
    for column in (*NEEDED, *(POSITION if form.has_positions else ())):
        if column not in names and not (column in TIMES and names.keys() & TIMES):
            other = other_spelling(column, (each for each, _ in fields))
            raise NotAMessage(f"no {column}" if other is None else f"no {column}: rename {other}")
    values = {}
    for column, name in names.items():
        try:
            values[column] = _READ[column](given[name])
        except ValueError:
            raise NotAMessage(f"{name} is not {_TYPES[KNOWN[column]]}") from None
        except RecursionError:
            raise NotAMessage(_TOO_DEEP) from None
    body, text = values.pop("body", None), values.pop("message_body", None)
    if body is not None:
        octets = _octets(body, form.body)
        if octets is None:
            raise NotAMessage(f"body is not {form.body}")
        values["body" if form.body != "text" else "message_body"] = octets
    if text is not None:
        values["message_body"] = text.encode()
    return values


def _whole(end: int, value: Any) -> int:
    """A number that fits: it is less than ``end``. Raises ValueError."""
    if not isinstance(value, _Integer) or not -end <= (number := int(value)) < end:
        raise ValueError
    return number


def _time(name: str, value: Any) -> int:
    """A number of milliseconds, or a text of a time. Raises ValueError or NotAMessage."""
    if isinstance(value, str) and not isinstance(value, _Number):
        return time_in_ms(name, value)
    return _whole(ENDS["bigint"], value)


def _pairs(value: Any) -> list[tuple[str, str | None]]:
    """Raises ValueError if the value is not an object."""
    if not isinstance(value, _Object):
        raise ValueError
    return [(_text(name), None if item is None else _text(item)) for name, item in value]


def _text(value: Any) -> str:
    """A text; another value as its JSON."""
    if not isinstance(value, str):
        return _json(value)
    # Java writes half of a surrogate pair as a question mark.
    return value if value.isascii() else value.encode(errors="replace").decode()


def _json(value: Any) -> str:
    if isinstance(value, _Object):
        return f"{{{','.join(f'{_json(name)}:{_json(item)}' for name, item in value)}}}"
    if isinstance(value, list):
        return f"[{','.join(map(_json, value))}]"
    return value if isinstance(value, _Number) else json.dumps(value)


_READERS: dict[str, Callable[[Any], Any]] = {
    **{kind: partial(_whole, end) for kind, end in ENDS.items()},
    "string": _text,
    "binary": _text,
}
_READ: dict[str, Callable[[Any], Any]] = {
    **{name: _READERS.get(kind, _pairs) for name, kind in KNOWN.items()},
    **{name: partial(_time, name) for name in TIMES},
}
"""Reads a value as one of the column's type. A body stays a text."""

# Bodies.

_SIXTY_FOUR = np.full(256, -1, np.int64)
for _index, _letter in enumerate(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"):
    _SIXTY_FOUR[_letter] = _index


@compiled
def _from_hex(texts: Bytes, starts: Array, lengths: Array, fit: Array) -> tuple[Array, Bytes]:
    """The bytes of each text of hex digits, as Arrow's offsets and data. Clears ``fit`` of other texts."""
    offsets = np.zeros(len(starts) + 1, np.int32)
    data = np.empty(int(lengths.sum() + len(lengths)) // 2 + 1, np.uint8)
    out: Int = np.int64(0)
    for row in range(len(starts)):
        at, end = starts[row], starts[row] + lengths[row]
        wrong: Int = np.int64(0)
        if lengths[row] & 1:
            data[out] = DIGITS[texts[at]]
            wrong |= DIGITS[texts[at]]
            at += 1
            out += 1
        while at < end:
            value = DIGITS[texts[at]] << 4 | DIGITS[texts[at + 1]]
            wrong |= value
            data[out] = value & 0xFF
            at += 2
            out += 1
        if wrong < 0:
            fit[row] = False
        offsets[row + 1] = out
    return offsets, data[:out]


@compiled
def _from_base64(texts: Bytes, starts: Array, lengths: Array, fit: Array) -> tuple[Array, Bytes]:
    """The bytes of each text in base64, as Arrow's offsets and data. Clears ``fit`` of other texts."""
    offsets = np.zeros(len(starts) + 1, np.int32)
    data = np.empty(int(lengths.sum()) // 4 * 3 + 3, np.uint8)
    out: Int = np.int64(0)
    for row in range(len(starts)):
        at, end = starts[row], starts[row] + lengths[row]
        padding = 0
        while padding < 2 and end > at and texts[end - 1] == 61:  # =
            end -= 1
            padding += 1
        if lengths[row] & 3:
            fit[row] = False
        else:
            bits: Int = np.int64(0)
            wrong: Int = np.int64(0)
            for i in range(end - at):
                value = _SIXTY_FOUR[texts[at + i]]
                wrong |= value
                bits = bits << 6 | value & 0x3F
                if i & 3:
                    data[out] = bits >> (6 - 2 * (i & 3)) & 0xFF
                    out += 1
            if wrong < 0:
                fit[row] = False
        offsets[row + 1] = out
    return offsets, data[:out]
