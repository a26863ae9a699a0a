"""Reads tables in the form that readers see: batch by batch without a Spark session, or by Spark."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from answers.facts import check_known_topic, open_brokers
from filtering.counted import did_you_mean
from filtering.delivery.entries import positions_in
from filtering.frozen import frozen
from schemas import commitlog, deliveries
from schemas.commitlog import COMMITLOG, VIEW, file_columns, view
from schemas.deliveries import DELIVERIES, DELIVERY_BLOCKS, DELIVERY_COLUMNS, pairs_of
from schemas.delta.delta_log import OpenDataFile, open_data_file
from schemas.delta.table import StoredFile, Table, column
from schemas.delta.table_rows import files_that_may_hold, filtered, one_of, within
from schemas.delta.warehouse import Warehouse
from schemas.errors import UsageError
from schemas.run_ledger import RUN_LEDGER
from schemas.subscriptions import SUBSCRIPTIONS
from schemas.tables import CURRENT_OFFSETS, TABLES, UNLEDGERED_TABLES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


MISSED = "missed"
"""What groups did not receive: no table, but computed (:func:`answers.missed.missed`)."""
MISSED_COLUMNS = pa.schema(
    [
        column("broker_name", pa.string()),
        column("consumer_group", pa.string()),
        column("topic", pa.string()),
        column("queue_id", pa.int32()),
        column("queue_offset", pa.int64()),
        column("commitlog_offset", pa.int64()),
        column("store_timestamp", pa.int64(), "ms since the epoch, broker clock"),
        column("outcome", pa.string(), "as of explain, such as STOPPED_BY_EXPRESSION or PENDING"),
        column("reason", pa.string(), "why the group did not receive the message"),
        column("uncertain", pa.string(), "why it may have received it; null: it did not"),
        column("subscription_from", pa.int64(), "valid_from of the subscription that decided; null: none did"),
    ]
)
"""The columns of what groups missed."""
EXPORTED = {table.name: table for table in (*TABLES, RUN_LEDGER, *UNLEDGERED_TABLES) if table is not DELIVERY_BLOCKS}


@frozen
class Selection:
    """The rows and columns to read. None means all.

    ``message_columns``: columns of commitlog that deliveries have besides their own.
    """

    broker_name: str | None = None
    groups: Collection[str] | None = None
    topics: Collection[str] | None = None
    columns: Sequence[str] | None = None
    message_columns: Sequence[str] = ()


EVERYTHING = Selection()


def columns_of(name: str) -> tuple[str, ...]:
    """The columns of a table as readers see it."""
    return VIEW if name == COMMITLOG.name else tuple(schema_of(name).names)


def schema_of(name: str, columns: Sequence[str] | None = None, message_columns: Sequence[str] = ()) -> pa.Schema:
    """The columns of a table as readers see it, with their types. ``columns``: only these, in this order.

    ``message_columns``: and these of commitlog.
    """
    if name == MISSED:
        return MISSED_COLUMNS
    if name == COMMITLOG.name:
        schema = _message_schema()
    else:
        schema = DELIVERY_COLUMNS if name == DELIVERIES else EXPORTED[name].schema
    own = schema.names if columns is None else columns
    more = [_message_schema().field(column) for column in message_columns]
    return pa.schema([*(schema.field(column) for column in own), *more])


@cache
def _message_schema() -> pa.Schema:
    return view(COMMITLOG.schema.empty_table()).schema


def check_groups(warehouse: Warehouse, groups: Collection[str]) -> None:
    """Raises UsageError if a group never subscribed to anything."""
    if not groups or not warehouse.exists(SUBSCRIPTIONS):
        return
    known = sorted(set(warehouse.rows(SUBSCRIPTIONS, ["consumer_group"])["consumer_group"].to_pylist()))
    for group in groups:
        if group not in known:
            raise UsageError(f"{group} has no subscription in {warehouse.location}{did_you_mean(group, known)}")


def check_topics(warehouse: Warehouse, name: str, topics: Collection[str]) -> None:
    """Raises UsageError if a topic has no consume queue entry, no subscription and no row of the table ``name``."""
    if not topics:
        return
    tables = [table for table in (CURRENT_OFFSETS, SUBSCRIPTIONS) if warehouse.exists(table)]
    known = sorted({topic for table in tables for topic in warehouse.rows(table, ["topic"])["topic"].to_pylist()})
    for topic in topics:
        # Messages that were only ingested have no entry yet.
        if topic not in known and next(batches_of(warehouse, name, Selection(topics=[topic])), None) is None:
            check_known_topic(topic, known, warehouse)


def batches_of(warehouse: Warehouse, name: str, selection: Selection) -> Iterator[pa.RecordBatch]:
    """The rows of a table, by broker and in the order of the files. A night creates no table without rows.

    Raises UsageError if the table lacks a selected column, and before the first audit for its results.
    """
    if name == MISSED:
        yield from _missed(warehouse, selection)
        return
    known = columns_of(name)
    columns = list(known if selection.columns is None else selection.columns)
    if selection.message_columns:
        _check_message_columns(name, selection.message_columns)
        yield from _with_messages(warehouse, selection, columns)
        return
    if unknown := [column for column in columns if column not in known]:
        raise UsageError(f"{name} has no column {', '.join(unknown)}; it has {', '.join(known)}")
    for kind, given in (("consumer_group", selection.groups), ("topic", selection.topics)):
        if given is not None and kind not in known:
            raise UsageError(f"{name} has no {kind} to select by")
    for file in files_of(warehouse, name):
        if selection.broker_name is None or file.broker_name in (None, selection.broker_name):
            yield from batches_of_file(warehouse, name, file, columns, selection)


def _missed(warehouse: Warehouse, selection: Selection) -> Iterator[pa.RecordBatch]:
    from answers.missed import missed  # it reads deliveries by this module

    if selection.groups is None or selection.columns is not None or selection.message_columns:
        raise UsageError(f"{MISSED} needs --group, and has its own columns: give no --columns and no --with")
    brokers = [facts for facts in open_brokers(warehouse) if selection.broker_name in (None, facts.name)]
    yield from missed(brokers, selection.groups, selection.topics)


def files_of(warehouse: Warehouse, name: str) -> list[StoredFile]:
    """The files with the rows of a table, in the order of :func:`batches_of`. Raises UsageError as that does."""
    table = _stored_as(name)
    if table in UNLEDGERED_TABLES and not warehouse.exists(table):
        raise UsageError(f"{warehouse.location} has no {name} yet: run {warehouse.command('audit')} first")
    return sorted(warehouse.log(table).files, key=_order)


def batches_of_file(
    warehouse: Warehouse, name: str, file: StoredFile, columns: Sequence[str], selection: Selection = EVERYTHING
) -> Iterator[pa.RecordBatch]:
    """The rows of a table that are in one of its files. ``selection``: groups and topics."""
    for rows in _rows(warehouse, _stored_as(name), file, selection, columns):
        yield from rows.select(list(columns)).to_batches()


def _stored_as(name: str) -> Table:
    return DELIVERY_BLOCKS if name == DELIVERIES else EXPORTED[name]


def read(spark: SparkSession, warehouse: Warehouse, name: str) -> DataFrame:
    """The rows of a table as readers see them, by Spark."""
    if name == DELIVERIES:
        return deliveries.read(spark, warehouse)
    return commitlog.read(spark, warehouse) if name == COMMITLOG.name else warehouse.read(spark, EXPORTED[name])


def _check_message_columns(name: str, columns: Sequence[str]) -> None:
    """Raises UsageError if the rows of the table cannot have these columns of messages besides their own."""
    if name != DELIVERIES:
        raise UsageError(f"only {DELIVERIES} can have columns of messages besides their own, not {name}")
    addable = [column for column in VIEW if column not in DELIVERY_COLUMNS.names]
    if unknown := [column for column in columns if column not in addable]:
        raise UsageError(f"messages have no column {', '.join(unknown)} to add; they have {', '.join(addable)}")


def _with_messages(warehouse: Warehouse, selection: Selection, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The rows of deliveries with columns of their messages."""
    messages = MessageColumns(warehouse, selection.message_columns)
    needed = dict.fromkeys([*columns, "broker_name", "commitlog_offset"])
    for batch in batches_of(warehouse, DELIVERIES, replace(selection, columns=list(needed), message_columns=())):
        if batch.num_rows:
            values = messages.of(batch["broker_name"][0].as_py(), batch["commitlog_offset"].to_numpy())
            rows = pa.Table.from_batches([batch]).select(list(columns))
            for name in selection.message_columns:
                rows = rows.append_column(name, values[name])
            yield from rows.combine_chunks().to_batches()


FILES_IN_MEMORY = 4
"""Deliveries come about in the order of the log; those of a backlog go back to earlier files."""


class MessageColumns:
    """Looks up ``columns`` of messages (of VIEW) by broker and physical offset."""

    def __init__(self, warehouse: Warehouse, columns: Sequence[str]) -> None:
        self._warehouse = warehouse
        self._columns = columns
        self._read = lru_cache(FILES_IN_MEMORY)(self._read_file)

    def of(self, broker_name: str | None, offsets: NDArray[np.int64]) -> pa.Table:
        """The columns of the messages at ``offsets``, in that order; null for a message that maintenance removed."""
        if not len(offsets):
            return self._empty()
        span = within("commitlog_offset", int(offsets.min()), below=int(offsets.max()) + 1)
        files = [file for file in self._warehouse.log(COMMITLOG).files if file.broker_name == broker_name]
        at, parts, before = np.full(len(offsets), -1, np.int64), [self._empty()], 0
        for file in files_that_may_hold(files, [span]):
            known, values = self._read(file.path)
            place = positions_in(known, offsets)
            at = np.where(place < 0, at, before + place)
            parts.append(values)
            before += len(known)
        return pa.concat_tables(parts).take(pa.array(at, mask=at < 0))

    def _empty(self) -> pa.Table:
        return view(COMMITLOG.file_schema.empty_table(), self._columns)

    def _read_file(self, path: str) -> tuple[NDArray[np.int64], pa.Table]:
        """The physical offsets in a file, ascending, and the columns of their messages."""
        needed = file_columns(["commitlog_offset", *self._columns])
        file = next(file for file in self._warehouse.log(COMMITLOG).files if file.path == path)
        rows = self._warehouse.rows(COMMITLOG, needed, files=[file]).sort_by("commitlog_offset")
        return rows["commitlog_offset"].to_numpy(), view(rows, self._columns)


def _order(file: StoredFile) -> tuple[str, int, str]:
    least = file.least.get("commitlog_offset", file.least.get("first_store_timestamp", 0))
    return file.broker_name or "", least, str(file.least.get("run", "")) + file.path


def _rows(
    warehouse: Warehouse, table: Table, file: StoredFile, selection: Selection, columns: Sequence[str]
) -> Iterator[pa.Table]:
    if selection.topics is not None and not files_that_may_hold([file], [one_of("topic", selection.topics)]):
        return
    with open_data_file(table, warehouse.log(table).storage, file.path) as opened:
        for group in range(len(opened.row_groups)):
            for rows in _readers_view(opened, group, table, selection, columns):
                if table.partition_by and "broker_name" in columns:
                    rows = rows.append_column("broker_name", pa.repeat(file.broker_name, len(rows)))
                yield rows


def _readers_view(
    opened: OpenDataFile, group: int, table: Table, selection: Selection, columns: Sequence[str]
) -> Iterator[pa.Table]:
    """The rows of a row group as readers see them, without broker_name."""
    names = [name for name in columns if name not in table.partition_by]
    filters = {"topic": selection.topics, "consumer_group": selection.groups}
    needed = dict.fromkeys(names) | dict.fromkeys(name for name, given in filters.items() if given is not None)
    if table is DELIVERY_BLOCKS:
        blocks = _where(opened.read(group), "topic", selection.topics)
        yield from (pa.Table.from_batches([batch]) for batch in pairs_of(blocks, selection.groups))
        return
    if table is COMMITLOG and not needed:
        needed = {"commitlog_offset": None}  # the view of no columns has no rows
    stored_columns = file_columns(list(needed)) if table is COMMITLOG else list(needed)
    rows = opened.read(group, [name for name in stored_columns if name in table.file_schema.names])
    for name, given in filters.items():
        rows = _where(rows, name, given)
    yield view(rows, list(needed)) if table is COMMITLOG else rows


def _where(rows: pa.Table, column: str, values: Collection[str] | None) -> pa.Table:
    return rows if values is None else filtered(rows, [one_of(column, values)])
