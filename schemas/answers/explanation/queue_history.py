"""How far each group moved on in its queues, night by night."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

import pyarrow.compute as pc

from filtering.delivery.pull_window import BEGINNING
from filtering.explanation.pulls_of_message import NightInQueue
from schemas.answers.facts import BrokerFacts, GroupQueue
from schemas.answers.first_starts import FirstStarts
from schemas.consumer_offsets import CONSUMER_OFFSETS
from schemas.delta.table_rows import one_of, sorted_by


def nights_by_queue(facts: BrokerFacts, groups: Collection[str] | None) -> dict[GroupQueue, list[NightInQueue]]:
    """The nights in which a group moved on, in order. ``groups``: the only groups to read; None: all."""
    ends = [BEGINNING, *(night.as_of or 0 for night in facts.nights)]
    nights = {night.run: (begin, night) for begin, night in zip(ends, facts.nights, strict=False)}
    where = [one_of("consumer_group", groups)] if groups is not None else []
    first_starts = FirstStarts(facts, groups)
    missed = {
        (move.run, *queue): (move.lost, move.skipped) for queue, moves in first_starts.moves.items() for move in moves
    }
    by_queue: defaultdict[GroupQueue, list[NightInQueue]] = defaultdict(list)
    offsets = facts.rows(CONSUMER_OFFSETS, where=where)
    offsets = offsets.filter(pc.is_valid(offsets["told_to"]))  # the others have only committed offsets
    for row in sorted_by(offsets, "run").to_pylist():
        queue = row["consumer_group"], row["topic"], row["queue_id"]
        before = by_queue[queue][-1].told_to if by_queue[queue] else 0
        lost, skipped = missed.get((row["run"], *queue), (0, 0))
        if skipped and not before:
            first = first_starts.of(queue)
            skipped = skipped if first is None else first
        begin, night = nights[row["run"]]
        by_queue[queue].append(
            NightInQueue(night.run, begin, night.as_of or 0, before, row["told_to"], night.broker, lost, skipped)
        )
    return dict(by_queue)
