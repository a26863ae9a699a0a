"""Which entries of a queue a group has pulled, and which it has yet to pull."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from filtering.delivery.pull_window import FOREVER, OffsetRange
from filtering.subscriptions.events import Operation
from schemas.answers.facts import BrokerFacts
from schemas.consumequeue import CONSUMEQUEUE
from schemas.delivery_stats import DELIVERY_STATS
from schemas.delta.table_rows import one_of, sorted_by, within
from schemas.queue_progress import QUEUE_PROGRESS

Queue = tuple[str, int]
"""Topic and queue id."""


class PulledOffsets:
    """The offsets that some groups pulled in the queues of some topics, by the tables."""

    def __init__(self, facts: BrokerFacts, groups: Collection[str], topics: Collection[str]) -> None:
        self._reset_queues = {
            (event.group, (event.topic, event.queue_id))
            for event in facts.events
            if event.operation is Operation.RESET_OFFSET
        }
        self._facts = facts
        self._first_kept: dict[str, Mapping[int, int]] = {}
        self._offsets = facts.offsets.filter(pc.is_in(facts.offsets["topic"], value_set=pa.array(sorted(topics))))
        on_topics = [one_of("topic", topics)]
        self._missing: dict[Queue, list[tuple[str, int]]] = {}
        self._first_stored: dict[Queue, int] = {}
        columns = ["run", "topic", "queue_id", "from_offset", "to_offset", "entries"]
        for row in sorted_by(facts.rows(QUEUE_PROGRESS, columns, on_topics), "run").to_pylist():
            queue = row["topic"], row["queue_id"]
            first, end = row["from_offset"], row["to_offset"]
            self._first_stored[queue] = min(first, self._first_stored.get(queue, first))
            self._missing.setdefault(queue, []).append((row["run"], end - first - row["entries"]))
        columns = ["run", "consumer_group", "topic", "queue_id", "scanned", "lost", "skipped"]
        self._first_nights: dict[tuple[str, Queue], tuple[str, int]] = {}
        stats = facts.rows(DELIVERY_STATS, columns, [*on_topics, one_of("consumer_group", groups)])
        for row in sorted_by(stats, "run").to_pylist():
            if row["scanned"] or row["lost"] or row["skipped"]:
                key = row["consumer_group"], (row["topic"], row["queue_id"])
                self._first_nights.setdefault(key, (row["run"], row["skipped"]))

    def of(self, group: str, topic: str) -> tuple[Mapping[int, OffsetRange], Mapping[int, OffsetRange]]:
        """The pulled and the pending offsets of a group, by queue id.

        Offsets that a reset jumped over count as pulled. Messages that the broker deleted are not pending.
        """
        offsets = self._offsets.filter(
            pc.and_(pc.equal(self._offsets["consumer_group"], group), pc.equal(self._offsets["topic"], topic))
        )
        pulled: dict[int, OffsetRange] = {}
        pending: dict[int, OffsetRange] = {}
        columns = (offsets[name].to_pylist() for name in ("queue_id", "told_to", "queue_end"))
        for queue_id, told_to, end in zip(*columns, strict=True):
            begin = told_to or 0
            pulled[queue_id] = (self._begin(group, (topic, queue_id)), begin)
            pending[queue_id] = (max(begin, self._kept_from(topic, queue_id)) if begin < end else begin, FOREVER)
        return pulled, pending

    def _kept_from(self, topic: str, queue_id: int) -> int:
        """The first offset of a queue whose message is still in the broker's log."""
        log_start = self._facts.last.log_start
        if not log_start:
            return 0
        if topic not in self._first_kept:
            kept = [one_of("topic", [topic]), within("commitlog_offset", log_start)]
            rows = sorted_by(self._facts.rows(CONSUMEQUEUE, ["queue_id", "queue_offset"], kept), "queue_offset")
            queue_ids, firsts = np.unique(rows["queue_id"].to_numpy(), return_index=True)
            offsets = rows["queue_offset"].to_numpy()[firsts]
            self._first_kept[topic] = dict(zip(queue_ids.tolist(), offsets.tolist(), strict=True))
        return self._first_kept[topic].get(queue_id, FOREVER)

    def _begin(self, group: str, queue: Queue) -> int:
        """Where the group's first start was: after the entries that its first night skipped.

        Offsets without an entry, whose records are damaged, count as skipped, too.
        """
        first_stored = self._first_stored.get(queue, 0)
        if (group, queue) not in self._first_nights or (group, queue) in self._reset_queues:
            return first_stored
        run, skipped = self._first_nights[group, queue]
        missing = sum(count for night, count in self._missing.get(queue, ()) if night <= run)
        return max(first_stored, skipped - missing)
