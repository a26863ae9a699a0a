"""Command lines in messages and reports, which a reader can copy to a shell."""

from __future__ import annotations

import re
import shlex
import unicodedata

PROGRAM = "./spark-submit.sh"


def shell_word(text: str) -> str:
    """The text as one word of bash. Invisible characters are escaped."""
    if all(unicodedata.category(character)[0] != "C" for character in text):
        return shlex.quote(text)
    escaped = "".join(
        f"\\U{ord(character):08x}"
        if unicodedata.category(character)[0] == "C"
        else re.sub(r"(['\\])", r"\\\1", character)
        for character in text
    )
    return f"$'{escaped}'"


def option(name: str, value: str) -> str:
    """``--name value``, with = if the value looks like an option."""
    return f"--{name}{'=' if value.startswith('-') else ' '}{shell_word(value)}"
