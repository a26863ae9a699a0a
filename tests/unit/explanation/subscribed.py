"""One subscription, and what it decides about one message."""

from __future__ import annotations

from collections.abc import Mapping

from filtering.broker_config import BrokerConfig
from filtering.explanation import Decision, Entry, NearestMiss, decide, nearest_miss
from filtering.subscription_data import Subscription
from filtering.subscriptions.events import Operation, SubscriptionEvent
from filtering.subscriptions.history import subscription_history
from filtering.subscriptions.subscription_row import SubscriptionRow
from filtering.tags_code import tags_code

PLAIN = BrokerConfig(enable_property_filter=True)


def subscribed(expression: str, type: str = "SQL92", config: BrokerConfig = PLAIN) -> SubscriptionRow:
    """The subscription of the group cg to the topic T, in force from 1,000 ms on."""
    subscription = Subscription(topic="T", expression=expression, type=type, version=7)
    event = SubscriptionEvent(1_000, Operation.REGISTER, "cg", (subscription,))
    return subscription_history([event], config)[-1]


def decided(
    row: SubscriptionRow, properties: Mapping[str, str], bit_map: bytes | None = None, config: BrokerConfig = PLAIN
) -> Decision:
    """The decision on a message that was stored at 2,000 ms."""
    entry = Entry(tags_code(properties.get("TAGS")), bit_map, 2_000)
    return decide(row, [row], config, entry, properties)


def missed(row: SubscriptionRow, properties: Mapping[str, str]) -> NearestMiss | None:
    return nearest_miss(decided(row, properties), row, [row], PLAIN, properties)
