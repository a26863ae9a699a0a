"""Command lines in messages and reports, which a reader can copy to a shell."""

from __future__ import annotations

import os
import re
import shlex
import unicodedata

PROGRAM = "./spark-submit.sh"
_SECRET = re.compile("secret|password|token|access[._]?key|credential", re.IGNORECASE)


def spark_options() -> str:
    """The options for Spark with which spark-submit.sh was started, as words of bash. Secret values are left out."""
    given = [option for option in os.environ.get("MQSIEVE_SPARK_OPTIONS", "").splitlines() if option]
    return " ".join(map(shell_word, map(_without_secret, given)))


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
