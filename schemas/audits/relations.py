"""The relations that audits read: the tables, of all nights or those in scope, and relations beyond SQL."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from filtering.tags_code import tags_codes
from schemas.audits.audit import AuditList
from schemas.audits.audited_brokers import audited_brokers
from schemas.audits.changed_nights import changed_nights
from schemas.audits.data_file_checks import data_files, table_columns
from schemas.audits.delivery_checks import bit_map_checks, delivery_counts, inconsistencies
from schemas.audits.log_parts import AuditedPart, log_parts, whole_log
from schemas.audits.queue_totals import OF_NIGHTS, queue_totals
from schemas.audits.scope import Scope
from schemas.audits.subscription_checks import subscription_checks
from schemas.audits.window_checks import window_checks
from schemas.commitlog import COMMITLOG, SLOTS
from schemas.consumequeue import CONSUMEQUEUE
from schemas.current_offsets import CURRENT_OFFSETS
from schemas.delta.table import Table
from schemas.run_ledger import RUN_LEDGER
from schemas.spark_tasks import Session
from schemas.tables import TABLES

ALL = "all_"
"""Prefix of the names of tables with the rows of all nights."""
OF_THE_LOG = {"log_messages": COMMITLOG, "log_entries": CONSUMEQUEUE}
"""The relations with rows of a table of every night, from the first physical offset of the audited nights on."""
BEFORE = "entries_before"
"""The relation with the last entry of each queue before a part of the log."""
_LAST_ENTRIES = f"""
    SELECT broker_name, topic, queue_id, max(commitlog_offset) AS commitlog_offset,
      last_value(queue_offset ORDER BY commitlog_offset, queue_offset) AS queue_offset
    FROM (
      SELECT broker_name, topic, queue_id, commitlog_offset, queue_offset FROM log_entries
      UNION ALL SELECT broker_name, topic, queue_id, commitlog_offset, queue_offset FROM {BEFORE}
    ) GROUP BY broker_name, topic, queue_id"""
TAG_CODES = pa.schema([("tags", pa.string()), ("tags_code", pa.int64())])
# Keys must be Utf8: the engine compares a key in brackets with no other type of text.
_NAMES = "arrow_cast(string_to_array(property_names, chr(1)), 'List(Utf8)')"
_VALUES = f"array_slice(make_array({', '.join(SLOTS)}), 1, CAST(array_length({_NAMES}) AS BIGINT))"
_MORE_NAMES = "string_to_array(regexp_replace(more_properties, '\x01[^\x02]*', '', 'g'), chr(2))"
_MORE_VALUES = "string_to_array(regexp_replace(more_properties, '(^|\x02)[^\x01]+\x01', '$1', 'g'), chr(2))"
_PROPERTIES = (
    f"CASE WHEN more_properties IS NULL THEN map({_NAMES}, {_VALUES}) ELSE map(array_concat({_NAMES}, "
    f"arrow_cast({_MORE_NAMES}, 'List(Utf8)')), array_concat({_VALUES}, {_MORE_VALUES})) END AS properties"
)


class Relations:
    """Answers queries. Expensive relations are computed when a query first names them."""

    def __init__(self, scope: Scope, listed: AuditList, session: Session, folder: Path) -> None:
        self._scope = scope
        self._folder = folder
        self._engine = QueryBuilder()
        self._registered: set[str] = set()
        self._computed: dict[str, Callable[[], pa.Table]] = {
            "brokers": lambda: audited_brokers(scope),
            "tag_codes": self._tag_codes,
            "data_files": lambda: data_files(scope, _read_whole(listed), session),
            "table_columns": lambda: table_columns(scope),
            "changed_nights": lambda: changed_nights(scope),
            "queue_totals": lambda: queue_totals(scope, self.rows),
            "delivery_counts": lambda: delivery_counts(scope),
            "window_checks": lambda: window_checks(scope),
            "bit_map_checks": lambda: bit_map_checks(scope, session),
            "subscription_checks": lambda: subscription_checks(scope),
            "inconsistent_groups": lambda: inconsistencies(scope, session),
        }
        self._queries = {table.name: _in_scope(table, scope) for table in (*TABLES, RUN_LEDGER)}
        self._queries |= listed.relations

    def rows(self, query: str, part: AuditedPart | None = None) -> pa.Table:
        """The rows of a query. ``part``: of the log that it reads; None: all parts.

        Raises an Exception of the engine if it cannot be answered.
        """
        return pa.table(self._engine.execute(self.complete(query, part)).read_all())

    def rows_by_part(self, query: str) -> Iterator[pa.Table]:
        """The rows of a query for each part of the log; all at once if it does not read the log."""
        reads_log = not OF_THE_LOG.keys().isdisjoint(self._definitions(query, None))
        parts: Sequence[AuditedPart | None] = self._log_parts if reads_log else ()
        for part in parts or [None]:
            yield self.rows(query, part)

    @cached_property
    def has_damaged_files(self) -> bool:
        """Whether a data file that audits read is not what was written. The engine itself verifies no checksums."""
        return bool(self.rows("SELECT 1 FROM data_files WHERE damage IS NOT NULL LIMIT 1").num_rows)

    def complete(self, query: str, part: AuditedPart | None = None) -> str:
        """A query, preceded by the definitions of all the relations that it reads."""
        definitions = self._definitions(query, part)
        if not definitions:
            return query
        return "WITH " + ", ".join(f"{name} AS ({text})" for name, text in definitions.items()) + f" {query}"

    def _definitions(self, query: str, part: AuditedPart | None) -> dict[str, str]:
        """The relations that a query reads, with their queries; each may read those before it."""
        definitions: dict[str, str] = {}
        self._add_needed(query, part, definitions)
        return definitions

    def _add_needed(self, query: str, part: AuditedPart | None, definitions: dict[str, str]) -> None:
        words = dict.fromkeys(re.findall(r"\w+", query))
        for name in words:
            if name in self._computed and name not in self._registered:
                self._store(name, self._computed[name]())
            elif name.startswith(ALL):
                self._register(name.removeprefix(ALL))
            elif name in definitions:
                continue
            elif name in self._queries and self._queries[name] != query:
                self._add_needed(self._queries[name], part, definitions)
                definitions[name] = self._queries[name]
            elif name in OF_THE_LOG:
                condition = whole_log(self._scope) if part is None else part.condition
                definitions[name] = self._of_the_log(OF_THE_LOG[name], condition)
            elif name == BEFORE:
                definitions[name] = self._entries_before(part)

    def _of_the_log(self, table: Table, condition: str) -> str:
        self._register(table.name)
        return f"SELECT * FROM {ALL}{table.name} WHERE {condition}"

    def _entries_before(self, part: AuditedPart | None) -> str:
        """The query for the last entry of each queue before a part. Finds those of the parts before it first."""
        if part is None or part.number == 0 or self._log_parts[part.number - 1].broker_name != part.broker_name:
            return self._of_the_log(CONSUMEQUEUE, "false")
        name = f"{BEFORE}_{part.number}"
        if name not in self._registered:
            self._store(name, self.rows(_LAST_ENTRIES, self._log_parts[part.number - 1]))
        return f"SELECT * FROM {name}"

    def _store(self, name: str, rows: pa.Table) -> None:
        write_deltalake(str(self._folder / name), rows)
        self._engine.register(name, DeltaTable(str(self._folder / name)))
        self._registered.add(name)

    @cached_property
    def _log_parts(self) -> list[AuditedPart]:
        return log_parts(self._scope)

    def _register(self, name: str) -> None:
        table = next((table for table in (*TABLES, RUN_LEDGER) if table.name == name), None)
        if table is None or name in self._registered:
            return
        self._registered.add(name)
        log = self._scope.warehouse.log(table)
        if log.exists:
            log.register(self._engine, ALL + name)
            return
        folder = str(self._folder / (ALL + name))
        write_deltalake(folder, table.schema.empty_table())
        self._engine.register(ALL + name, DeltaTable(folder))

    def _tag_codes(self) -> pa.Table:
        """The hash of each tag."""
        tags = self.rows("SELECT DISTINCT tags FROM log_messages WHERE tags IS NOT NULL")["tags"].cast(pa.string())
        return pa.table([tags, tags_codes(tags)], schema=TAG_CODES)


@contextmanager
def open_relations(scope: Scope, listed: AuditList, session: Session) -> Iterator[Relations]:
    """Opens the relations of a scope. Each of those in ``listed`` may read those before it."""
    with tempfile.TemporaryDirectory(prefix="mqsieve-audit-") as folder:
        yield Relations(scope, listed, session, Path(folder))


def reason(error: Exception) -> str:
    """Why a query cannot be answered, in one line."""
    return " ".join(str(error).split()).removeprefix("Error during planning: ")


def _in_scope(table: Table, scope: Scope) -> str:
    """The query for the rows of a table that audits read."""
    columns = f"*, {_PROPERTIES}" if table is COMMITLOG else "*"
    if table in _without_nights():
        return f"SELECT {columns} FROM {ALL}{table.name}"
    return f"SELECT {columns} FROM {ALL}{table.name} WHERE run >= '{scope.first_run}'"


def _without_nights() -> list[Table]:
    """The tables of which every audit reads all rows."""
    # current_offsets has the state after the last night, under the names of the runs that changed it.
    return [table for table in TABLES if "run" not in table.schema.names or table is CURRENT_OFFSETS]


def _read_whole(listed: AuditList) -> set[str]:
    """The names of the tables of which some audit reads all rows."""
    texts = [OF_NIGHTS, *listed.relations.values(), *(audit.query for audit in listed.audits)]
    words = {word for text in texts for word in re.findall(r"\w+", text) if word.startswith(ALL)}
    return {word.removeprefix(ALL) for word in words} | {table.name for table in _without_nights()}
