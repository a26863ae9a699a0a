"""Which groups pop, and since when: groups may pull at first and pop later, or the other way round.

No broker says it of all of them. A group pops a topic if the broker's record has a pop of it, if
config/messageRequestMode.json says so, or if an event names a protocol that pops. It counts from the start before:
clients do not change while they are online. An event with a protocol that pulls ends it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from filtering.delivery.pull_window import BEGINNING, FOREVER
from filtering.pops.groups import PopGroups
from filtering.pops.record import subscribed_topic
from filtering.subscriptions.events import GroupTopic, SubscriptionEvent
from filtering.subscriptions.subscription_row import SubscriptionRow

Interval = tuple[int, int]
"""[from, to), ms."""


@dataclass(frozen=True)
class PopModes:
    """When groups were first known to pop topics (ms), by group and topic: by the record, and by the configuration."""

    recorded: Mapping[GroupTopic, int] = field(default_factory=dict)
    configured: Mapping[GroupTopic, int] = field(default_factory=dict)

    def with_pops(self, popped: Mapping[GroupTopic, int]) -> PopModes:
        """The same, and what a record says: the time (ms) of the first pop by group and topic, or retry topic."""
        known = dict(self.recorded)
        for (group, topic), at in popped.items():
            key = group, subscribed_topic(group, topic)
            known[key] = min(at, known.get(key, at))
        return replace(self, recorded=known)

    def with_configuration(self, groups: PopGroups, at: int) -> PopModes:
        """The same, and what the configuration of a snapshot says, which was taken at ``at`` (ms)."""
        return replace(self, configured={**dict.fromkeys(groups.popping, at), **self.configured})

    @property
    def text(self) -> str:
        """As JSON."""
        both = (self.recorded, self.configured)
        return json.dumps([[[*key, at] for key, at in sorted(known.items())] for known in both])

    @classmethod
    def of_text(cls, text: str) -> PopModes:
        """The reverse of ``text``."""
        return cls(*({(group, topic): at for group, topic, at in known} for known in json.loads(text)))

    def intervals(
        self, rows: Mapping[GroupTopic, Sequence[SubscriptionRow]], events: Iterable[SubscriptionEvent]
    ) -> dict[GroupTopic, list[Interval]]:
        """When groups pop. ``rows``: the subscription history by group and topic."""
        said: dict[GroupTopic, list[tuple[int, bool]]] = {}
        for event in events:
            if event.pops is not None:
                for subscription in event.subscriptions:
                    said.setdefault((event.group, subscription["topic"]), []).append((event.at, event.pops))
        known = {**self.configured, **self.recorded}
        found = {}
        for key in said.keys() | known.keys():
            marks = said.get(key, [])
            if marks and marks[0][1]:
                marks = [(BEGINNING, True), *marks[1:]]
            at = known.get(key)
            if at is not None and not any(time <= at and pops for time, pops in marks):
                marks = sorted([*marks, (_start(rows.get(key, ()), at), True)])
            found[key] = _intervals(marks)
        return {key: intervals for key, intervals in found.items() if intervals}


def _start(rows: Sequence[SubscriptionRow], at: int) -> int:
    """When the group, which popped at ``at`` (ms), started before; BEGINNING at its first start."""
    starts = [
        row.valid_from
        for before, row in zip([None, *rows], rows, strict=False)
        if row.is_consuming and (before is None or not before.is_consuming) and row.valid_from <= at
    ]
    return starts[-1] if len(starts) > 1 else BEGINNING


def _intervals(marks: Sequence[tuple[int, bool]]) -> list[Interval]:
    found: list[Interval] = []
    since: int | None = None
    for at, pops in marks:
        if pops and since is None:
            since = at
        elif not pops and since is not None:
            found.append((since, at))
            since = None
    return found if since is None else [*found, (since, FOREVER)]


def pulled_rows(rows: Sequence[SubscriptionRow], pops: Sequence[Interval]) -> list[SubscriptionRow]:
    """The states of a group and topic, in which it does not consume while it pops."""
    found = []
    for row in rows:
        end = FOREVER if row.valid_to is None else row.valid_to
        cuts = {at for interval in pops for at in interval if row.valid_from < at < end}
        bounds = [row.valid_from, *sorted(cuts), end]
        for begin, stop in pairwise(bounds):
            popping = any(since <= begin < until for since, until in pops)
            found.append(
                replace(
                    row,
                    valid_from=begin,
                    valid_to=None if stop == FOREVER else stop,
                    is_consuming=row.is_consuming and not popping,
                )
            )
    return found
