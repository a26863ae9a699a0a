"""Relations for the audits of filters: deliveries counted again, and bit maps compared with expressions."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa

from filtering.broker_config import BrokerConfig
from filtering.delivery.block_schema import DELIVERED
from filtering.delivery.entries import Entries
from filtering.delivery.message_filter import message_filter
from filtering.delivery.pull_window import FOREVER, PullWindow
from filtering.delivery.topic_filters import TopicFilters
from filtering.delivery.window_loops import PASSED_STAGE2
from filtering.subscriptions.subscription_row import SubscriptionRow
from schemas.answers.inconsistency import inconsistent_groups, knows_clients
from schemas.arrow_batches import table_of
from schemas.audits.scope import Scope
from schemas.consumequeue import CONSUMEQUEUE
from schemas.deliveries import DELIVERY_BLOCKS
from schemas.delivery_pairs import positions_of
from schemas.delta.table_rows import within
from schemas.messages.stored_entries import scan_entries
from schemas.spark_tasks import Session

_GROUP_AND_QUEUE = [("consumer_group", pa.string()), ("topic", pa.string()), ("queue_id", pa.int32())]
DELIVERY_COUNTS = pa.schema(
    [
        ("broker_name", pa.string()),
        ("run", pa.string()),
        *_GROUP_AND_QUEUE,
        ("delivered", pa.int64()),
        ("dropped", pa.int64()),
    ]
)
BIT_MAP_CHECKS = pa.schema(
    [
        ("broker_name", pa.string()),
        *_GROUP_AND_QUEUE[:2],
        ("subscription_from", pa.int64()),
        ("matching", pa.int64()),
        ("held_back", pa.int64()),
    ]
)
INCONSISTENT_GROUPS = pa.schema(
    [("broker_name", pa.string()), *_GROUP_AND_QUEUE[:2], ("state", pa.string()), ("lost", pa.int64())]
)


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
        name = "delivered" if match["outcome"].as_py() == DELIVERED else "dropped"
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
        properties = {topic: of_topic.properties for topic, of_topic in filters.items()}
        passed = {topic: np.zeros(of_topic.window_count, np.int64) for topic, of_topic in filters.items()}
        stored = since, FOREVER
        count = partial(_passed, filters=filters)
        for part in scan_entries(scope.warehouse, facts.name, properties, count, session, stored):
            for topic, more in part.items():
                passed[topic] += more
        for topic, windows in windows_of.items():
            for window, held, matching in zip(windows, *passed[topic].reshape(2, -1).tolist(), strict=True):
                of_window = window.consumer_group, topic, window.subscription_from
                rows.append((facts.name, *of_window, matching, matching - held))
    return table_of(BIT_MAP_CHECKS, rows)


def _windows(history: Sequence[SubscriptionRow], broker: BrokerConfig, since: int) -> Mapping[str, list[PullWindow]]:
    """The subscriptions whose pulls use bit maps, while they were in force, by topic."""
    # With filterSupportRetry, stage 2 reads the expression of a retried message's original topic. The bits in the retry
    # topic are those of the expression there (CommitLogDispatcherCalcBitMap).
    broker = replace(broker, filter_support_retry=False)
    found: defaultdict[str, list[PullWindow]] = defaultdict(list)
    for row in history:
        valid_to = FOREVER if row.valid_to is None else row.valid_to
        decides = message_filter(row, (), broker) if valid_to > since else None
        if decides is not None and decides.bit_pos:
            found[row.topic].append(PullWindow(decides, row.valid_from, max(row.valid_from, since), valid_to))
    return found


def _with_and_without_bit_maps(windows: Sequence[PullWindow], broker: BrokerConfig) -> TopicFilters:
    """Filters with twice as many windows: the second half does not use the filter bit map."""
    without = [replace(window, message_filter=replace(window.message_filter, bit_pos=())) for window in windows]
    return TopicFilters(broker.bloom_filter.m, (), [*windows, *without])


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
