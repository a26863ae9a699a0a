"""Java's rules for texts, numbers and properties files, on which RocketMQ's answers depend.

Texts are decoded as ``new String(bytes, UTF_8)``, which replaces malformed input by U+FFFD, and trimmed. Numbers are
parsed and ordered as Integer, Long and Double do. A ``broker.conf`` is read as java.util.Properties.load does.
"""

from __future__ import annotations

import math
import re
import struct
import unicodedata
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

# Java replaces a surrogate in three bytes, or the first two of them, with one U+FFFD; Python with one for each byte.
_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")

_HIGH_BITS = np.uint64(0x8080808080808080)
_HALF_A_PAIR = re.compile("[\ud800-\udfff]")
_TRIMMED = "".join(map(chr, range(0x21)))


def trim(text: str) -> str:
    """java.lang.String.trim: the text without the characters up to U+0020 at both ends."""
    return text.strip(_TRIMMED)


def decode_utf8(data: bytes) -> str:
    """``data`` decoded as Java decodes UTF-8, malformed or not."""
    return _SURROGATE.sub("\ufffd".encode(), data).decode("utf-8", "replace")


def string_array(offsets: npt.NDArray[np.int32], data: npt.NDArray[np.uint8]) -> pa.StringArray:
    """Arrow strings over offsets (rows + 1) and data. Malformed input is replaced as in Java."""
    array = unchecked_string_array(offsets, data)
    if is_utf8(offsets, data):
        return array
    return pa.array([decode_utf8(text) for text in array.view(pa.binary()).to_pylist()], pa.string())


def unchecked_string_array(
    offsets: npt.NDArray[np.int32], data: npt.NDArray[np.uint8], missing: npt.NDArray[np.bool_] | None = None
) -> pa.StringArray:
    """Arrow strings over offsets (rows + 1) and data, which must be UTF-8; null where ``missing`` is true."""
    validity = None if missing is None or not missing.any() else pa.py_buffer(np.packbits(~missing, bitorder="little"))
    buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.string(), len(offsets) - 1, buffers)


def is_utf8(offsets: npt.NDArray[np.int32], data: npt.NDArray[np.uint8]) -> bool:
    """Whether each string is valid UTF-8: the data is valid as a whole, and no string begins inside a character."""
    if _is_ascii(data):
        return True
    try:
        unchecked_string_array(offsets[[0, -1]], data).validate(full=True)
    except pa.ArrowInvalid:
        return False
    starts = offsets[offsets < len(data)]
    return not np.any(data[starts] & 0xC0 == 0x80)


def _is_ascii(data: npt.NDArray[np.uint8]) -> bool:
    in_words = len(data) // 8 * 8
    words, rest = data[:in_words].view(np.uint64), data[in_words:]
    return bool(np.bitwise_or.reduce(words) & _HIGH_BITS == 0) and not np.any(rest & 0x80)


def has_half_a_pair(text: str) -> bool:
    """Whether a text contains half of a surrogate pair. JSON may have it; UTF-8 does not."""
    return not text.isascii() and _HALF_A_PAIR.search(text) is not None


def without_half_pairs(text: str) -> str:
    """The text with U+FFFD in the place of each half of a surrogate pair."""
    return _HALF_A_PAIR.sub("\ufffd", text)


# Numbers.


_ASCII_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_DECIMAL = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?")
_HEXADECIMAL = re.compile(r"([+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?")
_NOT_FINITE = re.compile(r"([+-]?)(NaN|Infinity)")
_INTEGER_DIGITS = 19

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1


def parse_int(text: str) -> int | None:
    """java.lang.Integer.valueOf, or None if it throws."""
    return _parse_integer(text, INT_MAX)


def parse_long(text: str) -> int | None:
    """java.lang.Long.valueOf, or None if it throws."""
    return _parse_integer(text, LONG_MAX)


def parse_double(text: str) -> float | None:
    """java.lang.Double.valueOf, or None if it throws."""
    text = trim(text)
    if match := _DECIMAL.fullmatch(text):
        return float(match[1])
    if match := _NOT_FINITE.fullmatch(text):
        return math.nan if match[2] == "NaN" else math.copysign(math.inf, -1 if match[1] == "-" else 1)
    if match := _HEXADECIMAL.fullmatch(text):
        try:
            return float.fromhex(match[1])
        except OverflowError:
            return -math.inf if text[0] == "-" else math.inf
    return None


def double_order(value: float) -> int:
    """A sort key for the order of java.lang.Double.compareTo: -0.0 < 0.0, and NaN is last and equal to itself."""
    if math.isnan(value):
        return 0x7FF8000000000000
    bits: int = struct.unpack(">q", struct.pack(">d", value))[0]
    return bits if bits >= 0 else bits ^ LONG_MAX


def compare_doubles(left: float, right: float) -> int:
    """java.lang.Double.compareTo: -1, 0 or 1."""
    left_order, right_order = double_order(left), double_order(right)
    return (left_order > right_order) - (left_order < right_order)


def _parse_integer(text: str, greatest: int) -> int | None:
    if not _ASCII_INTEGER.fullmatch(text):
        digits = text[1:] if text[:1] in ("+", "-") else text
        if not digits or not all(_is_digit(character) for character in digits):
            return None
        text = text[: len(text) - len(digits)] + "".join(str(unicodedata.decimal(digit)) for digit in digits)
    sign, digits = (text[0], text[1:]) if text[0] in "+-" else ("", text)
    digits = digits.lstrip("0") or "0"
    if len(digits) > _INTEGER_DIGITS:
        return None
    value = -int(digits) if sign == "-" else int(digits)
    return value if -greatest - 1 <= value <= greatest else None


def _is_digit(character: str) -> bool:
    """Java checks UTF-16 units, so digits beyond the basic plane do not count as digits."""
    return character <= "\uffff" and unicodedata.decimal(character, None) is not None


# Properties files.


_BLANKS = " \t\f"
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_KEY = re.compile(r"(?P<key>(?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u(.{0,4})|(.?))", re.DOTALL)
_UNICODE = re.compile(r"[0-9a-fA-F]{4}")


def parse_properties(text: str) -> dict[str, str]:
    """The keys and values of a properties file. If a key is repeated, its last value counts.

    Java reads such files as ISO-8859-1. Values keep their trailing blanks, as in Java. Raises ValueError for a
    malformed ``\\uxxxx``.
    """
    properties = {}
    for line in _logical_lines(text):
        match = _KEY.match(line)
        assert match is not None
        properties[_unescape(match["key"])] = _unescape(line[match.end() :])
    return properties


def _logical_lines(text: str) -> Iterator[str]:
    """The lines except comments and blank lines. A line that ends in a backslash is joined with the next one."""
    joined: list[str] = []
    *naturals, last = re.split(r"\r\n|\r|\n", text)
    for natural in naturals:
        line = natural.lstrip(_BLANKS)
        if not joined and line[:1] in ("#", "!"):
            continue
        if _ends_in_an_escape(line):
            joined += [line[:-1]] if len(line) > 1 else []
            continue
        if joined or line:
            yield "".join([*joined, line])
        joined = []
    line = last.lstrip(_BLANKS)
    if joined or (line and line[0] not in ("#", "!")):
        # Java drops a backslash at the end of the file.
        yield "".join([*joined, line[:-1] if _ends_in_an_escape(line) else line])


def _ends_in_an_escape(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _unescape(text: str) -> str:
    def character(match: re.Match[str]) -> str:
        digits, other = match.groups()
        if digits is None:
            return _CONTROL.get(other, other)
        if not _UNICODE.fullmatch(digits):
            raise ValueError(f"Malformed \\uxxxx encoding: \\u{digits}")
        return chr(int(digits, 16))

    unescaped = _ESCAPE.sub(character, text)
    # Java's characters are UTF-16 units: two escapes may form one character. Half of a pair cannot be encoded.
    return unescaped.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
