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

    def update_subscription(self, subscriptions: Iterable[Subscription]) -> bool:
        """Applies the whole list of a heartbeat: higher versions replace lower ones, topics not listed are removed.

        True only if a topic was added or removed. The broker then notifies the group's listeners; for a changed
        expression alone it does not.
        """
        topics = set()
        updated = False
        for subscription in subscriptions:
            topics.add(subscription["topic"])
            updated |= self.update_topic(subscription)
        for topic in self.subscriptions.keys() - topics:
            del self.subscriptions[topic]
            updated = True
        return updated

    def update_topic(self, subscription: Subscription) -> bool:
        """Applies one entry of a list; other topics do not change. True if the topic is new."""
        old = self.subscriptions.get(subscription["topic"])
        if old is None or subscription["version"] > old["version"]:
            self.subscriptions[subscription["topic"]] = subscription
        return old is None
