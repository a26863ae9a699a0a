"""A broker whose log grows night by night, and its subscription events."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from jobs import audit, nightly
from tests.broker_log import BROKER_CONF, EVERY, FIRST_TIME, BrokerLog
from tests.nights.commands import Ended, Run, received, without_runs

FACTS = ("commitlog", "consumequeue", "deliveries", "consumer_offsets", "current_offsets", "subscriptions")


def after(messages: int) -> int:
    """A time between two messages."""
    return FIRST_TIME + messages * EVERY - EVERY // 2


BEFORE = FIRST_TIME - 1000
DAMAGED = 5
"""The number of the damaged message among the ten of the first night."""
MINUTE = 60
"""Messages in a minute."""
LOW, HIGH = "n IN ('0','1','2','3','4')", "n IN ('5','6','7','8','9','15')"


def event(at: int, op: str, group: str, **more: Any) -> str:
    return json.dumps({"at": at, "op": op, "group": group, "topic": "T", **more})


def sql(at: int, group: str, expression: str, **more: Any) -> str:
    return event(at, "register", group, type="SQL92", expression=expression, consume_from="first", **more)


class GrowingBroker:
    """A broker whose log grows by ten messages a night. A test writes its subscription file."""

    def __init__(self, run: Run, folder: Path) -> None:
        self.run = run
        self.folder = folder
        self.log = BrokerLog()
        (folder / "broker.conf").write_text(BROKER_CONF)

    def grow(self) -> None:
        self.log.append(10)
        self.log.write(self.folder / "store")

    def commit(self, saved_at: int | None = None, **offsets: int) -> None:
        """Saves the committed offset of each group in queue 0, at ``saved_at`` (ms; None: the file does not say it)."""
        document: dict[str, Any] = {"offsetTable": {f"T@{group}": {"0": offset} for group, offset in offsets.items()}}
        if saved_at is not None:
            document["dataVersion"] = {"timestamp": saved_at}
        config = self.folder / "store" / "config"
        config.mkdir(exist_ok=True)
        (config / "consumerOffset.json").write_text(json.dumps(document))

    def night(self, lines: list[str] | str, *more: object, name: str = "events.jsonl", warehouse: str = "w") -> Ended:
        (self.folder / name).write_text(lines if isinstance(lines, str) else "\n".join(lines), "utf-8")
        return self.run(
            nightly, "--store", self.folder / "store", "--subscriptions", self.folder / name,
            "--broker-config", self.folder / "broker.conf", "--warehouse", self.folder / warehouse, *more,
        )  # fmt: skip

    def received(self, group: str, warehouse: str = "w") -> list[int]:
        return received(self.folder / warehouse, group)

    def passes_audits(self) -> bool:
        return self.run(audit, "--warehouse", self.folder / "w", "--all").code == 0

    def failed_audits(self, *more: object) -> list[str]:
        """The names of the audits that fail with an error and are no consequence of another one."""
        ended = self.run(audit, "--warehouse", self.folder / "w", "--json", *more)
        assert ended.code in (0, 3), ended.error
        rows = [json.loads(line) for line in ended.out.splitlines()]
        return [row["audit"] for row in rows if row["severity"] == "error" and row["cause"] is None]

    def facts(self, warehouse: str = "w") -> dict[str, Any]:
        return without_runs(self.folder / warehouse, FACTS)


def pop(
    broker: GrowingBroker,
    group: str,
    *queue_offsets: int,
    start: int | None = None,
    topic: str = "T",
    acknowledges: bool = True,
) -> int:
    """Appends the record of a pop from queue 0, which begins at ``start`` (None: its first message).

    Returns the time of the pop (ms).
    """
    at, begin = broker.log.time, queue_offsets[0] if start is None else start
    same = {"bn": "b", "c": group, "t": topic, "q": 0, "so": begin, "pt": at}
    distances = [offset - begin for offset in queue_offsets]
    bodies = [("ck", same | {"d": distances, "n": len(distances), "it": 60_000, "bm": 0, "ro": 0})]
    bodies += [("ack", same | {"ao": offset}) for offset in (queue_offsets if acknowledges else ())]
    for tag, body in bodies:
        text = json.dumps(body, separators=(",", ":")).encode()
        broker.log.append(topic="rmq_sys_wheel_timer", body=text, TAGS=tag, REAL_TOPIC="rmq_sys_REVIVE_LOG_c")
    broker.log.write(broker.folder / "store")
    return at


def night_of_a_slow_group(broker: GrowingBroker, events: list[str], committed: int) -> None:
    """A night whose snapshot is of a minute after its last message."""
    broker.log.write_queues(broker.folder / "store")
    broker.log.time += MINUTE * EVERY
    broker.commit(saved_at=broker.log.time - 1, cg=committed)
    assert broker.night(events).code == 0


def write_damaged(broker: GrowingBroker, *starts: int, octets: bytes = b"\0\0\0\0") -> None:
    """Writes the store with other octets at some physical offsets."""
    whole = broker.log.data
    for start in starts:
        broker.log.data = broker.log.data[:start] + octets + broker.log.data[start + len(octets) :]
    broker.log.write(broker.folder / "store")
    broker.log.data = whole


def damage(broker: GrowingBroker, at: int, octets: bytes) -> None:
    """Writes other octets to the store, at a place in the record of the damaged message."""
    write_damaged(broker, DAMAGED * (len(broker.log.data) // 10) + at, octets=octets)


def damage_magic(broker: GrowingBroker) -> None:
    damage(broker, 4, b"\0\0\0\0")


def save(broker: GrowingBroker, **committed: int) -> None:
    """Saves the log, the queues and the offsets as they are now."""
    broker.log.write(broker.folder / "store")
    broker.log.write_queues(broker.folder / "store")
    broker.commit(broker.log.time, **committed)


def delete_topic(broker: GrowingBroker, messages: int) -> None:
    """Deletes the topic, and creates it again with some messages."""
    broker.log.queues.clear()
    broker.log.append(messages)
