"""The scanner of JSON lines: objects of known fields, a line each.

A compiled loop takes strict JSON. An object may have any fields, but the values of the known ones (FIELDS) must have
their kind. All other lines, good or bad, it leaves to its caller: their state is OTHER.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from filtering.frozen import frozen
from filtering.kernels.compile import Array, Int, compiled
from filtering.kernels.registers import HIGH_BITS, KEPT, json_marks, load_word
from schemas.messages.message_log_rows import KNOWN, SPELLINGS
from schemas.rocketmq_store.record_layout import Bytes, lowest_byte, store

REGULAR, OTHER, REGULAR_NOT_ASCII = 0, 1, 2
"""The states of lines: the loop read it; it did not; it did, and it is right if it is UTF-8."""
_MARGIN = 16
"""Zero bytes after the lines, which the loop may read."""
_BLOCK = 1 << 18
"""Bytes that a processor's cache holds."""


class Kind(IntEnum):
    """What a field has. A null is nothing, whatever the kind is."""

    INT = 1
    """A whole number of 32 bits."""
    LONG = 2
    """A whole number of at most 18 digits, which always fit into 64 bits."""
    ANY = 3
    """A text; a number or a boolean counts as its JSON text."""
    MAP = 4
    """An object of values of the kind ANY: a property text (name 0x01 value 0x02 …), without those that are empty."""


_OF_TYPE = {
    "int": Kind.INT,
    "bigint": Kind.LONG,
    "string": Kind.ANY,
    "binary": Kind.ANY,
    "map<string, string>": Kind.MAP,
}
FIELDS = {name: _OF_TYPE[kind] for name, kind in KNOWN.items()}
"""The known fields."""


@frozen(eq=False)
class Lines:
    """The lines of ``data`` that are not blank, as rows.

    ``lines``: the number of each, and where it begins and ends (exclusive). By field: ``given``, whether each has a
    value that is not null; ``numbers``, of INT and LONG; ``places``, of all others where they begin in ``texts``, and
    their lengths.
    """

    data: Bytes
    lines: NDArray[np.int64]
    states: NDArray[np.uint8]
    given: Mapping[str, NDArray[np.bool_]]
    numbers: Mapping[str, NDArray[np.int64]]
    places: Mapping[str, tuple[NDArray[np.int32], NDArray[np.int32]]]
    texts: Bytes

    def line(self, number: int) -> bytes:
        """A line by its number, without its end."""
        row = np.searchsorted(self.lines[0], number)
        return next(self.at(np.array([row])))[1]

    def at(self, rows: NDArray[np.int64]) -> Iterator[tuple[int, bytes]]:
        """The numbers of some lines, and the lines without their ends."""
        for number, start, stop in self.lines[:, rows].T.tolist():
            yield number, self.data[start:stop].tobytes().removesuffix(b"\r")


def scan(content: bytes, first: int) -> Lines:
    """Reads the lines of some content. ``first``: the number of the first one."""
    data, end = np.frombuffer(content + bytes(_MARGIN), np.uint8), len(content)
    most, count = line_ends(content) + 1, len(FIELDS)
    lines, states = np.zeros((3, most), np.int64), np.zeros(most, np.uint8)
    given, numbers = np.zeros((count, most), np.bool_), np.zeros((count, most), np.int64)
    starts, lengths = np.zeros((count, most), np.int32), np.zeros((count, most), np.int32)
    texts = np.empty(end + 2 * _MARGIN, np.uint8)
    rows = _scan(data, end, first, numbers, given, starts, lengths, texts, lines, states)
    texts.flags.writeable = False  # as the bytes of a log: the same compiled loops read both
    is_integer = {name: kind <= Kind.LONG for name, kind in FIELDS.items()}
    return Lines(
        data[:end],
        lines[:, :rows],
        states[:rows],
        {name: given[i, :rows] for i, name in enumerate(FIELDS)},
        {name: numbers[i, :rows] for i, name in enumerate(FIELDS) if is_integer[name]},
        {name: (starts[i, :rows], lengths[i, :rows]) for i, name in enumerate(FIELDS) if not is_integer[name]},
        texts,
    )


def line_ends(content: bytes) -> int:
    """The number of line ends: ``bytes.count`` takes three times as long."""
    data = np.frombuffer(content, np.uint8)
    return sum(int(np.count_nonzero(data[at : at + _BLOCK] == _NEW_LINE)) for at in range(0, len(data), _BLOCK))


# The loop.


# Tables of names are not arguments of loops: Numba counts references to arrays at calls, a tenth of the time here.

_LONGEST_NAME = 40
_SPELLED = sorted(SPELLINGS, key=len)
_FIRST_OF_LENGTH = np.searchsorted([len(_word) for _word in _SPELLED], np.arange(_LONGEST_NAME + 2))
_NAMES = np.stack([np.frombuffer(_word.encode().ljust(_LONGEST_NAME, b"\0"), np.uint64) for _word in _SPELLED])
_FIELD_OF_NAME = np.array([[*FIELDS].index(SPELLINGS[_word]) for _word in _SPELLED])
_KINDS = np.array([*FIELDS.values()], np.int64)
_UNKNOWN = 0
_INT, _LONG, _ANY, _MAP = map(int, Kind)
_GREATEST_INT = (1 << 31) - 1
_QUOTE, _BACKSLASH, _OPEN, _CLOSE, _OPEN_LIST, _CLOSE_LIST, _COLON, _COMMA = b'"\\{}[]:,'
_NEW_LINE, _MINUS, _ZERO, _NINE = b"\n-09"
_ESCAPES = np.zeros(256, np.uint8)
for _letter, _meant in zip(b'"\\/bfnrt', b'"\\/\b\f\n\r\t', strict=True):
    _ESCAPES[_letter] = _meant
_LETTER_U = ord("u")
DIGITS = np.full(256, -1, np.int64)
"""The value of each hexadecimal digit; -1 of other bytes."""
for _digit in b"0123456789abcdefABCDEF":
    DIGITS[_digit] = int(chr(_digit), 16)
_VALUE, _NAME, _AFTER = 0, 1, 2
_NULL, _WHOLE, _OTHER_LITERAL = 0, 1, 2
_ONE = np.uint64(1)
_DEEPEST = 60


@compiled
def _scan(
    data: Bytes, end: Int, first: Int, numbers: Array, given: Array, starts: Array, lengths: Array, texts: Bytes,
    lines: Array, states: Array,
) -> Int:  # fmt: skip
    """Reads all lines of ``data``, of which those that are not blank get a row each. Returns their number."""
    at: Int = np.int64(0)
    out: Int = np.int64(0)
    row: Int = np.int64(0)
    number: Int = np.int64(first)
    while at < end:
        begin: Int = at
        while at < end and (data[at] == 32 or (data[at] != _NEW_LINE and 9 <= data[at] <= 13)):
            at += 1
        if at < end and data[at] != _NEW_LINE:
            stop, after, high = _object(data, begin, row, out, numbers, given, starts, lengths, texts)
            stop = _after_blanks(data, stop) if stop >= 0 else stop
            if stop >= 0 and (stop == end or data[stop] == _NEW_LINE):
                states[row] = REGULAR_NOT_ASCII if high else REGULAR
                at, out = stop, after
            else:
                states[row] = OTHER
                at = _line_end(data, begin, end)
            lines[0, row], lines[1, row], lines[2, row] = number, begin, at
            row += 1
        at += 1
        number += 1
    return row


@compiled
def _object(
    data: Bytes, at: Int, row: Int, out: Int, numbers: Array, given: Array, starts: Array, lengths: Array,
    texts: Bytes,
) -> tuple[Int, Int, Int]:  # fmt: skip
    """Reads an object. Returns where it ends, or -1; the end of ``texts``; and the high bits of its texts.

    ``around`` has a bit for each object (1) or list (0) around a token, the innermost lowest. One loop has one place
    for each kind of token, and one exit: functions that call each other took longer, to compile and to run, since Numba
    counts references to arrays at calls.
    """
    stop: Int = np.int64(-1)
    high, around = np.uint64(0), np.uint64(0)
    depth: Int = np.int64(0)
    field: Int = np.int64(-1)
    kind: Int = np.int64(_UNKNOWN)
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
                if kind == _MAP and depth == 2:
                    lengths[field, row] = out - starts[field, row]
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
                special = json_marks(word)
                if special == np.uint64(0):
                    high |= word
                    at += 8
                    out += 8
                    continue
                count = lowest_byte(special)
                high |= word & KEPT[count]
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
                    kind = _KINDS[field] if field >= 0 else np.int64(_UNKNOWN)
                    out = begin
                elif kind == _MAP:
                    name = begin
                    texts[out] = 1
                    out += 1
                else:
                    out = begin
                continue
            if depth == 1 and kind in (_INT, _LONG, _MAP):
                break
        elif state == _NAME:
            break
        elif byte in (_OPEN, _OPEN_LIST):
            is_object = byte == _OPEN
            if depth == 0:
                if not is_object:
                    break
            elif kind != _UNKNOWN:
                if depth > 1 or kind != _MAP or not is_object or given[field, row]:
                    break
                given[field, row] = True
                starts[field, row] = out
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
            end, literal = _literal(data, at)
            if end < 0:
                break
            is_null = literal == _NULL
            if depth == 1 and not is_null:
                if kind in (_INT, _LONG):
                    if literal != _WHOLE or end - at > 18:
                        break
                    value = _integer(data, at, end)
                    if kind == _INT and not -_GREATEST_INT - 1 <= value <= _GREATEST_INT:
                        break
                    numbers[field, row] = value
                elif kind == _MAP:
                    break
            if kind > _LONG and not is_null:
                for i in range(0, end - at, 8):
                    store(texts, out + i, load_word(data, at + i))
                out += end - at
            at = end
        state = _AFTER
        if kind == _UNKNOWN:
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
            if kind <= _LONG:
                out = begin
            else:
                starts[field, row] = begin
                lengths[field, row] = out - begin
    return stop, out, high & HIGH_BITS


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
    if data[at] > _NINE:
        word = load_word(data, at)
        if word & KEPT[4] == 0x6C6C756E:  # null
            kind = _NULL
            at += 4
        elif word & KEPT[4] == 0x65757274:  # true
            at += 4
        elif word & KEPT[5] == 0x65736C6166:  # false
            at += 5
        else:
            at = np.int64(-1)
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
    """The number that the digits from ``at`` to ``end`` are, with or without a minus."""
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
    if length <= _LONGEST_NAME:
        first = load_word(texts, at) & KEPT[min(length, 8)]
        for name in range(_FIRST_OF_LENGTH[length], _FIRST_OF_LENGTH[length + 1]):
            is_same = first == _NAMES[name, 0]
            for i in range(8, length if is_same else 0, 8):
                word = load_word(texts, at + i) & KEPT[min(length - i, 8)]
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
        digit = DIGITS[data[at + i]]
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
