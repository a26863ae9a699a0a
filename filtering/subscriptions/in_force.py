"""The subscriptions in force at an instant, after some events, or if a group had only one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import takewhile

from filtering.broker_config import BrokerConfig
from filtering.sql92 import Expressions
from filtering.subscription_data import Subscription
from filtering.subscriptions.events import Operation, SubscriptionEvent
from filtering.subscriptions.history import subscription_history
from filtering.subscriptions.states import State
from filtering.subscriptions.subscription_row import SubscriptionRow


def in_force_at(history: Iterable[State], instant: int) -> list[State]:
    return [row for row in history if row.valid_from <= instant and (row.valid_to is None or instant < row.valid_to)]


def state_at(states: Iterable[State], instant: int) -> State | None:
    """The state of one group and topic that is valid at ``instant`` (ms); None if there is none."""
    return next(iter(in_force_at(states, instant)), None)


def in_force_after(
    events: Sequence[SubscriptionEvent], broker: BrokerConfig, expressions: Expressions | None = None, since: int = 0
) -> list[SubscriptionRow]:
    """The subscriptions in force after all of ``events``, and not before ``since`` (ms)."""
    end = max([since, *(event.at for event in events)])
    return in_force_at(subscription_history(events, broker, expressions), end)


def registered_alone(group: str, subscription: Subscription, broker: BrokerConfig) -> SubscriptionRow:
    """A subscription as it would be in force if the group had no other one."""
    event = SubscriptionEvent(0, Operation.REGISTER, group, (subscription,))
    (row,) = subscription_history([event], broker)
    return row


def present_filter(history: Iterable[SubscriptionRow], instant: int) -> SubscriptionRow | None:
    """The first state with the filter that is in force at ``instant`` (ms), and was since then; None if there is none.

    ``history`` has the states of one group and topic, in order.
    """
    before = [row for row in history if row.valid_from <= instant]
    if state_at(before, instant) is None:
        return None
    same = takewhile(lambda row: row.filter == before[-1].filter, reversed(before))
    return list(same)[-1]
