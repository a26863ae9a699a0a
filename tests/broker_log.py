"""A broker's log that grows message by message, in preallocated segments."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

from tests.records import entry, filler, record

SEGMENT = 1 << 14
FIRST_TIME = 1_795_000_000_000
BROKER_CONF = "brokerName=b\nenablePropertyFilter=true\nenableCalcFilterBitMap=true\nenableConsumeQueueExt=true\n"
"""A broker.conf with the filter bit map on."""
EVERY = 1000
"""Milliseconds between two messages."""


class Message(NamedTuple):
    """A message, stored at ``stored_at`` (ms)."""

    stored_at: int
    topic: str
    queue_id: int
    queue_offset: int
    properties: dict[str, str]


class BrokerLog:
    """A log to which tests append messages; :meth:`write` writes it as a store folder.

    ``messages`` are all messages; ``queues`` are the consume queue entries of each topic and queue id.
    """

    def __init__(self, first_time: int = FIRST_TIME, segment: int = SEGMENT) -> None:
        self.data = b""
        self.time = first_time
        self.segment = segment
        self.messages: list[Message] = []
        self.queues: defaultdict[tuple[str, int], list[bytes]] = defaultdict(list)

    def append(
        self,
        count: int = 1,
        topic: str = "T",
        queue_id: int = 0,
        body: bytes = b"body",
        sys_flag: int = 0,
        **properties: str,
    ) -> BrokerLog:
        """Appends messages with the same properties, and their number in the property ``n``."""
        for _ in range(count):
            number = len(self.queues[topic, queue_id])
            pairs = {"n": str(number), **properties}
            text = "".join(f"{name}\x01{value}\x02" for name, value in pairs.items()).encode()
            made = self._record(len(self.data), topic, queue_id, number, body, text, sys_flag)
            room = self.segment - len(self.data) % self.segment
            if len(made) + 8 > room:
                self.data += filler(room)
                made = self._record(len(self.data), topic, queue_id, number, body, text, sys_flag)
            self.messages.append(Message(self.time, topic, queue_id, number, pairs))
            self.queues[topic, queue_id].append(entry(len(self.data), len(made), pairs.get("TAGS")))
            self.data += made
            self.time += EVERY
        return self

    def _record(
        self, at: int, topic: str, queue_id: int, queue_offset: int, body: bytes, text: bytes, sys_flag: int
    ) -> bytes:
        return record(
            at, body=body, topic=topic.encode(), properties=text, store_timestamp=self.time, queue_id=queue_id,
            queue_offset=queue_offset, sys_flag=sys_flag,
        )  # fmt: skip

    def damage(self, number: int) -> None:
        """Overwrites the magic code of a message, by its number in ``messages``."""
        message = self.messages[number]
        place = self.queues[message.topic, message.queue_id][message.queue_offset][:8]
        at = int.from_bytes(place, "big") + 4
        self.data = self.data[:at] + b"\xff" * 4 + self.data[at + 4 :]

    def write(self, folder: Path, start: int = 0) -> Path:
        """Writes the store to ``folder``. ``start``: segments before this physical offset are left out."""
        commitlog = folder / "commitlog"
        commitlog.mkdir(parents=True, exist_ok=True)
        for file in commitlog.iterdir():
            file.unlink()
        for at in range(start, max(len(self.data), 1), self.segment):
            (commitlog / f"{at:020d}").write_bytes(self.data[at : at + self.segment].ljust(self.segment, b"\0"))
        return folder

    def write_queues(self, folder: Path) -> None:
        """Writes the consume queue files of the store, each with room for more entries."""
        for file in (folder / "consumequeue").rglob("0*"):
            if file.is_file():
                file.unlink()
        for (topic, queue_id), entries in self.queues.items():
            queue = folder / "consumequeue" / topic / str(queue_id)
            queue.mkdir(parents=True, exist_ok=True)
            (queue / f"{0:020d}").write_bytes(b"".join(entries).ljust(len(entries) * 20 + 200, b"\0"))

    def min_offsets(self, start: int) -> dict[tuple[str, int], int]:
        """The first offset of each queue, by topic and queue id, if the log begins at the physical offset ``start``."""
        places = {queue: [int.from_bytes(each[:8], "big") for each in self.queues[queue]] for queue in self.queues}
        return {queue: sum(place < start for place in each) for queue, each in places.items()}
