"""When a group pulled a message, and under which subscription: by the windows that nights planned."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import pyarrow as pa

from filtering.broker_config import BrokerConfig
from filtering.consumption.group_night import DELETED
from filtering.consumption.held_pulls import HELD_MESSAGES, HELD_PULL
from filtering.delivery.pull_window import WindowKind
from filtering.pulls.pull import is_pulling, refusal
from filtering.subscription_data import is_tag_type
from filtering.subscriptions.in_force import state_at
from filtering.subscriptions.subscription_row import SubscriptionRow
from schemas.answers.explanation.found_messages import FoundMessage
from schemas.answers.facts import BrokerFacts
from schemas.delta.table_rows import one_of
from schemas.pull_windows import PULL_WINDOWS, covering


@dataclass(frozen=True)
class Pulled:
    """The group pulled the message at ``at`` (ms), when ``row`` and the broker's ``config`` were in force."""

    row: SubscriptionRow
    at: int
    config: BrokerConfig


@dataclass(frozen=True)
class NotPulled:
    """The group has not pulled the message, for the reason ``why``. ``is_pending``: it will pull it later."""

    why: str
    is_pending: bool = False


class WindowsOfMessages:
    """The windows that cover messages. ``groups``: the only groups to read; None: all.

    Raises UsageError if an older mqsieve ran the nights.
    """

    def __init__(self, facts: BrokerFacts, groups: Collection[str] | None) -> None:
        facts.check_has_windows()
        self._facts = facts
        self._groups = groups
        self._nights = facts.nights
        self._runs = [night.run for night in facts.nights]
        self._ends = [night.delivered_to or 0 for night in facts.nights]
        self._read = cache(self._read_windows)
        self._last: tuple[int, Mapping[str, Sequence[Mapping[str, Any]]]] = -1, {}

    def is_filtered(self, message: FoundMessage) -> bool:
        """Whether a night filtered the message."""
        return self._night_of(message)[0] < len(self._nights)

    def pulls(self, message: FoundMessage, group: str, rows: Sequence[SubscriptionRow]) -> list[Pulled]:
        """The pulls of a message by a group with these states on the topic, in order."""
        by_start = {row.valid_from: row for row in rows}
        pulls = []
        for window in self._of_message(message).get(group, ()):
            if window["kind"] != WindowKind.LOST.value:
                at = self._pulled_at(window, message)
                pulls.append(Pulled(by_start[window["subscription_from"]], at, self._config(window, at)))
        return sorted(pulls, key=lambda pull: pull.at)

    def are_lost(self, message: FoundMessage, group: str) -> bool:
        """Whether the broker deleted the message before the group pulled it."""
        windows = self._of_message(message).get(group, ())
        return any(window["kind"] == WindowKind.LOST.value for window in windows)

    def _pulled_at(self, window: Mapping[str, Any], message: FoundMessage) -> int:
        """When the group pulled a message in a window; one that was behind, when the night began."""
        night = self._runs.index(window["run"])
        if window["available_at"] is not None:
            return int(window["available_at"])
        is_behind = window["kind"] == WindowKind.BACKLOG.value and night
        return (self._nights[night - 1].as_of or 0) if is_behind else message.store_timestamp

    def _config(self, window: Mapping[str, Any], at: int) -> BrokerConfig:
        """The broker's configuration in the night that planned a window; a late one is of the night of ``at`` (ms)."""
        if window["kind"] != WindowKind.LATE.value:
            return self._nights[self._runs.index(window["run"])].broker
        return next((night.broker for night in self._nights if at <= (night.as_of or 0)), self._facts.broker)

    def _night_of(self, message: FoundMessage) -> tuple[int, bool]:
        """The number of the night that first filtered a message, and whether the message came late."""
        own = bisect_right(self._ends, message.commitlog_offset)
        if own == len(self._nights) or (message.dispatched_by or "") <= self._runs[own]:
            return own, False
        return bisect_left(self._runs, message.dispatched_by or ""), True

    def _of_message(self, message: FoundMessage) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        """By group, the windows that cover a message."""
        if self._last[0] != message.commitlog_offset:
            self._last = message.commitlog_offset, self._windows_of(message)
        return self._last[1]

    def _windows_of(self, message: FoundMessage) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        number, is_late = self._night_of(message)
        found: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
        if number < len(self._nights):
            place = message.queue_id, message.queue_offset, message.commitlog_offset
            for window in covering(self._read(message.topic), *place, message.store_timestamp):
                if _counts(window, self._runs[number], is_late):
                    found[window["consumer_group"]].append(window)
        return found

    def _read_windows(self, topic: str) -> pa.Table:
        of_groups = [one_of("consumer_group", self._groups)] if self._groups is not None else []
        return self._facts.rows(PULL_WINDOWS, where=[one_of("topic", [topic]), *of_groups])


def _counts(window: Mapping[str, Any], run: str, is_late: bool) -> bool:
    """Whether a window filtered, or lost, the messages in it that ``run`` was the first to filter."""
    match WindowKind(window["kind"]):
        case WindowKind.ONLINE:
            return not is_late and bool(window["run"] == run)
        case WindowKind.BACKLOG | WindowKind.RESET | WindowKind.LOST:
            return bool(window["run"] > run if is_late else window["run"] >= run)
        case WindowKind.LATE:
            return is_late and bool(window["run"] == run)
        case WindowKind.UNCERTAIN:
            return False


def why_pending(rows: Sequence[SubscriptionRow], config: BrokerConfig, as_of: int) -> str:
    """Why a group has not pulled a message that waits for it when the last night ends, at ``as_of`` (ms)."""
    row = state_at(rows, as_of)
    code = refusal(row, config) if row is not None and row.is_consuming else None
    if code is not None:
        return f"the broker refuses the group's pulls ({code.text}), so the group has not pulled it yet"
    why = "the group does not keep up"
    if row is None or not row.is_consuming:
        why = "the group comes after the end of the last night" if rows[-1].is_consuming else "the group is away"
    return f"{why}, and has not pulled it yet"


def why_not_pulled(rows: Sequence[SubscriptionRow], config: BrokerConfig, stored_at: int, is_passed: bool) -> str:
    """Why a group never pulls a message. ``is_passed``: the group goes on at a later message of the queue."""
    first = next((row for row in rows if is_pulling(row, config)), None)
    if first is not None and stored_at < first.valid_from:
        return "the group first came later, and began at a later message"
    if not is_passed:
        return DELETED
    row = state_at(rows, stored_at)
    code = refusal(row, config) if row is not None and row.is_consuming else None
    why = "the group was away" if code is None else f"the broker refused the group's pulls ({code.text})"
    return f"the group's offset was moved past it while {why}"


def later_filter(rows: Sequence[SubscriptionRow], pull: Pulled) -> SubscriptionRow | None:
    """The later subscription that may have filtered the message: a pull held at the broker keeps it up to 5 s."""
    if is_tag_type(pull.row.expression_type) or pull.row.sent_with_pull:
        return None
    later = [row for row in rows if pull.at < row.valid_from <= pull.at + HELD_MESSAGES]
    return next((row for row in later if row.filter != pull.row.filter and is_pulling(row, pull.config)), None)


def earlier_filter(rows: Sequence[SubscriptionRow], pull: Pulled) -> SubscriptionRow | None:
    """The earlier subscription that may have filtered the message, pulled just after the change.

    It has tags, which the client checks, or a held pull brought it. A group that did not pull in between has no held
    pull.
    """
    earlier = [row for row in rows if row.valid_from < pull.row.valid_from]
    before = next((row for row in reversed(earlier) if row.filter != pull.row.filter), None)
    since = [] if before is None else [row for row in earlier if row.valid_from >= before.valid_from]
    if before is None or not all(is_pulling(row, pull.config) for row in since):
        return None
    if before.valid_to is None or before.valid_to <= pull.at - HELD_PULL:
        return None
    return before if before.tags_set or before.sent_with_pull else None
