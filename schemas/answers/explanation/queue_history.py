"""How far each group moved on in its queues, night by night."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

import pyarrow.compute as pc

from filtering.consumption.renewals import QueueRenewal
from filtering.delivery.pull_window import BEGINNING, FOREVER, OffsetRange
from filtering.explanation.pulls_of_message import NightInQueue
from filtering.subscriptions.events import GroupTopic
from filtering.subscriptions.subscription_row import SubscriptionRow
from schemas.answers.facts import BrokerFacts
from schemas.answers.first_starts import FirstStarts, Move, Queue
from schemas.consumer_offsets import CONSUMER_OFFSETS
from schemas.delta.table_rows import one_of, tuples
from schemas.queue_progress import QUEUE_PROGRESS, renewals_of


def nights_in_queue(
    facts: BrokerFacts,
    queue: Queue,
    states: Mapping[GroupTopic, Sequence[SubscriptionRow]],
    groups: Collection[str] | None,
) -> dict[str, list[NightInQueue]]:
    """By group, the nights in which it moved on in a queue, in order. ``groups``: the only groups to read; None: all.

    ``states``: the history of subscriptions by group and topic.
    """
    topic, queue_id = queue
    in_queue = [one_of("topic", [topic]), one_of("queue_id", [queue_id])]
    where = [*in_queue, *([one_of("consumer_group", groups)] if groups is not None else [])]
    first_starts = FirstStarts(facts, states, where)
    renewals = {run: renewal for run, _, renewal in renewals_of(facts.rows(QUEUE_PROGRESS, where=in_queue))}
    moves = {(move.run, group): move for (group, _, _), of_group in first_starts.moves.items() for move in of_group}
    offsets = facts.rows(CONSUMER_OFFSETS, ["consumer_group", "told_to", "run"], where)
    offsets = offsets.filter(pc.is_valid(offsets["told_to"]))  # the others have only committed offsets
    told = {(run, group): told_to for group, told_to, run in tuples(offsets, "consumer_group", "told_to", "run")}
    ends = [BEGINNING, *(night.as_of or 0 for night in facts.nights)]
    nights = {night.run: (begin, night) for begin, night in zip(ends, facts.nights, strict=False)}
    by_group: defaultdict[str, list[NightInQueue]] = defaultdict(list)
    for run, group in sorted(told.keys() | moves.keys()):
        of_group = by_group[group]
        last = of_group[-1] if of_group else None
        before = last.told_to if last is not None else 0
        told_to = told.get((run, group), before)
        places, since = _since_it_began(renewals, run) if last is None else (last.places, last.since)
        move = moves.get((run, group), Move(run))
        is_first = (group, *queue) in first_starts.moves and run == first_starts.moves[group, *queue][0].run
        skipped = (first_starts.of((group, *queue)) or 0) if is_first else move.skipped
        begin, night = nights[run]
        as_of = night.as_of or 0
        is_reset = any(begin < at <= as_of for at, _ in facts.resets.get((group, *queue), ()))
        # Without a reset, it pulled each entry once, however far its offset is back now.
        pulled_to = told_to if is_reset else before + move.lost + move.skipped + move.scanned
        item = NightInQueue(
            run, begin, as_of, before, told_to, night.broker, move.lost, skipped, pulled_to, places, since
        )
        began = renewals.get(run)
        if began is not None:
            of_old = min(skipped, began.ended) if last is None else 0
            old_end = max(before, began.ended - move.lost)
            old = replace(item, as_of=began.at, told_to=old_end, lost=0, skipped=of_old, pulled_to=old_end)
            of_group[:] = [_until(began, each) for each in [*of_group, old]]
            new = (began.commitlog_offset, FOREVER)
            item = replace(
                item, told_before=0, lost=0, skipped=skipped - of_old, pulled_to=told_to, places=new, since=began.at
            )
        of_group.append(item)
    return dict(by_group)


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
