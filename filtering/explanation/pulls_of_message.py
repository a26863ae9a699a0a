"""Finds the subscription that filtered a message for a group: the one in force when the group pulled the message.

It applies the rules of :mod:`filtering.consumption.plan` backwards, to the recorded results of the nights.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from filtering.broker_config import BrokerConfig
from filtering.consumption.held_pulls import HELD_MESSAGES, HELD_PULL
from filtering.delivery.pull_window import BEGINNING, FOREVER, OffsetRange
from filtering.pulls.pull import is_pulling, refusal
from filtering.subscription_data import is_tag_type
from filtering.subscriptions.in_force import state_at
from filtering.subscriptions.subscription_row import SubscriptionRow

_DELETED = "the broker deleted it before the group pulled it"
_MOVED = "the group's offset was moved past it while"


@dataclass(frozen=True)
class NightInQueue:
    """The progress of a group in a queue in one night, from ``begin`` to ``as_of`` (ms).

    Deliveries were decided up to offset ``told_before`` when it began, and up to ``told_to`` when it ended. ``lost``
    entries were deleted before the group could pull them; the group never pulls ``skipped`` entries. It pulled up to
    ``pulled_to``, which is more than ``told_to`` if its offset was removed or moved back without an event. ``config``
    is the broker's configuration in the night. The entries are those with physical offsets in ``places``, stored from
    ``since`` (ms): a night in which the queue began again has an item for the old ones and one for the new ones.
    """

    run: str
    begin: int
    as_of: int
    told_before: int
    told_to: int
    config: BrokerConfig
    lost: int = 0
    skipped: int = 0
    pulled_to: int = 0
    places: OffsetRange = (BEGINNING, FOREVER)
    since: int = BEGINNING

    @property
    def ended(self) -> int:
        """The offset after the last entry that the group passed."""
        return max(self.told_to, self.pulled_to)


@dataclass(frozen=True)
class Place:
    """The queue offset of a message, its store time (ms), and the run that read it.

    ``is_deleted``: it is no longer in the broker's log. ``gone_at``: when the first night began (ms) for which the log
    did not have it any more. A group that started then, or whose offset was moved, could not pull it.
    """

    queue_offset: int
    store_timestamp: int
    run: str
    is_deleted: bool
    gone_at: int = FOREVER


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


def pulls_of_message(
    rows: Sequence[SubscriptionRow],
    nights: Sequence[NightInQueue],
    resets: Iterable[tuple[int, int]],
    place: Place,
    config: BrokerConfig,
    as_of: int,
) -> list[Pulled] | NotPulled:
    """The pulls of a message by the group: one, and another one after each offset reset.

    ``rows`` are all states of the group on the topic, in order. ``nights`` are the nights in which it made progress.
    ``resets`` are the offset resets of the queue as (ms, offset). ``config`` is the broker's present configuration,
    ``as_of`` the end of the last night (ms).
    """
    if not rows:
        return NotPulled("the group never subscribed to the topic")
    # The group's offset may have been moved back, so that it moved past the message several times.
    passed = [night for night in nights if night.told_before <= place.queue_offset < night.ended]
    if not passed and place.is_deleted:
        return NotPulled(_DELETED)
    if not passed:
        return NotPulled(_why_pending(rows, config, as_of), is_pending=True)
    resets = list(resets)
    found = [_first_pull(rows, night, place) for night in reversed(passed)]
    first = next((pull for pull in found if isinstance(pull, Pulled)), found[0])
    if isinstance(first, NotPulled) and first.why == _DELETED:
        return first
    last = nights[-1]
    pulling = [row for row in rows if is_pulling(row, last.config)]
    again = [
        pull
        for pull, offset in _pulls_after_resets(pulling, resets, last)
        if offset <= place.queue_offset and pull.at <= place.gone_at
    ]
    if isinstance(first, NotPulled):
        since = max(place.store_timestamp, pulling[0].valid_from) if pulling else FOREVER
        return [pull for pull in again if pull.at > since] or first
    pulls = [pull for pull in again if pull.at > first.at]
    if not _is_jumped_over(rows, first, place, resets):
        return [first, *pulls]
    return pulls or NotPulled(f"{_MOVED} the group was away")


def _why_pending(rows: Sequence[SubscriptionRow], config: BrokerConfig, as_of: int) -> str:
    row = state_at(rows, as_of)
    code = refusal(row, config) if row is not None and row.is_consuming else None
    if code is not None:
        return f"the broker refuses the group's pulls ({code.text}), so the group has not pulled it yet"
    why = "the group does not keep up"
    if row is None or not row.is_consuming:
        why = "the group comes after the end of the last night" if rows[-1].is_consuming else "the group is away"
    return f"{why}, and has not pulled it yet"


def _pulls_after_resets(
    rows: Sequence[SubscriptionRow], resets: Iterable[tuple[int, int]], last: NightInQueue
) -> list[tuple[Pulled, int]]:
    """The first pull after each reset, and the offset that it starts from. The group pulls under each of ``rows``.

    A group that is away starts from the last of its resets when it returns. Pulls after the last night do not count.
    """
    pulls: dict[int, tuple[Pulled, int]] = {}
    for at, offset in resets:
        row = state_at(rows, at)
        if row is None:
            row = next((row for row in rows if at < row.valid_from <= last.as_of), None)
            at = row.valid_from if row is not None else at
        if row is not None:
            pulls[at] = Pulled(row, at, last.config), offset
    return list(pulls.values())


def _is_jumped_over(
    states: Sequence[SubscriptionRow], first: Pulled, place: Place, resets: Sequence[tuple[int, int]]
) -> bool:
    """Whether the offset of a group that returned for its first pull of the message was moved past it meanwhile."""
    rows = [row for row in states if is_pulling(row, first.config)]
    if first.at != first.row.valid_from or first.row is rows[0] or place.store_timestamp >= first.at:
        return False
    left = rows[rows.index(first.row) - 1].valid_to
    away = [offset for at, offset in resets if left is not None and left <= at <= first.at]
    return bool(away) and place.queue_offset < away[-1]


def _first_pull(states: Sequence[SubscriptionRow], night: NightInQueue, place: Place) -> Pulled | NotPulled:
    """The first pull of the message by a group with these ``states``, if no reset jumped over the message."""
    rows = [row for row in states if is_pulling(row, night.config)]
    at = place.store_timestamp
    is_new = place.run == night.run
    row = state_at(rows, at)
    if is_new and row is not None:
        return Pulled(row, at, night.config)
    if place.queue_offset < night.told_before + night.lost:
        return NotPulled(_DELETED)
    if not is_new:
        row = state_at(rows, night.begin)
        if row is not None:
            return Pulled(row, night.begin, night.config)
        at = night.begin
    start = next((row for row in rows if at < row.valid_from <= night.as_of), None)
    if start is None:
        return NotPulled(f"{_MOVED} {_why_not_pulling(states, at, night.config)}")
    if start is rows[0] and place.queue_offset < night.told_before + night.lost + night.skipped:
        return NotPulled("the group first came later, and began at a later message")
    if start.valid_from > place.gone_at:
        return NotPulled(_DELETED)
    return Pulled(start, start.valid_from, night.config)


def _why_not_pulling(states: Sequence[SubscriptionRow], at: int, config: BrokerConfig) -> str:
    row = state_at(states, at)
    code = refusal(row, config) if row is not None and row.is_consuming else None
    return "the group was away" if code is None else f"the broker refused the group's pulls ({code.text})"


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
