"""Queues that begin again are found by their entries, however the log is divided into tasks and blocks."""

from __future__ import annotations

import random
from collections.abc import Collection

import numpy as np
import pytest

from filtering.consumption.offsets import QueueRestart, TopicOffsets
from filtering.consumption.queues import NO_INSTANTS, add_progress, find_restarts, progress_of_block, queue_nights
from jobs.night.tasks import TaskResult
from tests.entries import entries

Entry = tuple[int, int]
"""A queue id and a queue offset. The physical offset of an entry is its place in the log, and its time 1,000 later."""


def read(log: list[Entry], begin: int, borders: list[int], instants: list[int] | None = None) -> TaskResult:
    """The result of tasks that read the log from ``begin`` on, each in one block."""
    total = TaskResult()
    for start, stop in zip([begin, *borders], [*borders, len(log)], strict=True):
        rows = [
            {"queue_id": queue_id, "queue_offset": offset, "commitlog_offset": at, "store_timestamp": 1_000 + at}
            for at, (queue_id, offset) in enumerate(log[start:stop], start)
        ]
        task = TaskResult()
        rows.sort(key=lambda row: (row["queue_id"], row["queue_offset"]))
        if rows:
            times = NO_INSTANTS if instants is None else np.array(instants, np.int64)
            for queue_id, progress in progress_of_block(entries("T", rows), times):
                add_progress(task.queues, ("T", queue_id), progress)
        total.add(task)
    return total


def restarts(
    log: list[Entry], begin: int = 0, log_start: int = 0, borders: list[int] | None = None
) -> list[QueueRestart]:
    """Those of a night that reads the log from ``begin`` on."""
    known = dict(log[:begin])  # the last entry of each queue
    before = {"T": TopicOffsets.empty({queue_id: offset + 1 for queue_id, offset in known.items()}, ())}

    def physical_offsets(_topic: str, queue_offsets: Collection[int]) -> dict[Entry, int]:
        return {entry: at for at, entry in enumerate(log[:begin]) if entry[1] in queue_offsets}

    by_topic = find_restarts(read(log, begin, borders or []).queues, before, physical_offsets, log_start)
    return by_topic.get("T", [])


def entries_of(queue_id: int, count: int) -> list[Entry]:
    return [(queue_id, offset) for offset in range(count)]


@pytest.mark.parametrize("begin", [0, 2, 5])
def test_a_queue_that_goes_on_or_is_new_does_not_begin_again(begin: int) -> None:
    assert restarts([*entries_of(0, 5), (0, 5), *entries_of(1, 3)], begin) == []


@pytest.mark.parametrize("begin", [0, 3, 5])
@pytest.mark.parametrize("new", [1, 5, 8])
def test_it_begins_again_at_offset_0(begin: int, new: int) -> None:
    log = [*entries_of(0, 5), *entries_of(0, new)]
    assert restarts(log, begin) == [QueueRestart(0, 5, 1_005, ended=5)]


def test_however_the_log_is_divided() -> None:
    choose = random.Random(1)
    log = [*entries_of(0, 4), *entries_of(1, 2), *entries_of(0, 6), (1, 2), *entries_of(0, 2), (0, 2)]
    expected = restarts(log)
    assert [(each.queue_id, each.commitlog_offset, each.ended) for each in expected] == [
        (0, 6, 4),
        (0, 13, 6),
        (1, 13, 3),
    ]
    for _ in range(50):
        begin = choose.randrange(5)
        borders = sorted(choose.sample(range(begin, len(log)), choose.randrange(5)))
        assert restarts(log, begin, borders=borders) == expected


def test_a_topic_is_deleted_with_all_queues_that_are_older() -> None:
    log = [*entries_of(0, 2), *entries_of(1, 3), (0, 2), *entries_of(2, 2), *entries_of(0, 1), (2, 2)]
    restarted = [QueueRestart(0, 8, 1_008, ended=3), QueueRestart(1, 8, 1_008, ended=3)]
    for begin in (0, 2, 6, 8):
        assert restarts(log, begin) == restarted


@pytest.mark.parametrize("begin", [0, 2, 5])
def test_the_first_new_message_of_the_topic_ends_all_old_queues(begin: int) -> None:
    log = [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), *entries_of(0, 1), (0, 1), *entries_of(1, 2)]
    assert restarts(log, begin) == [QueueRestart(0, 5, 1_005, ended=3), QueueRestart(1, 5, 1_005, ended=2)]


@pytest.mark.parametrize(("log_start", "keeps_offsets"), [(2, False), (3, True)])
def test_offsets_stay_where_the_last_old_message_is_no_longer_in_the_log(log_start: int, keeps_offsets: bool) -> None:
    log = [*entries_of(0, 3), *entries_of(1, 2), *entries_of(0, 2)]
    assert restarts(log, 5, log_start) == [QueueRestart(0, 5, 1_005, ended=3, keeps_offsets=keeps_offsets)]


def test_the_ends_at_an_instant_are_of_each_queue_alone() -> None:
    log = [*entries_of(0, 4), *entries_of(0, 3)]
    for borders in ([], [2, 4], [5]):
        old, new = read(log, 0, borders, instants=[1_002, 1_005]).queues["T", 0]
        assert (old.ends.tolist(), new.ends.tolist()) == ([2, 4], [0, 1])
        assert [(each.first, each.end, each.entries) for each in (old, new)] == [(0, 4, 4), (0, 3, 3)]


def test_a_deleted_topic_has_only_the_new_queues_and_only_their_entries() -> None:
    """Queue 1 has none yet. The first message of queue 0 was damaged, and is read late; it is of the deleted topic."""
    log = [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), *entries_of(0, 2)]
    late, new = read(log[:1], 0, [], [1_006]).queues, read(log, 1, [], [1_006]).queues
    instants = {"T": np.array([1_006])}
    nights = queue_nights(new, late, {}, {"T": restarts(log, 1)}, instants)["T"]
    counted = {number: (each.first, each.end, each.entries, each.ended) for number, each in nights.items()}
    assert counted == {0: (0, 2, 5, 3), 1: (0, 0, 2, 2)}
    assert {number: each.ends.tolist() for number, each in nights.items()} == {0: [1], 1: [0]}
    assert {each.restart and each.restart.commitlog_offset for each in nights.values()} == {5}

    log += [(0, 2), (1, 0)]
    nights = queue_nights(read(log, 7, []).queues, late, {"T": {0: 5, 1: 5}}, {}, {})["T"]
    counted = {number: (each.first, each.end, each.entries, each.ended) for number, each in nights.items()}
    assert counted == {0: (2, 3, 2, 0), 1: (0, 1, 1, 0)}
    assert {each.restart for each in nights.values()} == {None}


def test_a_queue_without_entries_does_not_begin_again() -> None:
    log = [*entries_of(0, 3), *entries_of(0, 1)]
    before = {"T": TopicOffsets.empty({0: 3, 1: 0}, ())}
    [restart] = find_restarts(read(log, 3, []).queues, before, lambda *_: {(0, 0): 0, (0, 2): 2}, 0)["T"]
    assert (restart.queue_id, restart.ended) == (0, 3)
