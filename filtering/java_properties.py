"""The format of RocketMQ's configuration files. Source: java.util.Properties.load."""

from __future__ import annotations

import re
from collections.abc import Iterator

_BLANKS = " \t\f"
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_KEY = re.compile(r"(?P<key>(?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u(.{0,4})|(.?))", re.DOTALL)
_UNICODE = re.compile(r"[0-9a-fA-F]{4}")


def parse_properties(text: str) -> dict[str, str]:
    """Keys and values of a properties file; the last of equal keys wins.

    Java reads such files as ISO-8859-1. Values keep their trailing blanks, as in Java. Raises
    ValueError on a malformed ``\\uxxxx``.
    """
    properties = {}
    for line in _logical_lines(text):
        match = _KEY.match(line)
        assert match is not None
        properties[_unescape(match["key"])] = _unescape(line[match.end() :])
    return properties


def _logical_lines(text: str) -> Iterator[str]:
    """Lines without comments and blank ones, those ending in a backslash joined to the next."""
    joined: str | None = None
    for natural in re.split(r"\r\n|\r|\n", text):
        line = natural.lstrip(_BLANKS)
        if joined is None and (not line or line[0] in "#!"):
            continue
        line = (joined or "") + line
        if (len(line) - len(line.rstrip("\\"))) % 2:
            joined = line[:-1]
        else:
            joined = None
            yield line
    if joined:
        yield joined


def _unescape(text: str) -> str:
    def character(match: re.Match[str]) -> str:
        digits, other = match.groups()
        if digits is None:
            return _CONTROL.get(other, other)
        if not _UNICODE.fullmatch(digits):
            raise ValueError(f"Malformed \\uxxxx encoding: \\u{digits}")
        return chr(int(digits, 16))

    return _ESCAPE.sub(character, text)
