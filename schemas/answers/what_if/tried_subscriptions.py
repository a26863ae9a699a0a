"""Subscriptions to try out, as a broker would have them in force, and what each would change on each broker."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from filtering.broker_config import BrokerConfig
from filtering.pulls.pull import refusal
from filtering.sql92 import on_one_line
from filtering.subscription_data import Subscription
from filtering.subscriptions.events import SubscriptionEvent
from filtering.subscriptions.in_force import in_force_after, registered_alone
from filtering.subscriptions.namespace import RETRY_TOPIC_PREFIX
from filtering.subscriptions.subscription_row import SubscriptionRow
from schemas.answers.facts import BrokerFacts
from schemas.answers.what_if.delivery_history import Period
from schemas.answers.what_if.what_if import WhatIf, what_if
from schemas.errors import UsageError, did_you_mean
from schemas.spark_tasks import Session


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


Tried = Sequence[tuple[BrokerFacts, Sequence[SubscriptionRow]]]
"""Brokers, and the subscriptions to try on each."""


def brokers_that_know(brokers: Sequence[BrokerFacts], group: str) -> list[BrokerFacts]:
    """The brokers at which a group ever subscribed. Raises UsageError if there is none."""
    knowing = [facts for facts in brokers if group in facts.groups]
    known = sorted({name for facts in brokers for name in facts.groups})
    if known and not knowing:
        hint = did_you_mean(group, known) or "; --changes FILE tries a group that is new"
        raise UsageError(f"{group} has no subscription in {brokers[0].warehouse.location}{hint}")
    if not knowing:
        brokers[0].subscriptions_of(group)
    return knowing


def tried_on(brokers: Sequence[BrokerFacts], rows: Callable[[BrokerFacts], Sequence[SubscriptionRow]]) -> Tried:
    """The ``rows`` of each broker, without those whose topic has messages on other brokers only.

    Raises UsageError, with the broker if there are several, if the broker refuses one.
    """
    topics = {topic for facts in brokers for topic in facts.topics}
    tried = []
    for facts in brokers:
        try:
            wanted = rows(facts)
        except UsageError as error:
            raise UsageError(f"{facts.name}: {error}" if len(brokers) > 1 else str(error)) from None
        tried.append((facts, [row for row in wanted if row.topic in facts.topics or row.topic not in topics]))
    return tried


def what_if_on_brokers(tried: Tried, period: Period, session: Session | None = None) -> list[tuple[str, WhatIf]]:
    """What each subscription would change, with the broker's name. Those of one group and topic are together."""
    found = [(facts.name, change) for facts, rows in tried for change in what_if(facts, rows, period, session)]
    keys = list(dict.fromkeys(row.key for _, rows in tried for row in rows))
    order = {key: number for number, key in enumerate(keys)}
    return sorted(found, key=lambda each: order[each[1].new.key])
