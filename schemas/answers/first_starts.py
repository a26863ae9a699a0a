"""Where consumer groups began in queues, by the tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from functools import cache, cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from filtering.delivery.entries import Int64s
from filtering.subscriptions.events import Operation
from schemas.answers.facts import BrokerFacts
from schemas.consumequeue import CONSUMEQUEUE
from schemas.delivery_stats import DELIVERY_STATS
from schemas.delta.table_rows import Where, one_of, sorted_by
from schemas.queue_progress import QUEUE_PROGRESS

Queue = tuple[str, int]
"""Topic and queue id."""


class _FirstNight(NamedTuple):
    run: str
    scanned: int
    lost: int
    skipped: int


class FirstStarts:
    """The offsets at which groups began in queues. ``groups`` and ``topics``: the only ones to read; None: all."""

    def __init__(
        self, facts: BrokerFacts, groups: Collection[str] | None = None, topics: Collection[str] | None = None
    ) -> None:
        self._facts = facts
        self._groups: Where = [] if groups is None else [one_of("consumer_group", groups)]
        self._topics: Where = [] if topics is None else [one_of("topic", topics)]
        self._entries = cache(self._read_entries)

    def of(self, group: str, queue: Queue) -> int | None:
        """The offset of the first entry that the group pulled or lost, or where it waits for one.

        None if a reset moved the group, or if no night moved it on.
        """
        night = self._first_nights.get((group, queue))
        if night is None or (group, queue) in self._reset_queues:
            return None
        missing = sum(count for run, count in self._missing[queue] if run <= night.run)
        pulled = night.scanned + night.lost
        if not missing or not pulled:
            return night.skipped
        # Offsets of damaged records count as skipped, too, wherever they are: count the entries from the end.
        entries = self._entries(queue, night.run)
        entries = entries[entries < pulled + night.skipped]
        return int(entries[max(len(entries) - pulled, 0)]) if len(entries) else night.skipped

    def first_stored(self, queue: Queue) -> int:
        """The first offset of a queue that any night has read; 0 if there is none."""
        return self._first_stored.get(queue, 0)

    @cached_property
    def _reset_queues(self) -> set[tuple[str, tuple[str | None, int | None]]]:
        return {
            (event.group, (event.topic, event.queue_id))
            for event in self._facts.events
            if event.operation is Operation.RESET_OFFSET
        }

    @cached_property
    def _first_nights(self) -> dict[tuple[str, Queue], _FirstNight]:
        columns = ["run", "scanned", "lost", "skipped", "consumer_group", "topic", "queue_id"]
        stats = self._facts.rows(DELIVERY_STATS, columns, [*self._topics, *self._groups])
        found: dict[tuple[str, Queue], _FirstNight] = {}
        for row in sorted_by(stats, "run").to_pylist():
            night = _FirstNight(*(row[name] for name in columns[:4]))
            if night.scanned or night.lost or night.skipped:
                found.setdefault((row["consumer_group"], (row["topic"], row["queue_id"])), night)
        return found

    @cached_property
    def _progress(self) -> pa.Table:
        columns = ["run", "topic", "queue_id", "from_offset", "to_offset", "entries"]
        return self._facts.rows(QUEUE_PROGRESS, columns, self._topics)

    @cached_property
    def _missing(self) -> dict[Queue, list[tuple[str, int]]]:
        """By queue, the runs that read it, each with the number of offsets that have no entry."""
        missing: defaultdict[Queue, list[tuple[str, int]]] = defaultdict(list)
        for row in self._progress.to_pylist():
            count = row["to_offset"] - row["from_offset"] - row["entries"]
            missing[row["topic"], row["queue_id"]].append((row["run"], count))
        return missing

    @cached_property
    def _first_stored(self) -> dict[Queue, int]:
        rows = sorted_by(self._progress, "from_offset").to_pylist()
        return {(row["topic"], row["queue_id"]): row["from_offset"] for row in reversed(rows)}

    def _read_entries(self, queue: Queue, run: str) -> Int64s:
        """The offsets of the entries of a queue that were made up to a run, ascending.

        Records that were repaired later have their entries from later runs.
        """
        topic, queue_id = queue
        rows = self._facts.rows(
            CONSUMEQUEUE, ["queue_offset", "run"], [one_of("topic", [topic]), one_of("queue_id", [queue_id])]
        )
        offsets: Int64s = rows.filter(pc.less_equal(rows["run"], run))["queue_offset"].to_numpy()
        return np.sort(offsets)
