"""Where consumer groups began in queues, by the tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from filtering.delivery.entries import Int64s
from filtering.delivery.pull_window import BEGINNING, FOREVER
from filtering.explanation.first_pulled import first_pulled, pulling_spans
from filtering.subscriptions.events import GroupTopic
from filtering.subscriptions.subscription_row import SubscriptionRow
from schemas.answers.facts import BrokerFacts, GroupQueue
from schemas.consumequeue import CONSUMEQUEUE
from schemas.delivery_stats import DELIVERY_STATS
from schemas.delta.table_rows import Where, one_of, sorted_by, within
from schemas.queue_progress import QUEUE_PROGRESS

Queue = tuple[str, int]
"""Topic and queue id."""


class Move(NamedTuple):
    """How a night moved a group on in a queue: the columns of delivery_stats."""

    run: str
    scanned: int = 0
    lost: int = 0
    skipped: int = 0
    repeated: int = 0


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
