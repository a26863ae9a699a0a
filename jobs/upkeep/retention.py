"""Removes rows of old nights: messages, entries and deliveries, or only message bodies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from filtering.time_spans import DAY
from jobs.night.commit.changes import Changes
from jobs.night.past.redo import delete_log_damage
from schemas.commitlog import COMMITLOG
from schemas.delta.data_files import DataFileWriter, StoredFile
from schemas.delta.table import Table
from schemas.delta.table_rows import row_groups, within
from schemas.ledger_inputs import BODIES_FROM, MESSAGES_FROM
from schemas.rocketmq_store.commitlog.crc import crc_of
from schemas.run_ledger import LedgerEntry, first_beyond, nights_of, unreplaced_runs
from schemas.tables import TRIMMED_TABLES


@dataclass(frozen=True)
class Removed:
    """The number of removed ``rows`` of one broker, and of old nights that are still in the broker's own log.

    ``before``: the rows of earlier runs than this one were removed.
    """

    rows: int
    kept_for_broker: int
    before: str = ""


def first_kept(entries: Sequence[LedgerEntry], keep_days: int) -> int:
    """The index of the first night that ended at most ``keep_days`` before the last one: of its first run.

    A run that prepares a night has no end of its own.
    """
    limit = (entries[-1].as_of or 0) - keep_days * DAY
    first = next((i for i, entry in enumerate(entries) if entry.delivers and (entry.as_of or 0) >= limit), 0)
    while first and not entries[first - 1].delivers:
        first -= 1
    return first


def remove_nights(
    entries: Sequence[LedgerEntry], keep_days: int, changes: Changes, dry_run: bool
) -> tuple[Removed, dict[str, str]]:
    """Removes the messages of old nights, their entries and their deliveries; ``dry_run`` only counts them.

    Messages that the broker still has are kept: groups may still pull them, and the next night compares the log with
    them. Counts, offsets and subscriptions are kept, too. Returns the numbers, and inputs for the ledger's entry.
    """
    entries = unreplaced_runs(entries)
    requested = first_kept(entries, keep_days)
    first = min(requested, first_beyond(entries, entries[-1].log_start or 0))
    # After a cut, a run also makes the entries of messages of the run before.
    while first and not (entries[first - 1].is_complete and not entries[first].cut):
        first -= 1
    if not first:
        return Removed(0, len(nights_of(entries[:requested]))), {}
    before = [within("run", below=entries[first].run)]
    rows = sum(len(changes.rows(table, ["run"], before)) for table in TRIMMED_TABLES)
    if not dry_run:
        for table in TRIMMED_TABLES:
            _remove_rows(table, entries[first].run, changes)
        delete_log_damage(before[0], changes)
    kept_for_broker = len(nights_of(entries[first:requested]))
    return Removed(rows, kept_for_broker, entries[first].run), {MESSAGES_FROM: str(entries[first - 1].ingested_to or 0)}


def _remove_rows(table: Table, run: str, changes: Changes) -> None:
    changes.remove_files(table, [file for file in changes.files(table) if file.greatest["run"] < run])
    changes.delete_rows(table, [within("run", below=run)])


def remove_bodies(
    entries: Sequence[LedgerEntry], keep_days: int, changes: Changes, dry_run: bool, without: str
) -> tuple[int, dict[str, str]]:
    """Removes bodies of old nights, and keeps their checksums; ``dry_run`` only counts them.

    ``without``: a dry run leaves out rows of earlier runs, which would be removed before. Returns the number of bodies,
    and inputs for the ledger.
    """
    run = entries[first_kept(entries, keep_days)].run
    removed_to = entries[-1].inputs.get(BODIES_FROM, "")
    if run <= removed_to:
        return 0, {}
    bodies = 0
    for file in changes.files(COMMITLOG):
        if file.least["run"] < run and file.greatest["run"] >= removed_to:
            bodies += _bodies_between(file, without, run, changes) if dry_run else _without_bodies(file, run, changes)
    return bodies, {BODIES_FROM: run}


def _bodies_between(file: StoredFile, first: str, run: str, changes: Changes) -> int:
    """The number of bodies in a file that runs from ``first`` on and before ``run`` stored."""
    storage = changes.warehouse.log(COMMITLOG).storage
    parts = row_groups(COMMITLOG, storage, file.path, ["run", "body"], [within("run", first)])
    return sum(_is_removed(rows, run).true_count for rows in parts)


def _is_removed(rows: pa.Table, run: str) -> pa.BooleanArray:
    return pc.and_(pc.less(rows["run"], run), pc.is_valid(rows["body"])).combine_chunks()


def _without_bodies(file: StoredFile, run: str, changes: Changes) -> int:
    storage = changes.warehouse.log(COMMITLOG).storage
    writer = DataFileWriter(COMMITLOG, storage)
    bodies = 0
    for rows in row_groups(COMMITLOG, storage, file.path):
        is_removed = _is_removed(rows, run)
        bodies += is_removed.true_count
        writer.write(_dropped(rows, is_removed).combine_chunks().to_batches())
    changes.replace_files(COMMITLOG, [file], writer.close())
    return bodies


def _dropped(rows: pa.Table, is_removed: pa.BooleanArray) -> pa.Table:
    computed = pa.array(
        [
            crc_of(body) if removed else None
            for body, removed in zip(rows["body"].to_pylist(), is_removed.to_pylist(), strict=True)
        ],
        pa.int32(),
    )
    columns = {
        "body_crc": pc.coalesce(rows["body_crc"], computed),
        "body": pc.if_else(is_removed, pa.scalar(None, rows["body"].type), rows["body"]),
    }
    for name, column in columns.items():
        rows = rows.set_column(rows.schema.get_field_index(name), name, column)
    return rows
