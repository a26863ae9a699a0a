"""Writes the rows of subscriptions and subscription_events."""

from __future__ import annotations

from collections.abc import Sequence

from filtering.subscriptions.subscription_row import SubscriptionRow
from jobs.night.commit.changes import Changes
from jobs.night.inputs.events import NightEvents
from jobs.night.inputs.night_inputs import NightInputs
from jobs.night.past.state import BrokerState
from jobs.night.rows.rejected import replace_rejected
from schemas.subscriptions import SUBSCRIPTION_EVENTS, SUBSCRIPTIONS, event_rows, subscription_rows


def write_subscriptions(
    events: NightEvents,
    history: Sequence[SubscriptionRow],
    state: BrokerState,
    inputs: NightInputs,
    changes: Changes,
    rewrite: bool,
) -> None:
    """Writes the subscriptions, their events, and the quarantined lines of the subscription file.

    ``rewrite``: the subscriptions may have changed even if the events are the same.
    """
    for name, rejected in inputs.rejected_subscriptions.items():
        replace_rejected(name, rejected, changes)
    stored = state.events
    if events.events == stored and not rewrite:
        return
    changes.replace_rows(SUBSCRIPTIONS, [subscription_rows(history)])
    if events.events[: len(stored)] != stored:
        changes.replace_rows(SUBSCRIPTION_EVENTS, [event_rows(events.events, 0, changes.run)])
    elif len(events.events) > len(stored):
        new = events.events[len(stored) :]
        changes.add_rows(SUBSCRIPTION_EVENTS, [event_rows(new, len(stored), changes.run)])
