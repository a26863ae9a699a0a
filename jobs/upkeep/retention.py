"""Rows of old nights that go: their messages, entries and deliveries, or only the bodies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from jobs.night.changes import Changes
from jobs.night.log_comparison import is_segment_name
from schemas.commitlog import COMMITLOG
from schemas.consumequeue import CONSUMEQUEUE
from schemas.deliveries import DELIVERY_BLOCKS
from schemas.delta.data_files import DataFileWriter
from schemas.delta.delta_log import StoredFile
from schemas.delta.table import Table
from schemas.delta.table_rows import one_of, row_groups, within
from schemas.quarantine import QUARANTINE
from schemas.rocketmq_store.crc import crc_of
from schemas.run_ledger import MESSAGES_FROM, LedgerEntry

DAY = 86_400_000
BODIES_FROM = "bodies_from"
"""Among the inputs of entries: the run before which maintenance removed the bodies."""
REMOVED_TABLES = (COMMITLOG, CONSUMEQUEUE, DELIVERY_BLOCKS)


@dataclass(frozen=True)
class Removed:
    """What was removed of one broker. ``kept_for_broker``: nights that are old, but still in the broker's own log."""

    rows: int = 0
    bodies: int = 0
    kept_for_broker: int = 0


def first_kept(entries: Sequence[LedgerEntry], keep_days: int) -> int:
    """The index of the first night that ended less than some days before the last one."""
    limit = (entries[-1].as_of or 0) - keep_days * DAY
    return next(i for i, entry in enumerate(entries) if (entry.as_of or 0) >= limit)


def remove_nights(entries: Sequence[LedgerEntry], keep_days: int, changes: Changes) -> tuple[Removed, dict[str, str]]:
    """Removes the messages of old nights, their entries and their deliveries.

    Messages that the broker still has stay: its groups may yet pull them, and its log is compared with them. What
    counts nights, groups and offsets stays, too. Returns what the next entries of the ledger must know.
    """
    wanted = first_kept(entries, keep_days)
    log_start = entries[-1].log_start or 0
    gone = next((i for i, entry in enumerate(entries) if (entry.ingested_to or 0) > log_start), len(entries) - 1)
    first = min(wanted, gone)
    while first and not _is_settled(entries[first - 1]):
        first -= 1
    if not first:
        return Removed(kept_for_broker=wanted), {}
    earlier = within("run", below=entries[first].run)
    rows = sum(_remove_rows(table, entries[first].run, changes) for table in REMOVED_TABLES)
    files = changes.files(QUARANTINE)
    names = set(changes.warehouse.rows(QUARANTINE, ["source_file"], files=files)["source_file"].to_pylist())
    changes.delete_rows(
        QUARANTINE, [earlier, one_of("source_file", [each for each in names if is_segment_name(each)])], files
    )
    return Removed(rows, kept_for_broker=wanted - first), {MESSAGES_FROM: str(entries[first - 1].ingested_to or 0)}


def _is_settled(entry: LedgerEntry) -> bool:
    """Whether after a run every stored message had its entry and was filtered."""
    return entry.ingested_to == entry.dispatched_to == entry.delivered_to


def _remove_rows(table: Table, run: str, changes: Changes) -> int:
    files = changes.files(table)
    before = sum(file.rows for file in files)
    old = [file for file in files if file.greatest["run"] < run]
    changes.remove_files(table, old)
    mixed = [file for file in files if file.least["run"] < run <= file.greatest["run"]]
    changes.delete_rows(table, [within("run", below=run)], mixed)
    return before - sum(file.rows for file in changes.files(table))


def remove_bodies(entries: Sequence[LedgerEntry], keep_days: int, changes: Changes) -> tuple[Removed, dict[str, str]]:
    """Removes the bodies of the messages of old nights; their checksums stay."""
    run = entries[first_kept(entries, keep_days)].run
    done_to = entries[-1].inputs.get(BODIES_FROM, "")
    if run <= done_to:
        return Removed(), {}
    bodies = 0
    for file in changes.files(COMMITLOG):
        if file.least["run"] < run and file.greatest["run"] >= done_to:
            bodies += _without_bodies(file, run, changes)
    return Removed(bodies=bodies), {BODIES_FROM: run}


def _without_bodies(file: StoredFile, run: str, changes: Changes) -> int:
    storage = changes.warehouse.log(COMMITLOG).storage
    writer = DataFileWriter(COMMITLOG, storage)
    bodies = 0
    for rows in row_groups(COMMITLOG, storage, file.path):
        goes = pc.and_(pc.less(rows["run"], run), pc.is_valid(rows["body"]))
        bodies += goes.combine_chunks().true_count
        writer.write(_dropped(rows, goes).combine_chunks().to_batches())
    changes.replace_files(COMMITLOG, [file], writer.close())
    return bodies


def _dropped(rows: pa.Table, goes: pa.ChunkedArray) -> pa.Table:
    computed = pa.array(
        [crc_of(body) if gone else None for body, gone in zip(rows["body"].to_pylist(), goes.to_pylist(), strict=True)],
        pa.int32(),
    )
    columns = {
        "body_crc": pc.coalesce(rows["body_crc"], computed),
        "body": pc.if_else(goes, pa.scalar(None, rows["body"].type), rows["body"]),
    }
    for name, column in columns.items():
        rows = rows.set_column(rows.schema.get_field_index(name), name, column)
    return rows
