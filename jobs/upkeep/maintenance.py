"""The steps of the job maintain, and the lines that it prints."""

from __future__ import annotations

from collections.abc import Sequence

from filtering.counted import counted
from jobs.night.commit.changes import Changes
from jobs.night.commit.ledger import next_run, record
from jobs.night.run import Run
from jobs.upkeep.rebuild import find_damage, rebuild
from jobs.upkeep.retention import remove_bodies, remove_nights
from schemas.answers.brokers import check_broker
from schemas.delta.warehouse import Warehouse
from schemas.ledger_check import open_runs, open_warehouse
from schemas.ledger_inputs import REBUILT
from schemas.run_ledger import MAINTAIN, RUN_LEDGER, LedgerEntry, by_broker
from schemas.tables import TABLES, UNLEDGERED_TABLES


def maintain(
    run: Run, broker_name: str | None, keep_days: int | None, keep_bodies: int | None, dry_run: bool
) -> list[str]:
    """Removes old rows of one broker or of all, then old files. Returns lines for the user. Raises UsageError.

    ``dry_run``: nothing is changed, and the lines say what would be removed.
    """
    if dry_run:
        run.entries = open_runs(run.warehouse)
    else:
        run.open()
    brokers = by_broker(run.entries)
    if broker_name is not None:
        check_broker(broker_name, list(brokers))
    name = next_run(run.entries)
    inputs: dict[str, str] = {}
    lines: list[str] = []
    for broker in [broker_name] if broker_name is not None else brokers:
        changes = Changes(run.warehouse, broker, name)
        broker_inputs, broker_lines = _remove(brokers[broker], keep_days, keep_bodies, changes, dry_run)
        inputs |= {f"{broker}/{key}": value for key, value in broker_inputs.items()}
        lines += broker_lines
    deleted = _delete_old_files(run.warehouse, dry_run)
    files = f"{counted(sum(deleted), 'old file')} {_done('deleted', dry_run)}, of {counted(len(deleted), 'table')}"
    if dry_run:
        return [*lines, files, "nothing was changed: --dry-run"]
    record(run.warehouse, LedgerEntry(name, "", MAINTAIN, inputs=inputs))
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


def rebuild_damaged(run: Run, dry_run: bool) -> list[str]:
    """Rebuilds damaged tables. Returns lines for the user. Raises UsageError if a table cannot be rebuilt.

    ``dry_run``: nothing is changed, and the lines say what would be rebuilt.
    """
    damage = find_damage(run.warehouse, run.session)
    if not damage.tables:
        return ["no table is damaged: nothing was changed"]
    if dry_run:
        return [f"{message}; would be rebuilt" for message in damage.tables.values()]
    run.entries = list(damage.entries)
    name = next_run(run.entries)
    inputs = {REBUILT: ", ".join(damage.tables)} | rebuild(run, damage, name)
    record(run.warehouse, LedgerEntry(name, "", MAINTAIN, inputs=inputs))
    open_warehouse(run.warehouse)
    return [f"{message}; rebuilt" for message in damage.tables.values()]
