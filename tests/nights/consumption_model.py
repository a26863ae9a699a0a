"""The rules of docs/CONSUMPTION.md, one message at a time: a slow model of what groups receive in a broker's nights.

It knows one client a group, and no filter bit map.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import inf
from typing import Any, NamedTuple

from filtering.sql92 import compile
from tests.broker_log import Message
from tests.nights.random_broker import GROUPS, QUEUES, REFUSED, Restart

COMMIT_DELAY = 30_000
Key = tuple[str, str]
"""A consumer group and a topic."""


class Pull(NamedTuple):
    """A message that a group pulled under an expression, and received if it ``matches``.

    ``stored_at`` names the message (ms). ``part`` numbers the times between two resets of its queue.
    """

    group: str
    topic: str
    queue_id: int
    queue_offset: int
    available_at: int
    stored_at: int
    expression: str
    matches: bool
    part: int


@dataclass
class Group:
    """``offsets``: where the group goes on, by queue id. ``reset``: queues that were reset while it did not pull.

    ``stopped_at``: when it left in this night; ``gone_on``: the queues in which it was behind then. ``known``: the
    queues of which an earlier snapshot had an offset. ``has_offsets``: whether the broker has offsets of the group;
    None: it never had. ``begins_anew``: it has none any more, and the group has not pulled since then.
    """

    subscription: dict[str, Any] | None = None
    offsets: dict[int, int] = field(default_factory=dict)
    reset: set[int] = field(default_factory=set)
    repeated: set[int] = field(default_factory=set)
    parts: Counter[int] = field(default_factory=Counter)
    is_online: bool = False
    was_online: bool = False
    behind: set[int] = field(default_factory=set)
    since: int = 0
    stopped_at: float = inf
    gone_on: set[int] = field(default_factory=set)
    known: set[int] = field(default_factory=set)
    consume_from: Any = "last"
    has_offsets: bool | None = None
    begins_anew: bool = False

    @property
    def pulls(self) -> bool:
        return self.is_online and self.subscription is not None and not _is_refused(self.subscription)


class Model:
    """A broker with its consumers. :meth:`night` adds what happened in a night; ``pulls`` are all of them so far."""

    def __init__(self) -> None:
        self.pulls: list[Pull] = []
        self._queues: defaultdict[str, defaultdict[int, list[Message]]] = defaultdict(lambda: defaultdict(list))
        self._groups: defaultdict[Key, Group] = defaultdict(Group)
        self._tonight: list[Pull] = []
        self._as_of = 0
        self._min_offsets: Mapping[tuple[str, int], int] = {}
        self._committed: Mapping[Key, Mapping[int, int]] = {}
        self._committed_at = 0
        self._decided: dict[Key, dict[int, int]] = {}
        self._moves: Sequence[tuple[int, str, str, int]] = ()
        self._will_expire: set[tuple[str, int]] = set()

    def night(
        self,
        messages: Sequence[Message],
        events: Sequence[dict[str, Any]],
        committed: Mapping[Key, Mapping[int, int]],
        committed_at: int,
        min_offsets: Mapping[tuple[str, int], int],
        restarts: Sequence[Restart] = (),
    ) -> None:
        """Like ``Night``."""
        self._min_offsets, self._committed, self._committed_at = min_offsets, committed, committed_at
        self._will_expire = {(each.topic, each.queue_id) for each in restarts if not each.is_deleted}
        self._decided = {key: dict(group.offsets) for key, group in self._groups.items() if group.was_online}
        self._moves = [
            (event["at"], event["group"], event["topic"], queue_id)
            for event in events
            if event["op"] == "reset_offset"
            for queue_id in ([event["queue_id"]] if "queue_id" in event else QUEUES)
        ]
        self._moves += [(each.at, group, each.topic, each.queue_id) for each in restarts for group in GROUPS]
        self._tonight = []
        for key, group in self._groups.items():
            group.repeated, group.since, group.parts = set(), self._as_of, Counter()
            group.stopped_at, group.gone_on = inf, set()
            ends = {queue_id: len(queue) for queue_id, queue in self._queues[key[1]].items()}
            group.behind = {queue_id for queue_id, end in ends.items() if group.offsets.get(queue_id, 0) < end}
            group.begins_anew = group.has_offsets is False and not group.pulls
            if group.begins_anew:
                group.offsets = {}
            self._pull(key)
        happens = {"register": self._register, "unregister": self._unregister, "reset_offset": self._reset}
        happened: list[tuple[int, int, dict[str, Any] | Restart | Message]] = [
            *((event["at"], 0, event) for event in events),
            *((each.at, 1, each) for each in restarts),
            *((each.stored_at, 2, each) for each in messages),
        ]
        for at, _, each in sorted(happened, key=lambda item: item[:2]):
            if isinstance(each, Message):
                self._store(each)
            elif isinstance(each, Restart):
                self._begin_again(each)
            else:
                happens[each["op"]](at, each)
        for key, offsets in committed.items():
            self._believe(key, {**self._uncommitted(key), **offsets})
        for key, group in self._groups.items():
            self._note_removed(key, committed.get(key, {}))
            self._note_known(key, committed.get(key, {}), restarts)
            if not group.pulls:
                group.reset = set()
        self.pulls += self._tonight
        self._as_of = max(messages[-1].stored_at, committed_at)

    def waits(self, group: str, message: Message) -> bool:
        """Whether the group has yet to pull a message, for the first time or again."""
        queue = self._queues[message.topic][message.queue_id]
        is_there = message.queue_offset < len(queue) and queue[message.queue_offset] is message
        return is_there and message.queue_offset >= self._groups[group, message.topic].offsets.get(message.queue_id, 0)

    def _store(self, message: Message) -> None:
        self._queues[message.topic][message.queue_id].append(message)
        for key in self._groups:
            if key[1] == message.topic:
                self._pull(key)

    def _register(self, at: int, event: dict[str, Any]) -> None:
        key = event["group"], event["topic"]
        group = self._groups[key]
        pulled = group.pulls
        if not group.was_online:
            group.consume_from, group.begins_anew = event["consume_from"], False
            self._take_first_offsets(key)
        if pulled and _is_refused(event):
            self._stop(key, at)
        group.subscription, group.is_online, group.was_online = event, True, True
        if group.pulls and not pulled:
            if group.begins_anew:
                group.begins_anew = False
                self._take_first_offsets(key)
            for queue_id in group.offsets:
                first = self._min_offset(key[1], queue_id)
                if group.offsets[queue_id] < first:
                    group.offsets[queue_id] = first
                    if queue_id not in group.reset:
                        self._decided.setdefault(key, {})[queue_id] = first
            self._start(group, at)
            self._pull(key, at)

    def _unregister(self, at: int, event: dict[str, Any]) -> None:
        for key, group in self._groups.items():
            if key[0] == event["group"]:
                if group.pulls:
                    self._stop(key, at)
                group.is_online = False

    def _reset(self, at: int, event: dict[str, Any]) -> None:
        if "to" in event:
            for queue_id, queue in self._queues[event["topic"]].items():
                first = next((each.queue_offset for each in queue if each.stored_at >= event["to"]), len(queue))
                if queue:
                    self._set_offset(at, (event["group"], event["topic"]), queue_id, first)
        else:
            self._set_offset(at, (event["group"], event["topic"]), event["queue_id"], event["offset"])

    def _set_offset(self, at: int, key: Key, queue_id: int, offset: int) -> None:
        group = self._groups[key]
        group.offsets[queue_id] = offset
        if group.pulls:
            group.offsets[queue_id] = max(offset, self._min_offset(key[1], queue_id))
            group.since = at
            group.behind.discard(queue_id)
            group.repeated.add(queue_id)
            group.parts[queue_id] += 1
            self._pull(key, at)
        else:
            group.reset.add(queue_id)

    def _min_offset(self, topic: str, queue_id: int) -> int:
        """The first entry of a queue. None is left in one that will expire in the night."""
        if (topic, queue_id) in self._will_expire:
            return len(self._queues[topic][queue_id])
        return self._min_offsets.get((topic, queue_id), 0)

    def _begin_again(self, restart: Restart) -> None:
        """A queue is empty again. A group without an offset will begin at its first message."""
        queue_id, end = restart.queue_id, len(self._queues[restart.topic][restart.queue_id])
        self._queues[restart.topic][queue_id] = []
        self._will_expire.discard((restart.topic, queue_id))
        for key, group in self._groups.items():
            if key[1] != restart.topic:
                continue
            group.parts[queue_id] += 1
            group.repeated.add(queue_id)
            group.behind.discard(queue_id)
            if restart.is_deleted:
                group.reset.discard(queue_id)
            if group.pulls or (restart.is_deleted and group.was_online):
                group.offsets[queue_id] = 0
            elif restart.is_deleted:
                group.offsets.pop(queue_id, None)
            elif group.was_online and not group.begins_anew:
                group.offsets.setdefault(queue_id, end)

    def _note_known(self, key: Key, committed: Mapping[int, int], restarts: Sequence[Restart]) -> None:
        """Which queues the broker has, or had, an offset of."""
        group = self._groups[key]
        group.known -= {each.queue_id for each in restarts if each.topic == key[1] and each.is_deleted}
        if committed:
            group.known |= {queue_id for queue_id in committed if self._queues[key[1]][queue_id]}
        elif any(topic == key[1] for topic, _ in self._min_offsets):
            group.known = set()

    def _note_removed(self, key: Key, committed: Mapping[int, int]) -> None:
        """The broker may have no offset any more: a group that does not pull will begin as at its first start."""
        group = self._groups[key]
        if any(self._queues[key[1]][queue_id] for queue_id in committed):
            group.has_offsets = True
        elif group.has_offsets is not None:
            group.has_offsets = False
            if not group.pulls:
                group.offsets = {}
                if group.was_online:
                    self._take_first_offsets(key)

    def _take_first_offsets(self, key: Key) -> None:
        """A group without an offset begins at the first message; in a queue that lost it, where the group asks for."""
        for queue_id in [queue_id for topic, queue_id in self._min_offsets if topic == key[1]]:
            self._groups[key].offsets.setdefault(queue_id, self._first_offset(key, queue_id))

    def _first_offset(self, key: Key, queue_id: int) -> int:
        topic, consume_from = key[1], self._groups[key].consume_from
        first, queue = self._min_offsets.get((topic, queue_id), 0), self._queues[topic][queue_id]
        if consume_from == "first" or first == 0 or topic.startswith("%RETRY%"):
            return first
        since = inf if consume_from == "last" else consume_from
        return next((each.queue_offset for each in queue[first:] if each.stored_at >= since), len(queue))

    def _start(self, group: Group, at: int) -> None:
        group.since = at
        group.repeated |= group.reset
        for queue_id in group.reset:
            group.parts[queue_id] += 1
        group.reset, group.behind = set(), set()

    def _stop(self, key: Key, at: int) -> None:
        """The group was behind if it has not even committed later what was old when it left."""
        group = self._groups[key]
        group.stopped_at, group.gone_on = at, set()
        for queue_id, offset in {**self._uncommitted(key), **self._committed.get(key, {})}.items():
            moves_later = any(move >= at and queue_of == [*key, queue_id] for move, *queue_of in self._moves)
            queue = self._queues[key[1]][queue_id]
            if not moves_later and offset < len(queue) and self._is_behind(key, queue_id, queue[offset].stored_at, at):
                self._go_back(key, queue_id, offset)
                group.gone_on.add(queue_id)

    def _uncommitted(self, key: Key) -> dict[int, int]:
        """Where the group would begin in queues of which it has committed no offset, if it has in others."""
        committed, group = self._committed.get(key, {}), self._groups[key]
        if not group.was_online or not any(committed.values()):
            return {}
        begins = {}
        for queue_id, queue in self._queues[key[1]].items():
            is_moved = any(queue_of == [*key, queue_id] for _, *queue_of in self._moves)
            first = self._min_offsets.get((key[1], queue_id), 0)
            is_new = first < len(queue) and not is_moved and queue_id not in committed.keys() | group.known
            if is_new and (first == 0 or group.consume_from != "last"):
                decided_to = self._decided.get(key, {}).get(queue_id, 0)
                begins[queue_id] = max(self._first_offset(key, queue_id), decided_to)
        return begins

    def _pull(self, key: Key, at: int | None = None) -> None:
        """The group pulls all that it has not pulled yet, at ``at`` or when each was stored."""
        group = self._groups[key]
        if not group.pulls:
            return
        assert group.subscription is not None
        for queue_id, queue in self._queues[key[1]].items():
            for message in queue[group.offsets.get(queue_id, 0) :]:
                available_at = message.stored_at if at is None else at
                matches = _matches(group.subscription, message.properties)
                place = queue_id, message.queue_offset, available_at, message.stored_at
                expression = group.subscription["expression"]
                self._tonight.append(Pull(*key, *place, expression, matches, group.parts[queue_id]))
            group.offsets[queue_id] = len(queue)

    def _believe(self, key: Key, committed: Mapping[int, int]) -> None:
        """Corrects where the group stands by its committed offsets. A group that pulls may not have committed yet."""
        group = self._groups[key]
        for queue_id, offset in committed.items():
            queue = self._queues[key[1]][queue_id]
            if group.pulls:
                stored_at = queue[offset].stored_at if offset < len(queue) else self._committed_at
                if self._is_behind(key, queue_id, stored_at, self._committed_at):
                    self._go_back(key, queue_id, offset)
            elif queue_id in self._committed[key] or (
                group.stopped_at <= self._committed_at and queue_id not in group.gone_on | group.reset
            ):
                group.offsets[queue_id] = offset
                if queue_id not in group.reset and group.was_online:
                    self._take_back(key, queue_id)

    def _is_behind(self, key: Key, queue_id: int, stored_at: int, at: int) -> bool:
        """Whether the group, which pulled until ``at``, should have committed what was stored at ``stored_at``."""
        group = self._groups[key]
        since = 0 if queue_id in group.behind else group.since
        return max(stored_at, since) < min(at, self._committed_at) - COMMIT_DELAY

    def _go_back(self, key: Key, queue_id: int, offset: int) -> None:
        """The group is at ``offset``, or where the night before left it."""
        group = self._groups[key]
        decided_to = 0 if queue_id in group.repeated else self._decided.get(key, {}).get(queue_id, 0)
        group.offsets[queue_id] = max(offset, decided_to)
        self._take_back(key, queue_id)

    def _take_back(self, key: Key, queue_id: int) -> None:
        """What the group pulled since the queue's last reset, it only pulled up to its offset."""
        group = self._groups[key]
        self._tonight = [
            each
            for each in self._tonight
            if (each.group, each.topic, each.queue_id, each.part) != (*key, queue_id, group.parts[queue_id])
            or each.queue_offset < group.offsets[queue_id]
        ]


_compiled = cache(compile)


def _is_refused(subscription: dict[str, Any]) -> bool:
    return (subscription["type"], subscription["expression"]) == ("SQL92", REFUSED)


def _matches(subscription: dict[str, Any], properties: dict[str, str]) -> bool:
    if subscription["type"] == "SQL92":
        return _compiled(subscription["expression"]).evaluate(properties) is True
    tags = subscription["expression"].split("||")
    return tags == ["*"] or properties.get("TAGS") in [tag.strip() for tag in tags]
