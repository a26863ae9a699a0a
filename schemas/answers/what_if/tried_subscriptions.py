"""Subscriptions to try out, as the broker would have them in force."""

from __future__ import annotations

from collections.abc import Sequence

from filtering.broker_config import BrokerConfig
from filtering.pulls.pull import refusal
from filtering.sql92 import on_one_line
from filtering.subscription_data import Subscription
from filtering.subscriptions.events import SubscriptionEvent
from filtering.subscriptions.in_force import in_force_after, registered_alone
from filtering.subscriptions.namespace import RETRY_TOPIC_PREFIX
from filtering.subscriptions.subscription_row import SubscriptionRow
from schemas.answers.facts import BrokerFacts
from schemas.errors import UsageError


def subscription_of(group: str, topic: str, expression: str, type_: str, broker: BrokerConfig) -> SubscriptionRow:
    """The subscription as it would be in force. Raises UsageError if the broker refuses it, or every pull of it."""
    subscription = Subscription(topic=topic, expression=expression, type=type_, version=1)
    row = registered_alone(group, subscription, broker)
    _check(row, broker)
    return row


def changed_subscriptions(facts: BrokerFacts, events: Sequence[SubscriptionEvent]) -> list[SubscriptionRow]:
    """The subscriptions in force after some events, but not now. Raises UsageError if the broker refuses one."""
    now = {row.key: row.filter for row in facts.in_force_of({event.group for event in events})}
    after = in_force_after(events, facts.broker)
    changed = [row for row in after if now.get(row.key) != row.filter]
    for row in changed:
        _check(row, facts.broker)
    return changed


def only_topic(facts: BrokerFacts, group: str) -> str:
    """The topic that a group subscribes to, besides its retry topic. Raises UsageError if there is not exactly one."""
    topics = {row.topic for row in facts.subscriptions_of(group) if not row.topic.startswith(RETRY_TOPIC_PREFIX)}
    if len(topics) != 1:
        raise UsageError(f"{group} subscribes to {', '.join(sorted(topics)) or 'no topic'}: say which with --topic")
    return topics.pop()


def _check(row: SubscriptionRow, broker: BrokerConfig) -> None:
    """Raises UsageError if the broker refuses a subscription, or every pull of it."""
    if row.compile_error is not None:
        raise UsageError(
            f"{row.consumer_group} on {row.topic}: the filter does not compile: {on_one_line(row.compile_error)}"
        )
    code = refusal(row, broker)
    if code is not None:
        raise UsageError(f"the broker would answer every pull of {row.consumer_group} on {row.topic} with {code.text}")
