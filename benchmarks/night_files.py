"""The other inputs of a night beside its store: subscriptions, the broker's configuration, and the command line."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks import workload
from benchmarks.broker_store import BROKER, FIRST_STORE_TIMESTAMP, TOPICS


def write_night_files(folder: Path, groups: int, with_bit_map: bool) -> list[tuple[str, str, str]]:
    """The subscription events of groups that go round the TOPICS, and a broker.conf.

    Returns group, topic and expression of each group.
    """
    on = str(with_bit_map).lower()
    (folder / "broker.conf").write_text(
        f"brokerName={BROKER}\nenablePropertyFilter=true\nenableCalcFilterBitMap={on}\nenableConsumeQueueExt={on}\n"
    )
    expressions = workload.selective_subscriptions(groups, 1)
    subscriptions = [(f"cg_{i:05}", TOPICS[i % len(TOPICS)], text) for i, text in enumerate(expressions)]
    event = {"at": FIRST_STORE_TIMESTAMP - 1, "op": "register", "type": "SQL92"}
    lines = (json.dumps(event | {"group": g, "topic": topic, "expression": text}) for g, topic, text in subscriptions)
    (folder / "events.jsonl").write_text("\n".join(lines))
    return subscriptions


def night_options(folder: Path, store: Path, warehouse: Path) -> list[str]:
    """The command line of a night with the files that :func:`write_night_files` wrote to ``folder``."""
    given = {
        "--store": store, "--subscriptions": folder / "events.jsonl", "--broker-config": folder / "broker.conf",
        "--warehouse": warehouse,
    }  # fmt: skip
    return [str(text) for pair in given.items() for text in pair]
