"""The subscription events of a night: those that earlier nights applied, merged with those of a file."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from filtering.broker_config import BrokerConfig
from filtering.sql92 import Expressions
from filtering.subscriptions.event_lines import event_line
from filtering.subscriptions.events import Operation, SubscriptionEvent, SubscriptionEvents, in_order
from filtering.subscriptions.history import SubscriptionRow, subscription_history
from filtering.subscriptions.in_force import in_force_at
from filtering.subscriptions.snapshots import differences


@dataclass(frozen=True)
class NightEvents:
    """``events``: all events so far, in order. ``new``: those that no earlier night applied.

    ``late_from`` (ms): the time from which the new events change deliveries of earlier nights; None if they do not.
    """

    events: tuple[SubscriptionEvent, ...]
    new: tuple[SubscriptionEvent, ...]
    late_from: int | None = None


def merge_events(
    applied: Sequence[SubscriptionEvent],
    given: SubscriptionEvents | None,
    filters_only: bool,
    as_of: int | None,
    broker: BrokerConfig,
    expressions: Expressions,
) -> NightEvents:
    """Merges the events of a file with those of earlier nights.

    ``applied``: the events of earlier nights, up to ``as_of`` (ms; None before the first night). ``given`` is the
    whole history, or has only events that are later than all applied ones. A snapshot is compared with the
    subscriptions in force at ``as_of``, or after the last applied event if that is later. ``filters_only``: the
    snapshot is a consumerFilter.json.
    """
    if given is None:
        return NightEvents(tuple(applied), ())
    if given.is_snapshot and as_of is not None:
        # Without new messages, the end of the night stays, and the events of the last snapshot are later.
        since = max([as_of, *(event.at for event in applied)])
        in_force = in_force_at(subscription_history(applied, broker, expressions), since)
        new = differences(given, in_force, since, filters_only)
        return NightEvents(in_order((*applied, *new)), new)
    known = {event_line(event) for event in applied}
    lines = [event_line(event) for event in given.events]
    new = tuple(event for event, line in zip(given.events, lines, strict=True) if line not in known)
    if not known.intersection(lines) and applied and all(event.at > applied[-1].at for event in given.events):
        return NightEvents((*applied, *given.events), given.events)
    missing = known.difference(lines)
    withdrawn = [event for event in applied if event_line(event) in missing]
    if as_of is None or not any(event.at <= as_of for event in [*withdrawn, *new]):
        return NightEvents(given.events, new)
    changed = {event.group for event in [*withdrawn, *new] if event.at <= as_of}
    late_from = _first_difference(applied, given.events, changed, as_of, broker, expressions)
    return NightEvents(given.events, new, late_from)


def _first_difference(
    applied: Iterable[SubscriptionEvent],
    given: Iterable[SubscriptionEvent],
    groups: set[str],
    as_of: int,
    broker: BrokerConfig,
    expressions: Expressions,
) -> int | None:
    """The first time (ms) up to ``as_of`` at which the two histories differ in a group's subscription or offset."""
    sides = [[event for event in events if event.group in groups and event.at <= as_of] for events in (applied, given)]
    states = [_states(subscription_history(events, broker, expressions), as_of) for events in sides]
    times = [state[0] for key in states[0].keys() | states[1].keys() for state in states[0][key] ^ states[1][key]]
    offsets = [{event_line(event) for event in events if _sets_offset(event)} for events in sides]
    at = {event_line(event): event.at for events in sides for event in events}
    return min([*times, *(at[line] for line in offsets[0] ^ offsets[1])], default=None)


def _states(history: Iterable[SubscriptionRow], as_of: int) -> defaultdict[tuple[str, str], set[tuple[int, str]]]:
    """The states of each group and topic, with the times (ms) at which they began."""
    states: defaultdict[tuple[str, str], set[tuple[int, str]]] = defaultdict(set)
    for row in history:
        if row.valid_from <= as_of:
            state = (
                row.expression, row.expression_type, row.sub_version, row.registered, row.sent_with_pull,
                row.is_consuming, row.class_filter_mode, row.filter_expression, row.filter_version, row.born_time,
                row.dead_time,
            )  # fmt: skip
            states[row.consumer_group, row.topic].add((row.valid_from, repr(state)))
    return states


def _sets_offset(event: SubscriptionEvent) -> bool:
    return event.operation is Operation.RESET_OFFSET


def events_until(events: Iterable[SubscriptionEvent], as_of: int) -> tuple[SubscriptionEvent, ...]:
    """The events up to ``as_of`` (ms), in order."""
    return in_order(event for event in events if event.at <= as_of)
