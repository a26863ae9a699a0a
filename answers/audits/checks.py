"""Relations of audits that have data of their own: pops, data files, and what Spark computes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from operator import or_
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from answers.audits.audit import Scope
from answers.facts import BrokerFacts
from filtering.broker_config import BrokerConfig
from filtering.delivery import Outcome
from filtering.delivery.entries import Entries, Int64s
from filtering.delivery.message_filter import message_filter
from filtering.delivery.pull_window import PullWindow
from filtering.delivery.topic_filters import TopicFilters
from filtering.frozen import frozen
from filtering.names import subscribed_topic
from filtering.predicate import TRUE
from filtering.subscriptions.events import ConsumeMode
from filtering.subscriptions.history import state_at, states_by_key
from filtering.subscriptions.inconsistency import client_states
from filtering.subscriptions.subscription_row import SubscriptionRow
from schemas.arrow_batches import schema_of, table_of
from schemas.commitlog import COMMITLOG
from schemas.deliveries import TRACED
from schemas.delta.delta_log import DataFileDamaged, verify_file
from schemas.delta.table import StoredFile, Table
from schemas.delta.table_rows import group_numbers, within
from schemas.delta.warehouse import Warehouse
from schemas.messages.stored_messages import scan_entries
from schemas.spark_tasks import Session, run_tasks
from schemas.storage import Storage
from schemas.tables import CONSUMEQUEUE, POPS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


# Pops: the broker's own record compared with our filters.
#
# A checkpoint names the queue offsets that a pop handed out. What lies between the offset at which it began and the
# last of them, and is not handed out, was read and did not match. So the record has the broker's answer for each of
# these messages, and the filter of the request, applied here, must give the same.


Array = NDArray[Any]
POP_CHECKS = schema_of(
    "broker_name string, consumer_group string, topic string, subscription_from int64, is_certain bool, judged int64, "
    "returned_against int64, passed_over_against int64, first_queue_id int32, first_queue_offset int64"
)
_COLUMNS = [
    "consumer_group", "topic", "queue_id", "queue_offset", "popped_at", "start_offset", "record_offset", "run",
]  # fmt: skip
_LONGEST_READ = 1 << 16
"""Entries that one pop is judged on at most. A damaged start offset may lie anywhere."""


@frozen(eq=False)
class _Judgements:
    """What pops under one subscription say of messages, by queue id and queue offset.

    ``is_returned``: whether the message was handed out, or else passed over. ``record_offset``: of the checkpoint;
    messages stored before ``log_start`` may have been deleted before the pop, and those before ``queue_begin`` were in
    an old queue.
    """

    window: PullWindow
    is_certain: bool
    queue_id: Int64s
    queue_offset: Int64s
    is_returned: NDArray[np.bool_]
    record_offset: Int64s
    log_start: Int64s
    queue_begin: Int64s


def pop_checks(scope: Scope, session: Session) -> pa.Table:
    """Rows of POP_CHECKS, one for each group, topic and subscription that popped in the audited nights.

    ``judged`` counts the messages of which the record has an answer, the next two those of them for which the filter
    gives the other one, and the last two name the first of these. ``is_certain``: the subscription is the one that
    requests carried, or the only one that the group ever had. Groups whose clients disagree are left out.
    """
    rows = (row for facts in scope.facts for row in _rows_of_broker(facts, scope.first_run, session))
    return table_of(POP_CHECKS, rows)


def _rows_of_broker(facts: BrokerFacts, first_run: str, session: Session) -> Iterator[tuple[object, ...]]:
    if POPS.name not in facts.last.tables:
        return
    pops = facts.recorded_pops(_COLUMNS, [within("run", first_run)])
    if not len(pops):
        return
    by_topic: defaultdict[str, list[_Judgements]] = defaultdict(list)
    for judgements in _judgements(facts, pops):
        by_topic[judgements.window.topic].append(judgements)
    bits = facts.broker.bloom_filter.m
    filters = {
        topic: TopicFilters(bits, (), [each.window for each in topic_judgements])
        for topic, topic_judgements in by_topic.items()
    }
    properties = {topic: topic_filters.properties for topic, topic_filters in filters.items()}
    count = partial(_count, filters=filters, judgements=dict(by_topic))
    totals = {topic: [np.zeros(3, np.int64) for _ in topic_judgements] for topic, topic_judgements in by_topic.items()}
    first: dict[tuple[str, int], tuple[int | None, int | None]] = {}
    if not filters:
        return
    for part in scan_entries(facts.warehouse, facts.name, properties, count, session, bit_maps=False):
        for (topic, number), (counts, place) in part.items():
            totals[topic][number] += counts
            if place is not None:
                first.setdefault((topic, number), place)
    for topic, topic_judgements in by_topic.items():
        for number, each in enumerate(topic_judgements):
            judged, returned, passed_over = totals[topic][number].tolist()
            example = first.get((topic, number), (None, None))
            key = each.window.consumer_group, topic, each.window.subscription_from
            yield facts.name, *key, each.is_certain, judged, returned, passed_over, *example


def _judgements(facts: BrokerFacts, pops: pa.Table) -> Iterator[_Judgements]:
    subscriptions = states_by_key(facts.history)
    disagreeing = states_by_key(state for state in client_states(facts.events) if not state.is_consistent)
    log_starts = {night.run: night.log_start or 0 for night in facts.nights}
    begins = facts.all_begins
    names = ["consumer_group", "topic", "queue_id", "popped_at", "start_offset", "record_offset", "run"]
    keys, number = group_numbers(pops, names)
    order = np.argsort(number, kind="stable")
    offsets = np.split(pops["queue_offset"].to_numpy()[order], np.cumsum(np.bincount(number, minlength=len(keys)))[:-1])
    judged: defaultdict[tuple[str, str, int], list[tuple[Array, ...]]] = defaultdict(list)
    rows: dict[tuple[str, str, int], SubscriptionRow] = {}
    for (group, topic, queue_id, popped_at, start, record_offset, run), returned in zip(keys, offsets, strict=True):
        subscribed = group, subscribed_topic(group, topic)
        row = state_at(subscriptions.get(subscribed, ()), popped_at)
        if row is None or state_at(disagreeing.get(subscribed, ()), popped_at) is not None:
            continue
        read = np.arange(max(start, int(returned.max()) + 1 - _LONGEST_READ), int(returned.max()) + 1)
        begin = max((each for each in begins.get((topic, queue_id), ()) if each <= record_offset), default=0)
        columns = queue_id, record_offset, log_starts.get(run, 0), begin
        repeated = (np.full(len(read), value, np.int64) for value in columns)
        judged[group, topic, row.valid_from].append((read, np.isin(read, returned), *repeated))
        rows[group, topic, row.valid_from] = row
    for key, parts in judged.items():
        read, is_returned, *columns_of_pops = map(np.concatenate, zip(*parts, strict=True))
        row = rows[key]
        window = _window(row, key[1], facts.broker)
        if window is not None:
            filters = {each.filter for each in subscriptions[row.key]}
            is_certain = row.sent_with_pull or len(filters) == 1
            queue_id, *places = columns_of_pops
            yield _Judgements(window, is_certain, queue_id, read, is_returned, *places)


def _window(row: SubscriptionRow, topic: str, broker: BrokerConfig) -> PullWindow | None:
    """The filter of a pop: that of its request, without bit map. A proxy's requests may bring SQL92 to any broker."""
    pop_filter = message_filter(replace(row, mode=ConsumeMode.POP), (), broker)
    if pop_filter is None:
        return None
    return PullWindow(replace(pop_filter, topic=topic, bit_pos=(), client_tags=TRUE), row.valid_from)


_Counted = dict[tuple[str, int], tuple[Int64s, tuple[int, int] | None]]


def _count(
    entries: Iterator[Entries], filters: Mapping[str, TopicFilters], judgements: Mapping[str, Sequence[_Judgements]]
) -> _Counted:
    """By topic and number of the judgements: how many were judged, and how many are against the filter."""
    counted: _Counted = {}
    for block in entries:
        flags = filters[block.topic].run(block).delivered.flags(len(judgements[block.topic]))
        keys = _place(block.queue_id, block.queue_offset)
        order = np.argsort(keys, kind="stable")
        for number, each in enumerate(judgements[block.topic]):
            wanted = _place(each.queue_id, each.queue_offset)
            at = np.minimum(np.searchsorted(keys[order], wanted), len(order) - 1)
            position = order[at]
            places = block.commitlog_offset[position]
            is_there = (keys[position] == wanted) & (places < each.record_offset)
            is_there &= (each.is_returned | (places >= each.log_start)) & (places >= each.queue_begin)
            matches = flags[number][position]
            returned = is_there & each.is_returned & ~matches
            passed_over = is_there & ~each.is_returned & matches
            wrong = np.flatnonzero(returned | passed_over)
            place = (int(each.queue_id[wrong[0]]), int(each.queue_offset[wrong[0]])) if len(wrong) else None
            counts = np.array([is_there.sum(), returned.sum(), passed_over.sum()], np.int64)
            before = counted.get((block.topic, number))
            counted[block.topic, number] = (
                (counts, place) if before is None else (before[0] + counts, before[1] or place)
            )
    return counted


def _place(queue_id: Array, queue_offset: Int64s) -> Int64s:
    """A number for a place in a queue, ascending by queue id and offset."""
    place: Int64s = (queue_id.astype(np.int64) << 40) + queue_offset
    return place


# Data files with the damage of their pages, and the columns of the tables. Page checksums and statistics are verified
# as parallel tasks.


DATA_FILES = schema_of(
    "table_name string, broker_name string, path string, size int64, rows int64, damage string, remedy string"
)
TABLE_COLUMNS = schema_of("table_name string, column_name string, declared string, found string")
FILES_IN_A_TASK = 8


def data_files(scope: Scope, read_whole: Collection[str], session: Session) -> pa.Table:
    """A row of DATA_FILES for each data file that audits read; ``damage`` is null if every page can be read.

    ``read_whole``: the names of tables of which audits read the rows of all nights.
    """
    files = {table: _files_read(scope, table, read_whole) for table in scope.tables}
    damaged = damaged_files(scope.warehouse, files, session)
    rows = []
    for table, table_files in files.items():
        for file in table_files:
            error = damaged.get(file.path)
            damage, remedy = (error.reason, error.remedy) if error else (None, None)
            rows.append((table.name, file.broker_name, file.path, file.size, file.rows, damage, remedy))
    return table_of(DATA_FILES, rows)


def _files_read(scope: Scope, table: Table, read_whole: Collection[str]) -> list[StoredFile]:
    if table.name in read_whole:
        return scope.warehouse.log(table).files
    files = {file.path: file for file in scope.new_files(table)}
    if table in (COMMITLOG, CONSUMEQUEUE):
        files |= {file.path: file for file in scope.files_of_range(table)}
    return list(files.values())


@frozen
class _FilesOfTable:
    table: Table
    storage: Storage
    files: tuple[StoredFile, ...]


def damaged_files(
    warehouse: Warehouse, files: Mapping[Table, Sequence[StoredFile]], session: Session
) -> dict[str, DataFileDamaged]:
    """What is wrong with those of some data files that are not what was written, by path."""
    tasks = [
        _FilesOfTable(table, warehouse.log(table).storage, tuple(table_files[at : at + FILES_IN_A_TASK]))
        for table, table_files in files.items()
        for at in range(0, len(table_files), FILES_IN_A_TASK)
    ]
    size = sum(file.size for table_files in files.values() for file in table_files)
    return {path: error for damage in run_tasks(tasks, _damaged, size, session) for path, error in damage.items()}


def _damaged(check: _FilesOfTable) -> dict[str, DataFileDamaged]:
    damage = {}
    for file in check.files:
        try:
            verify_file(check.table, check.storage, file)
        except DataFileDamaged as error:
            damage[file.path] = error
        except OSError as error:
            damage[file.path] = DataFileDamaged(check.storage.root, file.path, str(error).splitlines()[0])
    return damage


def table_columns(scope: Scope) -> pa.Table:
    """A row of TABLE_COLUMNS for each column that a table declares or has; null: it lacks the column."""
    rows = []
    for table in scope.tables:
        declared, stored = _types(table.schema), _types(scope.warehouse.log(table).schema)
        names = dict.fromkeys([*declared, *stored])
        rows += [(table.name, name, declared.get(name), stored.get(name)) for name in names]
    return table_of(TABLE_COLUMNS, rows)


def _types(schema: pa.Schema) -> dict[str, str]:
    # Arrow calls the values of a list item, and Parquet element.
    return {
        field.name: str(field.type).replace("<item: ", "<element: ") + ("" if field.nullable else " not null")
        for field in schema
    }


# For conf/spark_audits.yaml: entries and deliveries, computed once more by Spark.


SPARK_CHECKS = schema_of(
    "table_name string, broker_name string, run string, topic string, consumer_group string, stored int64, "
    "missing int64, unexpected int64"
)


def spark_checks(scope: Scope, session: Session) -> pa.Table:
    """Rows of SPARK_CHECKS, for each run and topic of consumequeue, and for each run, topic and group of deliveries.

    ``stored`` counts the rows of the table, ``missing`` those that Spark computes and that are not stored, and
    ``unexpected`` those that are stored only. Left out are messages that maintenance removed, and what traces of
    clients decided. Raises UsageError for a replay, which has no messages, and for nights without pull windows.
    """
    from pyspark.sql import functions as F

    from schemas import deliveries, spark_pipeline

    for facts in scope.facts:
        facts.check_has_messages()
        facts.check_has_windows()
    spark, warehouse = session(), scope.warehouse
    is_audited = reduce(
        or_,
        (
            (F.col("broker_name") == facts.name)
            & (F.col("commitlog_offset") >= scope.messages_from(facts.name))
            & (F.col("run") >= max(scope.first_run, scope.first_kept(facts.name)))
            for facts in scope.facts
        ),
    )
    stored = deliveries.read(spark, warehouse)
    pair = ["broker_name", "consumer_group", "commitlog_offset"]
    decided_by_traces = stored.where(F.col("source") == TRACED).select(pair)
    stored = stored.where(F.col("source") != TRACED).replace(
        {Outcome.DROPPED_BY_HOOK: Outcome.DELIVERED}, subset=["outcome"]
    )
    stored, computed = (
        each.join(decided_by_traces, pair, "left_anti").select(each.columns)
        for each in (stored, spark_pipeline.deliveries(spark, warehouse, scope.first_run))
    )
    differing_deliveries = _differences("deliveries", computed.where(is_audited), stored.where(is_audited))
    computed = spark_pipeline.entries(spark, warehouse).where(is_audited)
    stored = warehouse.read(spark, CONSUMEQUEUE).select(computed.columns).where(is_audited)
    no_group = F.lit(None).cast("string")
    differing_entries = _differences(
        CONSUMEQUEUE.name,
        computed.withColumn("consumer_group", no_group),
        stored.withColumn("consumer_group", no_group),
    )
    rows = differing_entries.unionByName(differing_deliveries).select(SPARK_CHECKS.names)
    return rows.toArrow().cast(SPARK_CHECKS)


def _differences(table_name: str, computed: DataFrame, stored: DataFrame) -> DataFrame:
    """The rows of SPARK_CHECKS for one table. Equal rows are counted."""
    from pyspark.sql import functions as F

    both = computed.withColumn("sign", F.lit(1)).unionByName(stored.withColumn("sign", F.lit(-1)))
    counted = both.groupBy(*computed.columns).agg(
        F.sum("sign").alias("surplus"), F.count_if(F.col("sign") < 0).alias("stored")
    )
    surplus, nothing = F.col("surplus"), F.lit(0)
    return (
        counted.groupBy("broker_name", "run", "topic", "consumer_group")
        .agg(
            F.sum("stored").alias("stored"),
            F.sum(F.greatest(surplus, nothing)).alias("missing"),
            F.sum(F.greatest(-surplus, nothing)).alias("unexpected"),
        )
        .withColumn("table_name", F.lit(table_name))
    )
