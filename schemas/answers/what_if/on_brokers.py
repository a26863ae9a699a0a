"""What other filters would have delivered, on each broker of a warehouse."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from filtering.subscriptions.subscription_row import SubscriptionRow
from schemas.answers.facts import BrokerFacts
from schemas.answers.what_if.delivery_history import Period
from schemas.answers.what_if.what_if import WhatIf, what_if
from schemas.errors import UsageError, did_you_mean
from schemas.spark_tasks import Session

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
