"""Splits the plan of a night by topic."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from filtering.broker_config import BrokerConfig
from filtering.consumption.group_progress import GroupNight
from filtering.consumption.plan import NightPlan
from filtering.delivery.filter_data_in_force import FilterDataInForce, filter_data_in_force
from filtering.delivery.pull_window import BEGINNING, PullWindow, UncertainChange
from filtering.subscriptions.subscription_row import SubscriptionRow
from filtering.time_spans import DAY
from jobs.night.past.state import BrokerState
from schemas.messages.stored_messages import WHOLE_LOG

TopicItem = TypeVar("TopicItem", PullWindow, UncertainChange)
CLOCK_SLACK = DAY
"""Milliseconds by which messages may be older than those of the night before: clocks are set back."""


def filter_data_of_night(
    history: Sequence[SubscriptionRow], broker: BrokerConfig, as_of: int | None
) -> dict[str, list[FilterDataInForce]]:
    """By topic, the filter data in force after ``as_of`` (ms). The oldest one applies to older messages, too."""
    oldest = BEGINNING if as_of is None else as_of - CLOCK_SLACK
    found: defaultdict[str, list[FilterDataInForce]] = defaultdict(list)
    for topic, items in filter_data_in_force(history, broker).items():
        for data in items:
            if data.valid_to > oldest:
                valid_from = BEGINNING if as_of is not None and data.valid_from <= oldest else data.valid_from
                found[topic].append(replace(data, valid_from=valid_from))
    return found


def by_topic(items: Iterable[TopicItem]) -> dict[str, list[TopicItem]]:
    """The items of each topic, in order."""
    found: defaultdict[str, list[TopicItem]] = defaultdict(list)
    for item in items:
        found[item.topic].append(item)
    return dict(found)


def times_of_leaving(groups: Iterable[GroupNight]) -> dict[str, NDArray[np.int64]]:
    """The times (ms) at which groups left, by topic, ascending."""
    found: defaultdict[str, set[int]] = defaultdict(set)
    for group in groups:
        if group.stopped_at is not None:
            found[group.key[1]].add(group.stopped_at)
    return {topic: np.array(sorted(times), np.int64) for topic, times in found.items()}


def first_run_of_backlog(plan: NightPlan, state: BrokerState) -> str | None:
    """The first run whose stored messages are filtered again; None if there is none."""
    runs = []
    for window in plan.backlog:
        offsets = state.topics.get(window.topic)
        if offsets is None:
            continue
        for queue_id, end in zip(offsets.queue_ids, offsets.ends.tolist(), strict=True):
            nothing = (0, 0) if window.only_listed else WHOLE_LOG
            low, high = window.offsets.get(queue_id, nothing)
            if low < min(end, high) and (run := state.first_run_with(window.topic, queue_id, low)):
                runs.append(run)
    if state.last is not None and any(change.stored_from <= (state.as_of or 0) for change in plan.uncertain_changes):
        runs.append(state.last.run)
    return min(runs, default=None)
