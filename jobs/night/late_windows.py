"""The pull windows of earlier nights: for late messages, and those that an older mqsieve did not store.

Earlier nights could not read late messages, which were damaged, or not yet in the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from filtering.consumption.filters_in_force import NightFilters
from filtering.consumption.plan import NightPlan, plan_night
from filtering.delivery.pull_window import BEGINNING, FOREVER, PullWindow, WindowKind
from filtering.sql92 import Expressions
from filtering.subscriptions.event_lines import with_offsets
from filtering.subscriptions.events import SubscriptionEvent
from filtering.subscriptions.history import subscription_history
from jobs.night.commit.changes import Changes
from jobs.night.past.past_nights import past_nights
from jobs.night.past.state import BrokerState, read_state_before
from schemas.delta.table_rows import filtered, one_of, within
from schemas.ledger_inputs import LAST_STORED
from schemas.pull_windows import PULL_WINDOWS, planned_windows, window_rows
from schemas.run_ledger import LedgerEntry, earlier_configs, unreplaced_runs


def late_windows(
    first: int,
    state: BrokerState,
    events: Sequence[SubscriptionEvent],
    tonight: NightPlan,
    expressions: Expressions,
    changes: Changes,
) -> Iterator[PullWindow]:
    """The windows of the nights since the physical offset ``first``, and of ``tonight``.

    Each late message is in those of its own night, and in the backlogs of later nights.
    """
    nights = state.nights
    begin = next((index for index, night in enumerate(nights) if (night.delivered_to or 0) > first), len(nights))
    rows = changes.rows(PULL_WINDOWS, where=[within("run", nights[begin].run)]) if nights[begin:] else None
    for index, night in enumerate(nights[begin:], begin):
        began = nights[index - 1].as_of if index else None
        known = [event for event in events if event.at <= (night.as_of or 0)]
        earlier = earlier_configs(nights[:index])
        filters = NightFilters(subscription_history(known, night.broker, expressions, earlier), night.broker)
        of_night = filtered(rows, [one_of("run", [night.run])])
        windows = planned_windows(of_night, filters, began)
        yield from _of_its_time(windows, _read_to(nights[index - 1]) if index else None, _read_to(night))
    yield from _of_its_time([*tonight.online, *tonight.backlog], _read_to(nights[-1]) if nights else None, None)


def _read_to(night: LedgerEntry) -> int | None:
    """When the last message was stored that a night read (ms). What was stored until its end may be of the next one."""
    last_stored = night.inputs.get(LAST_STORED)
    return int(last_stored) if last_stored else night.as_of


def _of_its_time(windows: Iterable[PullWindow], after: int | None, until: int | None) -> Iterator[PullWindow]:
    """The windows of a night: those of groups online with messages stored after ``after`` (ms), up to ``until``.

    The night before read up to ``after``, and this one up to ``until``.
    """
    begin, end = BEGINNING if after is None else after + 1, FOREVER if until is None else until + 1
    for window in windows:
        if window.kind is WindowKind.ONLINE:
            window = replace(window, stored_from=max(window.stored_from, begin), stored_to=min(window.stored_to, end))
        yield window


def plan_older_nights(
    state: BrokerState,
    events: Sequence[SubscriptionEvent],
    read_queues: Mapping[str, int],
    expressions: Expressions,
    changes: Changes,
) -> None:
    """Adds the windows of the nights in ``state`` that an older mqsieve ran: plans them as they were planned then.

    ``read_queues``: the numbers of queues now, which count where a night did not know them.
    """
    planned = {*changes.rows(PULL_WINDOWS, ["run"])["run"].to_pylist()}
    nights, runs = state.nights, unreplaced_runs(state.entries)
    missing = [index for index, night in enumerate(nights) if night.run not in planned]
    if not missing:
        return
    changes.withdraw(PULL_WINDOWS, [one_of("run", [nights[index].run for index in missing])])
    past = past_nights(nights, range(len(nights)), changes)
    for index, night in enumerate(past):
        if index not in missing:
            continue
        before = read_state_before(changes.warehouse, runs, state.first_run(index))
        is_last = index + 1 == len(nights)
        after = state if is_last else read_state_before(changes.warehouse, runs, state.first_run(index + 1))
        entry = night.entry
        known = [event for event in with_offsets(events, entry.resets_by_time) if event.at <= (entry.as_of or 0)]
        history = before.history(known, entry.broker, expressions)
        queues = {**read_queues, **night.offsets.read_queues}
        renewals = after.renewals_since(before)
        offsets = replace(night.offsets, read_queues=queues, renewals=renewals, taken_at=entry.as_of)
        plan = plan_night(history, known, before.offsets, offsets, entry.broker, before.config)
        changes.add_rows(PULL_WINDOWS, [window_rows(plan, entry.run)])
