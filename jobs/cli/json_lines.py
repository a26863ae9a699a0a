"""Writes JSON, and output files that appear only when they are complete."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import date
from enum import Enum
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from schemas.errors import UsageError

ROWS_AT_ONCE = 1 << 13
STDOUT = Path("-")


def json_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[str]:
    """One JSON object for each row: binary as lower-case hex, maps as objects, dates as ISO 8601."""
    for batch in batches:
        for start in range(0, batch.num_rows, ROWS_AT_ONCE):
            for row in batch.slice(start, ROWS_AT_ONCE).to_pylist(maps_as_pydicts="strict"):
                yield json.dumps(row, ensure_ascii=False, default=json_text)


def json_text(value: Any) -> str:
    """The text in JSON of a value that JSON has no type for. Raises TypeError for an unknown type."""
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, (bytes, bytearray)):
        return bytes(value).hex()
    if isinstance(value, date):
        return value.isoformat()
    raise TypeError(f"no JSON for {type(value).__name__}")


def write_lines(output: Path, lines: Iterable[str]) -> int:
    """Writes lines to a file, or to stdout if it is ``-``. Returns the number of lines."""
    written = 0
    with output_file(output) as file:
        for line in lines:
            file.write(line.encode("utf-8", "surrogatepass") + b"\n")
            written += 1
    return written


def print_data(*lines: str) -> None:
    """Prints lines for programs: in UTF-8, whatever the encoding of the terminal is."""
    write_lines(STDOUT, lines)


def print_json(*values: object, indent: int | None = None) -> None:
    """Prints values as JSON for programs, each on a line unless there is an ``indent``."""
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

    A link stays: the file that it names is replaced. A device or a pipe is written, too.
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
        with beside.open("wb") as file:
            yield file
        beside.replace(output)
    except BaseException:
        with suppress(OSError):
            beside.unlink()
        raise


def place_of(output: Path) -> str:
    """Where an :func:`output_file` is, for messages."""
    return "to stdout" if output == STDOUT else f"in {output}"
