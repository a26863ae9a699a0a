"""The relations that audits read: the tables, of all nights or those in scope, and relations beyond SQL.

An audit is a query in conf/audits.yaml. Relations, at the end, answers it with DataFusion: it registers a relation when
a query first names it. Those that SQL cannot express are computed here:

- ``window_checks``: deliveries compared with the pull windows that nights planned.
- ``changed_nights``: audited nights whose rows have changed since. Rows can only change if files left a table: the rows
  of these files are compared with those of the files that were added. A table to which nights only added files costs
  nothing.
- ``delivery_counts``, ``bit_map_checks``, ``inconsistent_groups``: deliveries counted again, bit maps compared with
  expressions, disagreements of clients.
- ``subscription_checks``: subscriptions compared with those that follow from the events.
- ``queue_totals``: how many entries the queues have. The progress of the nights adds up, unless a queue began again at
  offset 0, or maintenance removed nights with unreadable messages: then the entries of the queue are counted.

Audits of messages and entries go through the log in parts, in little memory (AuditedPart).
"""

from __future__ import annotations

import re
import tempfile
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import QueryBuilder
from deltalake.exceptions import DeltaError
from numpy.typing import NDArray

from answers.audits.audit import AuditList, Scope, audited_brokers
from answers.audits.checks import data_files, pop_checks, spark_checks, table_columns
from answers.facts import BrokerFacts
from answers.inconsistency import inconsistent_groups, knows_clients
from answers.proof import Proof, proof
from answers.pull_history import EntriesOfNights, Flags, NightsOfLog
from filtering.broker_config import SHORTEST_RECORD, BrokerConfig
from filtering.delivery import Outcome
from filtering.delivery.entries import Entries
from filtering.delivery.message_filter import message_filter
from filtering.delivery.pull_window import NO_END, PULLED, PullWindow, Reason, WindowKind
from filtering.delivery.topic_filters import PASSED_STAGE2, MaskKey, TopicFilters, mask_key
from filtering.frozen import frozen
from filtering.subscriptions.events import GroupTopic
from filtering.subscriptions.history import subscription_history
from filtering.subscriptions.subscription_row import SubscriptionRow
from filtering.tags_code import tags_codes
from filtering.time_spans import FOREVER
from schemas.arrow_batches import schema_of, table_of
from schemas.commitlog import COMMITLOG, SLOTS
from schemas.deliveries import DELIVERY_BLOCKS, pairs_of, positions_of
from schemas.delta.table import StoredFile, Table
from schemas.delta.table_rows import files_that_may_hold, filtered, one_of, sorted_by, within
from schemas.ledger_check import Withdrawal, withdrawals_since
from schemas.messages.stored_messages import scan_entries
from schemas.pull_windows import PULL_WINDOWS, stored_windows
from schemas.run_ledger import RUN_LEDGER, earlier_configs
from schemas.spark_tasks import Session
from schemas.subscriptions import EXPRESSION_COLUMNS, SUBSCRIPTIONS
from schemas.tables import (
    APPENDED_TABLES,
    CONSUMEQUEUE,
    CONSUMER_OFFSETS,
    CURRENT_OFFSETS,
    QUARANTINE,
    QUEUE_PROGRESS,
    TABLES,
    TRIMMED_TABLES,
)

# Pull windows.


WINDOW_CHECKS = schema_of(
    "broker_name string, run string, consumer_group string, topic string, messages int64, outside int64, twice int64"
)


@frozen
class _Area:
    """The messages that a window of a night covers. Windows with equal areas share it."""

    run: str
    night: int
    kind: WindowKind
    key: MaskKey
    window: PullWindow = field(compare=False)


@frozen
class _Window:
    """An area in which messages were available at ``available_at`` (ms) to a subscription; None: when stored."""

    area: _Area
    subscription_from: int
    available_at: int | None


def window_checks(scope: Scope) -> pa.Table:
    """Rows of WINDOW_CHECKS, one for each run, group and topic with deliveries.

    ``messages`` counts the deliveries and what clients dropped, ``outside`` those of them that no window of the run
    and of their subscription covers, and ``twice`` those that several windows cover though the group did not go back.
    """
    return table_of(WINDOW_CHECKS, (row for facts in scope.facts for row in _rows_of_broker(facts, scope.first_run)))


def _rows_of_broker(facts: BrokerFacts, first_run: str) -> Iterator[tuple[object, ...]]:
    if not facts.last.has_windows:
        return
    checks = _Checks(facts, first_run)
    where = [within("run", first_run)]
    for file in files_that_may_hold(facts.warehouse.files(DELIVERY_BLOCKS, facts.name), where):
        blocks = facts.warehouse.rows(DELIVERY_BLOCKS, where=where, files=[file])
        for row in range(len(blocks)):
            if not blocks["source"][row].is_valid:  # what a broker or a client wrote down is in no window
                checks.add({name: blocks[name][row] for name in blocks.column_names})
    for key, counts in checks.counts.items():
        yield facts.name, *key, counts["messages"], counts["outside"], counts["twice"]


class _Checks:
    """Counts, by run, group and topic, the messages of delivery blocks inside and outside of windows."""

    def __init__(self, facts: BrokerFacts, first_run: str) -> None:
        self.counts: defaultdict[tuple[str, str, str], Counter[str]] = defaultdict(Counter)
        self._log = cache(partial(NightsOfLog.of_topic, facts))
        self._windows: defaultdict[GroupTopic, list[_Window]] = defaultdict(list)
        self._went_back = _went_back(facts)
        nights = {night.run: number for number, night in enumerate(facts.nights)}
        for run, window in stored_windows(facts.rows(PULL_WINDOWS, where=[within("run", first_run)])):
            if window.kind in PULLED:
                area = _Area(run, nights[run], window.kind, mask_key(window), window)
                self._windows[window.key].append(_Window(area, window.subscription_from, window.available_at))
                if window.kind is WindowKind.RESET or window.reason is Reason.RESET:
                    self._went_back[window.key].append(run)
        for runs in self._went_back.values():
            runs.sort()

    def add(self, block: Mapping[str, Any]) -> None:
        """Adds a row of delivery_blocks."""
        run, topic, count = block["run"].as_py(), block["topic"].as_py(), block["messages"].as_py()
        names = ("queue_id", "queue_offset", "commitlog_offset", "store_timestamp")
        messages = self._log(topic).entries(*(block[name].values.to_numpy() for name in names))
        covered: dict[_Area, Flags] = {}
        inside: dict[tuple[_Area, ...], Flags] = {}
        twice: dict[tuple[tuple[_Area, ...], ...], Flags] = {}
        for match in block["matches"]:
            positions = positions_of(match, count)
            outside_of: dict[tuple[_Area, ...], int] = {}
            twice_of: dict[tuple[tuple[_Area, ...], ...], int] = {}
            for recipient in match["recipients"].as_py():
                key = recipient["consumer_group"], topic
                run_checks = tuple(
                    window.area
                    for window in self._windows.get(key, ())
                    if window.area.run == run
                    and window.subscription_from == recipient["subscription_from"]
                    and window.available_at == recipient["available_at"]
                )
                if run_checks not in outside_of:
                    if run_checks not in inside:
                        inside[run_checks] = _any([_mask(area, messages, covered) for area in run_checks], count)
                    outside_of[run_checks] = int(np.count_nonzero(~inside[run_checks][positions]))
                epochs = self._epochs(key)
                if epochs not in twice_of:
                    if epochs not in twice:
                        twice[epochs] = _any(
                            [_several([_mask(area, messages, covered) for area in areas], count) for areas in epochs],
                            count,
                        )
                    twice_of[epochs] = int(np.count_nonzero(twice[epochs][positions]))
                counts = self.counts[run, *key]
                counts["messages"] += len(positions)
                counts["outside"] += outside_of[run_checks]
                counts["twice"] += twice_of[epochs]

    def _epochs(self, key: GroupTopic) -> tuple[tuple[_Area, ...], ...]:
        """The windows of a group that must not cover a message twice, divided by the runs in which it went back."""
        back = self._went_back.get(key, [])
        areas_from: defaultdict[int, list[_Area]] = defaultdict(list)
        for window in self._windows.get(key, ()):
            if window.area.kind is not WindowKind.LATE and window.area.run not in back:
                areas_from[bisect_right(back, window.area.run)].append(window.area)
        return tuple(tuple(areas) for areas in areas_from.values())


def _went_back(facts: BrokerFacts) -> defaultdict[GroupTopic, list[str]]:
    """By group and topic, the runs in which offsets up to which deliveries are decided became less, or were reset."""
    rows = facts.rows(CONSUMER_OFFSETS, ["run", "consumer_group", "topic", "queue_id", "decided_to"])
    last: dict[tuple[str, str, int], int] = {}
    runs: defaultdict[GroupTopic, list[str]] = defaultdict(list)
    for row in sorted_by(rows, "run").to_pylist():
        queue = row["consumer_group"], row["topic"], row["queue_id"]
        if row["decided_to"] is not None:
            if row["decided_to"] < last.get(queue, 0):
                runs[queue[:2]].append(row["run"])
            last[queue] = row["decided_to"]
    for (group, topic, _), resets in facts.resets.items():
        for at, _ in resets:
            run = next((night.run for night in facts.nights if at <= (night.as_of or 0)), None)
            if run is not None:
                runs[group, topic].append(run)
    return runs


def _mask(area: _Area, messages: EntriesOfNights, known: dict[_Area, Flags]) -> Flags:
    if area not in known:
        covered = messages.covered_by(area.night, area.window)
        known[area] = np.zeros(len(messages.night), np.bool_) if covered is None else covered
    return known[area]


def _any(masks: Iterable[Flags], count: int) -> Flags:
    mask: Flags = np.logical_or.reduce([np.zeros(count, np.bool_), *masks])
    return mask


def _several(masks: Sequence[Flags], count: int) -> Flags:
    """What more than one of the masks holds."""
    if len(masks) < 2:
        return np.zeros(count, np.bool_)
    several: Flags = np.sum(masks, axis=0) > 1
    return several


# Changed nights. Rows that a later run withdrew are left out: its ledger entry says which they are.


CHANGED_NIGHTS = schema_of(
    "table_name string, broker_name string, run string, rows_before int64, rows_now int64, reason string"
)
NOT_COMPARED = frozenset(
    {"body", "body_crc", "renewed_at", "visible_at", "acknowledged_at", "redelivered_as", "is_open"}
)
"""Bodies may be dropped, and body_crc is stored only if the body is not. The others are what became of pops since."""
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
AFTER = "\0"
"""Appended to a text, gives the next greater text."""
Totals = dict[tuple[str | None, str], tuple[int, int]]
"""The number of rows and the sum of their hashes, by broker and run."""


def changed_nights(scope: Scope) -> pa.Table:
    """Rows of CHANGED_NIGHTS: the nights whose rows in a table differ from those at the last audit that passed.

    Rows that a run since then has withdrawn are not compared.
    """
    rows: list[tuple[object, ...]] = []
    for table in APPENDED_TABLES:
        if scope.last_audit is None or table.name not in scope.last_audit.versions:
            continue
        try:
            before, now = _before_and_now(scope, table, scope.last_audit.run, scope.last_audit.versions[table.name])
        except (DeltaError, OSError) as error:
            reason = f"cannot be compared: {str(error).splitlines()[0]}"
            rows.append((table.name, None, scope.last_audit.run, None, None, reason))
            continue
        for broker_name, run in sorted(before.keys() | now.keys(), key=str):
            old, new = (totals.get((broker_name, run), (0, 0)) for totals in (before, now))
            if old != new and (new[0] or not _was_removed(scope, table, broker_name, run)):
                reason = "other values" if old[0] == new[0] else "other rows"
                rows.append((table.name, broker_name, run, old[0], new[0], reason))
    return table_of(CHANGED_NIGHTS, rows)


def _was_removed(scope: Scope, table: Table, broker_name: str | None, run: str) -> bool:
    """Whether maintenance removed the rows of a night."""
    is_removed = table in (*TRIMMED_TABLES, QUARANTINE)
    return is_removed and broker_name is not None and run < scope.first_kept(broker_name)


def _before_and_now(scope: Scope, table: Table, last_run: str, version: int) -> tuple[Totals, Totals]:
    log = scope.warehouse.log(table)
    if version >= log.version:
        return {}, {}
    before, now = log.files_at(version), log.files
    kept = {file.path for file in before} & {file.path for file in now}
    removed = [file for file in before if file.path not in kept]
    added = [file for file in now if file.path not in kept and file.least.get("run", "") <= last_run]
    if not removed and not added:
        return {}, {}
    withdrawn = {
        name: withdrawals_since(scope.ledger, table, version, name)
        for name in {file.broker_name for file in (*removed, *added)}
    }
    return _totals(scope, table, removed, last_run, withdrawn), _totals(scope, table, added, last_run, withdrawn)


def _totals(
    scope: Scope,
    table: Table,
    files: Sequence[StoredFile],
    last_run: str,
    withdrawn: Mapping[str | None, Sequence[Withdrawal]],
) -> Totals:
    totals: defaultdict[tuple[str | None, str], tuple[int, int]] = defaultdict(lambda: (0, 0))
    names = [name for name in table.file_schema.names if name not in NOT_COMPARED]
    for file in files:
        stored = scope.warehouse.rows(table, names, [within("run", below=last_run + AFTER)], [file])
        # The same deliveries may be in other blocks.
        parts = (pa.Table.from_batches([batch]) for batch in pairs_of(stored)) if table is DELIVERY_BLOCKS else [stored]
        for rows in parts:
            for withdrawal in withdrawn[file.broker_name]:
                rows = withdrawal.rest(rows)
            for run, hashes in _by_run(rows):
                count, total = totals[file.broker_name, run]
                totals[file.broker_name, run] = count + len(hashes), (total + int(hashes.sum())) & (2**64 - 1)
    return dict(totals)


def _by_run(rows: pa.Table) -> Iterator[tuple[str, NDArray[np.uint64]]]:
    """The hashes of the rows of each run."""
    hashes = row_hashes(rows)
    runs = rows["run"].combine_chunks().dictionary_encode()
    numbers = runs.indices.to_numpy()
    for number, run in enumerate(runs.dictionary.to_pylist()):
        yield run, hashes[numbers == number]


def row_hashes(rows: pa.Table) -> NDArray[np.uint64]:
    """A hash of each row, the same in one process for the same values."""
    total = np.zeros(len(rows), np.uint64)
    with np.errstate(over="ignore"):
        for column in rows.columns:
            mixed = (_value_hashes(column.combine_chunks()) + total) * _MULTIPLIER
            total = mixed ^ (mixed >> np.uint64(29))
    return total


def _value_hashes(values: pa.Array) -> NDArray[np.uint64]:
    if pa.types.is_nested(values.type):
        values = pa.array([None if value is None else repr(value) for value in values.to_pylist()], pa.string())
    encoded = values.dictionary_encode(null_encoding="encode")
    distinct = np.array([hash(value) & (2**64 - 1) for value in encoded.dictionary.to_pylist()], np.uint64)
    hashes: NDArray[np.uint64] = distinct[encoded.indices.to_numpy()]
    return hashes


# Filters.


DELIVERY_COUNTS = schema_of(
    "broker_name string, run string, consumer_group string, topic string, queue_id int32, delivered int64, "
    "dropped int64"
)
BIT_MAP_CHECKS = schema_of(
    "broker_name string, consumer_group string, topic string, subscription_from int64, matching int64, held_back int64"
)
INCONSISTENT_GROUPS = schema_of("broker_name string, consumer_group string, topic string, state string, lost int64")


def delivery_counts(scope: Scope) -> pa.Table:
    """Rows of DELIVERY_COUNTS: the deliveries in delivery_blocks, and what clients dropped, by queue."""
    totals: defaultdict[tuple[object, ...], Counter[str]] = defaultdict(Counter)
    for file in scope.new_files(DELIVERY_BLOCKS):
        blocks = scope.warehouse.rows(DELIVERY_BLOCKS, where=[within("run", scope.first_run)], files=[file])
        for row in range(len(blocks)):
            _count_block(blocks, row, file.broker_name, totals)
    rows = ((*key, counts["delivered"], counts["dropped"]) for key, counts in totals.items())
    return table_of(DELIVERY_COUNTS, rows)


def _count_block(
    blocks: pa.Table, row: int, broker_name: str | None, totals: defaultdict[tuple[object, ...], Counter[str]]
) -> None:
    topic, run, messages = (blocks[name][row].as_py() for name in ("topic", "run", "messages"))
    queue_ids, queue_of = np.unique(np.asarray(blocks["queue_id"][row].values), return_inverse=True)
    for match in blocks["matches"][row]:
        queue_counts = np.bincount(queue_of[positions_of(match, messages)], minlength=len(queue_ids)).tolist()
        if match["outcome"].as_py() == Outcome.DENIED:
            continue
        name = "delivered" if match["outcome"].as_py() == Outcome.DELIVERED else "dropped"
        for group in match["recipients"].values.field("consumer_group").to_pylist():
            for queue_id, count in zip(queue_ids.tolist(), queue_counts, strict=True):
                if count:
                    totals[broker_name, run, group, topic, queue_id][name] += count


def bit_map_checks(scope: Scope, session: Session) -> pa.Table:
    """Rows of BIT_MAP_CHECKS, one for each subscription with filter data.

    ``matching`` counts the messages that match its own expression, ``held_back`` those of them that the stored filter
    bit map stops.
    """
    files = scope.new_files(CONSUMEQUEUE)
    since = min((file.least["store_timestamp"] for file in files), default=FOREVER)
    rows = []
    for facts in scope.facts:
        windows_of = _windows(facts.history, facts.broker, since)
        filters = {topic: _with_and_without_bit_maps(windows, facts.broker) for topic, windows in windows_of.items()}
        properties = {topic: topic_filters.properties for topic, topic_filters in filters.items()}
        passed = {topic: np.zeros(topic_filters.window_count, np.int64) for topic, topic_filters in filters.items()}
        stored = since, FOREVER
        count = partial(_passed, filters=filters)
        for part in scan_entries(scope.warehouse, facts.name, properties, count, session, stored):
            for topic, more in part.items():
                passed[topic] += more
        for topic, windows in windows_of.items():
            for window, held, matching in zip(windows, *passed[topic].reshape(2, -1).tolist(), strict=True):
                window_key = window.consumer_group, topic, window.subscription_from
                rows.append((facts.name, *window_key, matching, matching - held))
    return table_of(BIT_MAP_CHECKS, rows)


def _windows(history: Sequence[SubscriptionRow], broker: BrokerConfig, since: int) -> Mapping[str, list[PullWindow]]:
    """The subscriptions whose pulls use bit maps, while they were in force, by topic."""
    # With filterSupportRetry, stage 2 reads the expression of a retried message's original topic. The bits in the retry
    # topic are those of the expression there (CommitLogDispatcherCalcBitMap).
    broker = replace(broker, filter_support_retry=False)
    windows: defaultdict[str, list[PullWindow]] = defaultdict(list)
    for row in history:
        decides = message_filter(row, (), broker) if row.end > since else None
        if decides is not None and decides.bit_pos:
            windows[row.topic].append(PullWindow(decides, row.valid_from, max(row.valid_from, since), row.end))
    return windows


def _with_and_without_bit_maps(windows: Sequence[PullWindow], broker: BrokerConfig) -> TopicFilters:
    """Filters with twice as many windows: the second half does not use the filter bit map."""
    return TopicFilters(broker.bloom_filter.m, (), [*windows, *(window.without_bit_map for window in windows)])


def _passed(entries: Iterator[Entries], filters: Mapping[str, TopicFilters]) -> dict[str, np.ndarray]:
    """Counts, by topic, the messages that pass each window's second filter."""
    passed: dict[str, np.ndarray] = {}
    for block in entries:
        counts = filters[block.topic].run(block).counts[:, :, PASSED_STAGE2].sum(axis=1)
        passed[block.topic] = passed.get(block.topic, 0) + counts
    return passed


def inconsistencies(scope: Scope, session: Session) -> pa.Table:
    """Rows of INCONSISTENT_GROUPS: groups whose clients disagree on a topic."""
    rows = (
        (facts.name, group.consumer_group, group.topic, group.description, group.lost)
        for facts in filter(knows_clients, scope.facts)
        for group in inconsistent_groups(facts, session)
    )
    return table_of(INCONSISTENT_GROUPS, rows)


# Subscriptions.


SUBSCRIPTION_CHECKS = schema_of(
    "broker_name string, consumer_group string, topic string, valid_from int64, difference string"
)
_KEY = ("consumer_group", "topic", "valid_from")
_COMPARED = [
    name for name in SUBSCRIPTIONS.file_schema.names if name not in (*_KEY, *EXPRESSION_COLUMNS, "compile_error")
]
"""Without texts that another version of mqsieve writes differently."""
_REGISTERING = ("nightly", "register")
"""The jobs that write subscriptions."""
Rows = Mapping[tuple[Any, ...], list[tuple[Any, ...]]]
"""By the values of _KEY, those of _COMPARED."""


def subscription_checks(scope: Scope) -> pa.Table:
    """Rows of SUBSCRIPTION_CHECKS: each state of a subscription, stored or following from the events.

    ``difference``: ``missing``, ``doubled``, ``not from the events`` or the columns that differ; null if there is none.
    """
    rows = (row for facts in scope.facts if not facts.is_replay for row in _checks(facts))
    return table_of(SUBSCRIPTION_CHECKS, rows)


def _checks(facts: BrokerFacts) -> Iterable[tuple[Any, ...]]:
    stored = _by_key(facts.rows(SUBSCRIPTIONS, [*_KEY, *_COMPARED]).to_pylist())
    expected = _expected(facts)
    for key in sorted(stored.keys() | expected.keys()):
        yield facts.name, *key, _difference(key, stored, expected)


def _expected(facts: BrokerFacts) -> Rows:
    """The states that follow from the events, by the configuration of the last run that wrote subscriptions."""
    config = next((entry.broker for entry in reversed(facts.entries) if entry.job in _REGISTERING), facts.broker)
    history = subscription_history(facts.events, config, facts.expressions, earlier_configs(facts.nights))
    batch = SUBSCRIPTIONS.rows_batch([{name: getattr(row, name) for name in (*_KEY, *_COMPARED)} for row in history])
    return _by_key(batch.to_pylist())


def _by_key(rows: Iterable[Mapping[str, Any]]) -> Rows:
    rows_by_key: defaultdict[tuple[Any, ...], list[tuple[Any, ...]]] = defaultdict(list)
    for row in rows:
        rows_by_key[tuple(row[name] for name in _KEY)].append(tuple(row[name] for name in _COMPARED))
    return rows_by_key


def _difference(key: tuple[Any, ...], stored: Rows, expected: Rows) -> str | None:
    if key not in stored:
        return "missing"
    if key not in expected:
        return "not from the events"
    if len(stored[key]) > 1:
        return "doubled"
    (left,), (right,) = stored[key], expected[key]
    return ", ".join(name for name, one, other in zip(_COMPARED, left, right, strict=True) if one != other) or None


# Traces: what clients wrote of their own consumption, and what the tables have of it.

TRACE_CHECKS = schema_of(
    "broker_name string, consumer_group string, topic string, queue_id int32, queue_offset int64, consumed_at int64, "
    "client_process string, has_delivery bool"
)
PROVEN_DELIVERIES = schema_of(
    "broker_name string, consumer_group string, topic string, queue_id int32, queue_offset int64, available_at int64, "
    "is_proven bool, is_denied bool"
)


def proofs_of_brokers(scope: Scope) -> list[tuple[str, Proof]]:
    """What traces prove of each broker that has some, by its name."""
    proofs = ((facts.name, proof(facts, scope.first_run)) for facts in scope.facts)
    return [(name, each) for name, each in proofs if each is not None]


def trace_checks(proofs: Iterable[tuple[str, Proof]]) -> pa.Table:
    """A row of TRACE_CHECKS for each trace that can be judged."""
    return _with_broker_names(TRACE_CHECKS, ((name, each.traces) for name, each in proofs))


def proven_deliveries(proofs: Iterable[tuple[str, Proof]]) -> pa.Table:
    """A row of PROVEN_DELIVERIES for each delivery to a group that traces."""
    return _with_broker_names(PROVEN_DELIVERIES, ((name, each.deliveries) for name, each in proofs))


def _with_broker_names(schema: pa.Schema, parts: Iterable[tuple[str, pa.Table]]) -> pa.Table:
    named = (part.append_column("broker_name", pa.repeat(name, len(part))) for name, part in parts)
    return pa.concat_tables([schema.empty_table(), *(part.select(schema.names).cast(schema) for part in named)])


# Totals of queues.


QUEUE_TOTALS = schema_of(
    "broker_name string, topic string, queue_id int32, from_offset int64, to_offset int64, entries int64, "
    "unreadable_bytes int64"
)
NIGHT_TOTALS = """
    SELECT p.broker_name, p.topic, p.queue_id, min(p.from_offset) AS from_offset,
      max(greatest(p.to_offset, coalesce(p.ended_at, 0))) AS to_offset,
      sum(p.entries) AS entries, max(b.unreadable_bytes) AS unreadable_bytes
    FROM all_queue_progress p JOIN brokers b ON b.broker_name = p.broker_name
    GROUP BY p.broker_name, p.topic, p.queue_id"""
"""The totals of the progress of all nights."""


def queue_totals(scope: Scope, rows: Callable[[str], pa.Table]) -> pa.Table:
    """Rows of QUEUE_TOTALS, one for each queue. ``rows`` answers an SQL query."""
    totals = rows(NIGHT_TOTALS).to_pylist()
    return pa.Table.from_pylist(
        [total if _is_full(total) else _stored_total(scope, total) for total in totals], QUEUE_TOTALS
    )


def _is_full(total: dict[str, Any]) -> bool:
    """Whether the entries of a queue leave no gap but that of unreadable messages."""
    missing = total["to_offset"] - total["from_offset"] - total["entries"]
    return bool(0 <= missing * SHORTEST_RECORD <= total["unreadable_bytes"])


def _stored_total(scope: Scope, total: dict[str, Any]) -> dict[str, Any]:
    """The total of a queue's stored entries since it began again, or since the nights that maintenance removed.

    The given total if there was neither, or if the stored entries are not as many as the nights have counted.
    """
    messages_from, first_kept = (of(total["broker_name"]) for of in (scope.messages_from, scope.first_kept))
    progress = _rows_of_queue(scope, QUEUE_PROGRESS, ["entries", "run"], total)
    counted = pc.sum(progress.filter(pc.greater_equal(progress["run"], first_kept))["entries"]).as_py() or 0
    entries = _rows_of_queue(scope, CONSUMEQUEUE, ["queue_offset", "commitlog_offset", "run"], total)
    stored = pc.sum(pc.greater_equal(entries["run"], first_kept)).as_py() or 0
    kept = sorted_by(filtered(entries, [within("commitlog_offset", messages_from)]), "commitlog_offset")
    offsets, places = (kept[name].to_numpy() for name in ("queue_offset", "commitlog_offset"))
    goes_back = (np.diff(offsets) <= 0) & (np.diff(places) > 0)
    began = np.flatnonzero(goes_back & (offsets[1:] * SHORTEST_RECORD <= total["unreadable_bytes"])) + 1
    if stored != counted or not (len(began) or messages_from):
        return total
    last = offsets[began[-1] if len(began) else 0 :].tolist()
    ends = {"from_offset": min(last), "to_offset": max(last) + 1} if last else {"from_offset": 0, "to_offset": 0}
    return total | ends | {"entries": len(last)}


def _rows_of_queue(scope: Scope, table: Table, columns: list[str], queue: dict[str, Any]) -> pa.Table:
    where = [one_of(name, [queue[name]]) for name in ("topic", "queue_id")]
    return scope.warehouse.rows_of(queue["broker_name"], table, columns, where)


# Parts of the log.


MESSAGES_IN_A_PART = 1 << 20
"""Unless one file has more."""


@frozen
class AuditedPart:
    """Physical offsets of a broker's log, the second exclusive. ``number``: its place among all parts."""

    number: int
    broker_name: str
    begin: int
    end: int

    @property
    def condition(self) -> str:
        """SQL that holds for the rows of commitlog and consumequeue in the part."""
        return f"{_from(self.broker_name, self.begin)} AND commitlog_offset < {self.end}"


def whole_log(scope: Scope) -> str:
    """SQL that holds for the rows of commitlog and consumequeue from the first audited physical offset on."""
    return " OR ".join(f"({_from(name, begin)})" for name, begin in scope.audited_from.items()) or "false"


def _from(broker_name: str, begin: int) -> str:
    name = broker_name.replace("'", "''")
    return f"broker_name = '{name}' AND commitlog_offset >= {begin}"


def log_parts(scope: Scope) -> list[AuditedPart]:
    """The log of each broker from the first audited physical offset on, in order."""
    ranges = [(name, *each) for name in scope.audited_from for each in _ranges(scope, name)]
    return [AuditedPart(number, *each) for number, each in enumerate(ranges)]


def _ranges(scope: Scope, broker_name: str) -> Iterator[tuple[int, int]]:
    files = [file for file in scope.files_of_range(COMMITLOG) if file.broker_name == broker_name]
    begin, messages = scope.audited_from[broker_name], 0
    for file in sorted(files, key=lambda file: file.least["commitlog_offset"]):
        first = file.least["commitlog_offset"]
        if messages and messages + file.rows > MESSAGES_IN_A_PART and first > begin:
            yield begin, first
            begin, messages = first, 0
        messages += file.rows
    yield begin, NO_END


ALL = "all_"
"""Prefix of the names of tables with the rows of all nights."""
LOG_RELATIONS = {"log_messages": COMMITLOG, "log_entries": CONSUMEQUEUE}
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
_WITH = re.compile(r"\s*WITH\s", re.IGNORECASE)
_DEFINED = re.compile(r"(\w+)\s+AS\s*\(", re.IGNORECASE)
TAG_CODES = schema_of("tags string, tags_code int64")
# Keys must be Utf8: the engine compares a key in brackets with no other type of text.
_NAMES = "arrow_cast(string_to_array(property_names, chr(1)), 'List(Utf8)')"
_VALUES = f"array_slice(make_array({', '.join(SLOTS)}), 1, CAST(array_length({_NAMES}) AS BIGINT))"
_MORE_NAMES = "string_to_array(regexp_replace(more_properties, '\x01[^\x02]*', '', 'g'), chr(2))"
_MORE_VALUES = "string_to_array(regexp_replace(more_properties, '(^|\x02)[^\x01]+\x01', '$1', 'g'), chr(2))"
_PROPERTIES = (
    f"CASE WHEN more_properties IS NULL THEN map({_NAMES}, {_VALUES}) ELSE map(array_concat({_NAMES}, "
    f"arrow_cast({_MORE_NAMES}, 'List(Utf8)')), array_concat({_VALUES}, {_MORE_VALUES})) END AS properties"
)


def store_rows(
    engine: QueryBuilder, folder: Path, name: str, schema: pa.Schema, parts: Iterable[pa.Table | pa.RecordBatch]
) -> None:
    """Gives the engine rows as the table ``name``, from a Parquet file in a folder.

    Raises OSError if the disk is full. The engine's own writers print more than that.
    """
    file = folder / f"{name}.parquet"
    with pq.ParquetWriter(file, schema, store_schema=False) as writer:
        for part in parts:
            writer.write(part)
    location = file.as_uri().replace("'", "''")
    engine.execute(f"CREATE EXTERNAL TABLE {name} STORED AS PARQUET LOCATION '{location}'").read_all()


class Relations:
    """Answers queries. Expensive relations are computed when a query first names them."""

    def __init__(self, scope: Scope, listed: AuditList, session: Session, folder: Path) -> None:
        self._scope = scope
        self._folder = folder
        self._engine = QueryBuilder()
        self._registered: set[str] = set()
        proofs = cache(partial(proofs_of_brokers, scope))
        self._computed: dict[str, Callable[[], pa.Table]] = {
            "brokers": lambda: audited_brokers(scope),
            "tag_codes": self._tag_codes,
            "data_files": lambda: data_files(scope, _read_whole(listed), session),
            "table_columns": lambda: table_columns(scope),
            "changed_nights": lambda: changed_nights(scope),
            "queue_totals": lambda: queue_totals(scope, self.rows),
            "delivery_counts": lambda: delivery_counts(scope),
            "window_checks": lambda: window_checks(scope),
            "pop_checks": lambda: pop_checks(scope, session),
            "trace_checks": lambda: trace_checks(proofs()),
            "proven_deliveries": lambda: proven_deliveries(proofs()),
            "bit_map_checks": lambda: bit_map_checks(scope, session),
            "subscription_checks": lambda: subscription_checks(scope),
            "inconsistent_groups": lambda: inconsistencies(scope, session),
            "spark_checks": lambda: spark_checks(scope, session),
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
        reads_log = not LOG_RELATIONS.keys().isdisjoint(self._definitions(query, None))
        parts: Sequence[AuditedPart | None] = self._log_parts if reads_log else ()
        for part in parts or [None]:
            yield self.rows(query, part)

    @cached_property
    def has_damaged_files(self) -> bool:
        """Whether a data file that audits read is not what was written. The engine itself verifies no checksums."""
        return bool(self.rows("SELECT 1 FROM data_files WHERE damage IS NOT NULL LIMIT 1").num_rows)

    def complete(self, query: str, part: AuditedPart | None = None) -> str:
        """A query, preceded by the definitions of all the relations that it reads and does not define itself."""
        own = _WITH.match(query)
        defined = _DEFINED.findall(query) if own else ()
        definitions = {name: text for name, text in self._definitions(query, part).items() if name not in defined}
        if not definitions:
            return query
        texts = ", ".join(f"{name} AS ({text})" for name, text in definitions.items())
        return f"WITH {texts}, {query[own.end() :]}" if own else f"WITH {texts} {query}"

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
            elif name in LOG_RELATIONS:
                condition = whole_log(self._scope) if part is None else part.condition
                definitions[name] = self._log_query(LOG_RELATIONS[name], condition)
            elif name == BEFORE:
                definitions[name] = self._entries_before(part)

    def _log_query(self, table: Table, condition: str) -> str:
        self._register(table.name)
        return f"SELECT * FROM {ALL}{table.name} WHERE {condition}"

    def _entries_before(self, part: AuditedPart | None) -> str:
        """The query for the last entry of each queue before a part. Finds those of the parts before it first."""
        if part is None or part.number == 0 or self._log_parts[part.number - 1].broker_name != part.broker_name:
            return self._log_query(CONSUMEQUEUE, "false")
        name = f"{BEFORE}_{part.number}"
        if name not in self._registered:
            self._store(name, self.rows(_LAST_ENTRIES, self._log_parts[part.number - 1]))
        return f"SELECT * FROM {name}"

    def _store(self, name: str, rows: pa.Table) -> None:
        store_rows(self._engine, self._folder, name, rows.schema, [rows])
        self._registered.add(name)

    @cached_property
    def _log_parts(self) -> list[AuditedPart]:
        return log_parts(self._scope)

    def _register(self, name: str) -> None:
        table = next((table for table in (*TABLES, RUN_LEDGER) if table.name == name), None)
        if table is None or ALL + name in self._registered:
            return
        log = self._scope.warehouse.log(table)
        if not log.exists:
            self._store(ALL + name, table.schema.empty_table())
            return
        log.register(self._engine, ALL + name)
        self._registered.add(ALL + name)

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
    texts = [NIGHT_TOTALS, *listed.relations.values(), *(audit.query for audit in listed.audits)]
    words = {word for text in texts for word in re.findall(r"\w+", text) if word.startswith(ALL)}
    return {word.removeprefix(ALL) for word in words} | {table.name for table in _without_nights()}
