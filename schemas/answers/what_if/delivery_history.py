"""The messages that groups pulled and received: what another filter is compared with."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from filtering.delivery.block_schema import DELIVERED, DROPPED_BY_HOOK
from filtering.delivery.filter_changes import FilterChange
from filtering.delivery.message_filter import MessageFilter, message_filter
from filtering.delivery.pull_window import FOREVER, OffsetRange
from filtering.predicate import FALSE
from filtering.subscriptions.states import states_by_key
from filtering.subscriptions.subscription_row import SubscriptionRow
from schemas.answers.facts import BrokerFacts, GroupQueue
from schemas.answers.first_starts import FirstStarts
from schemas.consumequeue import CONSUMEQUEUE
from schemas.current_offsets import CURRENT_OFFSETS
from schemas.deliveries import DELIVERY_BLOCKS
from schemas.delivery_pairs import PAIRS, pairs_of
from schemas.delta.aggregates import Key, least
from schemas.delta.table_rows import filtered, one_of, tuples, within

Period = tuple[int, int]
"""Store times, ms, the second exclusive."""


class _PulledOffsets:
    """The offsets that some groups pulled in the queues of some topics, by the tables."""

    def __init__(self, facts: BrokerFacts, groups: Collection[str], topics: Collection[str]) -> None:
        self._facts = facts
        self._first_kept = cache(self._read_first_kept)
        where = [one_of("topic", topics), one_of("consumer_group", groups)]
        self._offsets = facts.rows(CURRENT_OFFSETS, where=where)
        self._first_starts = FirstStarts(facts, states_by_key(facts.history_of_groups(groups)), where)

    def of(self, group: str, topic: str) -> tuple[Mapping[int, OffsetRange], Mapping[int, OffsetRange]]:
        """The pulled and the pending offsets of a group, by queue id.

        Offsets that a reset jumped over count as pulled. Messages that the broker deleted are not pending.
        """
        offsets = filtered(self._offsets, [one_of("consumer_group", [group]), one_of("topic", [topic])])
        pulled: dict[int, OffsetRange] = {}
        pending: dict[int, OffsetRange] = {}
        for queue_id, told_to, end in tuples(offsets, "queue_id", "told_to", "queue_end"):
            begin = told_to or 0
            pulled[queue_id] = (self._begin((group, topic, queue_id)), begin)
            pending[queue_id] = (max(begin, self._kept_from(topic, queue_id)) if begin < end else begin, FOREVER)
        return pulled, pending

    def ended(self, group: str, topic: str) -> dict[int, OffsetRange]:
        """By queue id, the physical offsets of the entries that a group pulled or lost before a queue began again."""
        begins = {queue_id: begin for (of, queue_id), begin in self._facts.begins.items() if of == topic}
        firsts = {
            queue_id: self._first_starts.place_in_old_queue((group, topic, queue_id), begin)
            for queue_id, begin in begins.items()
        }
        return {queue_id: (first, begins[queue_id]) for queue_id, first in firsts.items() if first is not None}

    def _begin(self, queue: GroupQueue) -> int:
        """The first offset that the group pulled: at its first start, after a reset, or when the queue began again."""
        if queue[1:] in self._facts.begins:
            return 0
        resets = (offset for _, offset in self._facts.resets.get(queue, ()))
        return max(min([self._first_starts.of(queue) or 0, *resets]), self._first_starts.first_stored(queue[1:]))

    def _kept_from(self, topic: str, queue_id: int) -> int:
        """The first offset of a queue whose message is still in the broker's log."""
        return self._first_kept(topic).get((queue_id,), FOREVER) if self._facts.last.log_start else 0

    def _read_first_kept(self, topic: str) -> Mapping[Key, int]:
        """These offsets of a topic, by queue id (a tuple of one)."""
        kept = [one_of("topic", [topic]), within("commitlog_offset", self._facts.last.log_start)]
        return least(self._facts.rows(CONSUMEQUEUE, ["queue_id", "queue_offset"], kept), ["queue_id"], "queue_offset")


class DeliveryHistory:
    """The messages of some topics that groups pulled, and those that they received."""

    def __init__(self, facts: BrokerFacts, wanted: Sequence[SubscriptionRow], period: Period) -> None:
        self._facts = facts
        groups, topics = {row.consumer_group for row in wanted}, {row.topic for row in wanted}
        self._received = _received(facts, groups, topics, period)
        self._pulled = _PulledOffsets(facts, groups, topics)

    def change(self, old: SubscriptionRow | None, new: SubscriptionRow) -> FilterChange:
        """The change from the subscription in force to another one."""
        new_filter = message_filter(new, [new], self._facts.broker)
        assert new_filter is not None
        return self._change(old, new_filter)

    def end(self, old: SubscriptionRow) -> FilterChange:
        """The change from the subscription in force to none."""
        return self._change(old, MessageFilter(*old.key, expression=FALSE))

    def _change(self, old: SubscriptionRow | None, new_filter: MessageFilter) -> FilterChange:
        group, topic = new_filter.key
        received = filtered(self._received, [one_of("consumer_group", [group]), one_of("topic", [topic])])
        pulled, pending = self._pulled.of(group, topic)
        return FilterChange(
            filter=new_filter,
            received=_offsets(received, DELIVERED),
            dropped=_offsets(received, DROPPED_BY_HOOK),
            pulled=pulled,
            pending=pending,
            in_force=None if old is None else message_filter(old, [old], self._facts.broker),
            places=self._facts.places(topic, pulled),
            ended=self._pulled.ended(group, topic),
        )


def _received(facts: BrokerFacts, groups: set[str], topics: set[str], period: Period) -> pa.Table:
    """The pairs of some groups and topics."""
    where = [
        one_of("topic", topics),
        within("first_store_timestamp", below=period[1]),
        within("last_store_timestamp", low=period[0]),
    ]
    blocks = facts.rows(DELIVERY_BLOCKS, DELIVERY_BLOCKS.file_schema.names, where)
    columns = ["consumer_group", "topic", "commitlog_offset", "outcome"]
    parts = [pa.Table.from_batches([batch]).select(columns) for batch in pairs_of(blocks, groups)]
    return pa.concat_tables([PAIRS.empty_table().select(columns), *parts])


def _offsets(pairs: pa.Table, outcome: str) -> NDArray[np.int64]:
    """The physical offsets of the pairs with an outcome, ascending, each once."""
    found: NDArray[np.int64] = np.unique(
        pairs.filter(pc.equal(pairs["outcome"], outcome))["commitlog_offset"].to_numpy()
    )
    return found
