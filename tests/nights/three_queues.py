"""A night on three queues, of a group whose clients have filters of their own."""

from __future__ import annotations

import json
from pathlib import Path

from jobs import explain, nightly
from tests.broker_log import BrokerLog
from tests.nights import commands
from tests.nights.commands import Ended, Run
from tests.nights.growing_broker import BEFORE


def heartbeat(client: str, version: int, tags: str, topic: str = "T", **more: str) -> str:
    subscription = {"topic": topic, "expression": tags, "sub_version": version, **more}
    event = {"at": BEFORE, "op": "heartbeat", "group": "cg", "client_id": client, "subscriptions": [subscription]}
    return json.dumps(event)


def night(folder: Path, *heartbeats: str, conf: str = "") -> None:
    """A night in ``folder``: the queues 0 to 2 with a message each of the tags shipped, paid and lost."""
    log = BrokerLog()
    for queue_id in range(3):
        for tag in ("shipped", "paid", "lost"):
            log.append(queue_id=queue_id, TAGS=tag, KEYS=f"{tag}-{queue_id}")
    log.write_queues(log.write(folder / "store"))
    (folder / "events.jsonl").write_text("\n".join(heartbeats))
    (folder / "broker.conf").write_text(f"brokerName=b\n{conf}")
    nightly.main(commands.night(folder / "w", folder / "store", folder / "events.jsonl", folder / "broker.conf"))


def explained(run: Run, folder: Path, queue_id: int, offset: int, *more: object) -> Ended:
    place = ("--topic", "T", "--queue", queue_id, "--offset", offset)
    return run(explain, "--warehouse", folder / "w", "--group", "cg", *place, *more)
