"""A subscription as a client sends it, and its tags as the broker reads them.

Source: SubscriptionData, FilterAPI.buildSubscriptionData.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NotRequired, TypedDict

from filtering.counted import check_type
from filtering.java import trim
from filtering.tags_code import java_hash

SUB_ALL = "*"
TAG = "TAG"
SQL92 = "SQL92"


class Subscription(TypedDict):
    """One entry of the subscription list in a consumer group's heartbeat.

    ``expression`` is a list of tags or an SQL92 expression, by its ``type``. Of two subscriptions of a group to a
    topic, the broker uses the one with the higher ``version``. In class filter mode neither the broker nor the client
    filters: a class on a filter server does.
    """

    topic: str
    expression: str | None
    type: str | None
    version: int
    class_filter_mode: NotRequired[bool]


def expression_type(subscription: Subscription) -> str:
    """The type of a subscription, TAG if it has none. An empty text is a type of its own (see compile_subscription)."""
    given = subscription["type"]
    return TAG if given is None else given


def new_subscription(
    topic: str, expression: str | None, type: str | None, version: int, class_filter_mode: bool = False
) -> Subscription:
    """A subscription. The field ``class_filter_mode`` is left out if it is false."""
    subscription = Subscription(topic=topic, expression=expression, type=type, version=version)
    if class_filter_mode:
        subscription["class_filter_mode"] = True
    return subscription


Filter = tuple[str, str, bool]
"""An expression, its type, and whether it names a class: equal if two subscriptions have the same filter."""


def filter_of(subscription: Subscription) -> Filter:
    """The filter, to compare it with that of another subscription."""
    return subscription["expression"] or "", expression_type(subscription), subscription.get("class_filter_mode", False)


@dataclass(frozen=True, slots=True)
class SubscriptionData:
    """A subscription to tags of ``topic``.

    ``tags_set`` has the tags as text, ``code_set`` their Java hash codes. Both are empty if ``sub_string`` is ``*``,
    or if it contains only separators and blanks.
    """

    topic: str
    sub_string: str
    tags_set: frozenset[str]
    code_set: frozenset[int]


def build_subscription_data(topic: str, sub_string: str | None) -> SubscriptionData:
    """The subscription of a tag expression such as ``paid || shipped``.

    None, ``""`` and exactly ``*`` subscribe to all messages. Raises ValueError if ``sub_string`` contains only ``||``.
    """
    if not sub_string or sub_string == SUB_ALL:
        return SubscriptionData(topic, SUB_ALL, frozenset(), frozenset())
    check_type(sub_string, str, "a tag expression is a text, such as 'paid || shipped'")
    if not any(sub_string.split("||")):
        raise ValueError(f"subString split error: {sub_string!r} names no tag; write tags joined by ||, or * for all")
    tags = tags_in(sub_string)
    return SubscriptionData(topic, sub_string, tags, frozenset(map(java_hash, tags)))


def tags_in(sub_string: str) -> frozenset[str]:
    """The tags that a tag expression lists, trimmed."""
    return frozenset(filter(None, map(trim, sub_string.split("||"))))


def is_tag_type(expression_type: str | None) -> bool:
    """Whether a subscription of this type is a tag subscription (ExpressionType.isTagType)."""
    return not expression_type or expression_type == TAG


# The subscriptions of one consumer group that the broker uses for its pulls.
#
# Source: ConsumerGroupInfo.updateSubscription.


class ConsumerGroupInfo:
    """The subscriptions of one group. ``.subscriptions`` has the one in force by topic.

    ``.clients``: the filters of each client's own subscriptions, by client id and topic. They are known only of clients
    whose ids are given.
    """

    def __init__(self) -> None:
        self.subscriptions: dict[str, Subscription] = {}
        self.clients: dict[str, dict[str, Filter]] = {}

    def update_subscription(self, subscriptions: Iterable[Subscription], client_id: str | None = None) -> None:
        """Applies the whole list of a heartbeat: higher versions replace lower ones, topics not listed are removed."""
        if client_id is not None:
            self.clients[client_id] = {}
        topics = set()
        for subscription in subscriptions:
            topics.add(subscription["topic"])
            self.update_topic(subscription, client_id)
        for topic in self.subscriptions.keys() - topics:
            del self.subscriptions[topic]

    def update_topic(self, subscription: Subscription, client_id: str | None = None) -> None:
        """Applies one entry of a list; other topics do not change."""
        topic = subscription["topic"]
        if client_id is not None:
            self.clients.setdefault(client_id, {})[topic] = filter_of(subscription)
        old = self.subscriptions.get(topic)
        if old is None or subscription["version"] > old["version"]:
            self.subscriptions[topic] = subscription

    def unregister(self, client_id: str | None, topic: str | None) -> bool:
        """A client leaves, or with None all of them. Returns whether it was the last one.

        Then the group has no subscription to ``topic`` any more; None: to any topic.
        """
        if client_id is not None:
            self.clients.pop(client_id, None)
            if self.clients:
                return False
        if topic is None:
            self.clients.clear()
            self.subscriptions.clear()
        else:
            self.subscriptions.pop(topic, None)
            for own in self.clients.values():
                own.pop(topic, None)
        return True
