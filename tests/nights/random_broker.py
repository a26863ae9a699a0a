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


class Night(NamedTuple):
    """What happened in a night. ``committed``: by group and topic, then by queue id, saved at ``committed_at`` (ms).

    ``min_offsets``: the first offset of each queue, by topic and queue id.
    """

    messages: Sequence[Message]
    events: Sequence[dict[str, Any]]
    committed: dict[tuple[str, str], dict[int, int]]
    committed_at: int
    min_offsets: dict[tuple[str, int], int]


class Trouble(Enum):
    """What happens to the log of a random broker."""

    NONE = "none"
    CUTS = "cuts"
    """The broker may lose its last messages."""
    DAMAGES = "damages"
    """In each night, one record may be damaged until the next night."""
    DELETES = "deletes"
    """The broker may delete its oldest segments."""


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
        self.store, self.events, self.config = folder / "store", folder / "events.jsonl", folder / "broker.conf"
        bit_map = "enableCalcFilterBitMap=true\nenableConsumeQueueExt=true\n" if self._random.random() < 0.7 else ""
        self.config.write_text("brokerName=b\nenablePropertyFilter=true\n" + bit_map)
        self.has_queues = self._random.random() < 0.6

    def next_night(self, trouble: Trouble) -> Night:
        messages, events = len(self._log.messages), len(self._events)
        if trouble is Trouble.DELETES and self._random.random() < 0.5:
            self._start = self._random.randint(self._start // SEGMENT, len(self._log.data) // SEGMENT) * SEGMENT
        if trouble is Trouble.CUTS and self._ends_of_nights and self._random.random() < 0.3:
            time = self._log.time
            self._log = copy.deepcopy(self._random.choice(self._ends_of_nights))
            self._log.time = time
        for _ in range(self._random.randint(1, 12)):
            self._random.choice(
                (self._append, self._append, self._subscribe, self._subscribe, self._leave, self._reset)
            )()
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
        return Night(self._log.messages[messages:], self._events[events:], committed, committed_at, min_offsets)

    def _append(self) -> None:
        tags = {"TAGS": self._random.choice("pq")} if self._random.random() < 0.7 else {}
        queue = self._random.choice(TOPICS), self._random.choice(QUEUES)
        self._log.append(self._random.randint(1, 6), *queue, k=self._random.choice("xyz"), **tags)
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
        queue = self._random.choice(TOPICS), self._random.choice(QUEUES)
        offset = self._random.randint(0, len(self._log.queues[queue]))
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
                elif str(queue[1]) in known:
                    known[str(queue[1])] = min(end, known[str(queue[1])])

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
    found, at = [], 0
    while at < len(data):
        if data[at + 4 : at + 8] == bytes.fromhex("daa320a7"):
            found.append(at)
        at += int.from_bytes(data[at : at + 4], "big")
    return found
