"""The audits that conf/audits.yaml lists, and the tables and nights that they look at."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import Enum
from functools import cached_property
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc

from answers.facts import BrokerFacts
from answers.inconsistency import knows_clients
from filtering.frozen import frozen
from filtering.sql92 import Expressions
from schemas.arrow_batches import schema_of, table_of
from schemas.commitlog import COMMITLOG
from schemas.delta.delta_log import DataFileDamaged
from schemas.delta.table import StoredFile, Table
from schemas.delta.table_rows import files_that_may_hold, row_groups, within
from schemas.delta.warehouse import Warehouse
from schemas.errors import UsageError
from schemas.rocketmq_store.segments import is_mapped_file
from schemas.run_ledger import RUN_LEDGER, LedgerEntry, by_broker, read_ledger, unreplaced_runs
from schemas.tables import CONSUMEQUEUE, QUALITY_RESULTS, QUARANTINE, TABLES
from schemas.yaml_input import load_file

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_THRESHOLD = re.compile(r"> *(\d+(?:\.\d+)?)( *%)?")
_KEYS = frozenset({"name", "about", "from", "where", "warn_if", "error_if", "caused_by", "needs", "else_skipped"})


class Severity(Enum):
    """How bad the result of an audit is. SKIPPED: the tables lack the facts that the audit needs."""

    OK = "ok"
    SKIPPED = "skipped"
    WARN = "warn"
    ERROR = "error"

    @property
    def is_failure(self) -> bool:
        """Whether an audit with this result failed."""
        return self in (Severity.WARN, Severity.ERROR)


@frozen
class Threshold:
    """The most bad rows that are allowed: a number, or with ``percent`` a share of all rows."""

    limit: float
    percent: bool

    def is_exceeded_by(self, bad_rows: int, rows: int) -> bool:
        """Whether there are more bad rows than allowed, of ``rows`` rows in all."""
        return bad_rows > (self.limit / 100 * rows if self.percent else self.limit)


@frozen
class Audit:
    """A query for bad rows: those of ``relation`` for which ``condition`` holds. Both are SQL.

    ``about`` is the sentence that holds if no row is bad. ``caused_by``: audits whose failure explains one of this.
    ``needs``: a relation; if it has no rows, the audit is skipped, for the reason ``else_skipped``.
    """

    name: str
    about: str
    relation: str
    condition: str
    warn_if: Threshold | None
    error_if: Threshold | None
    caused_by: tuple[str, ...] = ()
    needs: str | None = None
    else_skipped: str | None = None

    @property
    def query(self) -> str:
        """The SQL that returns the bad rows."""
        return f"SELECT * FROM {self.relation} WHERE {self.condition}"

    def severity(self, bad_rows: int, rows: int) -> Severity:
        """The severity of ``bad_rows`` among ``rows`` rows."""
        if self.error_if is not None and self.error_if.is_exceeded_by(bad_rows, rows):
            return Severity.ERROR
        if self.warn_if is not None and self.warn_if.is_exceeded_by(bad_rows, rows):
            return Severity.WARN
        return Severity.OK


@frozen
class AuditList:
    """Audits and the relations that they read. ``relations``: SQL by name; audits and later relations read it."""

    relations: Mapping[str, str]
    audits: Sequence[Audit]


def parse_audits(text: str, file: str) -> AuditList:
    """The audits of a YAML file. Raises UsageError if the file is not valid."""
    content = load_file(text, file)
    if not isinstance(content, dict) or not content.keys() <= {"relations", "audits"}:
        raise UsageError(f"{file}: a mapping with relations and audits is expected")
    relations = content.get("relations") or {}
    entries = content.get("audits") or []
    if not isinstance(relations, dict) or not isinstance(entries, list):
        raise UsageError(f"{file}: relations must be a mapping, and audits a list")
    for name, query in relations.items():
        if not _NAME.fullmatch(str(name)) or not isinstance(query, str):
            raise UsageError(f"{file}: relation {name}: a lower-case name and a query are expected")
    if not entries:
        raise UsageError(f"{file}: there is no audit: list them under audits")
    audits = [_audit(entry, f"{file}, audit {number}") for number, entry in enumerate(entries, 1)]
    names = [audit.name for audit in audits]
    for audit in audits:
        if names.count(audit.name) > 1:
            raise UsageError(f"{file}: two audits are called {audit.name}")
        if unknown := set(audit.caused_by) - set(names):
            raise UsageError(f"{file}: {audit.name}: caused_by names unknown audits: {', '.join(sorted(unknown))}")
    return AuditList({name: " ".join(query.split()) for name, query in relations.items()}, audits)


def _audit(entry: object, place: str) -> Audit:
    if not isinstance(entry, dict):
        raise UsageError(f"{place}: a mapping is expected")
    if unknown := entry.keys() - _KEYS:
        raise UsageError(f"{place}: unknown key {', '.join(map(str, unknown))}; keys are {', '.join(sorted(_KEYS))}")
    for key in ("name", "about", "from", "where"):
        if not isinstance(entry.get(key), str) or not entry[key].strip():
            raise UsageError(f"{place}: {key} is missing")
    if not _NAME.fullmatch(entry["name"]):
        raise UsageError(f"{place}: name {entry['name']!r}: lower-case letters, digits and _ are expected")
    causes = entry.get("caused_by", [])
    if not isinstance(causes, list) or not all(isinstance(cause, str) for cause in causes):
        raise UsageError(f"{place}: caused_by must be a list of names")
    warn_if, error_if = (_threshold(entry.get(key), f"{place}: {key}") for key in ("warn_if", "error_if"))
    if warn_if is None and error_if is None:
        raise UsageError(f"{place}: warn_if or error_if is missing, such as error_if: '> 0'")
    needs, else_skipped = entry.get("needs"), entry.get("else_skipped")
    if (needs is None) != (else_skipped is None) or not isinstance(needs or "", str):
        raise UsageError(f"{place}: needs and else_skipped belong together: a relation, and a reason")
    about, relation, condition = (" ".join(entry[key].split()) for key in ("about", "from", "where"))
    reason = None if else_skipped is None else " ".join(str(else_skipped).split())
    return Audit(entry["name"], about, relation, condition, warn_if, error_if, tuple(causes), needs, reason)


def _threshold(text: object, place: str) -> Threshold | None:
    if text is None:
        return None
    match = _THRESHOLD.fullmatch(text.strip()) if isinstance(text, str) else None
    if match is None:
        raise UsageError(f"{place}: {text!r} is not a threshold; write '> 5' or '> 0.1%'")
    return Threshold(float(match[1]), match[2] is not None)


# Bad rows as a report shows them.


HIDDEN = "(hidden)"
SHOWN = frozenset(
    {
        "broker_name", "topic", "entry_topic", "consumer_group", "run", "first_run", "last_run", "table_name",
        "column_name", "declared", "found", "path", "source_file", "damage", "remedy", "reason",
        "job", "expression_type",
    }
)  # fmt: skip
"""Text columns without values of messages. Numbers, times and booleans are always shown."""
LONGEST = 200


def shown_rows(rows: Sequence[Mapping[str, object]], show_values: bool) -> list[dict[str, object]]:
    """Rows for JSON, without nulls; columns that may hold values of messages are HIDDEN unless ``show_values``."""
    return [
        {name: _shown(name, value, show_values) for name, value in row.items() if value is not None} for row in rows
    ]


def _shown(name: str, value: object, show_values: bool) -> object:
    if isinstance(value, (bool, int, float)):
        return value
    if name not in SHOWN and not show_values:
        return HIDDEN
    text = value.hex() if isinstance(value, bytes) else str(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


# The scope of an audit: the tables at one set of versions, and the nights since the last audit that passed.


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


BROKERS = schema_of(
    "broker_name string, first_run string, last_run string, dispatched_to int64, unreadable_bytes int64, "
    "false_positive_rate int64, knows_clients bool, has_windows bool"
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
