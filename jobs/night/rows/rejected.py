"""Quarantines invalid lines of text files."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from filtering.subscriptions.events import InvalidSubscriptionEvent
from jobs.night.commit.changes import Changes
from schemas.delta.table_rows import one_of, tuples
from schemas.quarantine import QUARANTINE


class RejectedLine(NamedTuple):
    """A quarantined line of a text file: columns of QUARANTINE. ``offset`` is its number, from 1."""

    source_file: str
    offset: int
    reason: str
    bytes: bytes


def replace_rejected(source_file: str, rejected: Sequence[InvalidSubscriptionEvent], changes: Changes) -> None:
    """Replaces the quarantined lines of a text file. Those that an earlier run quarantined keep its name."""
    stored = quarantined_lines([source_file], changes)
    now = dict.fromkeys(
        RejectedLine(source_file, line.line, _valid(line.reason), line.text.encode("utf-8", "surrogateescape"))
        for line in rejected
    )
    gone = remove_lines(stored - now.keys(), changes)
    new = [line for line in now if line not in stored or line.offset in gone]
    changes.add_rows(QUARANTINE, [QUARANTINE.rows_batch([{**line._asdict(), "run": changes.run} for line in new])])


def quarantined_lines(source_files: Collection[str], changes: Changes) -> set[RejectedLine]:
    """The quarantined lines of some text files."""
    rows = changes.rows(QUARANTINE, RejectedLine._fields, [one_of("source_file", source_files)])
    return set(map(RejectedLine._make, tuples(rows, *RejectedLine._fields)))


def remove_lines(lines: Collection[RejectedLine], changes: Changes) -> set[int]:
    """Removes quarantined lines, with all others of the same numbers. Returns the numbers."""
    for name in {line.source_file for line in lines}:
        numbers = sorted({line.offset for line in lines if line.source_file == name})
        changes.delete_rows(QUARANTINE, [one_of("source_file", [name]), one_of("offset", numbers)])
    return {line.offset for line in lines}


def _valid(text: str) -> str:
    """The text without halves of surrogate pairs, which JSON may hold and Arrow does not take."""
    return text.encode("utf-8", "replace").decode()
