"""Consumer offsets: those in the broker's snapshot (BrokerOffsets), and those of earlier nights (OffsetsSoFar).

A plan of a night begins from both, and ends with how far each group came (GroupProgress). Queues may begin again at
offset 0 (QueueRestart). If a topic is deleted and created again, its queues begin again, and its groups have no offsets
any more (TopicConfigManager, ConsumerOffsetManager.cleanOffsetByTopic). If an operator removes an expired queue, of
which no message is left in the log (mqadmin cleanExpiredCQ), the groups keep their offsets.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from filtering.delivery.entries import Int64s
from filtering.delivery.pull_window import NO_BEGIN, NO_END, OffsetRange
from filtering.frozen import frozen
from filtering.subscriptions.events import GroupTopic


@frozen
class QueueRestart:
    """A queue began again, with the message at the physical offset ``commitlog_offset``, stored at ``at`` (ms).

    If its topic was deleted, that is the first message of any of the topic's new queues. ``ended`` is the offset after
    the last entry of the old queue. ``keeps_offsets``: the groups' offsets stayed.
    """

    queue_id: int
    commitlog_offset: int
    at: int
    ended: int
    keeps_offsets: bool = False


def physical_ranges_at(
    begins: Mapping[int, int], restarts: Iterable[QueueRestart], at: int, log_start: int
) -> dict[int, OffsetRange]:
    """By queue id, the physical offsets of the entries that a queue has at ``at`` (ms), if it began again.

    ``begins``: when the night begins, the physical offsets with which queues began again.
    ``restarts`` are those of the night. Messages before ``log_start`` are not in an old queue any more.
    """
    by_queue: dict[int, list[QueueRestart]] = {}
    for restart in restarts:
        by_queue.setdefault(restart.queue_id, []).append(restart)
    ranges = {queue_id: (begin, NO_END) for queue_id, begin in begins.items()}
    for queue_id, restarts_of_queue in by_queue.items():
        before = [restart.commitlog_offset for restart in restarts_of_queue if restart.at < at]
        after = [restart.commitlog_offset for restart in restarts_of_queue if restart.at >= at]
        begin = max(before, default=begins.get(queue_id, NO_BEGIN))
        ranges[queue_id] = (max(begin, log_start), min(after)) if after else (begin, NO_END)
    return ranges


Offsets = Mapping[int, int]
"""Queue offsets by queue id."""
COMMIT_DELAY = 30_000
"""ms: a consumer that keeps up has committed all older messages. A held pull ends after 15 to 20 s; then its client
commits within 5 s, and the broker saves the offset within another 5 s."""
SAVE_DELAY = 5_000
"""ms: the broker saves the offsets every 5 s (flushConsumerOffsetInterval). A client commits when it leaves."""
FIRST_SAVE = 10_000
"""ms: until a broker that has started saves the offsets for the first time (BrokerController)."""
ORDER_SAVE_DELAY = 10_000
"""ms: the broker saves what groups in order popped last every 10 s (BrokerController)."""
REMOVED, UNKNOWN = -1, -2
"""Instead of an offset. REMOVED: the broker had one, and has none any more; it answers -1, too."""


@frozen
class BrokerOffsets:
    """The queues and the consumer offsets of a broker, from a snapshot of its store.

    ``committed`` are the groups' offsets (config/consumerOffset.json) at ``committed_at`` (ms; None: not known), or
    later: the broker does not always write the time. ``is_estimated``: it never does, and the time is the newest in
    the snapshot.
    ``min_offsets``: by topic, the first entry of each queue that the broker still has. ``read_queues``: by topic, its
    number of queues (readQueueNums in config/topics.json). ``new_queues``: by topic, queues of which only messages of
    this night are known. ``stored_at`` returns the store time (ms) of the entry at a topic, queue id and queue offset,
    None if there is no such entry. ``log_start``: the physical offset at which the log begins. ``restarts``: by topic,
    the queues that began again since the last night, in order. ``taken_at``: when the snapshot was taken at the
    earliest (ms; None: not known). ``has_queue_ids``: whether messages have real queue ids; those of a message log
    without them are made up. ``in_files``: whether the consume queues are files, not a database. ``watched_to``: when
    the last look at the broker began (ms); None: its subscriptions are known otherwise.
    """

    committed: Mapping[GroupTopic, Offsets] = field(default_factory=dict)
    committed_at: int | None = None
    min_offsets: Mapping[str, Offsets] = field(default_factory=dict)
    read_queues: Mapping[str, int] = field(default_factory=dict)
    new_queues: Mapping[str, Collection[int]] = field(default_factory=dict)
    stored_at: Callable[[str, int, int], int | None] = lambda topic, queue_id, offset: None
    log_start: int = 0
    restarts: Mapping[str, Sequence[QueueRestart]] = field(default_factory=dict)
    taken_at: int | None = None
    is_estimated: bool = False
    has_queue_ids: bool = True
    in_files: bool = True
    watched_to: int | None = None

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

        offsets = range(self.min_offset(topic, queue_id), NO_END)
        return offsets[bisect_left(offsets, True, key=is_since)]

    def last_stored(self, topics: Iterable[str], until: int) -> int:
        """When the last message of some topics before ``until`` (ms) was stored; 0: there is none."""
        return max(
            (
                self.stored_at(topic, queue_id, self.first_since(topic, queue_id, until) - 1) or 0
                for topic in topics
                for queue_id in self.min_offsets.get(topic, ())
            ),
            default=0,
        )

    def uncommitted(self, key: GroupTopic) -> Sequence[int]:
        """The queues with entries in which a group has no offset, though it has committed some in others of its topic.

        None of their messages was for the group yet, or it cannot pull them, as those of a queue that was taken away.
        """
        committed = self.committed.get(key, {})
        if self.committed_at is None or not any(committed.values()):
            return ()
        others = self.min_offsets.get(key[1], {}).items()
        return [
            queue_id
            for queue_id, first in others
            if queue_id not in committed and self.stored_at(key[1], queue_id, first)
        ]

    def may_lack(self, at: int) -> bool:
        """Whether ``committed`` may be older than what a client committed when it left at ``at`` (ms).

        False if no time was saved: mostly the log was idle since, and the snapshot is later than its newest message.
        """
        if self.committed_at is None or self.is_estimated or self.taken_at is None:
            return False
        return self.committed_at < at and self.taken_at < at + SAVE_DELAY

    @property
    def is_whole(self) -> bool:
        """Whether the log still begins with its first message."""
        return self.log_start == 0


def offset_by_time(stored_at: Callable[[int], int], first: int, end: int, to: int) -> int:
    """The first offset in [``first``, ``end``) with a message stored at ``to`` (ms) or later, or else ``end``.

    ``stored_at`` returns the store time (ms) of an offset, or -1 if the message was deleted. After a clock was set
    back, it is the offset that this binary search finds. Source: ConsumeQueue.binarySearchInQueueByTime, for one file.
    """
    if first >= end or stored_at(end - 1) < to:
        return end
    if stored_at(first) > to:
        return first
    low, high, offset = first, end - 1, end
    while low <= high:
        middle = (low + high) // 2
        time = stored_at(middle)
        if time == to:
            while middle > first and stored_at(middle - 1) == to:
                middle -= 1
            return middle
        if time > to:
            high, offset = middle - 1, middle
        else:
            low = middle + 1
    return offset


@frozen(eq=False)
class TopicOffsets:
    """The queues of one topic, and how far the deliveries of its groups are decided.

    ``ends`` (queues): the offset after the last entry. ``decided_to`` (groups x queues): the offset up to which
    deliveries are decided. ``committed`` (groups x queues): the offset that the broker has, or REMOVED. UNKNOWN means
    no offset. ``groups`` has the row of each group. ``begins`` (queues): the physical offset with which a queue began
    again; 0 if it never did.
    """

    queue_ids: Sequence[int]
    ends: Int64s
    begins: Int64s
    groups: Mapping[str, int]
    decided_to: Int64s
    committed: Int64s

    @classmethod
    def empty(cls, ends: Offsets, groups: Iterable[str], begins: Offsets | None = None) -> TopicOffsets:
        """The queues of ``ends`` in the order of their ids, and groups whose offsets are all UNKNOWN."""
        queue_ids = sorted(ends)
        numbered = {group: i for i, group in enumerate(groups)}
        unknown = np.full((2, len(numbered), len(queue_ids)), UNKNOWN, np.int64)
        lists = ([known.get(queue_id, 0) for queue_id in queue_ids] for known in (ends, begins or {}))
        ends_of, begins_of = (np.array(values, np.int64) for values in lists)
        return cls(queue_ids, ends_of, begins_of, numbered, *unknown)

    def extended(self, ends: Offsets, groups: Iterable[str], begins: Offsets) -> TopicOffsets:
        """The same offsets with more queues and groups. ``ends`` must have all queues, old ones too."""
        wider = TopicOffsets.empty(ends, dict.fromkeys([*self.groups, *groups]), begins)
        columns = np.searchsorted(wider.queue_ids, self.queue_ids)
        rows = np.arange(len(self.groups))
        wider.decided_to[np.ix_(rows, columns)] = self.decided_to
        wider.committed[np.ix_(rows, columns)] = self.committed
        return wider

    def committed_by(self, group: str, queue_id: int) -> int:
        """The offset that the broker has for a group in a queue, REMOVED or UNKNOWN."""
        row, column = self.groups.get(group), self.columns.get(queue_id)
        return UNKNOWN if row is None or column is None else int(self.committed[row, column])

    def by_queue(self, group: str, offsets: Int64s) -> dict[int, int]:
        """By queue id, the ``offsets`` of a group, ``decided_to`` or ``committed``, where there is one."""
        if group not in self.groups:
            return {}
        known = offsets[self.groups[group]].tolist()
        return {queue_id: offset for queue_id, offset in zip(self.queue_ids, known, strict=True) if offset >= 0}

    def is_absent(self, key: GroupTopic, now: BrokerOffsets) -> bool:
        """Whether the broker had offsets of a group, and has none any more in its file. False if that is not known."""
        row = self.groups.get(key[0])
        if row is None or now.committed_at is None or key in now.committed:
            return False
        return bool((self.committed[row] >= 0).any())

    def absent(self, topic: str, now: BrokerOffsets) -> list[str]:
        """The groups for which :meth:`is_absent` is true."""
        return [group for group in self.groups if self.is_absent((group, topic), now)]

    def losing(self, topic: str, now: BrokerOffsets) -> list[str]:
        """The absent groups of a topic that has queues: an operator removed their offsets, or it was created again."""
        return self.absent(topic, now) if topic in now.min_offsets else []

    @cached_property
    def is_any_beyond_end(self) -> bool:
        """Whether the broker has an offset of a group beyond the end of a queue."""
        return bool((self.committed > self.ends).any())

    @cached_property
    def groups_behind(self) -> frozenset[str]:
        """The groups whose deliveries in some queue are decided only up to an offset before its end."""
        is_behind = (self.decided_to >= 0) & (self.decided_to < self.ends)
        rows = set(np.flatnonzero(is_behind.any(axis=1)).tolist())
        return frozenset(group for group, row in self.groups.items() if row in rows)

    @cached_property
    def ends_by_queue(self) -> dict[int, int]:
        return dict(zip(self.queue_ids, self.ends.tolist(), strict=True))

    @cached_property
    def begins_by_queue(self) -> dict[int, int]:
        """``begins`` by queue id, of the queues that began again."""
        return {self.queue_ids[i]: int(self.begins[i]) for i in np.flatnonzero(self.begins).tolist()}

    @cached_property
    def columns(self) -> dict[int, int]:
        return {queue_id: column for column, queue_id in enumerate(self.queue_ids)}


NO_QUEUES = TopicOffsets.empty({}, ())
"""The offsets of a topic that is not known."""


@frozen
class OffsetsSoFar:
    """How far deliveries are decided when a night begins. ``as_of`` is that time (ms); None in a first night.

    ``last_stored``: when the last message was stored that earlier nights read (ms; None: not known). It is before
    ``as_of`` if the copy of the log was older than the rest of the snapshot. ``began_at``: by topic and queue id, when
    a queue began again (ms), if it did. ``log_start``: the physical offset at which the log began then; None if it is
    not known. ``may_have_first``: whether a queue of a topic may have had its first message then.
    """

    as_of: int | None = None
    topics: Mapping[str, TopicOffsets] = field(default_factory=dict)
    last_stored: int | None = None
    began_at: Mapping[tuple[str, int], int] = field(default_factory=dict)
    log_start: int | None = None
    may_have_first: Callable[[str, int], bool] = lambda topic, queue_id: True

    def topic_offsets(self, topic: str) -> TopicOffsets:
        return self.topics.get(topic, NO_QUEUES)

    def of(self, key: GroupTopic) -> dict[int, int]:
        """By queue id, the offset up to which a group's deliveries are decided."""
        offsets = self.topic_offsets(key[1])
        return offsets.by_queue(key[0], offsets.decided_to)

    def waiting(self, key: GroupTopic) -> dict[int, int]:
        """By queue id, the offset at which a group that does not pull goes on.

        Where the broker has an offset beyond the end of a queue (which began again, or its store was wiped), the group
        goes on there, or at the end of the queue if that is still shorter (OFFSET_OVERFLOW_BADLY).
        """
        offsets = self.topic_offsets(key[1])
        if not offsets.is_any_beyond_end:
            return self.of(key)
        ends, committed = offsets.ends_by_queue, self.committed(key)
        return self.of(key) | {queue_id: offset for queue_id, offset in committed.items() if offset > ends[queue_id]}

    def begins(self, topic: str) -> dict[int, int]:
        """By queue id, the physical offsets with which queues began again."""
        return self.topic_offsets(topic).begins_by_queue

    def committed(self, key: GroupTopic) -> dict[int, int]:
        """By queue id, the offset that the broker has for a group."""
        offsets = self.topic_offsets(key[1])
        return offsets.by_queue(key[0], offsets.committed)

    def removed(self, key: GroupTopic) -> bool:
        """Whether the broker had offsets of a group when an earlier night ended, and has none any more."""
        offsets = self.topic_offsets(key[1])
        row = offsets.groups.get(key[0])
        return row is not None and bool(offsets.committed[row].max(initial=UNKNOWN) == REMOVED)

    def are_removed(self, key: GroupTopic, now: BrokerOffsets) -> bool:
        """Whether the broker had offsets of a group in earlier nights, and has none when this night ends."""
        if key in now.committed:
            return False
        if self.removed(key) or (key[1] in now.min_offsets and self.topic_offsets(key[1]).is_absent(key, now)):
            return True
        deleted = {restart.queue_id for restart in now.restarts.get(key[1], ()) if not restart.keeps_offsets}
        committed = self.committed(key).keys()
        return bool(committed) and committed <= deleted

    def not_pulled(self, key: GroupTopic) -> dict[int, OffsetRange]:
        """By queue id, the range of entries that the group has not pulled yet."""
        offsets = self.topic_offsets(key[1])
        if key[0] not in offsets.groups_behind:
            return {}
        ends = offsets.ends_by_queue
        return {
            queue_id: (decided, ends[queue_id])
            for queue_id, decided in self.of(key).items()
            if decided < ends[queue_id]
        }


def after_night(as_of: int | None, begin: int) -> int:
    """``begin``, or the first time after the last night, whose end is ``as_of`` (ms)."""
    return begin if as_of is None else max(begin, as_of + 1)


@dataclass
class GroupProgress:
    """The progress of one group on one topic in a night.

    ``decided_to``: by queue id, the offset up to which deliveries are decided. Other queues are decided to their end,
    or if the group stopped at ``stopped_at`` (ms), up to what was stored before. ``lost``: by queue id, the number of
    entries that the broker deleted before the group could pull them. ``is_behind``: whether it pulls but does not keep
    up.
    """

    key: GroupTopic
    is_consuming: bool = False
    stopped_at: int | None = None
    decided_to: dict[int, int] = field(default_factory=dict)
    lost: dict[int, int] = field(default_factory=dict)
    is_behind: bool = False
