"""Numbers as Java parses and orders them."""

from __future__ import annotations

import math
import re
import struct
import unicodedata

from filtering.java.strings import trim

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
