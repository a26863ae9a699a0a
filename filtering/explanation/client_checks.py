"""The tags that the clients of a group check, if they subscribe differently.

The tables do not have all queues of a topic, so it is not known which client read which queue.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from filtering.consumption.allocation import client_checks
from filtering.predicate import Predicate, TextIn
from filtering.predicate_value import holds
from filtering.subscriptions.events import SubscriptionEvent
from filtering.subscriptions.in_force import state_at
from filtering.subscriptions.inconsistency import group_clients
from filtering.subscriptions.states import states_by_key


class ClientChecks:
    """The checks of tags of each client. Events without client ids do not count."""

    def __init__(self, events: Iterable[SubscriptionEvent]) -> None:
        states = group_clients(events)
        self._states = states_by_key(
            state for state in states if not state.is_consistent and state.expression_type is not None
        )

    def at(self, consumer_group: str, topic: str, instant: int) -> dict[str, Predicate]:
        """The check of each client at an instant (ms), by client id; none if the clients subscribe alike."""
        state = state_at(self._states.get((consumer_group, topic), ()), instant)
        return {} if state is None else client_checks(state)


def dropping_clients(checks: Mapping[str, Predicate], properties: Mapping[str, str]) -> dict[str, frozenset[str]]:
    """The tags of the clients that drop a message, by client id."""
    return {
        client: check.texts
        for client, check in checks.items()
        if isinstance(check, TextIn) and not holds(check, properties)
    }


def keeping_clients(checks: Mapping[str, Predicate], properties: Mapping[str, str]) -> list[str]:
    """The ids of the clients that subscribe to the tag of a message."""
    return [client for client, check in checks.items() if isinstance(check, TextIn) and holds(check, properties)]
