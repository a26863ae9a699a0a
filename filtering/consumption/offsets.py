"""Consumer offsets, from the broker's snapshot and from earlier nights."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from filtering.delivery.entries import Int64s
from filtering.delivery.pull_window import FOREVER, OffsetRange
from filtering.subscriptions.events import GroupTopic

Offsets = Mapping[int, int]
"""Queue offsets by queue id."""
COMMIT_DELAY = 30_000
"""ms: a consumer that keeps up has committed all older messages. A held pull ends after 15 to 20 s; then its client
commits within 5 s, and the broker saves the offset within another 5 s."""
REMOVED, UNKNOWN = -1, -2
"""Instead of an offset. REMOVED: the broker had one, and has none any more; it answers -1, too."""


@dataclass(frozen=True)
class BrokerOffsets:
    """The queues and the consumer offsets of a broker, from a snapshot of its store.

    ``committed`` are the groups' offsets (config/consumerOffset.json) at ``committed_at`` (ms; None: not known).
    ``min_offsets``: by topic, the first entry of each queue that the broker still has. ``queue_ids``: by topic, all
    its queues. ``stored_at`` returns the store time (ms) of the entry at a topic, queue id and queue offset, None if
    there is no such entry. ``is_whole``: the log still begins with its first message; only used if the queues are
    not known.
    """

    committed: Mapping[GroupTopic, Offsets] = field(default_factory=dict)
    committed_at: int | None = None
    min_offsets: Mapping[str, Offsets] = field(default_factory=dict)
    queue_ids: Mapping[str, frozenset[int]] = field(default_factory=dict)
    stored_at: Callable[[str, int, int], int | None] = lambda topic, queue_id, offset: None
    is_whole: bool = True

    def min_offset(self, topic: str, queue_id: int) -> int:
        """The first entry of a queue that the broker still has; 0 if the queue is not known."""
        return self.min_offsets.get(topic, {}).get(queue_id, 0)

    def first_since(self, topic: str, queue_id: int, at: int) -> int:
        """The first entry that the broker still has and that was stored at ``at`` (ms) or later, or the queue's end.

        A damaged message counts as stored later. Source: ConsumeQueue.getOffsetInQueueByTime.
        """

        def is_since(offset: int) -> bool:
            stored_at = self.stored_at(topic, queue_id, offset)
            return stored_at is None or stored_at >= at

        offsets = range(self.min_offset(topic, queue_id), FOREVER)
        return offsets[bisect_left(offsets, True, key=is_since)]

    def still_has(self, topic: str, queue_id: int, offset: int) -> bool:
        """Whether a queue has an entry, or had it before the broker deleted the message."""
        return offset < self.min_offset(topic, queue_id) or self.stored_at(topic, queue_id, offset) is not None


@dataclass(frozen=True, eq=False)
class TopicOffsets:
    """The queues of one topic, and how far the deliveries of its groups are decided.

    ``ends`` (queues): the offset after the last entry. ``told_to`` (groups x queues): the offset up to which
    deliveries are decided. ``committed`` (groups x queues): the offset that the broker has, or REMOVED. UNKNOWN means
    no offset. ``groups`` has the row of each group.
    """

    queue_ids: Sequence[int]
    ends: Int64s
    groups: Mapping[str, int]
    told_to: Int64s
    committed: Int64s

    @classmethod
    def empty(cls, ends: Offsets, groups: Iterable[str]) -> TopicOffsets:
        """The queues of ``ends`` in the order of their ids, and groups whose offsets are all UNKNOWN."""
        queue_ids = sorted(ends)
        numbered = {group: i for i, group in enumerate(groups)}
        unknown = np.full((2, len(numbered), len(queue_ids)), UNKNOWN, np.int64)
        return cls(queue_ids, np.array([ends[queue_id] for queue_id in queue_ids], np.int64), numbered, *unknown)

    def extended(self, ends: Offsets, groups: Iterable[str]) -> TopicOffsets:
        """The same offsets with more queues and groups. ``ends`` must have all queues, old ones too."""
        wider = TopicOffsets.empty(ends, dict.fromkeys([*self.groups, *groups]))
        columns = np.searchsorted(wider.queue_ids, self.queue_ids)
        rows = np.arange(len(self.groups))
        wider.told_to[np.ix_(rows, columns)] = self.told_to
        wider.committed[np.ix_(rows, columns)] = self.committed
        return wider

    def committed_by(self, group: str, queue_id: int) -> int:
        """The offset that the broker has for a group in a queue, REMOVED or UNKNOWN."""
        row, column = self.groups.get(group), self.columns.get(queue_id)
        return UNKNOWN if row is None or column is None else int(self.committed[row, column])

    def losing(self, topic: str, now: BrokerOffsets) -> list[str]:
        """The groups for which :meth:`loses_offsets` is true."""
        return [group for group in self.groups if self.loses_offsets((group, topic), now)]

    def loses_offsets(self, key: GroupTopic, now: BrokerOffsets) -> bool:
        """Whether the broker had offsets of a group, and has none any more in its file: an operator removed them.

        False if the file or the queues are not known, or if they are not the queues of before: a topic that was
        deleted loses its offsets, too.
        """
        group, topic = key
        if now.committed_at is None or key in now.committed or group not in self.groups:
            return False
        had = self.committed[self.groups[group]]
        queues = zip(self.queue_ids, self.ends.tolist(), had.tolist(), strict=True)
        return bool((had >= 0).any()) and all(
            now.still_has(topic, queue_id, end - 1) for queue_id, end, offset in queues if offset >= 0
        )

    @cached_property
    def columns(self) -> dict[int, int]:
        """The column of each queue."""
        return {queue_id: column for column, queue_id in enumerate(self.queue_ids)}


@dataclass(frozen=True)
class OffsetsSoFar:
    """How far deliveries are decided when a night begins. ``as_of`` is that time (ms); None in a first night.

    ``read_to``: when the last message was stored that earlier nights read (ms; None: not known). It is before
    ``as_of`` if the copy of the log was older than the rest of the snapshot.
    """

    as_of: int | None = None
    topics: Mapping[str, TopicOffsets] = field(default_factory=dict)
    read_to: int | None = None

    def of(self, key: GroupTopic) -> dict[int, int]:
        """By queue id, the offset up to which a group's deliveries are decided."""
        group, topic = key
        offsets = self.topics.get(topic)
        if offsets is None or group not in offsets.groups:
            return {}
        decided = offsets.told_to[offsets.groups[group]].tolist()
        return {queue_id: offset for queue_id, offset in zip(offsets.queue_ids, decided, strict=True) if offset >= 0}

    def committed(self, key: GroupTopic) -> dict[int, int]:
        """By queue id, the offset that the broker has for a group."""
        group, topic = key
        offsets = self.topics.get(topic)
        if offsets is None:
            return {}
        found = {queue_id: offsets.committed_by(group, queue_id) for queue_id in offsets.queue_ids}
        return {queue_id: offset for queue_id, offset in found.items() if offset >= 0}

    def removed(self, key: GroupTopic) -> bool:
        """Whether the broker had offsets of a group when an earlier night ended, and has none any more."""
        offsets = self.topics.get(key[1])
        return offsets is not None and any(
            offsets.committed_by(key[0], queue_id) == REMOVED for queue_id in offsets.queue_ids
        )

    def are_removed(self, key: GroupTopic, now: BrokerOffsets) -> bool:
        """Whether the broker had offsets of a group in earlier nights, and has none when this night ends."""
        offsets = self.topics.get(key[1])
        if offsets is None or key in now.committed:
            return False
        return self.removed(key) or offsets.loses_offsets(key, now)

    def behind(self, key: GroupTopic) -> dict[int, OffsetRange]:
        """By queue id, the range of entries that the group has not pulled yet."""
        group, topic = key
        offsets = self.topics.get(topic)
        if offsets is None or group not in offsets.groups:
            return {}
        decided = offsets.told_to[offsets.groups[group]]
        behind = np.flatnonzero((decided >= 0) & (decided < offsets.ends)).tolist()
        return {offsets.queue_ids[i]: (int(decided[i]), int(offsets.ends[i])) for i in behind}
