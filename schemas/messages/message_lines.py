"""The messages of a message log in JSON lines."""

from __future__ import annotations

import json
import re
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from schemas.messages.message_checks import ENDS, KNOWN, NEEDED, LogRow, NotAMessage, other_spelling

_BLANK = b" \t\n\v\f\r"
_HEX = re.compile("[0-9a-fA-F]*")
_TOO_DEEP = "nested too deep"
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


def read_lines(file: Path, start: int, stop: int, first: int) -> Iterator[LogRow]:
    """The lines of a file that begin from ``start`` on and before ``stop`` (bytes). Blank lines are left out.

    ``first`` is the number of the first one.
    """
    with file.open("rb") as opened:
        opened.seek(start)
        number = first
        while start < stop and (line := opened.readline()):
            start += len(line)
            if number == 1:
                line = line.removeprefix(BOM_UTF8)
            if line.strip(_BLANK):
                text = line.removesuffix(b"\n").removesuffix(b"\r")
                yield LogRow(number, _values(text), partial(bytes, text))
            number += 1


def _values(line: bytes) -> dict[str, Any] | NotAMessage:
    try:
        return _decoded(line)
    except NotAMessage as reason:
        return reason


def _decoded(line: bytes) -> dict[str, Any]:
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
    values = {}
    for name, value in fields:
        if value is not None and name in _READ:
            try:
                values[name] = _READ[name](value)
            except ValueError:
                raise NotAMessage(f"{name} is not {_TYPES[KNOWN[name]]}") from None
            except RecursionError:
                raise NotAMessage(_TOO_DEEP) from None
    for name in NEEDED:
        if name not in values and (other := other_spelling(name, (given for given, _ in fields))) is not None:
            raise NotAMessage(f"no {name}: rename {other}")
    body = values.get("body")
    if body is not None:
        if not _HEX.fullmatch(body):
            raise NotAMessage("body is not hex")
        values["body"] = bytes.fromhex(body if len(body) % 2 == 0 else f"0{body}")
    return values


def _whole(end: int, value: Any) -> int:
    """A number that fits: it is less than ``end``. Raises ValueError."""
    if not isinstance(value, _Integer) or not -end <= (number := int(value)) < end:
        raise ValueError
    return number


def _pairs(value: Any) -> list[tuple[str, str | None]]:
    """Raises ValueError if the value is not an object."""
    if not isinstance(value, _Object):
        raise ValueError
    return [(_text(name), None if each is None else _text(each)) for name, each in value]


def _text(value: Any) -> str:
    """A text; another value as its JSON."""
    if not isinstance(value, str):
        return _json(value)
    # Java writes half of a surrogate pair as a question mark.
    return value if value.isascii() else value.encode(errors="replace").decode()


def _json(value: Any) -> str:
    if isinstance(value, _Object):
        return f"{{{','.join(f'{_json(name)}:{_json(each)}' for name, each in value)}}}"
    if isinstance(value, list):
        return f"[{','.join(map(_json, value))}]"
    return value if isinstance(value, _Number) else json.dumps(value)


_READERS = {kind: partial(_whole, end) for kind, end in ENDS.items()} | {"string": _text, "binary": _text}
_READ: dict[str, Callable[[Any], Any]] = {name: _READERS.get(kind, _pairs) for name, kind in KNOWN.items()}
"""Reads a value as one of the column's type. A body stays hex."""
