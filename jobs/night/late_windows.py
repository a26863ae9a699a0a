"""The pull windows of late messages, which earlier nights could not read: they were damaged, or not yet in the log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from filtering.consumption.offsets import BrokerOffsets
from filtering.consumption.plan import NightPlan, plan_night
from filtering.delivery.pull_window import BEGINNING, FOREVER, PullWindow
from filtering.sql92 import Expressions
from filtering.subscriptions.events import SubscriptionEvent
from jobs.night.past.state import BrokerState, read_state_before
from schemas.delta.warehouse import Warehouse
from schemas.run_ledger import unreplaced_runs


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
    begin = next((index for index, night in enumerate(nights) if (night.delivered_to or 0) > first), len(nights))
    states = [_state_before(index, state, warehouse) for index in range(begin, len(nights) + 1)]
    for night, (before, after) in zip(nights[begin:], pairwise(states), strict=True):
        known = [event for event in events if event.at <= (night.as_of or 0)]
        history = before.history(known, night.broker, expressions)
        renewals = after.renewals_since(before)
        queues = replace(offsets, committed={}, committed_at=None, renewals=renewals)
        plan = plan_night(history, known, before.offsets, queues, night.broker, before.config)
        for window in _windows(plan, before.as_of, night.as_of):
            pulled_at = window.stored_from if window.available_at is None else window.available_at
            old = {each.queue_id for each in renewals.get(window.topic, ()) if pulled_at < each.at}
            told = after.offsets.behind(window.key)
            yield window.up_to({queue_id: told_to for queue_id, (told_to, _) in told.items() if queue_id not in old})
    yield from _windows(tonight, state.as_of, None)


def _state_before(index: int, state: BrokerState, warehouse: Warehouse) -> BrokerState:
    if index == len(state.nights):
        return state
    return read_state_before(warehouse, unreplaced_runs(state.entries), state.first_run(index))


def _windows(plan: NightPlan, after: int | None, until: int | None) -> Iterator[PullWindow]:
    """The windows of a night: those of groups online with messages stored after ``after`` (ms), up to ``until``."""
    begin, end = BEGINNING if after is None else after + 1, FOREVER if until is None else until + 1
    yield from plan.backlog
    for window in plan.online:
        yield replace(window, stored_from=max(window.stored_from, begin), stored_to=min(window.stored_to, end))
