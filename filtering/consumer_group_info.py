"""The subscriptions of one consumer group that the broker uses for its pulls.

Source: ConsumerGroupInfo.updateSubscription.
"""

from __future__ import annotations

from collections.abc import Iterable

from filtering.subscription_data import Subscription


class ConsumerGroupInfo:
    """The subscriptions of one group. ``.subscriptions`` has the one in force by topic."""

    def __init__(self) -> None:
        self.subscriptions: dict[str, Subscription] = {}

    def update_subscription(self, subscriptions: Iterable[Subscription]) -> None:
        """Applies the whole list of a heartbeat: higher versions replace lower ones, topics not listed are removed."""
        topics = set()
        for subscription in subscriptions:
            topics.add(subscription["topic"])
            self.update_topic(subscription)
        for topic in self.subscriptions.keys() - topics:
            del self.subscriptions[topic]

    def update_topic(self, subscription: Subscription) -> None:
        """Applies one entry of a list; other topics do not change."""
        old = self.subscriptions.get(subscription["topic"])
        if old is None or subscription["version"] > old["version"]:
            self.subscriptions[subscription["topic"]] = subscription
