"""Delivery blocks of deliveries that the broker wrote down: one match for each pop, group and outcome."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from filtering.delivery.block_schema import MATCH
from filtering.delivery.delivery_blocks import block_rows, recipients
from filtering.delivery.entries import Entries, Int32s, Int64s

MESSAGES_OF_A_BLOCK = 1 << 16


@dataclass(frozen=True, eq=False)
class RecordedDeliveries:
    """Deliveries of messages of one topic. A message is in it as often as it was delivered.

    ``group`` and ``outcome`` are numbers of ``groups`` and ``outcomes``; times are in ms.
    """

    topic: str
    queue_id: Int32s
    queue_offset: Int64s
    commitlog_offset: Int64s
    store_timestamp: Int64s
    group: Int64s
    outcome: Int64s
    available_at: Int64s
    subscription_from: Int64s
    groups: Sequence[str]
    outcomes: Sequence[str]

    def rows(self) -> Iterator[dict[str, pa.Array]]:
        """The rows of delivery_blocks, by column."""
        order = np.lexsort((self.commitlog_offset, self.queue_offset, self.queue_id))
        positions = self.commitlog_offset[order]
        is_new = np.append(True, np.diff(positions) != 0)[: len(order)]
        number = np.cumsum(is_new) - 1
        messages = order[is_new]
        for first in range(0, len(messages), MESSAGES_OF_A_BLOCK):
            block_messages = messages[first : first + MESSAGES_OF_A_BLOCK]
            bounds = np.searchsorted(number, [first, first + len(block_messages)])
            deliveries = slice(bounds[0], bounds[1])
            matches = self._matches(order[deliveries], number[deliveries] - first)
            yield from block_rows(self._entries(block_messages), matches)

    def _entries(self, at: Int64s) -> Entries:
        nothing = np.zeros(len(at), np.int64)
        return Entries(
            self.topic, self.queue_id[at], self.queue_offset[at], self.commitlog_offset[at],
            nothing.astype(np.int32), nothing, self.store_timestamp[at], {},
        )  # fmt: skip

    def _matches(self, at: Int64s, position: Int64s) -> pa.StructArray:
        """A MATCH for each pop. ``position``: of the message of each delivery in the block."""
        columns = self.outcome[at], self.group[at], self.available_at[at], self.subscription_from[at]
        order = np.lexsort((position, *reversed(columns)))
        differs = np.append(True, np.zeros(len(order) - 1, bool))
        for column in columns:
            differs[1:] |= np.diff(column[order]) != 0
        starts = np.flatnonzero(differs)
        bounds = np.append(starts, len(order))
        outcome, group, available_at, subscription_from = (column[order][starts].tolist() for column in columns)
        every = np.arange(len(starts) + 1, dtype=np.int32)
        popped_recipients = recipients([self.groups[number] for number in group], subscription_from, available_at)
        values = [
            pa.array([self.outcomes[number] for number in outcome], pa.string()),
            pa.array(np.diff(bounds), pa.int32()),
            pa.ListArray.from_arrays(pa.array(every), popped_recipients),
            pa.ListArray.from_arrays(pa.array(bounds, pa.int32()), pa.array(position[order], pa.int32())),
            pa.nulls(len(starts), pa.list_(pa.int64())),
        ]
        return pa.StructArray.from_arrays(values, fields=list(MATCH))
