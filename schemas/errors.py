"""Errors that a user can fix, and the parts of their messages: printable text, command lines to copy, times."""

from __future__ import annotations

import os
import re
import shlex
import unicodedata
from datetime import UTC, datetime

from filtering.time_spans import AFTER_YEAR_9999
from schemas import IS_PACKAGE


class UsageError(Exception):
    """A command line, file or folder that the user gave is not usable. The message says what to do."""


class WarehouseUnusable(UsageError):
    """Tables cannot be written to a folder or catalog. The message says what to give instead."""


class WarehouseBusy(Exception):
    """Another run is writing to this warehouse."""


CALLED = {"messages": "commitlog", "entries": "consumequeue"}
"""What Python and catalogs call two tables, and the names of these tables."""


def printable(text: str) -> str:
    """The text with control characters and line breaks, which could take over a terminal, as escapes."""
    if text.isprintable():
        return text
    return "".join(
        character if _is_shown(character) else character.encode("unicode_escape").decode() for character in text
    )


def _is_shown(character: str) -> bool:
    """Whether a character is a letter, a mark, a symbol, a space of any width, or a tab."""
    category = unicodedata.category(character)
    return character == "\t" or not (category.startswith("C") or category in ("Zl", "Zp"))


PROGRAM = "mqsieve" if IS_PACKAGE else "./spark-submit.sh"
_SECRET = re.compile("secret|password|token|access[._]?key|credential", re.IGNORECASE)


def given_spark_options() -> list[str]:
    """The options for Spark with which spark-submit.sh was started."""
    return [option for option in os.environ.get("MQSIEVE_SPARK_OPTIONS", "").splitlines() if option]


def spark_options() -> str:
    """These options as words of bash. Secret values are left out."""
    return " ".join(map(shell_word, map(_without_secret, given_spark_options())))


def _without_secret(text: str) -> str:
    name, equals, _ = text.partition("=")
    return f"{name}=…" if equals and _SECRET.search(name) else text


def shell_word(text: str) -> str:
    """The text as one word of bash. Invisible characters are escaped."""
    if not any(map(_is_invisible, text)):
        return shlex.quote(text)
    return f"$'{''.join(map(_escaped, text))}'"


def _is_invisible(character: str) -> bool:
    return unicodedata.category(character).startswith("C")


def _escaped(character: str) -> str:
    if _is_invisible(character):
        return f"\\U{ord(character):08x}"
    return f"\\{character}" if character in "'\\" else character


def option(name: str, value: str) -> str:
    """``--name value``, with = if the value looks like an option."""
    return f"--{name}{'=' if value.startswith('-') else ' '}{shell_word(value)}"


def time_text(milliseconds: int) -> str:
    """``2026-11-22 05:04:26.123``: a time in UTC, from ms since 1970. Milliseconds if the year has no four digits."""
    if not 0 <= milliseconds < AFTER_YEAR_9999:
        return f"{milliseconds} ms"
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(sep=" ", timespec="milliseconds")[:-6]
