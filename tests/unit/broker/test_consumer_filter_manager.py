import json
from typing import Any

import pytest

from filtering.consumer_filter_manager import ConsumerFilterManager, FilterState
from filtering.time_spans import DAY
from tests.captures import UNDAMAGED, capture, rows
from tests.unit.broker import cases


def subscription(topic: str, expression: str, version: int = 1, type: str = "SQL92") -> Any:
    return {"topic": topic, "expression": expression, "type": type, "version": version}


def replay(sequence: dict[str, Any]) -> None:
    """Asserts that the registry answers every step as the real one did."""
    manager = ConsumerFilterManager(sequence["f"], sequence["n"])
    before: dict[tuple[str, str], FilterState] = {}
    for now, step in enumerate(sequence["steps"], start=1_000):
        event = step["event"]
        if event["op"] == "register":
            manager.register(event["group"], event["subs"], now)
        else:
            manager.unregister(event["group"], now)
        after = {(row["topic"], row["group"]): row for row in manager.state()}
        answer = [
            {name: value for name, value in row.items() if name not in ("bornTime", "deadTime")}
            | {"bornRenewed": key not in before or before[key]["bornTime"] != row["bornTime"]}
            for key, row in after.items()
        ]
        assert answer == step["state"], (sequence["name"], event)
        assert manager.topics() == step["topics"], (sequence["name"], event)
        before = after


def test_registrations_are_answered_as_the_real_registry_did() -> None:
    for sequence in cases("registry") + cases("registry_random"):
        replay(sequence)


def test_what_is_dead_for_a_day_is_forgotten() -> None:
    manager = ConsumerFilterManager(20, 32)
    manager.register("cg_paid", [subscription("OrderEvents", "price > 5")], 1_000)
    manager.unregister("cg_paid", 2_000)
    manager.clean(2_000 + DAY - 1)
    assert manager.get("OrderEvents", "cg_paid")
    manager.clean(2_000 + DAY)
    assert manager.state() == []
    assert manager.topics() == []


@pytest.mark.parametrize("name", UNDAMAGED)
def test_a_real_consumer_filter_json_survives_a_round_trip(name: str) -> None:
    text = (capture(name) / "store/config/consumerFilter.json").read_text(encoding="utf-8")
    f, n = (5, 100) if name == "otherbloom" else (20, 32)
    manager = ConsumerFilterManager(f, n)
    latest = max(row["subVersion"] for row in rows(name, "subscriptions")) + 60_000
    assert manager.decode(text, latest)
    assert json.loads(manager.encode(latest)) == json.loads(text), "after the shutdown all are dead already"

    assert not ConsumerFilterManager(f + 1, n).decode(text, latest), "another Bloom filter discards everything"
    assert not ConsumerFilterManager(10, 23).decode(text, latest), "so does one of 112 bits, too, but 4 a group"


@pytest.mark.parametrize("name", UNDAMAGED)
def test_a_started_broker_counts_all_groups_as_dead_since_30_seconds(name: str) -> None:
    text = (capture(name) / "store/config/consumerFilter.live.json").read_text(encoding="utf-8")
    manager = ConsumerFilterManager(5, 100) if name == "otherbloom" else ConsumerFilterManager(20, 32)
    now = max(row["bornTime"] or 0 for row in rows(name, "subscriptions")) + 10_000
    assert manager.decode(text, now)
    offline = next(row for row in manager.state() if row["group"] == "cg_sql_offline_stays")
    recorded = next(row for row in rows(name, "subscriptions") if row["group"] == "cg_sql_offline_stays")
    assert offline["deadTime"] == recorded["deadTime"]
    for row in manager.state():
        assert row["dead"]
        if row["group"] != "cg_sql_offline_stays":
            assert row["deadTime"] == max(now - 30_000, row["bornTime"])


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"filterDataByTopic": {"OrderEvents": {}}}'])
def test_another_file_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a consumerFilter\.json"):
        ConsumerFilterManager(20, 32).decode(text, 0)
