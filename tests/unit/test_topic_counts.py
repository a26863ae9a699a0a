"""The counts of tasks are added up, also if their ranges of the log have other queues."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from filtering.delivery.topic_filters import DELIVERED, WINDOW_COUNTS, UncertainEntries
from jobs.night.tasks import TaskResult, TopicCounts

UNCERTAIN = UncertainEntries(3, np.array([2]), np.array([9]))


def counts(delivered: Mapping[int, tuple[int, int]], uncertain: int | None = None) -> TopicCounts:
    """Counts of two windows. ``delivered``: by queue id, what each window received; it scanned 10 times as much."""
    window_counts = np.array(list(delivered.values()), np.int64).T
    all_counts = np.zeros((*window_counts.shape, len(WINDOW_COUNTS)), np.int64)
    all_counts[:, :, DELIVERED] = window_counts
    return TopicCounts(
        np.array(list(delivered), np.int32),
        window_counts * 10,
        all_counts,
        {} if uncertain is None else {uncertain: [UNCERTAIN]},
    )


def added(*task_counts: TopicCounts) -> TopicCounts:
    total = TaskResult()
    for each in task_counts:
        result = TaskResult()
        result.add_counts("T", each)
        total.add(result)
    return total.counts["T"]


def test_queues_that_only_one_task_has_keep_their_counts() -> None:
    total = added(counts({1: (1, 2), 4: (3, 4)}), counts({0: (5, 6), 4: (7, 8)}), counts({1: (10, 20)}))
    assert total.queue_ids.tolist() == [0, 1, 4]
    assert total.counts[:, :, DELIVERED].tolist() == [[5, 11, 10], [6, 22, 12]]
    assert total.scanned.tolist() == [[50, 110, 100], [60, 220, 120]]


def test_uncertain_entries_of_a_queue_are_collected() -> None:
    total = added(counts({0: (1, 1)}, 0), counts({0: (1, 1), 2: (1, 1)}, 2), counts({0: (1, 1)}, 0))
    assert {queue_id: len(entries) for queue_id, entries in total.uncertain.items()} == {0: 2, 2: 1}
