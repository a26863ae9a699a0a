"""The relation for the audit of pops: the broker's own record compared with our filters.

A checkpoint names the queue offsets that a pop handed out. What lies between the offset at which it began and the last
of them, and is not handed out, was read and did not match. So the record has the broker's answer for each of these
messages, and the filter of the request, applied here, must give the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from answers.audits.scope import Scope
from answers.facts import BrokerFacts
from filtering.broker_config import BrokerConfig
from filtering.delivery.entries import Entries, Int64s
from filtering.delivery.message_filter import message_filter
from filtering.delivery.pull_window import PullWindow
from filtering.delivery.topic_filters import TopicFilters
from filtering.frozen import frozen
from filtering.pops.record import subscribed_topic
from filtering.predicate import TRUE
from filtering.subscriptions.history import state_at, states_by_key
from filtering.subscriptions.inconsistency import client_states
from filtering.subscriptions.subscription_row import SubscriptionRow
from schemas.arrow_batches import table_of
from schemas.delta.table_rows import group_numbers, within
from schemas.messages.stored_messages import scan_entries
from schemas.pops import POPS
from schemas.spark_tasks import Session

Array = NDArray[Any]
POP_CHECKS = pa.schema(
    [
        ("broker_name", pa.string()),
        ("consumer_group", pa.string()),
        ("topic", pa.string()),
        ("subscription_from", pa.int64()),
        ("is_certain", pa.bool_()),
        ("judged", pa.int64()),
        ("returned_against", pa.int64()),
        ("passed_over_against", pa.int64()),
        ("first_queue_id", pa.int32()),
        ("first_queue_offset", pa.int64()),
    ]
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
    pop_filter = message_filter(replace(row, pops=True), (), broker)
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
