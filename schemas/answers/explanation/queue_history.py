"""How far each group moved on in its queues, night by night."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

import pyarrow.compute as pc

from filtering.consumption.renewals import QueueRenewal
from filtering.delivery.pull_window import BEGINNING, FOREVER, OffsetRange
from filtering.explanation.pulls_of_message import NightInQueue
from schemas.answers.facts import BrokerFacts, GroupQueue
from schemas.answers.first_starts import FirstStarts, Queue
from schemas.consumer_offsets import CONSUMER_OFFSETS
from schemas.delta.table_rows import one_of, sorted_by
from schemas.queue_progress import QUEUE_PROGRESS, renewals_of


def nights_by_queue(facts: BrokerFacts, groups: Collection[str] | None) -> dict[GroupQueue, list[NightInQueue]]:
    """The nights in which a group moved on, in order. ``groups``: the only groups to read; None: all."""
    ends = [BEGINNING, *(night.as_of or 0 for night in facts.nights)]
    nights = {night.run: (begin, night) for begin, night in zip(ends, facts.nights, strict=False)}
    where = [one_of("consumer_group", groups)] if groups is not None else []
    first_starts = FirstStarts(facts, groups)
    missed = {
        (move.run, *queue): (move.lost, move.skipped) for queue, moves in first_starts.moves.items() for move in moves
    }
    renewals: defaultdict[Queue, dict[str, QueueRenewal]] = defaultdict(dict)
    for run, topic, renewal in renewals_of(facts.rows(QUEUE_PROGRESS)):
        renewals[topic, renewal.queue_id][run] = renewal
    by_queue: defaultdict[GroupQueue, list[NightInQueue]] = defaultdict(list)
    offsets = facts.rows(CONSUMER_OFFSETS, where=where)
    offsets = offsets.filter(pc.is_valid(offsets["told_to"]))  # the others have only committed offsets
    for row in sorted_by(offsets, "run").to_pylist():
        queue = row["consumer_group"], row["topic"], row["queue_id"]
        last = by_queue[queue][-1] if by_queue[queue] else None
        before = last.told_to if last is not None else 0
        of_queue = renewals.get(queue[1:], {})
        places, since = _since_it_began(of_queue, row["run"]) if last is None else (last.places, last.since)
        lost, skipped = missed.get((row["run"], *queue), (0, 0))
        if skipped and not before:
            first = first_starts.of(queue)
            skipped = skipped if first is None else first
        begin, night = nights[row["run"]]
        began = of_queue.get(row["run"])
        item = NightInQueue(
            night.run, begin, night.as_of or 0, before, row["told_to"], night.broker, lost, skipped, places, since
        )
        if began is not None:
            of_old = min(skipped, began.ended) if last is None else 0
            pulled_to = max(before, began.ended - lost)
            by_queue[queue].append(replace(item, as_of=began.at, told_to=pulled_to, lost=0, skipped=of_old))
            by_queue[queue] = [_until(began, each) for each in by_queue[queue]]
            new = (began.commitlog_offset, FOREVER)
            item = replace(item, told_before=0, lost=0, skipped=skipped - of_old, places=new, since=began.at)
        by_queue[queue].append(item)
    return dict(by_queue)


def nights_of_message(nights: Iterable[NightInQueue], commitlog_offset: int) -> list[NightInQueue]:
    """The nights of the queue that had the message at a physical offset, before or after it began again."""
    return [night for night in nights if night.places[0] <= commitlog_offset < night.places[1]]


def log_lost(facts: BrokerFacts, commitlog_offset: int) -> int:
    """When the first night began (ms) whose log did not reach back to a physical offset; FOREVER if all did."""
    begin = BEGINNING
    for night in facts.nights:
        if (night.log_start or 0) > commitlog_offset:
            return begin
        begin = night.as_of or 0
    return FOREVER


def resets_in(nights: Sequence[NightInQueue], resets: Iterable[tuple[int, int]], is_old: bool) -> list[tuple[int, int]]:
    """The offset resets, as (ms, offset), of a queue in its nights. ``is_old``: it began again after them."""
    since = nights[0].since if nights else BEGINNING
    until = nights[-1].as_of if nights and is_old else FOREVER
    return [reset for reset in resets if since < reset[0] <= until]


def _until(renewal: QueueRenewal, night: NightInQueue) -> NightInQueue:
    """The same night, if it is one of the queue that ended with a renewal: its entries end there."""
    begin, end = night.places
    return replace(night, places=(begin, min(end, renewal.commitlog_offset)))


def _since_it_began(renewals: Mapping[str, QueueRenewal], run: str) -> tuple[OffsetRange, int]:
    """The physical offsets of the entries that a queue had before a run, and since when it had them (ms).

    ``renewals``: those of the queue, by run.
    """
    earlier = [each for each in renewals if each < run]
    if not earlier:
        return (BEGINNING, FOREVER), BEGINNING
    renewal = renewals[max(earlier)]
    return (renewal.commitlog_offset, FOREVER), renewal.at
