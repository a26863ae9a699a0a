"""The pull windows of late messages, which earlier nights could not read: they were damaged, or not yet in the log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from filtering.consumption.offsets import BrokerOffsets, TopicOffsets
from filtering.consumption.plan import NightPlan, plan_night
from filtering.delivery.pull_window import BEGINNING, FOREVER, PullWindow
from filtering.sql92 import Expressions
from filtering.subscriptions.events import SubscriptionEvent
from filtering.subscriptions.history import subscription_history
from jobs.night.state import BrokerState, read_state_before
from schemas.delta.warehouse import Warehouse
from schemas.run_ledger import unreplaced_nights


def late_windows(
    first: int,
    state: BrokerState,
    events: Sequence[SubscriptionEvent],
    tonight: NightPlan,
    offsets: BrokerOffsets,
    expressions: Expressions,
    warehouse: Warehouse,
) -> Iterator[PullWindow]:
    """The windows of the nights since the physical offset ``first``, and of ``tonight``.

    Each late message is in those of its own night, and in the backlogs of later nights. ``offsets``: what the broker
    has now. How far groups came in a night is known from the tables.
    """
    nights = state.nights
    queues = replace(offsets, committed={}, committed_at=None)
    begins = [BEGINNING, *((night.as_of or 0) + 1 for night in nights)]
    for index, night in enumerate(nights):
        if (night.delivered_to or 0) <= first:
            continue
        before, after = (_state_before(index + i, state, warehouse) for i in (0, 1))
        known = [event for event in events if event.at <= (night.as_of or 0)]
        history = subscription_history(known, night.broker, expressions)
        plan = plan_night(history, known, before.offsets, queues, night.broker)
        for window in _windows(plan, begins[index], begins[index + 1]):
            yield _up_to_told(window, after.topics)
    yield from _windows(tonight, begins[-1], FOREVER)


def _state_before(index: int, state: BrokerState, warehouse: Warehouse) -> BrokerState:
    """The state before a night."""
    if index == len(state.nights):
        return state
    entries = unreplaced_nights(state.entries)
    first_run = next(entry.run for entry in entries if not index or entry.run > state.nights[index - 1].run)
    return read_state_before(warehouse, entries, first_run)


def _windows(plan: NightPlan, begin: int, end: int) -> Iterator[PullWindow]:
    """The windows of a night with messages stored in [``begin``, ``end``) (ms): its new ones."""
    yield from plan.backlog
    for window in plan.online:
        yield replace(window, stored_from=max(window.stored_from, begin), stored_to=min(window.stored_to, end))


def _up_to_told(window: PullWindow, topics: Mapping[str, TopicOffsets]) -> PullWindow:
    """The part of a window up to where the group came in its night."""
    offsets = topics.get(window.topic)
    if offsets is None or window.consumer_group not in offsets.groups:
        return window
    told_to = offsets.told_to[offsets.groups[window.consumer_group]].tolist()
    ranges = dict(window.offsets)
    for queue_id, told, end in zip(offsets.queue_ids, told_to, offsets.ends.tolist(), strict=True):
        if told < end and (queue_id in ranges or not window.only_listed):
            low, high = ranges.get(queue_id, (0, FOREVER))
            ranges[queue_id] = low, min(high, told)
    return replace(window, offsets=ranges)
