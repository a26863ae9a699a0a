"""The steps of the job maintain, and the lines that it prints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from answers.audits.checks import damaged_files
from answers.facts import check_broker
from filtering.counted import counted
from filtering.frozen import frozen
from filtering.time_spans import DAY
from jobs.night.commit import Changes, next_run, record
from jobs.night.past import BrokerState, past_nights
from jobs.night.repeat import delete_log_damage
from jobs.night.run import NightRunner
from schemas.commitlog import COMMITLOG
from schemas.deliveries import DELIVERY_BLOCKS
from schemas.delta.table import DataFileWriter, StoredFile, Table
from schemas.delta.table_rows import Condition, Where, greatest, one_of, row_groups, within
from schemas.delta.warehouse import Warehouse
from schemas.errors import UsageError
from schemas.ledger_check import (
    START_AGAIN,
    Withdrawal,
    damaged,
    damages,
    open_runs,
    open_warehouse,
    read_runs,
    undo_unfinished_run,
    withdrawals_text,
)
from schemas.pull_windows import PULL_WINDOWS
from schemas.rocketmq_store.commitlog_walk import crc_of
from schemas.run_ledger import (
    BODIES_FROM,
    MAINTAIN,
    MESSAGES_FROM,
    REBUILT,
    REPLAY,
    RUN_LEDGER,
    WITHDRAWN,
    LedgerEntry,
    by_broker,
    first_beyond,
    nights_of,
    unreplaced_runs,
)
from schemas.spark_tasks import Session
from schemas.subscriptions import SUBSCRIPTIONS, read_events, subscription_rows
from schemas.tables import (
    CONSUMEQUEUE,
    CONSUMER_OFFSETS,
    DELIVERY_STATS,
    DERIVED_TABLES,
    IN_LMQS,
    POPS,
    QUEUE_PROGRESS,
    REBUILT_TABLES,
    TABLES,
    TRIMMED_TABLES,
    UNLEDGERED_TABLES,
)

# The rows that a rebuild stores under other runs than the nights did, so that audits do not compare them.
#
# A rebuild repeats nights as wholes. It leaves no rows of single steps, and a message that a later night read (its
# record had been damaged, or a message log grew in the middle) counts in the night of its place in the log.


_MESSAGE_TABLES = (CONSUMEQUEUE, DELIVERY_BLOCKS)
_QUEUE_TABLES = (DELIVERY_STATS, QUEUE_PROGRESS)


def moved_rows(entries: Sequence[LedgerEntry], changes: Changes) -> Iterator[Withdrawal]:
    """The rows of derived tables that a rebuild of one broker moves. ``entries``: of nights in the tables."""
    last_night = max((number for number, entry in enumerate(entries) if entry.delivers), default=-1)
    for table in (*_MESSAGE_TABLES, *_QUEUE_TABLES, CONSUMER_OFFSETS):
        # The committed offsets that were read for a night that has not been delivered are kept.
        steps = entries[: last_night + 1] if table is CONSUMER_OFFSETS else entries
        yield Withdrawal(table.name, [one_of("run", [entry.run for entry in steps if not entry.delivers])])
    # The windows are planned with the ends that queues have now: late messages are in their own nights.
    yield Withdrawal(PULL_WINDOWS.name, [])
    yield Withdrawal(POPS.name, [])
    for runs, queue, offsets, last in _late_messages(nights_of(entries), changes):
        for table in _MESSAGE_TABLES:
            yield Withdrawal(table.name, [runs, *queue, offsets])
        for table in _QUEUE_TABLES:
            yield Withdrawal(table.name, [runs, *queue])
        if last is None or _has_group_before(last, [runs, *queue], changes):
            yield Withdrawal(CONSUMER_OFFSETS.name, [runs, *queue])


def _has_group_before(queue_offset: int, where: Where, changes: Changes) -> bool:
    """Whether, in some runs and a queue, some group did not come beyond a message."""
    at_most = [*where, within("decided_to", below=queue_offset + 1)]
    return bool(len(changes.rows(CONSUMER_OFFSETS, ["run"], at_most)))


def _late_messages(
    nights: Sequence[LedgerEntry], changes: Changes
) -> Iterator[tuple[Condition, Sequence[Condition], Condition, int | None]]:
    """The messages that a later night read than that of their place in the log, by queue and pair of nights.

    The later night may not have been delivered yet. For each: the runs from the one night to the other, the queue, the
    range of physical offsets, and the greatest queue offset; None if the queue ended before it in the first night.
    """
    names = ["commitlog_offset", "queue_offset", "run", "topic", "queue_id"]
    rows = changes.rows(COMMITLOG, names)
    rows = pa.concat_tables([rows, changes.rows(CONSUMEQUEUE, names, [IN_LMQS]).cast(rows.schema)])
    ends, runs = [night.delivered_to or 0 for night in nights], [night.run for night in nights]
    own = np.searchsorted(ends, rows["commitlog_offset"].to_numpy(), side="right")
    distinct = rows["run"].combine_chunks().dictionary_encode()
    reading = np.searchsorted(runs, distinct.dictionary.to_pylist())[distinct.indices.to_numpy()]
    late = np.flatnonzero(own < reading)
    ranges: dict[tuple[int, int, str, int], list[tuple[int, int]]] = {}
    columns = (rows[name].take(pa.array(late)).to_pylist() for name in names if name != "run")
    for first, last, offset, at, topic, queue_id in zip(
        own[late].tolist(), reading[late].tolist(), *columns, strict=True
    ):
        ranges.setdefault((first, last, topic, queue_id), []).append((offset, at))
    known = {
        first: greatest(rows.filter(pa.array(reading <= first)), ["topic", "queue_id"], "queue_offset")
        for first in dict.fromkeys(own[late].tolist())
    }
    for (first, last, topic, queue_id), places in ranges.items():
        after = runs[last + 1] if last + 1 < len(runs) else None
        queue = [one_of("topic", [topic]), one_of("queue_id", [queue_id])]
        last_late = max(at for _, at in places)
        offsets = [offset for offset, _ in places]
        yield (
            within("run", runs[first], after),
            queue,
            within("commitlog_offset", min(offsets), max(offsets) + 1),
            last_late if known[first].get((topic, queue_id), -1) > last_late else None,
        )


# Rebuilds damaged or missing tables from the others.


@frozen
class DamagedTables:
    """The damaged ``tables`` of a warehouse: a message for each name. ``entries``: the runs in the ledger."""

    entries: Sequence[LedgerEntry]
    tables: dict[str, str]


def find_damage(warehouse: Warehouse, session: Session) -> DamagedTables:
    """Reads all files, and finds damaged tables. Raises UsageError if one of them cannot be rebuilt."""
    entries = read_runs(warehouse)
    damaged_tables = dict(damages(warehouse, entries))
    readable = {
        table: warehouse.log(table).files for table in TABLES if table not in damaged_tables and warehouse.exists(table)
    }
    errors = damaged_files(warehouse, readable, session)
    for table, files in readable.items():
        if broken := [errors[file.path].damage for file in files if file.path in errors]:
            more = f" (and {len(broken) - 1} more of its files)" if len(broken) > 1 else ""
            damaged_tables[table] = broken[0] + more
    for table, damage in damaged_tables.items():
        if table not in REBUILT_TABLES or entries[-1].job == REPLAY:
            raise damaged(warehouse, table, damage, entries)
    return DamagedTables(entries, {table.name: damage for table, damage in damaged_tables.items()})


def rebuild(runner: NightRunner, damage: DamagedTables, name: str) -> dict[str, str]:
    """Rebuilds all derived tables as the run ``name``: repeats every night of every broker with its own end.

    Returns inputs for the ledger's entry: the rows that have other runs now. Raises UsageError if the nights cannot be
    repeated from the tables alone.
    """
    nights = {broker_name: unreplaced_runs(runs) for broker_name, runs in by_broker(damage.entries).items()}
    for entries in nights.values():
        for entry in entries:
            _check_repeatable(entry, entries[-1].messages_from)
    broken = [table for table in TABLES if table.name in damage.tables]
    undo_unfinished_run(runner.warehouse, damage.entries, name, [table for table in TABLES if table not in broken])
    for table in broken:
        runner.warehouse.log(table).drop()
    inputs = {}
    for broker_name, entries in nights.items():
        changes = Changes(runner.warehouse, broker_name, name)
        inputs[f"{broker_name}/{WITHDRAWN}"] = withdrawals_text(moved_rows(entries, changes))
        _rebuild_broker(runner, entries, broken, changes)
    return inputs


def _check_repeatable(entry: LedgerEntry, messages_from: int) -> None:
    reasons = {
        "had filter hooks": bool(entry.hooks),
        "read messages that were removed since": (entry.log_start or 0) < messages_from,
    }
    for reason, holds in reasons.items():
        if holds:
            raise UsageError(f"the night {entry.run} {reason} and cannot be repeated from the tables: {START_AGAIN}")


def _rebuild_broker(
    runner: NightRunner, entries: Sequence[LedgerEntry], broken: Sequence[Table], changes: Changes
) -> None:
    events = read_events(runner.warehouse, entries[0].broker_name)
    delivered = nights_of(entries)
    nights = list(past_nights(delivered, range(len(delivered)), changes))
    undelivered = BrokerState(entries).first_undelivered
    for table in DERIVED_TABLES:
        if table is CONSUMER_OFFSETS and undelivered is not None:
            # The committed offsets of a snapshot that only ingest has read are still needed.
            changes.delete_rows(table, [within("run", below=undelivered)])
        else:
            changes.replace_rows(table, [])
    state = BrokerState((), events=events)
    for night in nights:
        state = runner.repeat_night(night.entry.broker, night, state, events, changes)
    if SUBSCRIPTIONS in broken:
        history = BrokerState(entries).history(events, entries[-1].broker, runner.expressions)
        changes.replace_rows(SUBSCRIPTIONS, [subscription_rows(history)])
    changes.create_missing(table for table in broken if table.name in entries[-1].tables)
    changes.commit()


# Removes rows of old nights: messages, entries and deliveries, or only message bodies.


@frozen
class Removed:
    """The number of removed ``rows`` of one broker, and of old nights that are still in the broker's own log.

    ``before``: the rows of earlier runs than this one were removed.
    """

    rows: int
    kept_for_broker: int
    before: str = ""


def first_kept(entries: Sequence[LedgerEntry], keep_days: int) -> int:
    """The index of the first night that ended at most ``keep_days`` before the last one: of its first run.

    A step before deliver has no end of its own.
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


def maintain(
    runner: NightRunner, broker_name: str | None, keep_days: int | None, keep_bodies: int | None, dry_run: bool
) -> list[str]:
    """Removes old rows of one broker or of all, then old files. Returns lines for the user. Raises UsageError.

    ``dry_run``: nothing is changed, and the lines say what would be removed.
    """
    if dry_run:
        runner.entries = open_runs(runner.warehouse)
    else:
        runner.open()
    brokers = by_broker(runner.entries)
    if broker_name is not None:
        check_broker(broker_name, list(brokers))
    name = next_run(runner.entries)
    inputs: dict[str, str] = {}
    lines: list[str] = []
    for broker in [broker_name] if broker_name is not None else brokers:
        changes = Changes(runner.warehouse, broker, name)
        broker_inputs, broker_lines = _remove(brokers[broker], keep_days, keep_bodies, changes, dry_run)
        inputs |= {f"{broker}/{key}": value for key, value in broker_inputs.items()}
        lines += broker_lines
    deleted = _delete_old_files(runner.warehouse, dry_run)
    files = f"{counted(sum(deleted), 'old file')} {_done('deleted', dry_run)}, of {counted(len(deleted), 'table')}"
    if dry_run:
        return [*lines, files, "nothing was changed: --dry-run"]
    record(runner.warehouse, LedgerEntry(name, "", MAINTAIN, inputs=inputs))
    return [*lines, files]


def _done(participle: str, dry_run: bool) -> str:
    return f"would be {participle}" if dry_run else participle


def _remove(
    entries: Sequence[LedgerEntry], keep_days: int | None, keep_bodies: int | None, changes: Changes, dry_run: bool
) -> tuple[dict[str, str], list[str]]:
    """Removes old rows of a broker. Returns inputs for the ledger's entry, and lines for the user."""
    broker_name = changes.broker_name
    inputs: dict[str, str] = {}
    lines, without = [], ""
    if keep_days is not None:
        removed, night_inputs = remove_nights(entries, keep_days, changes, dry_run)
        inputs |= night_inputs
        without = removed.before
        days = counted(keep_days, "day")
        rows = counted(removed.rows, "row")
        lines.append(f"{broker_name}: {rows} of nights older than {days} {_done('removed', dry_run)}")
        if removed.kept_for_broker:
            nights = counted(removed.kept_for_broker, "older night is", "older nights are")
            lines.append(f"{broker_name}: {nights} kept: the broker still has messages of them")
    if keep_bodies is not None:
        removed_bodies, body_inputs = remove_bodies(entries, keep_bodies, changes, dry_run, without)
        inputs |= body_inputs
        bodies, days = counted(removed_bodies, "body", "bodies"), counted(keep_bodies, "day")
        lines.append(f"{broker_name}: {bodies} of nights older than {days} {_done('removed', dry_run)}")
    if not dry_run:
        changes.commit()
    return inputs, lines


def _delete_old_files(warehouse: Warehouse, dry_run: bool) -> list[int]:
    """Deletes data files that were removed from their table, or left by a run that died, more than a week ago.

    A reader that opened a table within the week still finds its files. The Delta logs get a checkpoint and lose
    entries older than 30 days. Returns the number of deleted files of each table that had some.
    """
    existing = [table for table in (*TABLES, RUN_LEDGER, *UNLEDGERED_TABLES) if warehouse.exists(table)]
    return [deleted for table in existing if (deleted := warehouse.log(table).clean(dry_run))]


def rebuild_damaged(runner: NightRunner, dry_run: bool) -> list[str]:
    """Rebuilds damaged tables. Returns lines for the user. Raises UsageError if a table cannot be rebuilt.

    ``dry_run``: nothing is changed, and the lines say what would be rebuilt.
    """
    damage = find_damage(runner.warehouse, runner.session)
    if not damage.tables:
        return ["no table is damaged: nothing was changed"]
    if dry_run:
        return [f"{message}; would be rebuilt" for message in damage.tables.values()]
    runner.entries = list(damage.entries)
    name = next_run(runner.entries)
    inputs = {REBUILT: ", ".join(damage.tables)} | rebuild(runner, damage, name)
    record(runner.warehouse, LedgerEntry(name, "", MAINTAIN, inputs=inputs))
    open_warehouse(runner.warehouse)
    return [f"{message}; rebuilt" for message in damage.tables.values()]
