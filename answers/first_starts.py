"""Where consumer groups began in queues, by the tables."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from answers.facts import BrokerFacts, GroupQueue
from filtering.consumption.group import StartReason, start_reason
from filtering.consumption.plan import resets_and_first_starts
from filtering.counted import counted, listed
from filtering.delivery.entries import Int64s
from filtering.delivery.pull_window import BEGINNING, FOREVER
from filtering.explanation.first_pulled import first_pulled, pulling_spans
from filtering.explanation.journey import group_of_topic
from filtering.subscriptions.events import ConsumeFrom, GroupTopic, SubscriptionEvent
from filtering.subscriptions.history import states_by_key
from filtering.subscriptions.subscription_row import SubscriptionRow
from schemas.commitlog import COMMITLOG
from schemas.consumequeue import CONSUMEQUEUE
from schemas.consumer_offsets import CONSUMER_OFFSETS
from schemas.delivery_stats import DELIVERY_STATS
from schemas.delta.table_rows import Where, one_of, sorted_by, tuples, within
from schemas.errors import time_text
from schemas.queue_progress import QUEUE_PROGRESS

Queue = tuple[str, int]
"""Topic and queue id."""
NAMED = 3
"""The number of groups that a line names; others are counted."""


class Move(NamedTuple):
    """How a night moved a group on in a queue: the columns of delivery_stats."""

    run: str
    scanned: int = 0
    lost: int = 0
    skipped: int = 0
    repeated: int = 0


@dataclass(frozen=True)
class Start:
    """A group began at ``at`` (ms) in a queue, at an offset, for this reason."""

    at: int
    queue_offset: int
    reason: StartReason

    @property
    def text(self) -> str:
        return f"{time_text(self.at)} at offset {self.queue_offset:,} of the queue: {self.reason}"


def first_online(facts: BrokerFacts, rows: Iterable[SubscriptionRow]) -> int | None:
    """When a group with these states, in order, first pulled (ms); None: never, or before the history begins."""
    known_from = (facts.nights[0].as_of or 0) if facts.history_is_incomplete and facts.nights else BEGINNING
    spans = pulling_spans(rows, facts.broker, facts.as_of)
    return spans[0][0] if spans and spans[0][0] > known_from else None


class FirstStarts:
    """The offsets at which groups began in queues.

    ``states``: the history of subscriptions by group and topic. ``where``: the groups and queues to read.
    """

    def __init__(
        self, facts: BrokerFacts, states: Mapping[GroupTopic, Sequence[SubscriptionRow]], where: Where
    ) -> None:
        self._facts = facts
        self._states = states
        self._where = where
        self._entries = cache(self._read_entries)
        self._old_entries = cache(self._read_old_entries)

    def of(self, queue: GroupQueue) -> int | None:
        """The offset of the first entry that the group pulled or lost, or where it waits for one.

        None if no night moved it on.
        """
        if queue not in self.moves:
            return None
        first = self.moves[queue][0]
        pulled = first.scanned + first.lost
        night = next(night for night in self._facts.nights if night.run == first.run)
        spans = pulling_spans(self._states.get(queue[:2], ()), night.broker, night.as_of or 0)
        if not pulled or not spans or self._began_again(queue[1:], first.run):
            return first.skipped
        resets = [reset for reset in self._facts.resets.get(queue, ()) if spans[0][0] <= reset[0] <= (night.as_of or 0)]
        has_left = spans[-1][1] < FOREVER
        if not (resets or (has_left and first.skipped) or self._has_gaps(queue[1:], first.run)):
            return first.skipped
        # Offsets of damaged records count as skipped, too, and those over which the offset was moved.
        offsets, times = self._entries(queue[1:], first.run)
        return first_pulled(offsets, times, spans, resets, pulled + first.skipped - first.repeated, pulled)

    @cached_property
    def starts(self) -> Mapping[GroupQueue, Start]:
        """:meth:`start` of each queue in which a group moved on."""
        found = {queue: self.start(queue) for queue in self.moves}
        return {queue: start for queue, start in found.items() if start is not None}

    def start(self, queue: GroupQueue) -> Start | None:
        """Where and why the group began in a queue. None if it never did, or before the history begins."""
        group, topic, _ = queue
        at, offset = first_online(self._facts, self._states.get((group, topic), ())), self.of(queue)
        if at is None or offset is None:
            return None
        if any(reset_at < at and moved_to == offset for reset_at, moved_to in self._facts.resets.get(queue, ())):
            return Start(at, offset, StartReason.RESET)
        if self._committed_before(queue, at):
            return Start(at, offset, StartReason.COMMITTED)
        event = self._first_events.get((group, topic))
        consume_from = event.consume_from if event is not None else ConsumeFrom.LAST
        return Start(at, offset, start_reason(topic, consume_from, has_first_message=offset == 0))

    def _committed_before(self, queue: GroupQueue, at: int) -> bool:
        """Whether the last snapshot before ``at`` (ms) had an offset of a group in a queue."""
        before = [committed for as_of, committed in self._committed.get(queue, ()) if as_of < at]
        return bool(before) and before[-1] is not None and before[-1] >= 0

    @cached_property
    def _committed(self) -> Mapping[GroupQueue, Sequence[tuple[int, int | None]]]:
        """The ends of nights (ms) with the broker's offset then, in order."""
        names = ("consumer_group", "topic", "queue_id", "as_of", "committed")
        found: defaultdict[GroupQueue, list[tuple[int, int | None]]] = defaultdict(list)
        rows = sorted_by(self._facts.rows(CONSUMER_OFFSETS, names, self._where), "as_of")
        for group, topic, queue_id, as_of, committed in tuples(rows, *names):
            found[group, topic, queue_id].append((as_of, committed))
        return dict(found)

    @cached_property
    def _first_events(self) -> Mapping[GroupTopic, SubscriptionEvent]:
        return resets_and_first_starts(self._facts.events)[1]

    def place_in_old_queue(self, queue: GroupQueue, begins_at: int) -> int | None:
        """The physical offset of the first entry that the group pulled or lost before a queue began again.

        ``begins_at``: the physical offset with which it did, the last time. None if the group came later.
        """
        renewals = [row for row in self._progress[queue[1:]] if row["began_at"] is not None]
        renewal = max(renewals, default=None, key=itemgetter("run"))
        if queue not in self.moves or renewal is None:
            return None
        move = self.moves[queue][0]
        if move.run > renewal["run"] or (move.run == renewal["run"] and move.skipped >= (renewal["ended_at"] or 0)):
            return None
        resets = [offset for at, offset in self._facts.resets.get(queue, ()) if at <= renewal["began_at"]]
        first = min([self.of(queue) or 0, *resets])
        rows = self._old_entries(queue[1:], begins_at)
        rows = rows.filter(pc.less_equal(rows["run"], move.run))
        offsets = rows["queue_offset"].to_numpy()
        begins = np.flatnonzero(np.diff(offsets) <= 0)  # It may have begun again before, too.
        begin = int(begins[-1]) + 1 if len(begins) else 0
        at = begin + int(np.searchsorted(offsets[begin:], first))
        return rows["commitlog_offset"][at].as_py() if at < len(rows) else None

    def first_stored(self, queue: Queue) -> int:
        """The first offset of a queue that any night has read; 0 if there is none."""
        return min((row["from_offset"] for row in self._progress[queue]), default=0)

    @cached_property
    def moves(self) -> Mapping[GroupQueue, Sequence[Move]]:
        """The moves in each queue, in the order of the nights."""
        columns = ["run", "scanned", "lost", "skipped", "repeated", "consumer_group", "topic", "queue_id"]
        stats = self._facts.rows(DELIVERY_STATS, columns, self._where)
        moves: defaultdict[GroupQueue, list[Move]] = defaultdict(list)
        for row in sorted_by(stats, "run").to_pylist():
            move = Move(*(row[name] for name in columns[:5]))
            if move.scanned or move.lost or move.skipped:
                moves[row["consumer_group"], row["topic"], row["queue_id"]].append(move)
        return dict(moves)

    @cached_property
    def _progress(self) -> dict[Queue, list[dict[str, Any]]]:
        """The rows of queue_progress, by queue."""
        columns = ["run", "from_offset", "to_offset", "entries", "began_at", "ended_at", "topic", "queue_id"]
        of_queues = [condition for condition in self._where if condition.column in columns]
        progress: defaultdict[Queue, list[dict[str, Any]]] = defaultdict(list)
        for row in self._facts.rows(QUEUE_PROGRESS, columns, of_queues).to_pylist():
            progress[row["topic"], row["queue_id"]].append(row)
        return progress

    def _began_again(self, queue: Queue, run: str) -> bool:
        """Whether a queue began again in a run."""
        return any(row["run"] == run and row["began_at"] is not None for row in self._progress[queue])

    def _has_gaps(self, queue: Queue, run: str) -> bool:
        """Whether a queue had offsets without an entry after a run."""
        rows = [row for row in self._progress[queue] if row["run"] <= run]
        first = min((row["from_offset"] for row in rows), default=0)
        end = max((row["to_offset"] for row in rows), default=0)
        return bool(sum(row["entries"] for row in rows) < end - first)

    def _read_entries(self, queue: Queue, run: str) -> tuple[Int64s, Int64s]:
        """The queue offsets and store times (ms) of a queue's present entries after a run, ascending.

        Records that were repaired later have their entries from later runs.
        """
        where = [*_of_queue(queue), within("commitlog_offset", self._facts.begins.get(queue, BEGINNING))]
        rows = self._facts.rows(CONSUMEQUEUE, ["queue_offset", "store_timestamp", "run"], where)
        rows = sorted_by(rows.filter(pc.less_equal(rows["run"], run)), "queue_offset")
        return rows["queue_offset"].to_numpy(), rows["store_timestamp"].to_numpy()

    def _read_old_entries(self, queue: Queue, begins_at: int) -> pa.Table:
        """The entries of a queue before a physical offset, in the order of the log."""
        columns = ["commitlog_offset", "queue_offset", "run"]
        where = [*_of_queue(queue), within("commitlog_offset", below=begins_at)]
        return sorted_by(self._facts.rows(CONSUMEQUEUE, columns, where), "commitlog_offset")


def _of_queue(queue: Queue) -> Where:
    topic, queue_id = queue
    return [one_of("topic", [topic]), one_of("queue_id", [queue_id])]


def started_last_night(facts: BrokerFacts) -> list[str]:
    """Lines on the groups that began in the last night, for each topic and each reason but ``consume_from`` first.

    A line says how many of the messages that were stored before they came they got, or missed. There is none if there
    were no such messages.
    """
    oldest = min((file.least["store_timestamp"] for file in facts.warehouse.files(COMMITLOG, facts.name)), default=None)
    if oldest is None or not facts.nights:
        return []
    began_after = max(oldest, facts.nights[-2].as_of or 0 if len(facts.nights) > 1 else BEGINNING)
    states = states_by_key(facts.history)
    new: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for (group, topic), event in resets_and_first_starts(facts.events)[1].items():
        if event.at > began_after and event.consume_from is not ConsumeFrom.FIRST and group_of_topic(topic) is None:
            at = first_online(facts, states.get((group, topic), ()))
            if at is not None and began_after < at <= facts.as_of:
                new[topic][group] = at
    return [line for topic in sorted(new) for line in _started(facts, states, topic, new[topic])]


def _started(
    facts: BrokerFacts, states: Mapping[GroupTopic, Sequence[SubscriptionRow]], topic: str, groups: Mapping[str, int]
) -> Iterator[str]:
    """``groups``: when each began on the topic (ms)."""
    of_topic = one_of("topic", [topic])
    starts = FirstStarts(facts, states, [of_topic, one_of("consumer_group", list(groups))]).starts
    begin = max(
        facts.last.log_start or 0, *(facts.begins.get(queue, 0) for queue in facts.begins if queue[0] == topic), 0
    )
    before = [of_topic, within("store_timestamp", below=max(groups.values())), within("commitlog_offset", begin)]
    rows = sorted_by(facts.rows(CONSUMEQUEUE, ["queue_id", "queue_offset", "store_timestamp"], before), "queue_offset")
    messages: defaultdict[tuple[StartReason, bool], Counter[str]] = defaultdict(Counter)
    for queue_id in pc.unique(rows["queue_id"]).to_pylist():
        of_queue = rows.filter(pc.equal(rows["queue_id"], queue_id))
        offsets, times = of_queue["queue_offset"].to_numpy(), of_queue["store_timestamp"].to_numpy()
        for group, at in groups.items():
            start = starts.get((group, topic, queue_id))
            if start is not None:
                stored = int(np.searchsorted(times, at))
                missed = min(int(np.searchsorted(offsets, start.queue_offset)), stored)
                messages[start.reason, False][group] += missed
                messages[start.reason, True][group] += stored - missed
    for (reason, gets), of_groups in sorted(messages.items()):
        names = [group for group, number in of_groups.items() if number]
        if names:
            has, most = "with" if gets else "without", max(of_groups.values())
            began = f"began {time_text(groups[names[0]])}" if len(names) == 1 else "began"
            number = counted(most, "message") if len(names) == 1 else f"up to {counted(most, 'message')}"
            whom = "it" if len(names) == 1 else "they"
            yield f"{listed(names, NAMED)} on {topic} {began} {has} {number} stored before {whom} came: {reason}"
