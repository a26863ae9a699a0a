"""Quarantines invalid lines of text files."""

from __future__ import annotations

from collections.abc import Sequence

from filtering.subscriptions.events import InvalidSubscriptionEvent
from jobs.night.changes import Changes
from schemas.delta.table_rows import one_of
from schemas.quarantine import QUARANTINE


def replace_rejected(source_file: str, rejected: Sequence[InvalidSubscriptionEvent], changes: Changes) -> None:
    """Replaces the quarantined lines of a text file by ``rejected``."""
    in_file = [one_of("source_file", [source_file])]
    files = [file for file in changes.files(QUARANTINE) if file.may_have("source_file", source_file, source_file)]
    quarantined = changes.warehouse.rows(QUARANTINE, ["offset", "reason", "bytes"], in_file, files)
    now = [
        {"offset": line.line, "reason": _valid(line.reason), "bytes": line.text.encode("utf-8", "replace")}
        for line in rejected
    ]
    if sorted(quarantined.to_pylist(), key=str) == sorted(now, key=str):
        return
    changes.delete_rows(QUARANTINE, in_file, files)
    rows = [row | {"source_file": source_file, "run": changes.run} for row in now]
    changes.add_rows(QUARANTINE, [QUARANTINE.rows_batch(rows)])


def _valid(text: str) -> str:
    """The text without halves of surrogate pairs, which JSON may hold and Arrow does not take."""
    return text.encode("utf-8", "replace").decode()
