"""The timeline of one group on one topic in one night: when it consumed, and under which subscription."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from filtering.subscriptions.events import SubscriptionEvent
from filtering.subscriptions.history import SubscriptionRow


class Moment(Enum):
    """What happens to a group on a topic."""

    START = "start"
    """The group begins to consume: for the first time, or again."""
    CHANGE = "change"
    """The group continues to consume under another subscription."""
    LEAVE = "leave"
    RESET = "reset"
    """An operator sets the group's offset in one queue."""


@dataclass(frozen=True)
class Step:
    """A moment of a timeline, at ``at`` (ms).

    ``row`` is the subscription in force from then on, ``before`` the one until then (None: the first). ``reset`` is
    the event of a RESET.
    """

    at: int
    moment: Moment
    row: SubscriptionRow
    before: SubscriptionRow | None = None
    reset: SubscriptionEvent | None = None


@dataclass(frozen=True)
class Timeline:
    """``first`` is the subscription in force when the night begins, or None; ``steps`` are in order of time."""

    first: SubscriptionRow | None
    steps: Sequence[Step]

    @property
    def consumes_at_first(self) -> bool:
        return self.first is not None and self.first.is_consuming

    @property
    def last(self) -> SubscriptionRow | None:
        """The subscription in force when the night ends."""
        return self.steps[-1].row if self.steps else self.first


def timeline(rows: Sequence[SubscriptionRow], resets: Iterable[SubscriptionEvent], as_of: int | None) -> Timeline:
    """The steps after ``as_of`` (ms; None: all of them).

    ``rows`` are all states of one group and topic, in order; ``resets`` are its reset_offset events.
    """
    begins = [row for row in rows if as_of is not None and row.valid_from <= as_of]
    first = begins[-1] if begins else None
    return Timeline(first, list(_steps(first, rows[len(begins) :], resets, as_of)))


def _steps(
    first: SubscriptionRow | None,
    rows: Iterable[SubscriptionRow],
    resets: Iterable[SubscriptionEvent],
    as_of: int | None,
) -> Iterator[Step]:
    current = first
    waiting = sorted((reset for reset in resets if as_of is None or reset.at > as_of), key=lambda reset: reset.at)
    for row in rows:
        while waiting and waiting[0].at < row.valid_from:
            reset = waiting.pop(0)
            if current is not None:
                yield Step(reset.at, Moment.RESET, current, current, reset)
        consumed = current is not None and current.is_consuming
        if row.is_consuming:
            yield Step(row.valid_from, Moment.CHANGE if consumed else Moment.START, row, current)
        elif consumed:
            yield Step(row.valid_from, Moment.LEAVE, row, current)
        current = row
    for reset in waiting:
        if current is not None:
            yield Step(reset.at, Moment.RESET, current, current, reset)
