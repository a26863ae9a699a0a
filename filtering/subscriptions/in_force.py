"""Selects the subscriptions that were in force at an instant."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import takewhile

from filtering.broker_config import BrokerConfig
from filtering.subscriptions.history import SubscriptionRow
from filtering.subscriptions.states import State


def in_force_at(history: Iterable[State], instant: int) -> list[State]:
    """The states that are valid at ``instant`` (ms)."""
    return [row for row in history if row.valid_from <= instant and (row.valid_to is None or instant < row.valid_to)]


def present_filter(history: Iterable[SubscriptionRow], instant: int) -> SubscriptionRow | None:
    """The first state with the filter that is in force at ``instant`` (ms), and was since then; None if there is none.

    ``history`` has the states of one group and topic, in order.
    """
    before = [row for row in history if row.valid_from <= instant]
    if not in_force_at(before, instant):
        return None
    same = takewhile(lambda row: row.filter == before[-1].filter, reversed(before))
    return list(same)[-1]


def in_force_at_the_end(
    history: Iterable[SubscriptionRow], log_end: Callable[[], int], broker: BrokerConfig
) -> list[SubscriptionRow]:
    """The rows that are valid after the last message (stored at ``log_end()``, ms) and the last event.

    A later cleaning of dead filter data does not count as an event. ``log_end`` is called only if it matters.
    """
    history = list(history)
    cleanings = {
        (row.consumer_group, row.topic, row.dead_time + broker.filter_data_clean_time_span)
        for row in history
        if row.dead_time is not None
    }
    events = (row.valid_from for row in history if (row.consumer_group, row.topic, row.valid_from) not in cleanings)
    end = max(events, default=0)
    changes = (row.valid_from if row.valid_to is None else row.valid_to for row in history)
    if any(change > end for change in changes):
        end = max(end, log_end())
    return in_force_at(history, end)
