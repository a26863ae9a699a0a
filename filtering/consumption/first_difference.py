"""The time from which two lists of subscription events lead to different deliveries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from filtering.broker_config import BrokerConfig
from filtering.consumption.plan import resets_and_first_starts
from filtering.sql92 import Expressions
from filtering.subscriptions.event_lines import event_line
from filtering.subscriptions.events import GroupTopic, SubscriptionEvent
from filtering.subscriptions.history import subscription_history
from filtering.subscriptions.inconsistency import group_clients

States = set[tuple[GroupTopic, int, str]]
"""Each state of a group and topic: when it began (ms), and its content."""


def first_difference(
    one: Sequence[SubscriptionEvent],
    other: Sequence[SubscriptionEvent],
    as_of: int,
    broker: BrokerConfig,
    expressions: Expressions,
) -> int | None:
    """The first time (ms) up to ``as_of`` from which a group may get other messages by one list than by the other.

    None if there is no such time. Both lists are in order of time.
    """
    sides = [[event for event in events if event.at <= as_of] for events in (one, other)]
    subscriptions = [_subscription_states(events, as_of, broker, expressions) for events in sides]
    clients = [_client_states(events) for events in sides]
    offsets = [_offset_states(events) for events in sides]
    pairs = (subscriptions, clients, offsets)
    return min((at for before, after in pairs for _, at, _ in before ^ after), default=None)


def _subscription_states(
    events: Iterable[SubscriptionEvent], as_of: int, broker: BrokerConfig, expressions: Expressions
) -> States:
    states: States = set()
    for row in subscription_history(events, broker, expressions):
        if row.valid_from <= as_of:
            state = (
                row.expression, row.expression_type, row.sub_version, row.registered, row.sent_with_pull,
                row.is_consuming, row.class_filter_mode, row.filter_expression, row.filter_version, row.born_time,
                row.dead_time,
            )  # fmt: skip
            states.add((row.key, row.valid_from, repr(state)))
    return states


def _client_states(events: Iterable[SubscriptionEvent]) -> States:
    """What each client checks, while clients of a group disagree. Clients that agree read the same messages."""
    states: States = set()
    for state in group_clients(events):
        if not state.is_consistent:
            states.add((state.key, state.valid_from, repr(replace(state, valid_from=0, valid_to=None))))
            if state.valid_to is not None:
                states.add((state.key, state.valid_to, "the end of the state before"))
    return states


def _offset_states(events: Iterable[SubscriptionEvent]) -> States:
    """Offset resets, and where groups start in a queue without an offset."""
    resets, first_starts = resets_and_first_starts(events)
    states = {(key, event.at, event_line(event)) for key, listed in resets.items() for event in listed}
    return states | {(key, event.at, str(event.consume_from)) for key, event in first_starts.items()}
