"""Earlier nights of a broker, as far as the tables keep them: their messages and the offsets that they knew."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from filtering.consumption.offsets import REMOVED, BrokerOffsets, offset_by_time
from filtering.delivery.entries import has_entry
from filtering.subscriptions.events import GroupTopic
from jobs.night.commit.changes import Changes
from jobs.night.past.vanished_offsets import without_vanished
from schemas.commitlog import COMMITLOG
from schemas.consumer_offsets import CONSUMER_OFFSETS
from schemas.delta.table_rows import sorted_by, tuples
from schemas.ledger_inputs import COMMITTED_AT, IS_ESTIMATED, NOT_COMMITTED, QUEUES
from schemas.messages.stored_messages import PhysicalRange
from schemas.run_ledger import LedgerEntry, filtered_to

QUEUE_COLUMNS = ["topic", "queue_id", "queue_offset", "commitlog_offset", "store_timestamp", "sys_flag"]
"""The columns of commitlog from which queues are computed."""


@dataclass(frozen=True)
class PastNight:
    """An earlier night. ``stored``: where its messages are in the log."""

    entry: LedgerEntry
    stored: PhysicalRange
    offsets: BrokerOffsets


def past_nights(nights: Sequence[LedgerEntry], indices: range, changes: Changes) -> Iterator[PastNight]:
    """The nights with these indices. Their rows must still be in the tables."""
    offsets = PastOffsets(changes)
    for index in indices:
        entry = nights[index]
        stored = filtered_to(nights[:index]), filtered_to(nights[: index + 1])
        yield PastNight(entry, stored, offsets.of(entry))


class PastOffsets:
    """The offsets that earlier nights knew from the snapshots of their stores."""

    def __init__(self, changes: Changes) -> None:
        self._changes = changes

    def of(self, entry: LedgerEntry) -> BrokerOffsets:
        """The offsets at the end of a night."""
        read_queues = entry.read_queues
        if entry.log_start is None:
            return BrokerOffsets(read_queues=read_queues, has_queue_ids=entry.has_queue_ids)  # it read a message log
        at = entry.inputs.get(COMMITTED_AT)
        committed = BrokerOffsets(
            without_vanished(self._committed_up_to(entry.run), entry.inputs.get(NOT_COMMITTED, "[]")),
            int(at) if at else None,
            read_queues=read_queues,
            log_start=entry.log_start,
            is_estimated=bool(entry.inputs.get(IS_ESTIMATED)),
        )
        if entry.inputs.get(QUEUES) == "0":
            return committed
        end = entry.dispatched_to or 0
        min_offsets = self._queues.min_offsets(entry.log_start, end)
        return replace(
            committed,
            min_offsets=min_offsets,
            stored_at=self._queues.stored_at_before(end),
        )

    @cached_property
    def _queues(self) -> StoredQueues:
        return StoredQueues(self._changes.rows(COMMITLOG, QUEUE_COLUMNS))

    @cached_property
    def _committed(self) -> pa.Table:
        """The rows of consumer_offsets with a committed offset, in the order of the runs."""
        rows = self._changes.rows(CONSUMER_OFFSETS)
        return sorted_by(rows.filter(pc.is_valid(rows["committed"])), "run")

    def _committed_up_to(self, run: str) -> dict[GroupTopic, dict[int, int]]:
        """The last committed offsets in runs up to ``run``, by group and topic, then by queue id."""
        found: defaultdict[GroupTopic, dict[int, int]] = defaultdict(dict)
        rows = self._committed.filter(pc.less_equal(self._committed["run"], run))
        for group, topic, queue_id, offset in tuples(rows, "consumer_group", "topic", "queue_id", "committed"):
            found[group, topic][queue_id] = offset
        present = {
            key: {queue_id: at for queue_id, at in queues.items() if at != REMOVED} for key, queues in found.items()
        }
        return {key: queues for key, queues in present.items() if queues}


class StoredQueues:
    """The queues of a broker, computed from ``rows`` of commitlog with QUEUE_COLUMNS."""

    def __init__(self, rows: pa.Table) -> None:
        names = QUEUE_COLUMNS[:-1]
        # Prepared and rolled back messages have no entry; their queue offset is always 0.
        rows = rows.filter(has_entry(rows["sys_flag"].fill_null(0).to_numpy()))
        self._queues: dict[tuple[str, int], tuple[np.ndarray, np.ndarray, np.ndarray]] = {}
        grouped = sorted_by(rows, "topic", "queue_id", "commitlog_offset")
        if not len(grouped):
            return
        topics = grouped["topic"].combine_chunks().dictionary_encode()
        queue_ids = grouped["queue_id"].to_numpy()
        arrays = [grouped[name].to_numpy() for name in names[2:]]
        ends_queue = (np.diff(topics.indices) != 0) | (np.diff(queue_ids) != 0)
        begins = [0, *(np.flatnonzero(ends_queue) + 1).tolist()]
        for begin, end in zip(begins, [*begins[1:], len(grouped)], strict=True):
            offsets, at, times = (array[begin:end] for array in arrays)
            self._queues[topics[begin].as_py(), int(queue_ids[begin])] = offsets, at, times

    def offsets_by_time(self, topic: str, to: int, at: int, log_start: int) -> dict[int, int]:
        """By queue id, the offsets that a reset at ``at`` (ms) to the time ``to`` (ms) sets, with this log."""
        found = {}
        for (name, queue_id), (offsets, places, times) in self._queues.items():
            count = int(np.sum(times < at)) if name == topic else 0
            if count:
                begin = int(np.flatnonzero(offsets[:count] == 0)[-1]) if (offsets[:count] == 0).any() else 0
                known = np.where(places[begin:count] < log_start, -1, times[begin:count])
                place = offset_by_time(known.__getitem__, 0, len(known), to)
                found[queue_id] = int(offsets[begin + place] if place < len(known) else offsets[count - 1] + 1)
        return found

    def _present(self, queue: tuple[str, int], log_end: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The entries of a queue before ``log_end``, since it began again at offset 0 for the last time."""
        offsets, at, times = self._queues.get(queue, (np.empty(0), np.empty(0), np.empty(0)))
        end = int(np.searchsorted(at, log_end))
        begins = np.flatnonzero(offsets[:end] == 0)
        present = slice(begins[-1] if len(begins) else 0, end)
        return offsets[present], at[present], times[present]

    def min_offsets(self, log_start: int, log_end: int) -> dict[str, dict[int, int]]:
        """The first queue offset by topic and queue id, while the log had the physical offsets in this range."""
        found: defaultdict[str, dict[int, int]] = defaultdict(dict)
        for topic, queue_id in self._queues:
            offsets, at, _ = self._present((topic, queue_id), log_end)
            in_log = offsets[at >= log_start]
            if len(offsets):
                found[topic][queue_id] = int(in_log[0]) if len(in_log) else int(offsets[-1]) + 1
        return dict(found)

    def stored_at_before(self, log_end: int) -> Callable[[str, int, int], int | None]:
        """A function from topic, queue id and queue offset to a store time (ms), for entries before ``log_end``."""
        present = cache(partial(self._present, log_end=log_end))

        def stored_at(topic: str, queue_id: int, offset: int) -> int | None:
            offsets, _, times = present((topic, queue_id))
            index = int(np.searchsorted(offsets, offset))
            return int(times[index]) if index < len(offsets) and offsets[index] == offset else None

        return stored_at
