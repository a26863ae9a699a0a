"""The subscriptions of a group after heartbeats, compared with a real ConsumerGroupInfo."""

from typing import Any

from filtering.subscription_data import ConsumerGroupInfo, Subscription
from tests.unit.broker import cases


def as_subscription(row: dict[str, Any]) -> Subscription:
    return Subscription(topic=row["topic"], expression=row["subString"], type=row["type"], version=row["subVersion"])


def test_heartbeats_change_the_subscriptions_as_in_the_broker() -> None:
    for sequence in cases("groupinfo"):
        group = ConsumerGroupInfo()
        for step in sequence["steps"]:
            group.update_subscription([as_subscription(row) for row in step["subs"]])
            held = [group.subscriptions[topic] for topic in sorted(group.subscriptions)]
            assert held == [as_subscription(row) for row in step["table"]], (sequence["name"], step)
