"""Reads fields of JSON from users, with limits on size and depth."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from filtering.java.numbers import LONG_MAX
from filtering.java.strings import has_half_a_pair

LONGEST_LINE = 1 << 20
"""The greatest length of a line in characters."""


def parse_json(text: str, longest: int) -> Any:
    """The value of a JSON text. Raises ValueError if it is not JSON, longer than ``longest`` or nested too deep."""
    if len(text) > longest:
        raise ValueError(f"longer than {longest:,} characters")
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error}") from None
    except ValueError:  # sys.set_int_max_str_digits
        raise ValueError("not JSON that can be read: a number is too long") from None
    except RecursionError:
        raise ValueError("not JSON that can be read: nested too deep") from None


def check_encoding(source: str) -> None:
    """Raises ValueError if a part of a file was not UTF-8. Such bytes are halves of surrogate pairs in the text."""
    if has_half_a_pair(source):
        raise ValueError("not UTF-8")


def text_field(row: Mapping[str, Any], key: str, may_be_empty: bool = False) -> str:
    """A text. Raises ValueError if the field is missing, not a text, or not encodable as UTF-8."""
    value = row.get(key)
    if not isinstance(value, str) or not (value or may_be_empty):
        raise ValueError(f"{key} must be a text, not {_short(value)}")
    if has_half_a_pair(value):
        raise ValueError(f"{key} contains half of a surrogate pair, which is not valid text")
    return value


def whole_number(row: Mapping[str, Any], key: str) -> int | None:
    """A whole number of 64 bits; None if the field is missing. Raises ValueError if it is something else."""
    value = row.get(key)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) > LONG_MAX:
        raise ValueError(f"{key} must be a whole number of 64 bits, not {_short(value)}")
    return value


def _short(value: Any) -> str:
    text = repr(value) if not isinstance(value, int) or abs(value) <= LONG_MAX else "a longer one"
    return text if len(text) <= 60 else f"{text[:60]}…"
