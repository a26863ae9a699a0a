"""A night on a log of which a third is the broker's record of pops, compared with one on as many bytes of messages.

Each pop hands out one message, and is acknowledged. The broker writes both twice: to its timer, and when they are due.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.broker_store import (
    BROKER,
    FIRST_STORE_TIMESTAMP,
    MESSAGES_A_MILLISECOND,
    MESSAGES_AT_ONCE,
    QUEUES,
    TOPICS,
    StoreWriter,
)
from benchmarks.night_files import night_options, write_night_files
from benchmarks.processes import NightProcess
from filtering.names import REVIVE_TOPIC_PREFIX, TIMER_TOPIC
from schemas.delta.warehouse import Warehouse
from schemas.tables import POPS

REVIVE_TOPIC = f"{REVIVE_TOPIC_PREFIX}cluster"
GROUPS = 200
POPS_OF_A_GROUP = 6
"""For each MESSAGES_AT_ONCE messages. With 200 groups, the record is then a third of all messages."""
INVISIBLE_TIME = 60_000


class PopWriter:
    """Appends messages, and pops of ``groups``, each with its topic, that read a queue each."""

    def __init__(self, folder: Path, groups: Sequence[tuple[str, str]]) -> None:
        self.store = StoreWriter(folder)
        self._groups = groups
        self._next = [0] * len(groups)

    def append(self, messages: int) -> None:
        for _ in range(0, messages, MESSAGES_AT_ONCE):
            self.store.append(MESSAGES_AT_ONCE)
            self._append_pops()

    def _append_pops(self) -> None:
        end = self.store.messages // len(TOPICS) // QUEUES
        at = FIRST_STORE_TIMESTAMP + self.store.messages // MESSAGES_A_MILLISECOND
        checkpoints, acks = [], []
        for number, ((group, topic), begin) in enumerate(zip(self._groups, self._next, strict=True)):
            step = (end - begin) // POPS_OF_A_GROUP
            for start in range(begin, begin + step * POPS_OF_A_GROUP, step):
                queue_id = number // len(TOPICS) % QUEUES
                place = {"bn": BROKER, "c": group, "pt": at, "q": queue_id, "so": start, "t": topic}
                checkpoint = {"bm": 0, "d": [step - 1], "it": INVISIBLE_TIME, "n": 1, "ro": 0, "sp": False}
                key = f"{topic}@{queue_id}@{{}}@{group}@{at}@{BROKER}@"
                revive = {"reviveTime": at + INVISIBLE_TIME}
                checkpoints.append((checkpoint | place | revive, key.format(start) + "ck"))
                acks.append(({"ao": start + step - 1} | place, key.format(start + step - 1) + "ack"))
            self._next[number] = begin + step * POPS_OF_A_GROUP
        for topic in (TIMER_TOPIC, REVIVE_TOPIC):
            for tag, records in (("ck", checkpoints), ("ack", acks)):
                bodies = [json.dumps(body, separators=(",", ":"), sort_keys=True).encode() for body, _ in records]
                self.store.append_to(topic, bodies, [_properties(tag, key) for _, key in records])


def _properties(tag: str, key: str) -> str:
    texts = {"TIMER_OUT_MS": "1", "UNIQ_KEY": key, "TAGS": tag, "REAL_TOPIC": REVIVE_TOPIC, "REAL_QID": "0"}
    return "".join(f"{name}\1{text}\2" for name, text in texts.items())


def measure_pops(folder: Path, messages: int, rounds: int) -> dict[str, Any]:
    """Seconds of warm nights on a log with pops, and on one of as many bytes without; the rounds alternate.

    ``messages``: of the log with pops, about, the record included.
    """
    folder.mkdir()
    groups = [(group, topic) for group, topic, _ in write_night_files(folder, GROUPS, with_bit_map=True)]
    registered = (folder / "events.jsonl").read_text().splitlines()
    popping = (json.dumps(json.loads(line) | {"protocol": "grpc_simple"}) for line in registered)
    (folder / "popping.jsonl").write_text("\n".join(popping))
    popped = PopWriter(folder / "popped", groups)
    popped.append(messages * 2 // 3)
    plain = StoreWriter(folder / "plain")
    while plain.size < popped.store.size:
        plain.append(MESSAGES_AT_ONCE)
    os.sync()
    seconds: dict[str, list[float]] = {"popped": [], "plain": []}
    pops = 0
    with NightProcess() as process:
        for turn in range(rounds + 1):
            for store, taken in seconds.items():
                command = night_options(folder, folder / store, folder / "warehouse")
                if store == "popped":
                    command[command.index("--subscriptions") + 1] = str(folder / "popping.jsonl")
                night = process.night(command)
                if turn:
                    taken.append(night["seconds"])
                if store == "popped":
                    pops = len(Warehouse.at(str(folder / "warehouse")).rows(POPS, ["queue_offset"]))
                shutil.rmtree(folder / "warehouse")
    shutil.rmtree(folder)
    ratios = [round(popped / plain, 2) for popped, plain in zip(*seconds.values(), strict=True)]
    return {
        "messages_besides_record": popped.store.messages, "pops": pops, "log_bytes": popped.store.size,
        "groups": GROUPS,
        "seconds": {store: round(median(taken), 2) for store, taken in seconds.items()},
        "ratio": median(ratios), "ratios": ratios,
    }  # fmt: skip
