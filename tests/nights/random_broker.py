"""A broker with random messages, subscriptions, committed offsets, cuts of its log, and damage."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

from tests.broker_log import EVERY, FIRST_TIME, BrokerLog, Message

GROUPS, TOPICS, QUEUES = ("a", "b", "c", "d"), ("T", "U"), (0, 1)
REFUSED = "n > '3'"
EXPRESSIONS = (REFUSED, "n > 3", "n IS NOT NULL", "n IN ('1', '2', '5', '8', '13')", "k = 'x'", "NOT (k = 'y')")
TAGS = ("*", "p", "q || p", "z")
LAST = 4
SEGMENT = 1 << 10


class Restart(NamedTuple):
    """A queue began again before the message that was stored at ``at`` (ms). ``is_deleted``: with its topic."""

    at: int
    topic: str
    queue_id: int
    is_deleted: bool


class Night(NamedTuple):
    """What happened in a night. ``committed``: by group and topic, then by queue id, saved at ``committed_at`` (ms).

    ``min_offsets``: the first offset of each queue, by topic and queue id.
    """

    messages: Sequence[Message]
    events: Sequence[dict[str, Any]]
    committed: dict[tuple[str, str], dict[int, int]]
    committed_at: int
    min_offsets: dict[tuple[str, int], int]
    restarts: Sequence[Restart] = ()


class Trouble(Enum):
    """What happens to the log of a random broker."""

    NONE = "none"
    CUTS = "cuts"
    """The broker may lose its last messages."""
    DAMAGES = "damages"
    """In each night, one record may be damaged until the next night."""
    DELETES = "deletes"
    """The broker may delete its oldest segments."""
    RECREATES = "recreates"
    """A topic may be deleted and created again."""
    EXPIRES = "expires"
    """The broker may delete its oldest segments, and an operator may remove queues that have no message then."""


class RandomBroker:
    """Writes ``store``, ``events`` and ``config`` as they are at the end of each night."""

    def __init__(self, seed: int, folder: Path) -> None:
        self._random = random.Random(seed)
        self._log = BrokerLog(segment=SEGMENT)
        self._start = 0
        self._ends_of_nights: list[BrokerLog] = []
        self._events: list[dict[str, Any]] = []
        self._last = FIRST_TIME - 5 * EVERY
        self._offsets: dict[str, dict[str, int]] = {}
        self._expired: set[tuple[str, int]] = set()
        self.store, self.events, self.config = folder / "store", folder / "events.jsonl", folder / "broker.conf"
        bit_map = "enableCalcFilterBitMap=true\nenableConsumeQueueExt=true\n" if self._random.random() < 0.7 else ""
        self.config.write_text("brokerName=b\nenablePropertyFilter=true\n" + bit_map)
        self.has_queues = self._random.random() < 0.6

    def next_night(self, trouble: Trouble) -> Night:
        messages, events = len(self._log.messages), len(self._events)
        self._restarts: list[Restart] = []
        if trouble in (Trouble.DELETES, Trouble.EXPIRES) and self._random.random() < 0.5:
            self._start = self._random.randint(self._start // SEGMENT, len(self._log.data) // SEGMENT) * SEGMENT
        if trouble is Trouble.CUTS and self._ends_of_nights and self._random.random() < 0.3:
            time = self._log.time
            self._log = copy.deepcopy(self._random.choice(self._ends_of_nights))
            self._log.time = time
        moves = [self._append, self._append, self._subscribe, self._subscribe, self._leave, self._reset]
        moves += {Trouble.RECREATES: [self._recreate], Trouble.EXPIRES: [self._expire]}.get(trouble, [])
        for _ in range(self._random.randint(1, 12)):
            self._random.choice(moves)()
        self._append()
        self._ends_of_nights.append(copy.deepcopy(self._log))
        self._commit_offsets()
        committed_at = self._log.time + self._random.choice((0, 5_000, 40_000))
        self._log.write(self.store, self._start)
        if self.has_queues:
            self._log.write_queues(self.store)
        self._log.time = committed_at + EVERY
        if trouble is Trouble.DAMAGES and self._random.random() < 0.6:
            self._damage()
        self.events.write_text("\n".join(map(json.dumps, sorted(self._events, key=lambda event: event["at"]))))
        (self.store / "config").mkdir(exist_ok=True)
        offsets = {"offsetTable": self._offsets, "dataVersion": {"timestamp": committed_at}}
        (self.store / "config" / "consumerOffset.json").write_text(json.dumps(offsets))
        committed = {
            (group, topic): {int(queue_id): offset for queue_id, offset in queues.items()}
            for (topic, group), queues in ((name.split("@"), queues) for name, queues in self._offsets.items())
        }
        min_offsets = self._log.min_offsets(self._start)
        new = self._log.messages[messages:], self._events[events:]
        return Night(*new, committed, committed_at, min_offsets, self._restarts)

    def _append(self) -> None:
        tags: dict[str, Any] = {"TAGS": self._random.choice("pq")} if self._random.random() < 0.7 else {}
        queue = self._random.choice(TOPICS), self._random.choice(QUEUES)
        self._log.append(self._random.randint(1, 6), *queue, k=self._random.choice("xyz"), **tags)
        self._last = max(self._last, self._log.time - EVERY)

    def _recreate(self) -> None:
        """A topic loses its queues, and the groups' offsets. Its next message follows some time later.

        All of its queues are older than the last message of any of them: others might have begun after that.
        """
        topic = self._random.choice(TOPICS)
        known = [queue for queue in self._log.queues if queue[0] == topic]
        firsts, lasts = ([self._log.queues[queue][at] for queue in known] for at in (0, -1))
        if not known or max(firsts) > min(lasts):
            return
        for queue in known:
            del self._log.queues[queue]
        for group in GROUPS:
            self._offsets.pop(f"{topic}@{group}", None)
        for move in self._random.sample([self._subscribe, self._subscribe, self._leave, self._reset], 2):
            move()
        self._restarts += [Restart(self._log.time, *queue, is_deleted=True) for queue in known]
        self._log.append(self._random.randint(1, 6), *self._random.choice(known), k=self._random.choice("xyz"))
        self._last = max(self._last, self._log.time - EVERY)

    def _expire(self) -> None:
        """A queue whose messages are all deleted is removed. The groups keep their offsets."""
        firsts = self._log.min_offsets(self._start)
        expired = [queue for queue, entries in self._log.queues.items() if entries and firsts[queue] == len(entries)]
        if not expired:
            return
        queue = self._random.choice(expired)
        del self._log.queues[queue]
        self._expired.add(queue)
        self._restarts.append(Restart(self._log.time, *queue, is_deleted=False))
        self._log.append(self._random.randint(1, 6), *queue, k=self._random.choice("xyz"))
        self._last = max(self._last, self._log.time - EVERY)

    def _event(self, op: str, **more: Any) -> None:
        self._last = max(self._log.time - self._random.randint(0, EVERY - 1), self._last + 1)
        self._log.time = max(self._log.time, self._last + 1)
        self._events.append({"at": self._last, "op": op, "group": self._random.choice(GROUPS), **more})

    def _subscribe(self) -> None:
        type_, expressions = self._random.choice((("SQL92", EXPRESSIONS), ("TAG", TAGS)))
        self._event(
            "register", topic=self._random.choice(TOPICS), type=type_, expression=self._random.choice(expressions),
            consume_from=self._random.choice(("first", "last", self._log.time - self._random.randint(-5, 40) * EVERY)),
        )  # fmt: skip

    def _leave(self) -> None:
        self._event("unregister")

    def _reset(self) -> None:
        if self._random.random() < 0.3:
            to = self._log.time - self._random.randint(-2, 30) * EVERY
            self._event("reset_offset", topic=self._random.choice(TOPICS), to=to)
            return
        queue = self._random.choice(TOPICS), self._random.choice(QUEUES)
        offset = self._random.randint(0, len(self._log.queues.get(queue, ())))
        self._event("reset_offset", topic=queue[0], queue_id=queue[1], offset=offset)

    def _commit_offsets(self) -> None:
        for queue, entries in self._log.queues.items():
            end = len(entries)
            for group in GROUPS:
                if self._random.random() < 0.1:
                    self._offsets.pop(f"{queue[0]}@{group}", None)
                    continue
                known = self._offsets.setdefault(f"{queue[0]}@{group}", {})
                if self._random.random() < 0.2:
                    known[str(queue[1])] = self._random.randint(0, end)
                elif str(queue[1]) in known and queue not in self._expired:
                    known[str(queue[1])] = min(end, known[str(queue[1])])

        for restart in self._restarts:
            # Clients commit an offset in each queue that they have, even if it is empty.
            for group in GROUPS:
                if known := self._offsets.pop(f"{restart.topic}@{group}", {}):
                    self._offsets[f"{restart.topic}@{group}"] = {str(restart.queue_id): 0, **known}

    def _damage(self) -> None:
        """Damages a record, but not the first one: another first record means another log.

        Nor one of the last: a night leaves a damaged end to the next run, since it may be half written.
        """
        records = _records(self._log.data)[1:-LAST]
        if not records:
            return
        start = self._random.choice(records)
        kinds: tuple[Callable[[int], tuple[int, bytes]], ...] = (_magic, _size, self._body)
        at, octets = self._random.choice(kinds)(start)
        path = self.store / "commitlog" / f"{at // SEGMENT * SEGMENT:020d}"
        data = bytearray(path.read_bytes())
        data[at % SEGMENT : at % SEGMENT + len(octets)] = octets
        path.write_bytes(bytes(data))

    def _body(self, start: int) -> tuple[int, bytes]:
        return self._log.data.index(b"body", start), b"x"


def _magic(start: int) -> tuple[int, bytes]:
    return start + 4, b"\0\0\0\0"


def _size(start: int) -> tuple[int, bytes]:
    return start, b"\0\0\0\1"


def _records(data: bytes) -> list[int]:
    """Where the records of a log begin."""
    begins, at = [], 0
    while at < len(data):
        if data[at + 4 : at + 8] == bytes.fromhex("daa320a7"):
            begins.append(at)
        at += int.from_bytes(data[at : at + 4], "big")
    return begins
