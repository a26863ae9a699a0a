"""Where groups are in queues."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow.compute as pc

from filtering.consumption.offsets import COMMIT_DELAY, REMOVED, Offsets
from filtering.counted import counted
from filtering.subscriptions.events import GroupTopic
from schemas.answers.facts import BrokerFacts
from schemas.current_offsets import CURRENT_OFFSETS
from schemas.delta.aggregates import group_numbers
from schemas.delta.table_rows import filtered, one_of, tuples


@dataclass(frozen=True)
class CommittedOffsets:
    """The offsets of a consumerOffset.json newer than the last night, and when it was saved (ms; None: unknown)."""

    offsets: Mapping[GroupTopic, Offsets]
    saved_at: int | None = None


@dataclass(frozen=True)
class Standing:
    """Where a group is in a queue, as queue offsets.

    ``committed`` is the offset that the broker stored, None if it has none. ``position`` is where the group
    goes on: a group that keeps up has pulled more than it has committed. ``end``: the offset after the last entry.
    """

    consumer_group: str
    topic: str
    queue_id: int
    committed: int | None
    position: int
    end: int

    @property
    def key(self) -> GroupTopic:
        return self.consumer_group, self.topic

    @property
    def counted_from(self) -> int:
        """The offset from which the broker counts the lag: the committed one, or else where the group goes on."""
        return self.position if self.committed is None else self.committed

    @property
    def ahead(self) -> int:
        """By how many entries the committed offset is beyond the end of the queue; 0 if it is not."""
        return max(0, (self.committed or 0) - self.end)

    @property
    def is_behind(self) -> bool:
        """Whether the group has entries left to pull or to commit."""
        return min(self.position, self.counted_from) < self.end


def standings(
    facts: BrokerFacts,
    newer: CommittedOffsets | None = None,
    groups: Collection[str] | None = None,
    topics: Collection[str] | None = None,
    queue_ids: Collection[int] | None = None,
    only_behind: bool = False,
) -> Iterator[Standing]:
    """Where groups are in queues after the last night, or by ``newer`` offsets.

    ``groups``, ``topics``, ``queue_ids``: only these. ``only_behind``: only where a group is behind, or beyond the end.
    """
    chosen = (("consumer_group", groups), ("topic", topics), ("queue_id", queue_ids))
    where = [one_of(column, values) for column, values in chosen if values is not None]
    names = ("consumer_group", "topic", "queue_id", "committed", "told_to", "queue_end")
    rows = facts.rows(CURRENT_OFFSETS, names, where) if where else facts.offsets
    rows = rows.filter(pc.is_valid(rows["told_to"]))  # the others have no subscription
    if only_behind and newer is None:
        differs = (pc.not_equal(rows[name], rows["queue_end"]).fill_null(False) for name in ("told_to", "committed"))
        rows = rows.filter(pc.or_(*differs))
    for group, topic, queue_id, committed, told_to, end in tuples(rows, *names):
        position = told_to or 0
        later = newer.offsets.get((group, topic), {}).get(queue_id) if newer is not None else None
        if newer is not None and later is not None:
            # Commits lag behind what was pulled: a snapshot of about the same time adds nothing new.
            is_later = newer.saved_at is None or newer.saved_at >= facts.as_of + COMMIT_DELAY
            committed, position = later, later if is_later else max(later, position)
        committed = None if committed == REMOVED else committed
        standing = Standing(group, topic, queue_id, committed, min(position, end), end)
        if standing.is_behind or standing.ahead or not only_behind:
            yield standing


@dataclass(frozen=True)
class BeyondEnd:
    """The committed offsets of a group are beyond the end of some queues of a topic, at most by ``entries``.

    Its topic was created again, or the broker's store was wiped, and the offsets stayed. Source:
    DefaultMessageStore.getMessage (OFFSET_OVERFLOW_BADLY).
    """

    consumer_group: str
    topic: str
    queues: int
    entries: int

    @property
    def text(self) -> str:
        most = "up to " if self.queues > 1 else ""
        return (
            f"its committed offsets are beyond the end of {counted(self.queues, 'queue')}, by {most}{self.entries:,}: "
            "when it pulls, the broker moves it to the end (OFFSET_OVERFLOW_BADLY), and it never gets the messages "
            "before that"
        )


def beyond_end(rows: Iterable[Standing]) -> list[BeyondEnd]:
    """One for each group and topic with committed offsets beyond the end of a queue, in order."""
    found: defaultdict[GroupTopic, list[int]] = defaultdict(list)
    for row in rows:
        if row.ahead:
            found[row.key].append(row.ahead)
    return [BeyondEnd(*key, len(entries), max(entries)) for key, entries in sorted(found.items())]


def away_beyond_end(facts: BrokerFacts) -> list[BeyondEnd]:
    """:func:`beyond_end` of the groups that do not pull, by the last snapshot.

    A broker corrects the offset of a group that pulls. If it is beyond the end all the same, the log was copied before
    the offsets.
    """
    pulling = {row.key for row in facts.in_force if row.is_consuming}
    return beyond_end(row for row in standings(facts, only_behind=True) if row.key not in pulling)


def positions_in_queue(
    facts: BrokerFacts, groups: Collection[str] | None, topic: str, queue_id: int
) -> Mapping[str, int]:
    """By group, the offset at which it goes on in a queue. ``groups``: the only groups to read; None: all."""
    found = standings(facts, groups=groups, topics=[topic], queue_ids=[queue_id])
    return {each.consumer_group: each.position for each in found}


def count_subscriptions(facts: BrokerFacts, topics: Collection[str] | None = None) -> int:
    """The number of groups and topics of which :func:`standings` has any. ``topics``: only these."""
    where = [] if topics is None else [one_of("topic", topics)]
    rows = filtered(facts.offsets, where)
    keys, _ = group_numbers(rows.filter(pc.is_valid(rows["told_to"])), ["consumer_group", "topic"])
    return len(keys)
