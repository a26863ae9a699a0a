"""What jobs print and write: text and tables for a terminal, JSON for programs, and files."""

from __future__ import annotations

import errno
import os
import shutil
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import date
from enum import Enum
from pathlib import Path
from typing import Any, BinaryIO

from answers.rendering import aligned
from filtering.counted import listed
from schemas.errors import UsageError, printable

BROKERS_NAMED = 5
"""The number of brokers that a line names; others are counted."""


def count(number: int) -> str:
    """``12,345``; 0 is a dash."""
    return f"{number:,}" if number else "-"


def age(milliseconds: int) -> str:
    """``2 h 14 min``: a duration in its two greatest units."""
    if milliseconds < 1000:
        return f"{milliseconds} ms"
    seconds = milliseconds // 1000
    parts: list[str] = []
    for unit, width in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        number, seconds = divmod(seconds, width)
        if number or parts:
            parts.append(f"{number} {unit}")
    return " ".join(part for part in parts[:2] if not part.startswith("0 "))


def print_table(
    titles: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1, indent: str = "", last_is_text: bool = False
) -> None:
    """Prints columns, the first ``left`` ones left-aligned. With ``last_is_text``, the last is cut to the terminal."""
    width = terminal_width() if last_is_text else 0
    print("\n".join(aligned([titles, *rows], left, indent, last_is_text, width)))


def terminal_width() -> int:
    """The width of the terminal that stdout is; 0 if it is none."""
    return shutil.get_terminal_size((160, 24)).columns if sys.stdout.isatty() else 0


def print_table_of_brokers(titles: Sequence[str], rows: Sequence[Sequence[str]], several: bool, left: int) -> None:
    """As :func:`print_table`. The first column names the broker; it is left out if there are not ``several``."""
    if several:
        print_table(titles, rows, left)
    else:
        print_table(titles[1:], [row[1:] for row in rows], left - 1)


def print_by_line(lines: Iterable[tuple[str, str]]) -> None:
    """Prints each line once, after the brokers that it is about. ``lines``: the name of a broker, and a line."""
    brokers: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for broker, line in lines:
        brokers[line][broker] = None
    for line, names in brokers.items():
        print(printable(f"{listed(list(names), BROKERS_NAMED)}: {line}"))


# JSON for programs, and output files that appear only when they are complete.


STDOUT = Path("-")


def json_text(value: Any) -> str:
    """The text in JSON of a value that JSON has no type for. Raises TypeError for an unknown type."""
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, (bytes, bytearray)):
        return bytes(value).hex()
    if isinstance(value, date):
        return value.isoformat()
    raise TypeError(f"no JSON for {type(value).__name__}")


def print_data(*lines: str) -> None:
    """Prints lines for programs: in UTF-8, whatever the encoding of the terminal is."""
    with output_file(STDOUT) as file:
        for line in lines:
            file.write(line.encode("utf-8", "surrogatepass") + b"\n")


def print_json(*values: object, indent: int | None = None) -> None:
    """Prints values as JSON for programs, each on a line unless there is an ``indent``."""
    import json

    print_data(*(json.dumps(value, ensure_ascii=False, indent=indent, default=json_text) for value in values))


def print_json_of_brokers(objects: Sequence[tuple[str, dict[str, Any]]]) -> None:
    """Prints an object for each broker, on a line with its name; without it, and indented, if there is only one."""
    if len(objects) == 1:
        print_json(objects[0][1], indent=2)
    else:
        print_json(*({"broker_name": name} | each for name, each in objects))


@contextmanager
def output_file(output: Path) -> Iterator[BinaryIO]:
    """A file to write, which replaces an older one only when it is complete. ``-`` is stdout.

    A link stays: the file that it names is replaced. A device or a pipe is written, too. Raises UsageError if the user
    may not write there.
    """
    if output == STDOUT:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    if output.is_dir():
        raise UsageError(f"{output} is a folder: give a file")
    if not output.absolute().parent.is_dir():
        raise UsageError(f"the folder {output.parent} does not exist: create it first")
    if output.exists() and not output.is_file():
        with output.open("wb") as device:
            yield device
        return
    output = output.resolve()
    beside = output.with_name(f".{output.name}.{os.getpid()}")
    try:
        file = beside.open("wb")
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EROFS):
            raise
        why = os.strerror(error.errno).lower()
        raise UsageError(f"cannot write {output} ({why}): give a file in a folder that you may write to") from None
    try:
        with file:
            yield file
        beside.replace(output)
    except BaseException:
        with suppress(OSError):
            beside.unlink()
        raise


def place_of(output: Path) -> str:
    """Where an :func:`output_file` is, for messages."""
    return "to stdout" if output == STDOUT else f"in {output}"
