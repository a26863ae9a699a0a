"""Errors that name what a person at a Python prompt gave instead of what is needed."""

from __future__ import annotations


def check_type(value: object, expected: type, what: str) -> None:
    """Raises TypeError if ``value`` has another type, as in ``an expression is a text, not bytes``.

    ``what``: the beginning of this sentence.
    """
    if not isinstance(value, expected):
        raise TypeError(f"{what}, not {type(value).__name__}")
