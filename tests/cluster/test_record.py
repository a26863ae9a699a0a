"""record beside a real broker, and a night with what it recorded: what live consumers received."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from filtering.rocketmq_version import NEWEST, RocketMQVersion
from schemas.recording import Recorder
from tests.cluster.live_broker import LiveBroker
from tests.nights.commands import delivered

TAGS = ("a", "b", "c", "a", "b", "a")
PRICES = range(6)
NIGHT = "import sys; from jobs import nightly; nightly.main(sys.argv[1:])"
PATIENCE = 60.0
"""s: how long a broker that starts may take to answer."""
VERSION = RocketMQVersion.parse(os.environ.get("MQSIEVE_LIVE_VERSION", str(NEWEST)))


@pytest.mark.skipif(
    "MQSIEVE_LIVE_VERSION" not in os.environ,
    reason="needs Java and a real broker's jars from Maven: set MQSIEVE_LIVE_VERSION=5.5.0 or 4.9.7 to require it",
)
def test_a_night_with_what_was_recorded_is_what_consumers_received(tmp_path: Path) -> None:
    recorded = tmp_path / "recorded"
    with LiveBroker(tmp_path, VERSION) as broker:
        ask = broker.ask

        def look() -> None:
            """Looks until the broker answers: one that has just started refuses some requests, or does not listen."""
            end = time.monotonic() + PATIENCE
            while not isinstance((results := dict(recorder.look())).get("broker-a"), int):
                assert time.monotonic() < end, results

        recorder = Recorder(recorded, [], [broker.address], interval=60)
        ask("topic", "Orders", 2)
        ask("topic", "Parcels", 2)
        ask("on", "cg_all", "c1", "first", "Orders", "TAG", "*")
        ask("on", "cg_sql", "c1", "first", "Orders", "SQL92", "price > 2", "Parcels", "TAG", "*")
        look()
        ask("on", "cg_tag", "c1", "last", "Orders", "TAG", "a || b")
        ask("on", "cg_leaves", "c1", "first", "Orders", "SQL92", "price < 4")
        ask("settle")
        broker.send(["Orders", "Parcels"], TAGS, PRICES)
        ask("settle")
        look()
        ask("to", "cg_sql", "c1", "Orders", "SQL92", "price <= 2")
        ask("to", "cg_tag", "c1", "Orders", "TAG", "c")
        ask("off", "cg_leaves", "c1")
        ask("settle")
        broker.send(["Orders"], TAGS, PRICES)
        look()
        ask("on", "cg_leaves", "c2", "first", "Orders", "SQL92", "price >= 4")
        ask("drop", "cg_sql", "c1", "Parcels")
        ask("on", "cg_new", "c1", "first", "Orders", "TAG", "b")
        ask("settle")
        recorder.close()
        recorder = Recorder(recorded, [], [broker.address], interval=60)
        look()
        ask("restart")
        broker.send(["Orders", "Parcels"], TAGS, PRICES)
        ask("settle")
        look()
        recorder.close()
        ask("snapshot", tmp_path / "store")
        received = broker.received()
    night = ("--store", tmp_path / "store", "--recorded", recorded, "--warehouse", tmp_path / "w")
    subprocess.run([sys.executable, "-c", NIGHT, *map(str, night)], check=True, cwd=Path(__file__).parents[2])
    assert delivered(tmp_path / "w") == received
