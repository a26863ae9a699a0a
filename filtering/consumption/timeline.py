"""The timeline of one group on one topic in one night: when it pulled, and under which subscription."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import groupby
from typing import NamedTuple

from filtering.consumption.renewals import QueueRenewal
from filtering.subscriptions.events import SubscriptionEvent
from filtering.subscriptions.subscription_row import SubscriptionRow


class Moment(Enum):
    """What happens to a group on a topic."""

    BEGIN = "begin"
    """The group is online for the first time."""
    START = "start"
    """The group begins to pull: for the first time, or again."""
    CHANGE = "change"
    """The group continues to pull under another subscription."""
    STOP = "stop"
    """The group leaves, or the broker refuses its pulls."""
    RESET = "reset"
    """An operator sets the group's offset in one queue."""
    RENEWAL = "renewal"
    """Queues of the topic begin again."""


@dataclass(frozen=True)
class Step:
    """A moment of a timeline, at ``at`` (ms).

    ``row`` is the subscription in force from then on, ``before`` the one until then (None: the first). ``reset`` is
    the event of a RESET, ``renewals`` are those of a RENEWAL.
    """

    at: int
    moment: Moment
    row: SubscriptionRow
    before: SubscriptionRow | None = None
    reset: SubscriptionEvent | None = None
    renewals: Sequence[QueueRenewal] = ()


class _Waiting(NamedTuple):
    """An offset reset, or the renewals of queues, at a time (ms)."""

    at: int
    reset: SubscriptionEvent | None = None
    renewals: Sequence[QueueRenewal] = ()

    def step(self, row: SubscriptionRow) -> Step:
        moment = Moment.RENEWAL if self.reset is None else Moment.RESET
        return Step(self.at, moment, row, row, self.reset, self.renewals)


@dataclass(frozen=True)
class Timeline:
    """``first`` is the subscription in force when the night begins, or None; ``steps`` are in order of time.

    ``pulls_at_first``: whether the group pulls when the night begins. ``resets``: all offset resets, earlier ones too.
    """

    first: SubscriptionRow | None
    pulls_at_first: bool
    steps: Sequence[Step]
    resets: Sequence[SubscriptionEvent]

    @property
    def moves(self) -> list[tuple[int, int]]:
        """When queues began again, or an operator set the group's offset: times (ms) and queue ids."""
        renewed = [(step.at, renewal.queue_id) for step in self.steps for renewal in step.renewals]
        return renewed + [(step.at, step.reset.queue_id or 0) for step in self.steps if step.reset is not None]


def timeline(
    rows: Sequence[SubscriptionRow],
    resets: Iterable[SubscriptionEvent],
    as_of: int | None,
    is_pulling: Callable[[SubscriptionRow], bool],
    renewals: Iterable[QueueRenewal] = (),
) -> Timeline:
    """The steps after ``as_of`` (ms; None: all of them).

    ``rows`` are all states of one group and topic, in order; ``resets`` are its reset_offset events. ``is_pulling``
    tells whether the group pulls under a subscription. ``renewals`` are those of the topic since ``as_of``, in order.
    """
    begins = [row for row in rows if as_of is not None and row.valid_from <= as_of]
    first = begins[-1] if begins else None
    ordered = sorted(resets, key=lambda reset: reset.at)
    waiting = [_Waiting(reset.at, reset) for reset in ordered if as_of is None or reset.at > as_of]
    waiting += [_Waiting(at, renewals=tuple(of_topic)) for at, of_topic in groupby(renewals, lambda each: each.at)]
    waiting.sort(key=lambda each: each.at)
    is_known = any(row.is_consuming for row in begins)
    steps = list(_steps(first, is_known, rows[len(begins) :], waiting, is_pulling))
    return Timeline(first, first is not None and is_pulling(first), steps, ordered)


def _steps(
    first: SubscriptionRow | None,
    is_known: bool,
    rows: Iterable[SubscriptionRow],
    waiting: list[_Waiting],
    is_pulling: Callable[[SubscriptionRow], bool],
) -> Iterator[Step]:
    """``is_known``: whether the group was online before. ``waiting``: what happens to queues in the night, in order."""
    current = first
    for row in rows:
        while waiting and waiting[0].at < row.valid_from:
            happening = waiting.pop(0)
            if current is not None:
                yield happening.step(current)
        if row.is_consuming and not is_known:
            is_known = True
            yield Step(row.valid_from, Moment.BEGIN, row, current)
        pulled = current is not None and is_pulling(current)
        if is_pulling(row):
            yield Step(row.valid_from, Moment.CHANGE if pulled else Moment.START, row, current)
        elif pulled:
            yield Step(row.valid_from, Moment.STOP, row, current)
        current = row
    for happening in waiting:
        if current is not None:
            yield happening.step(current)
