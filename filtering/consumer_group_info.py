"""The subscriptions of one consumer group, as the broker answers pulls with them.

Source: ConsumerGroupInfo.updateSubscription.
"""

from __future__ import annotations

from collections.abc import Iterable

from filtering.consumer_filter_manager import Subscription


class ConsumerGroupInfo:
    """``.subscriptions``: topic -> the subscription in force."""

    def __init__(self) -> None:
        self.subscriptions: dict[str, Subscription] = {}

    def update_subscription(self, subscriptions: Iterable[Subscription]) -> bool:
        """A heartbeat's whole list: higher versions replace, topics not listed go.

        True only where a topic was added or removed, which is what wakes the group's listeners; a
        changed expression alone does not.
        """
        topics = set()
        updated = False
        for each in subscriptions:
            topics.add(each["topic"])
            updated |= self.update_topic(each)
        for topic in self.subscriptions.keys() - topics:
            del self.subscriptions[topic]
            updated = True
        return updated

    def update_topic(self, subscription: Subscription) -> bool:
        """One topic of a list, the others untouched; True where the topic is new."""
        old = self.subscriptions.get(subscription["topic"])
        if old is None or subscription["version"] > old["version"]:
            self.subscriptions[subscription["topic"]] = subscription
        return old is None
