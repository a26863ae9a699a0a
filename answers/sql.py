"""SQL over the tables as readers see them: deliveries with keys and tags, properties as a map, times as timestamps.

The engine is that of the audits, DataFusion. A query reads copies of the columns that it names. A query that names
relations of audits, such as one that a failed audit printed, reads these instead.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import sqlglot
from deltalake import QueryBuilder
from sqlglot import exp

from answers.audits.audit import AuditList, scope_of
from answers.audits.relations import ALL, open_relations, reason, store_rows
from answers.export import EXPORTED, Selection, batches_of, columns_of, schema_of
from filtering.counted import did_you_mean
from schemas.deliveries import DELIVERIES
from schemas.delta.warehouse import Warehouse
from schemas.errors import CALLED, UsageError
from schemas.ledger_check import open_runs
from schemas.spark_tasks import Session
from schemas.tables import TIMES

TABLES = (*EXPORTED, DELIVERIES)
MESSAGE_COLUMNS = ("keys", "tags")
"""Columns of commitlog that deliveries have here, too."""
_TIMESTAMP = pa.timestamp("us", "UTC")
"""What columns of times in ms are here."""
_DEFAULT_SCHEMA = "datafusion.public."
"""What DataFusion writes before the name of a table."""


def answer(warehouse: Warehouse, query: str, listed: AuditList, session: Session) -> pa.Table:
    """The rows of a query. ``listed``: the audits, with their relations.

    Raises UsageError if it is not one query, or names what does not exist.
    """
    entries = open_runs(warehouse)
    tree = _parsed(query)
    defined = {each.alias for each in tree.find_all(exp.CTE)}
    named = {each.name for each in tree.find_all(exp.Table)} - defined
    if any(name.startswith(ALL) for name in named) or not named <= set(TABLES):
        scope = scope_of(warehouse, entries, True)
        with open_relations(scope, listed, session) as relations:
            try:
                return relations.rows(query)
            except Exception as error:  # The engine raises no type of its own.
                hints = (
                    did_you_mean(CALLED.get(name, name), TABLES)
                    for name in sorted(named)
                    if f".{name}' not found" in str(error)
                )
                raise UsageError(reason(error).replace(_DEFAULT_SCHEMA, "") + next(hints, "")) from None
    with tempfile.TemporaryDirectory(prefix="mqsieve-sql-") as folder:
        engine = QueryBuilder()
        columns = _columns(tree)
        for name in sorted(named):
            _copy(engine, warehouse, name, columns, Path(folder))
        try:
            return pa.table(engine.execute(query).read_all())
        except Exception as error:
            text, _, valid = reason(error).partition(" Valid fields are ")
            known = "".join(f"; {name} has {', '.join(_columns_of(name))}" for name in sorted(named) if valid)
            raise UsageError(text.removesuffix(".") + known) from None


def _parsed(query: str) -> exp.Query:
    """The tree of one query. Raises UsageError."""
    try:
        trees = sqlglot.parse(query.strip().removesuffix(";"))
    except sqlglot.errors.SqlglotError as error:
        raise UsageError(" ".join(re.sub(r"\x1b\[\d*m", "", str(error)).split())) from None
    if len(trees) != 1 or not isinstance(trees[0], exp.Query):
        raise UsageError("it must be one SELECT")
    return trees[0]


def _columns_of(name: str) -> list[str]:
    return [*columns_of(name), *(MESSAGE_COLUMNS if name == DELIVERIES else ())]


def _columns(tree: exp.Query) -> set[str] | None:
    """The names in a query, of columns and others; None if it asks for all columns of a table."""
    if any(not isinstance(star.parent, exp.Count) for star in tree.find_all(exp.Star)):
        return None
    return {each.name for each in tree.find_all(exp.Identifier)}


def _copy(engine: QueryBuilder, warehouse: Warehouse, name: str, columns: set[str] | None, folder: Path) -> None:
    """Gives the engine a copy of a table as readers see it."""
    known = _columns_of(name)
    needed = [column for column in known if columns is None or column in columns] or known[:1]
    message_columns = [column for column in needed if name == DELIVERIES and column in MESSAGE_COLUMNS]
    own = [column for column in needed if column not in message_columns]
    schema = pa.schema([_as_time(field) for field in schema_of(name, own, message_columns)])
    batches = _batches(warehouse, name, Selection(columns=own, message_columns=message_columns), schema)
    store_rows(engine, folder, name, schema, batches)


def _as_time(field: pa.Field) -> pa.Field:
    is_time = field.name in TIMES and field.type == pa.int64()
    return pa.field(field.name, _TIMESTAMP if is_time else field.type)


def _batches(warehouse: Warehouse, table: str, selection: Selection, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in batches_of(warehouse, table, selection):
        arrays = [
            column.cast(pa.timestamp("ms")).cast(pa.timestamp("us"), safe=False).cast(_TIMESTAMP)
            if field.type == _TIMESTAMP
            else column.cast(field.type)
            for column, field in zip(batch.columns, schema, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)
