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
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from filtering.java import is_utf8
from filtering.kernels.compile import Array, Int, compiled
from filtering.kernels.registers import load_word
from schemas.messages.message_checks import (
    ENDS,
    KNOWN,
    NEEDED,
    POSITION,
    SPELLINGS,
    TIMES,
    LogForm,
    NotAMessage,
    RejectedRow,
    checked,
    column_names,
    fits,
    other_spelling,
    time_in_ms,
)  # fmt: skip
from schemas.messages.message_log_rows import MessageBatch
from schemas.rocketmq_store.commitlog_walk import crc_of
from schemas.rocketmq_store.property_columns import PropertyValues
from schemas.rocketmq_store.record_layout import Bytes, binary_array, lowest_byte, spans, store

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

_INTEGERS = tuple(name for name, kind in KNOWN.items() if kind in ENDS)
_TEXTS = tuple(name for name, kind in KNOWN.items() if kind in ("string", "binary"))
_FIELDS = (*_INTEGERS, *_TEXTS, "properties")
_FEW_VALUES = ("topic", "tags", "keys", "msg_id", "born_host", "store_host")
_BLOCK = 1 << 18
"""Bytes that a processor's cache holds."""
_MARGIN = 16
"""Zero bytes after the lines, which the loops may read."""
_REGULAR, _OTHER, _REGULAR_NOT_ASCII = 0, 1, 2
"""The states of lines: the loops read it; they did not; they did, and it is right if it is UTF-8."""


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


def line_ends(content: bytes) -> int:
    """The number of line ends: ``bytes.count`` takes three times as long."""
    data = np.frombuffer(content, np.uint8)
    return sum(int(np.count_nonzero(data[at : at + _BLOCK] == _NEW_LINE)) for at in range(0, len(data), _BLOCK))


def read_content(content: bytes, first: int, form: LogForm) -> tuple[list[MessageBatch], list[RejectedRow]]:
    """The messages in some lines, and the lines that are none. ``first`` is the number of the first line."""
    read = read_by_decoder if len(content) <= SMALL else read_by_loops
    return read(content, first, form)


def read_by_loops(content: bytes, first: int, form: LogForm) -> tuple[list[MessageBatch], list[RejectedRow]]:
    """Like :func:`read_by_decoder`, and much faster for many lines."""
    lines = _Lines(content, first)
    regular, others = lines.regular(form)
    slow, rejected = _decode(lines.lines_at(others), lines.line, form)
    return [batch for batch in (regular, slow) if len(batch.lines)], rejected


def read_by_decoder(content: bytes, first: int, form: LogForm) -> tuple[list[MessageBatch], list[RejectedRow]]:
    """What the lines say, by Python's own decoder. Blank lines are left out."""
    lines = {number: line for number, line in enumerate(content.split(b"\n"), first) if line.strip(_BLANK)}
    lines = {number: line.removesuffix(b"\r") for number, line in lines.items()}
    batch, rejected = _decode(lines.items(), lines.__getitem__, form)
    return [batch] if len(batch.lines) else [], rejected


def _decode(
    lines: Iterable[tuple[int, bytes]], line: Callable[[int], bytes], form: LogForm
) -> tuple[MessageBatch, list[RejectedRow]]:
    """The messages in ``lines``, which are numbered, and the lines that are none. ``line`` finds one by its number."""
    taken: list[int] = []
    messages: list[dict[str, Any]] = []
    rejected: list[RejectedRow] = []
    for number, content in lines:
        try:
            messages.append(checked(_decoded(content, form), form))
        except NotAMessage as reason:
            rejected.append(RejectedRow(number, str(reason), content))
        else:
            taken.append(number)
    return MessageBatch.of(np.array(taken, np.int64), messages, line), rejected


class _Lines:
    """The lines of some content, read by the compiled loops."""

    def __init__(self, content: bytes, first: int) -> None:
        self._data = np.frombuffer(content + bytes(_MARGIN), np.uint8)
        self._end = len(content)
        most = line_ends(content) + 1
        self._texts = np.empty(len(content) + 2 * _MARGIN, np.uint8)
        self._numbers = np.zeros((len(_INTEGERS), most), np.int64)
        self._given = np.zeros((len(_FIELDS), most), np.bool_)
        self._starts = np.zeros((len(_TEXTS) + 1, most), np.int32)
        self._lengths = np.zeros((len(_TEXTS) + 1, most), np.int32)
        self._lines = np.zeros((3, most), np.int64)
        self._states = np.zeros(most, np.uint8)
        self._rows = _scan(
            self._data, self._end, first, self._numbers, self._given, self._starts, self._lengths, self._texts,
            self._lines, self._states,
        )  # fmt: skip
        self._texts.flags.writeable = False  # as the bytes of a log: the same compiled loops read both

    def line(self, number: int) -> bytes:
        """A line by its number, without its end."""
        row = np.searchsorted(self._lines[0, : self._rows], number)
        return next(self.lines_at(np.array([row])))[1]

    def lines_at(self, rows: NDArray[np.int64]) -> Iterator[tuple[int, bytes]]:
        """The numbers of some lines, and the lines without their ends."""
        for number, start, stop in self._lines[:, rows].T.tolist():
            yield number, self._data[start:stop].tobytes().removesuffix(b"\r")

    def regular(self, form: LogForm) -> tuple[MessageBatch, NDArray[np.int64]]:
        """The messages that the loops read, and the rows of the other lines."""
        rows = self._rows
        states, numbers = self._states[:rows], self._lines[0, :rows]
        given = dict(zip(_FIELDS, self._given[:, :rows], strict=True))
        integers = dict(zip(_INTEGERS, self._numbers[:, :rows], strict=True))
        good = states == _REGULAR
        if np.any(states == _REGULAR_NOT_ASCII):
            data = self._data[: self._end]
            if is_utf8(np.array([0, self._end], np.int32), data):
                good |= states == _REGULAR_NOT_ASCII
        good &= fits(integers, given, form)
        good &= self._lengths[_TEXTS.index("topic"), :rows] > 0
        bodies, fit = self._bodies(form, good & given["body"])
        good &= fit
        good_rows = np.flatnonzero(good)
        columns: dict[str, pa.Array] = {}
        for field, name in enumerate(_INTEGERS):
            is_given = given[name][good_rows]
            if is_given.any():
                kind = pa.int32() if KNOWN[name] == "int" else pa.int64()
                missing = None if is_given.all() else ~is_given
                columns[name] = pa.array(self._numbers[field, good_rows], mask=missing).cast(kind)
        for field, name in enumerate(_TEXTS):
            if name in _FEW_VALUES and given[name][good_rows].any():
                columns[name] = self._few_values(field, good_rows, given[name][good_rows])
        if bodies is not None:
            columns["body" if form.body != "text" else "message_body"] = bodies.take(pa.array(good_rows))
        is_given = given["message_body"][good_rows]
        if is_given.any():
            texts = binary_array(
                *spans(self._texts, *self._wide_spans(_TEXTS.index("message_body"), good_rows)), ~is_given
            )
            known = columns.get("message_body", pa.nulls(len(good_rows), pa.binary()))
            columns["message_body"] = pc.coalesce(texts, known)
        starts, lengths = self._wide_spans(len(_TEXTS), good_rows)
        batch = MessageBatch(numbers[good_rows], columns, self._texts, starts, lengths, self.line)
        return batch, np.flatnonzero(~good)

    def _few_values(self, field: int, rows: NDArray[np.int64], given: NDArray[np.bool_]) -> pa.Array:
        starts, lengths = self._spans(field, rows)
        values = PropertyValues().read(self._texts, starts, lengths)
        is_empty = given & (lengths == 0)
        return pc.if_else(is_empty, "", pc.cast(values, pa.string())) if is_empty.any() else values

    def _spans(self, field: int, rows: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        return self._starts[field, rows], self._lengths[field, rows]

    def _wide_spans(self, field: int, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        starts, lengths = self._spans(field, rows)
        return starts.astype(np.int64), lengths.astype(np.int64)

    def _bodies(self, form: LogForm, given: NDArray[np.bool_]) -> tuple[pa.BinaryArray | None, NDArray[np.bool_]]:
        """The body of each line, null where it is not ``given``; and which lines are right in that."""
        field = _TEXTS.index("body")
        fit = np.ones(self._rows, np.bool_)
        if not given.any():
            return None, fit
        starts = self._starts[field, : self._rows].astype(np.int64)
        lengths = np.where(given, self._lengths[field, : self._rows], 0).astype(np.int64)
        if form.body == "hex":
            offsets, octets = _from_hex(self._texts, starts, lengths, fit)
        elif form.body == "base64":
            offsets, octets = _from_base64(self._texts, starts, lengths, fit)
        else:
            offsets, octets = spans(self._texts, starts, lengths)
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


def _decoded(line: bytes, form: LogForm) -> dict[str, Any]:
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

# The loops.

_LONGEST_NAME = 40
_WORDS = [load.encode() for load in sorted(SPELLINGS, key=len)]
_NAMES = np.stack([np.frombuffer(name.ljust(_LONGEST_NAME, b"\0"), np.uint64) for name in _WORDS])
_FIELD_OF_NAME = np.array([_FIELDS.index(SPELLINGS[name.decode()]) for name in _WORDS], np.int64)
_FIRST_OF_LENGTH = np.searchsorted([len(name) for name in _WORDS], np.arange(_LONGEST_NAME + 2))
_LIMITS = np.array([ENDS[KNOWN[name]] - 1 for name in _INTEGERS], np.int64)
_INTEGER_COUNT, _TEXT_COUNT = len(_INTEGERS), len(_TEXTS)
_ONES, _HIGH_BITS = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)
_SPACES, _QUOTES, _BACKSLASHES = (np.uint64(byte * 0x0101010101010101) for byte in b' "\\')
_KEPT = np.array([2 ** (8 * length) - 1 for length in range(9)], np.uint64)
_QUOTE, _BACKSLASH, _OPEN, _CLOSE, _OPEN_LIST, _CLOSE_LIST, _COLON, _COMMA, _NEW_LINE, _MINUS, _ZERO = b'"\\{}[]:,\n-0'
_ESCAPES = np.zeros(256, np.uint8)
for _letter, _meant in zip(b'"\\/bfnrt', b'"\\/\b\f\n\r\t', strict=True):
    _ESCAPES[_letter] = _meant
_LETTER_U = ord("u")
_DIGITS = np.full(256, -1, np.int64)
for _digit in b"0123456789abcdefABCDEF":
    _DIGITS[_digit] = int(chr(_digit), 16)
_SIXTY_FOUR = np.full(256, -1, np.int64)
for _index, _letter in enumerate(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"):
    _SIXTY_FOUR[_letter] = _index
_VALUE, _NAME, _AFTER = 0, 1, 2
_NULL, _WHOLE, _OTHER_LITERAL = 0, 1, 2
_PROPERTIES = _INTEGER_COUNT + _TEXT_COUNT
_ONE = np.uint64(1)
_DEEPEST = 60


@compiled
def _scan(
    data: Bytes, end: Int, first: Int, numbers: Array, given: Array, starts: Array, lengths: Array, texts: Bytes,
    lines: Array, states: Array,
) -> Int:  # fmt: skip
    """Reads all lines of ``data``, of which those that are not blank get a column each. Returns their number.

    ``lines``: their numbers, and where they begin and end (exclusive). ``starts`` and ``lengths`` are places in
    ``texts``: of _TEXTS, and of the properties as a property text (name 0x01 value 0x02 …).
    """
    at: Int = np.int64(0)
    out: Int = np.int64(0)
    row: Int = np.int64(0)
    number: Int = np.int64(first)
    while at < end:
        begin: Int = at
        while at < end and (data[at] == 32 or (data[at] != _NEW_LINE and 9 <= data[at] <= 13)):
            at += 1
        if at < end and data[at] != _NEW_LINE:
            stop, after, high = _message(data, begin, row, out, numbers, given, starts, lengths, texts)
            stop = _after_blanks(data, stop) if stop >= 0 else stop
            if stop >= 0 and (stop == end or data[stop] == _NEW_LINE):
                states[row] = _REGULAR_NOT_ASCII if high else _REGULAR
                at, out = stop, after
            else:
                states[row] = _OTHER
                at = _line_end(data, begin, end)
            lines[0, row], lines[1, row], lines[2, row] = number, begin, at
            row += 1
        at += 1
        number += 1
    return row


@compiled
def _message(
    data: Bytes, at: Int, row: Int, out: Int, numbers: Array, given: Array, starts: Array, lengths: Array, texts: Bytes
) -> tuple[Int, Int, Int]:
    """Reads an object. Returns where it ends, or -1; the end of ``texts``; and the high bits of its texts.

    ``around`` has a bit for each object (1) or list (0) around a token, the innermost lowest. One loop has one place
    for each kind of token, and one exit: functions that call each other took longer, to compile and to run, since Numba
    counts references to arrays at calls.
    """
    stop: Int = np.int64(-1)
    high, around = np.uint64(0), np.uint64(0)
    depth: Int = np.int64(0)
    field: Int = np.int64(-1)
    name: Int = out
    state = _VALUE
    while True:
        at = _after_blanks(data, at)
        byte = data[at]
        begin: Int = out
        if state == _AFTER:
            if byte == _COMMA:
                state = _NAME if around & _ONE else _VALUE
            elif byte == (_CLOSE if around & _ONE else _CLOSE_LIST):
                if field == _PROPERTIES and depth == 2:
                    lengths[_TEXT_COUNT, row] = out - starts[_TEXT_COUNT, row]
                around >>= _ONE
                depth -= 1
                if depth == 0:
                    stop = at + 1
                    break
            else:
                break
            at += 1
            continue
        is_null = False
        if byte == _QUOTE:
            at += 1
            while True:
                word = load_word(data, at)
                store(texts, out, word)
                special = _special(word)
                if special == np.uint64(0):
                    high |= word
                    at += 8
                    out += 8
                    continue
                count = lowest_byte(special)
                high |= word & _KEPT[count]
                at += count
                out += count
                if data[at] != _BACKSLASH:
                    break
                at, out = _unescaped(data, at + 1, texts, out)
                if at < 0:
                    break
            if at < 0 or data[at] != _QUOTE:
                break
            at += 1
            if state == _NAME:
                at = _after_blanks(data, at)
                if data[at] != _COLON:
                    break
                at += 1
                state = _VALUE
                if depth == 1:
                    field = _field(texts, begin, out - begin)
                    out = begin
                elif field == _PROPERTIES:
                    name = begin
                    texts[out] = 1
                    out += 1
                else:
                    out = begin
                continue
            if depth == 1 and (field == _PROPERTIES or 0 <= field < _INTEGER_COUNT):
                break
        elif state == _NAME:
            break
        elif byte in (_OPEN, _OPEN_LIST):
            is_object = byte == _OPEN
            if depth == 0:
                if not is_object:
                    break
            elif field >= 0:
                if depth > 1 or field != _PROPERTIES or not is_object or given[field, row]:
                    break
                given[field, row] = True
                starts[_TEXT_COUNT, row] = out
            if depth == _DEEPEST:
                break
            around = around << _ONE | np.uint64(is_object)
            depth += 1
            at += 1
            at = _after_blanks(data, at)
            is_empty = data[at] == (_CLOSE if is_object else _CLOSE_LIST)
            state = _AFTER if is_empty else _NAME if is_object else _VALUE
            continue
        else:
            if depth == 0:
                break
            end, kind = _literal(data, at)
            if end < 0:
                break
            is_null = kind == _NULL
            if depth == 1 and 0 <= field < _INTEGER_COUNT and not is_null:
                if kind != _WHOLE or end - at > 18:
                    break
                value = _integer(data, at, end)
                if not -_LIMITS[field] - 1 <= value <= _LIMITS[field]:
                    break
                numbers[field, row] = value
            elif depth == 1 and field == _PROPERTIES and not is_null:
                break
            if not is_null:
                for i in range(0, end - at, 8):
                    store(texts, out + i, load_word(data, at + i))
                out += end - at
            at = end
        state = _AFTER
        if field < 0:
            out = begin
        elif depth > 1:
            # A property without a name or a value is none.
            if begin == name + 1 or out == begin:
                out = name
            else:
                texts[out] = 2
                out += 1
        elif not is_null:
            if given[field, row]:
                break
            given[field, row] = True
            if field < _INTEGER_COUNT:
                out = begin
            else:
                starts[field - _INTEGER_COUNT, row] = begin
                lengths[field - _INTEGER_COUNT, row] = out - begin
    return stop, out, high & _HIGH_BITS


@compiled
def _special(word: Int) -> Int:
    """The bytes of a word that end a plain text: quotes, backslashes, and those below the blank.

    The lowest bit set is right, those above may not be.
    """
    quotes, backslashes = word ^ _QUOTES, word ^ _BACKSLASHES
    marks = (quotes - _ONES) & ~quotes | (backslashes - _ONES) & ~backslashes | (word - _SPACES) & ~word
    return marks & _HIGH_BITS


@compiled
def _unescaped(data: Bytes, at: Int, texts: Bytes, out: Int) -> tuple[Int, Int]:
    """Reads what follows a backslash. Returns where it ends, or -1, and the end of the copy.

    U+0001 and U+0002 would be separators in a property text.
    """
    if data[at] != _LETTER_U:
        meant = _ESCAPES[data[at]]
        texts[out] = meant
        return (np.int64(-1) if meant == 0 else at + 1), out + 1
    code = _four_digits(data, at + 1)
    at += 5
    if 0xD800 <= code < 0xDC00 and data[at] == _BACKSLASH and data[at + 1] == _LETTER_U:
        low = _four_digits(data, at + 2)
        at += 6
        code = 0x10000 + ((code - 0xD800) << 10) + low - 0xDC00 if 0xDC00 <= low < 0xE000 else np.int64(-1)
    if code < 3 or 0xD800 <= code < 0xE000:
        return np.int64(-1), out
    return at, _add_utf8(texts, out, code)


@compiled
def _literal(data: Bytes, at: Int) -> tuple[Int, Int]:
    """Where a number, true, false or null ends, or -1; and which it is."""
    kind = _OTHER_LITERAL
    word = load_word(data, at)
    if word & _KEPT[4] == 0x6C6C756E:  # null
        kind = _NULL
        at += 4
    elif word & _KEPT[4] == 0x65757274:  # true
        at += 4
    elif word & _KEPT[5] == 0x65736C6166:  # false
        at += 5
    else:
        if data[at] == _MINUS:
            at += 1
        digits = _after_digits(data, at)
        is_right = digits == at + 1 or (digits > at and data[at] != _ZERO)
        kind = _WHOLE
        if data[digits] == 46:  # a point
            kind = _OTHER_LITERAL
            at = digits + 1
            digits = _after_digits(data, at)
            is_right &= digits > at
        if data[digits] == 101 or data[digits] == 69:  # e or E
            kind = _OTHER_LITERAL
            at = digits + 1
            if data[at] == 43 or data[at] == _MINUS:
                at += 1
            digits = _after_digits(data, at)
            is_right &= digits > at
        at = digits if is_right else np.int64(-1)
    return at, kind


@compiled
def _after_digits(data: Bytes, at: Int) -> Int:
    while 48 <= data[at] <= 57:
        at += 1
    return at


@compiled
def _integer(data: Bytes, at: Int, end: Int) -> Int:
    is_negative = data[at] == _MINUS
    value: Int = np.int64(0)
    for i in range(at + 1 if is_negative else at, end):
        value = 10 * value + np.int64(data[i]) - 48
    return -value if is_negative else value


@compiled
def _after_blanks(data: Bytes, at: Int) -> Int:
    while data[at] == 32 or data[at] == 9 or data[at] == 13:
        at += 1
    return at


@compiled
def _line_end(data: Bytes, at: Int, end: Int) -> Int:
    while at < end and data[at] != _NEW_LINE:
        at += 1
    return at


@compiled
def _field(texts: Bytes, at: Int, length: Int) -> Int:
    """The field with the name in ``texts``; -1 if it has none."""
    field: Int = np.int64(-1)
    if length + 1 < len(_FIRST_OF_LENGTH):
        for name in range(_FIRST_OF_LENGTH[length], _FIRST_OF_LENGTH[length + 1]):
            is_same = True
            for i in range(0, length, 8):
                word = load_word(texts, at + i) & _KEPT[min(length - i, 8)]
                if word != _NAMES[name, i >> 3]:
                    is_same = False
                    break
            if is_same:
                field = np.int64(_FIELD_OF_NAME[name])
                break
    return field


@compiled
def _four_digits(data: Bytes, at: Int) -> Int:
    value: Int = np.int64(0)
    for i in range(4):
        digit = _DIGITS[data[at + i]]
        if digit < 0:
            return np.int64(-1)
        value = value << 4 | digit
    return value


@compiled
def _add_utf8(texts: Bytes, out: Int, code: Int) -> Int:
    if code < 0x80:
        texts[out] = code
        return out + 1
    if code < 0x800:
        texts[out] = 0xC0 | code >> 6
    elif code < 0x10000:
        texts[out] = 0xE0 | code >> 12
        texts[out + 1] = 0x80 | code >> 6 & 0x3F
        out += 1
    else:
        texts[out] = 0xF0 | code >> 18
        texts[out + 1] = 0x80 | code >> 12 & 0x3F
        texts[out + 2] = 0x80 | code >> 6 & 0x3F
        out += 2
    texts[out + 1] = 0x80 | code & 0x3F
    return out + 2


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
            data[out] = _DIGITS[texts[at]]
            wrong |= _DIGITS[texts[at]]
            at += 1
            out += 1
        while at < end:
            value = _DIGITS[texts[at]] << 4 | _DIGITS[texts[at + 1]]
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
