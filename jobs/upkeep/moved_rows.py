"""The rows that a rebuild stores under other runs than the nights did, so that audits do not compare them.

A rebuild repeats nights as wholes. It leaves no rows of the steps that prepared a night, and a message that a later
night read (its record had been damaged, or a message log grew in the middle) counts in the night of its place in the
log.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from jobs.night.commit.changes import Changes
from schemas.commitlog import COMMITLOG
from schemas.consumequeue import CONSUMEQUEUE
from schemas.consumer_offsets import CONSUMER_OFFSETS
from schemas.deliveries import DELIVERY_BLOCKS
from schemas.delivery_stats import DELIVERY_STATS
from schemas.delta.aggregates import greatest
from schemas.delta.table_rows import Condition, Where, one_of, within
from schemas.pull_windows import PULL_WINDOWS
from schemas.queue_progress import QUEUE_PROGRESS
from schemas.run_ledger import LedgerEntry, nights_of
from schemas.withdrawals import Withdrawal

_OF_MESSAGES = (CONSUMEQUEUE, DELIVERY_BLOCKS)
_OF_QUEUES = (DELIVERY_STATS, QUEUE_PROGRESS)


def moved_rows(entries: Sequence[LedgerEntry], changes: Changes) -> Iterator[Withdrawal]:
    """The rows of derived tables that a rebuild of one broker moves. ``entries``: of nights in the tables."""
    last_night = max((number for number, entry in enumerate(entries) if entry.delivers), default=-1)
    for table in (*_OF_MESSAGES, *_OF_QUEUES, CONSUMER_OFFSETS):
        # The committed offsets that were read for a night that has not been delivered are kept.
        steps = entries[: last_night + 1] if table is CONSUMER_OFFSETS else entries
        yield Withdrawal(table.name, [one_of("run", [entry.run for entry in steps if not entry.delivers])])
    # The windows are planned with the ends that queues have now: late messages are in their own nights.
    yield Withdrawal(PULL_WINDOWS.name, [])
    for runs, queue, offsets, last in _late_messages(nights_of(entries), changes):
        for table in _OF_MESSAGES:
            yield Withdrawal(table.name, [runs, *queue, offsets])
        for table in _OF_QUEUES:
            yield Withdrawal(table.name, [runs, *queue])
        if last is None or _has_group_before(last, [runs, *queue], changes):
            yield Withdrawal(CONSUMER_OFFSETS.name, [runs, *queue])


def _has_group_before(queue_offset: int, where: Where, changes: Changes) -> bool:
    """Whether, in some runs and a queue, some group did not come beyond a message."""
    at_most = [*where, within("told_to", below=queue_offset + 1)]
    return bool(len(changes.rows(CONSUMER_OFFSETS, ["run"], at_most)))


def _late_messages(
    nights: Sequence[LedgerEntry], changes: Changes
) -> Iterator[tuple[Condition, Sequence[Condition], Condition, int | None]]:
    """The messages that a later night read than that of their place in the log, by queue and pair of nights.

    The later night may not have been delivered yet. For each: the runs from the one night to the other, the queue, the
    range of physical offsets, and the greatest queue offset; None if the queue ended before it in the first night.
    """
    names = ["commitlog_offset", "queue_offset", "run", "topic", "queue_id"]
    rows = changes.rows(COMMITLOG, names)
    ends, runs = [night.delivered_to or 0 for night in nights], [night.run for night in nights]
    own = np.searchsorted(ends, rows["commitlog_offset"].to_numpy(), side="right")
    distinct = rows["run"].combine_chunks().dictionary_encode()
    reading = np.searchsorted(runs, distinct.dictionary.to_pylist())[distinct.indices.to_numpy()]
    late = np.flatnonzero(own < reading)
    found: dict[tuple[int, int, str, int], list[tuple[int, int]]] = {}
    columns = (rows[name].take(pa.array(late)).to_pylist() for name in names if name != "run")
    for first, last, offset, at, topic, queue_id in zip(
        own[late].tolist(), reading[late].tolist(), *columns, strict=True
    ):
        found.setdefault((first, last, topic, queue_id), []).append((offset, at))
    known = {
        first: greatest(rows.filter(pa.array(reading <= first)), ["topic", "queue_id"], "queue_offset")
        for first in dict.fromkeys(own[late].tolist())
    }
    for (first, last, topic, queue_id), places in found.items():
        after = runs[last + 1] if last + 1 < len(runs) else None
        queue = [one_of("topic", [topic]), one_of("queue_id", [queue_id])]
        last_late = max(at for _, at in places)
        offsets = [offset for offset, _ in places]
        yield (
            within("run", runs[first], after),
            queue,
            within("commitlog_offset", min(offsets), max(offsets) + 1),
            last_late if known[first].get((topic, queue_id), -1) > last_late else None,
        )
