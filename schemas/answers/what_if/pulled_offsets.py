"""Which entries of a queue a group has pulled, and which it has yet to pull."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache

from filtering.delivery.pull_window import FOREVER, OffsetRange
from filtering.subscriptions.states import states_by_key
from schemas.answers.facts import BrokerFacts, GroupQueue
from schemas.answers.first_starts import FirstStarts
from schemas.consumequeue import CONSUMEQUEUE
from schemas.current_offsets import CURRENT_OFFSETS
from schemas.delta.aggregates import Key, least
from schemas.delta.table_rows import filtered, one_of, tuples, within


class PulledOffsets:
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
