"""What a changed filter gains and loses, where a night of a test cannot show it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from answers.filter_changes import ChangeEffect, FilterChange, FilterChanges, PulledMessages
from answers.pull_history import NightsOfLog
from filtering.delivery.message_filter import MessageFilter
from filtering.delivery.pull_window import PullWindow
from filtering.sql92 import compile
from tests.entries import entries

MESSAGES = [
    {"queue_offset": i, "commitlog_offset": i, "store_timestamp": 100 * i, "properties": {"level": str(i)}}
    for i in range(10)
]
ALWAYS = (0, 10_000)


def above(level: int) -> MessageFilter:
    return MessageFilter("cg", "T", expression=compile(f"level > {level}").predicate)


def changed(
    new: MessageFilter,
    received: Sequence[int],
    not_received: Sequence[int] = (),
    stored: tuple[int, int] = ALWAYS,
    **more: Any,
) -> ChangeEffect:
    """The effect of a filter on a group that received some of the messages; it pulled others and did not get them."""
    change = FilterChange(new, np.array(received, np.int64), np.array(not_received, np.int64), **more)
    (effect,) = FilterChanges([change], stored)([entries("T", MESSAGES)])
    return effect


def offsets(begin: int, end: int) -> PulledMessages:
    """The group pulled these messages in the only night."""
    window = PullWindow(MessageFilter("cg", "T"), 0, offsets={0: (begin, end)})
    return PulledMessages(NightsOfLog(np.array([10])), [(0, window)])


def rows(effect: ChangeEffect) -> list[tuple[str, int]]:
    return [
        (kind, queue_offset)
        for kind, batches in (("gained", effect.gained), ("lost", effect.lost))
        for batch in batches
        for queue_offset in batch["queue_offset"].to_pylist()
    ]


def against_in_force(effect: ChangeEffect) -> tuple[int, ...]:
    """What the change gains and loses against the filter in force, and what that one would gain and lose itself."""
    against = effect.against_in_force
    return against.gained, against.lost, against.same_gains, against.same_losses


def test_what_the_clients_hooks_drop_is_not_gained() -> None:
    result = changed(above(4), received=[7, 9], not_received=[8], in_force=above(6))
    assert (rows(result), against_in_force(result)) == ([("gained", 5), ("gained", 6)], (2, 0, 0, 0))


def test_a_message_that_was_received_although_it_seems_not_to_be_pulled() -> None:
    """Of a group whose offset was moved, the tables do not say where it began."""
    result = changed(above(1), received=[2, *range(5, 10)], pulled=offsets(5, 10), in_force=above(1))
    assert (rows(result), against_in_force(result)) == ([], (0, 0, 0, 0))


def test_the_filter_in_force_loses_what_an_earlier_one_delivered() -> None:
    result = changed(above(8), received=[0, 7, 8, 9], in_force=above(6))
    assert rows(result) == [("lost", 0), ("lost", 7), ("lost", 8)]
    assert against_in_force(result) == (0, 2, 0, 1)


def test_the_filter_in_force_gains_what_an_earlier_one_did_not_deliver() -> None:
    result = changed(above(4), received=[9], in_force=above(6))
    assert rows(result) == [("gained", 5), ("gained", 6), ("gained", 7), ("gained", 8)]
    assert against_in_force(result) == (2, 0, 2, 0)


def test_only_messages_of_the_period_count() -> None:
    """Its end is exclusive."""
    result = changed(above(6), received=[0, 1, 9], pending={0: (8, 10)}, pulled=offsets(0, 8), stored=(100, 900))
    assert (rows(result), result.counts.stored, result.counts.pending) == ([("gained", 7), ("lost", 1)], 8, 1)
