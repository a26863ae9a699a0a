"""The scope of an audit: the tables at one set of versions, and the nights since the last audit that passed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc

from answers.facts import BrokerFacts
from answers.inconsistency import knows_clients
from filtering.frozen import frozen
from filtering.sql92 import Expressions
from schemas.arrow_batches import table_of
from schemas.commitlog import COMMITLOG
from schemas.delta.delta_log import DataFileDamaged
from schemas.delta.table import StoredFile, Table
from schemas.delta.table_rows import files_that_may_hold, row_groups, within
from schemas.delta.warehouse import Warehouse
from schemas.errors import UsageError
from schemas.rocketmq_store.segments import is_mapped_file
from schemas.run_ledger import RUN_LEDGER, LedgerEntry, by_broker, read_ledger, unreplaced_runs
from schemas.tables import CONSUMEQUEUE, QUALITY_RESULTS, QUARANTINE, TABLES


@frozen
class LastAudit:
    """The last audit that passed: the last ``run`` it looked at, and the ``versions`` of the tables then."""

    run: str
    versions: Mapping[str, int]


@frozen
class Scope:
    """What an audit checks: the rows of runs from ``first_run`` on. ``entries`` are those of the ledger."""

    warehouse: Warehouse
    entries: Sequence[LedgerEntry]
    first_run: str
    last_audit: LastAudit | None

    @property
    def last_run(self) -> str:
        return self.entries[-1].run

    @cached_property
    def _runs(self) -> dict[str, list[LedgerEntry]]:
        return by_broker(self.entries)

    @cached_property
    def facts(self) -> list[BrokerFacts]:
        """The stored data of each broker."""
        expressions = Expressions()
        return [BrokerFacts(self.warehouse, runs, expressions, compiles_anew=True) for runs in self._runs.values()]

    def first_kept(self, broker_name: str) -> str:
        """The first run of a broker whose messages maintenance has not removed."""
        entries = unreplaced_runs(self._runs[broker_name])
        messages_from = self.messages_from(broker_name)
        return next((entry.run for entry in entries if (entry.ingested_to or 0) > messages_from), entries[0].run)

    def messages_from(self, broker_name: str) -> int:
        """The physical offset before which maintenance removed the messages of a broker."""
        return self._runs[broker_name][-1].messages_from

    @cached_property
    def audited_from(self) -> dict[str, int]:
        """The least physical offset of a message or an entry of the audited nights, by broker, if it has any.

        A message and its entry may be of different nights: a message with a damaged body is stored again when it is
        mended, and after a cut of the log a night makes entries of messages that an earlier night has read. So audits
        join them from this offset on, whichever nights they are of.
        """
        first_offsets: dict[str, int] = {}
        for table in (COMMITLOG, CONSUMEQUEUE):
            for file in self.new_files(table):
                least = self._least_offset(table, file)
                if file.broker_name is not None and least is not None:
                    first_offsets[file.broker_name] = min(least, first_offsets.get(file.broker_name, least))
        return {name: max(offset, self.messages_from(name)) for name, offset in first_offsets.items()}

    def _least_offset(self, table: Table, file: StoredFile) -> int | None:
        """The least physical offset of a file's rows of the audited nights; None if it has none."""
        least = int(file.least["commitlog_offset"])
        if file.least["run"] >= self.first_run:
            return least
        try:
            rows = self.warehouse.rows(table, ["commitlog_offset"], [within("run", self.first_run)], [file])
        except DataFileDamaged:
            return least  # an audit reports the damage
        offset: int | None = pc.min(rows["commitlog_offset"]).as_py()
        return offset

    @cached_property
    def ledger(self) -> list[LedgerEntry]:
        """All entries of the ledger, those of maintenance among them."""
        return read_ledger(self.warehouse)

    def new_files(self, table: Table) -> list[StoredFile]:
        """The files that may have rows of the nights in scope."""
        return files_that_may_hold(self.warehouse.log(table).files, [within("run", self.first_run)])

    def files_of_range(self, table: Table) -> list[StoredFile]:
        """The files of commitlog or consumequeue with rows from :attr:`audited_from` on."""
        begins = self.audited_from
        return [
            file
            for file in self.warehouse.log(table).files
            if file.broker_name in begins and file.greatest["commitlog_offset"] >= begins[file.broker_name]
        ]

    @property
    def tables(self) -> list[Table]:
        """The tables that exist."""
        return [table for table in (*TABLES, RUN_LEDGER) if self.warehouse.exists(table)]

    @property
    def versions(self) -> dict[str, int]:
        return {table.name: self.warehouse.log(table).version for table in self.tables}


def scope_of(warehouse: Warehouse, entries: Sequence[LedgerEntry], every_night: bool) -> Scope:
    """The scope of the next audit. Fixes the table versions that the warehouse's readers see from now on.

    If no night is new since the last audit that passed, the last night is audited again.
    """
    for table in TABLES:
        log = warehouse.log(table)
        if log.exists:
            log.pin(log.version)
    last = last_audit(warehouse)
    if every_night or last is None:
        return Scope(warehouse, entries, entries[0].run, last)
    first = next((i for i, entry in enumerate(entries) if entry.run > last.run), len(entries) - 1)
    while first and not _are_complete(entries[:first]):
        first -= 1
    return Scope(warehouse, entries, entries[first].run, last)


def last_audit(warehouse: Warehouse) -> LastAudit | None:
    """The last audit that passed; None if none did. Raises UsageError if the results cannot be read."""
    if not warehouse.exists(QUALITY_RESULTS):
        return None
    try:
        rows = warehouse.rows(QUALITY_RESULTS, ["run", "audited_at", "passed", "versions"]).to_pylist()
    except DataFileDamaged as error:
        folder = warehouse.log(QUALITY_RESULTS).storage.root
        raise UsageError(
            f"{error.damage}: put it back from a copy, or delete {folder}, which has only results of earlier audits"
        ) from None
    passed = [row for row in rows if row["passed"]]
    if not passed:
        return None
    last = max(passed, key=lambda row: row["audited_at"])
    return LastAudit(last["run"], dict(last["versions"] or ()))


def _are_complete(entries: Sequence[LedgerEntry]) -> bool:
    """Whether the last run of each broker is complete."""
    return all(runs[-1].is_complete for runs in by_broker(entries).values())


# The brokers that an audit looks at.


BROKERS = pa.schema(
    [
        ("broker_name", pa.string()),
        ("first_run", pa.string()),
        ("last_run", pa.string()),
        ("dispatched_to", pa.int64()),
        ("unreadable_bytes", pa.int64()),
        ("false_positive_rate", pa.int64()),
        ("knows_clients", pa.bool_()),
        ("has_windows", pa.bool_()),
    ]
)


def audited_brokers(scope: Scope) -> pa.Table:
    """A row of BROKERS for each broker."""
    rows = (
        (
            facts.name,
            max(scope.first_run, scope.first_kept(facts.name)),
            facts.last.run,
            facts.last.dispatched_to or 0,
            _unreadable_bytes(facts),
            facts.broker.max_error_rate_of_bloom_filter,
            knows_clients(facts),
            facts.last.has_windows,
        )
        for facts in scope.facts
    )
    return table_of(BROKERS, rows)


def _unreadable_bytes(facts: BrokerFacts) -> int:
    """Bytes of the log that are in quarantine, or were deleted before a night read them."""
    storage, quarantined = facts.warehouse.log(QUARANTINE).storage, 0
    for file in facts.warehouse.files(QUARANTINE, facts.name):
        for rows in row_groups(QUARANTINE, storage, file.path, ["source_file", "bytes"]):  # there may be gigabytes
            lengths = pc.binary_length(rows["bytes"]).to_pylist()
            names = rows["source_file"].to_pylist()
            quarantined += sum(
                length for name, length in zip(names, lengths, strict=True) if length and is_mapped_file(name)
            )
    deleted = sum(
        max(0, (entry.log_start or 0) - (before.ingested_to or 0)) for before, entry in pairwise(facts.entries)
    )
    return int(quarantined + deleted)
