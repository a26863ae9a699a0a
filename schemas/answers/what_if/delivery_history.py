"""The messages that groups pulled and received: what another filter is compared with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from filtering.delivery.block_schema import DELIVERED, DROPPED_BY_HOOK
from filtering.delivery.filter_changes import FilterChange
from filtering.delivery.message_filter import message_filter
from filtering.subscriptions.subscription_row import SubscriptionRow
from schemas.answers.facts import BrokerFacts
from schemas.answers.what_if.pulled_offsets import PulledOffsets
from schemas.deliveries import DELIVERY_BLOCKS
from schemas.delivery_pairs import PAIRS, pairs_of
from schemas.delta.table_rows import filtered, one_of, within

Period = tuple[int, int]
"""Store times, ms, the second exclusive."""


class DeliveryHistory:
    """The messages of some topics that groups pulled, and those that they received."""

    def __init__(self, facts: BrokerFacts, wanted: Sequence[SubscriptionRow], period: Period) -> None:
        self._facts = facts
        groups, topics = {row.consumer_group for row in wanted}, {row.topic for row in wanted}
        self._received = _received(facts, groups, topics, period)
        self._pulled = PulledOffsets(facts, groups, topics)

    def change(self, old: SubscriptionRow | None, new: SubscriptionRow) -> FilterChange:
        """The change from the subscription in force to another one."""
        group, topic = new.key
        new_filter = message_filter(new, [new], self._facts.broker)
        assert new_filter is not None
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
