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
