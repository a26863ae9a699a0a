"""The subscription events of a night: those that earlier nights applied, merged with those of a file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from filtering.broker_config import BrokerConfig
from filtering.consumption.first_difference import first_difference
from filtering.sql92 import Expressions
from filtering.subscriptions.event_lines import event_line
from filtering.subscriptions.events import SubscriptionEvent, in_order
from filtering.subscriptions.in_force import in_force_at
from filtering.subscriptions.snapshots import differences, later_events
from jobs.night.inputs.subscription_file import SubscriptionFile
from jobs.night.past.state import BrokerState
from schemas.ledger_inputs import SUBSCRIPTION_FILE


@dataclass(frozen=True)
class NightEvents:
    """``events``: all events so far, in order. ``new``: those that no earlier night applied.

    ``late_from`` (ms): the time from which the new events change deliveries of earlier nights; None if they do not.
    ``withdrawn``: the number of events of earlier nights that the file does not have any more.
    """

    events: tuple[SubscriptionEvent, ...]
    new: tuple[SubscriptionEvent, ...]
    late_from: int | None = None
    withdrawn: int = 0


def night_events(
    state: BrokerState, file: SubscriptionFile | None, broker: BrokerConfig, expressions: Expressions
) -> NightEvents:
    """Merges the events of a file, if one was given, with those of earlier nights.

    The file has the whole history, or only events that are later than all applied ones, or it is a snapshot. A snapshot
    is compared with the subscriptions in force at the end of the last night, or after the last applied event if that is
    later.
    """
    applied = state.events
    inputs = state.last.inputs if state.last is not None else {}
    if file is None or (inputs.get(SUBSCRIPTION_FILE) == file.digest and not file.events.is_snapshot):
        return NightEvents(applied, ())
    given, as_of = file.events, state.as_of
    if given.is_snapshot and as_of is not None:
        # Without new messages, the end of the night stays, and the events of the last snapshot are later.
        since = max([as_of, *(event.at for event in applied)])
        in_force = in_force_at(state.history(applied, broker, expressions), since)
        new = differences(given, in_force, since, file.filters_only)
        return NightEvents(in_order((*applied, *new)), new)
    later = later_events(applied, given)
    if later is not None:
        return NightEvents((*applied, *later), later)
    known = {event_line(event) for event in applied}
    lines = [event_line(event) for event in given.events]
    new = tuple(event for event, line in zip(given.events, lines, strict=True) if line not in known)
    missing = known.difference(lines)
    withdrawn = [event for event in applied if event_line(event) in missing]
    if as_of is None or not any(event.at <= as_of for event in [*withdrawn, *new]):
        return NightEvents(given.events, new, withdrawn=len(withdrawn))
    changed = {event.group for event in [*withdrawn, *new] if event.at <= as_of}
    before, after = ([event for event in events if event.group in changed] for events in (applied, given.events))
    late_from = first_difference(before, after, as_of, broker, expressions)
    return NightEvents(given.events, new, late_from, len(withdrawn))


def events_until(events: Iterable[SubscriptionEvent], as_of: int) -> tuple[SubscriptionEvent, ...]:
    return in_order(event for event in events if event.at <= as_of)
