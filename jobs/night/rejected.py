"""Lines of text files that are no input, in quarantine."""

from __future__ import annotations

from collections.abc import Sequence

from filtering.subscriptions.events import InvalidSubscriptionEvent
from jobs.night.changes import Changes
from schemas.delta.table_rows import one_of
from schemas.quarantine import QUARANTINE


def replace_rejected(source_file: str, rejected: Sequence[InvalidSubscriptionEvent], changes: Changes) -> None:
    """Makes ``rejected`` all that is quarantined of a text file; lines that were corrected leave."""
    of_file = [one_of("source_file", [source_file])]
    files = [file for file in changes.files(QUARANTINE) if file.may_have("source_file", source_file, source_file)]
    there = changes.warehouse.rows(QUARANTINE, ["offset", "reason", "bytes"], of_file, files)
    now = [
        {"offset": each.line, "reason": each.reason, "bytes": each.text.encode("utf-8", "replace")} for each in rejected
    ]
    if sorted(there.to_pylist(), key=str) == sorted(now, key=str):
        return
    changes.delete_rows(QUARANTINE, of_file, files)
    rows = [row | {"source_file": source_file, "run": changes.run} for row in now]
    changes.add_rows(QUARANTINE, [QUARANTINE.rows_batch(rows)])
