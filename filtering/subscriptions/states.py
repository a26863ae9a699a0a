"""States that follow each other: each holds until the next one begins."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from filtering.subscriptions.events import GroupTopic

if TYPE_CHECKING:
    from filtering.subscriptions.inconsistency import GroupClients
    from filtering.subscriptions.subscription_row import SubscriptionRow

State = TypeVar("State", "SubscriptionRow", "GroupClients")
"""What holds in [``valid_from``, ``valid_to``) (ms); None: it still does."""


def append_state(states: list[State], new: State) -> None:
    """Appends a state to those of one group and topic. The last of them ends when the new one begins.

    Of states that begin in one millisecond, only the last counts. A state that changes nothing is not appended.
    """
    if states and states[-1].valid_from == new.valid_from:
        states.pop()
    if states and replace(states[-1], valid_from=new.valid_from, valid_to=None) == new:
        states[-1] = replace(states[-1], valid_to=None)
        return
    if states:
        states[-1] = replace(states[-1], valid_to=new.valid_from)
    states.append(new)


def states_by_key(states: Iterable[State]) -> defaultdict[GroupTopic, list[State]]:
    """The states of each group and topic, in the same order."""
    found: defaultdict[GroupTopic, list[State]] = defaultdict(list)
    for state in states:
        found[state.key].append(state)
    return found
