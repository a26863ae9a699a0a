from typing import Any

from filtering.consumer_filter_manager import ConsumerFilterManager, FilterState
from filtering.time_spans import DAY
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
    manager.clean_topic("OrderEvents", "cg_paid", 2_000 + DAY - 1)
    assert manager.get("OrderEvents", "cg_paid")
    manager.clean_topic("OrderEvents", "cg_paid", 2_000 + DAY)
    assert manager.state() == []
