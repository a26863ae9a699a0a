"""Subscriptions to try out, as a broker would have them in force, and what each would change on each broker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from filtering.broker_config import BrokerConfig
from filtering.pulls.pull import refusal
from filtering.sql92 import on_one_line
from filtering.subscription_data import Subscription
from filtering.subscriptions.events import GroupTopic, SubscriptionEvents
from filtering.subscriptions.in_force import in_force_at, registered_alone
from filtering.subscriptions.namespace import RETRY_TOPIC_PREFIX
from filtering.subscriptions.snapshots import events_with_file
from filtering.subscriptions.subscription_row import SubscriptionRow
from schemas.answers.facts import BrokerFacts
from schemas.answers.what_if.delivery_history import Period
from schemas.answers.what_if.what_if import WhatIf, what_if
from schemas.errors import UsageError, did_you_mean
from schemas.ledger_inputs import SUBSCRIPTION_FILE
from schemas.spark_tasks import Session


def subscription_of(group: str, topic: str, expression: str, type_: str, broker: BrokerConfig) -> SubscriptionRow:
    """The subscription as it would be in force. Raises UsageError if the broker refuses it, or every pull of it."""
    subscription = Subscription(topic=topic, expression=expression, type=type_, version=1)
    row = registered_alone(group, subscription, broker)
    _check(row, broker)
    return row


@dataclass(frozen=True)
class Tried:
    """What is tried on a broker: ``changed`` subscriptions instead of those in force, and the end of some of these.

    ``kept``: the other subscriptions in force.
    """

    facts: BrokerFacts
    changed: Sequence[SubscriptionRow]
    ended: Sequence[SubscriptionRow] = ()
    kept: Sequence[SubscriptionRow] = ()

    @property
    def keys(self) -> list[GroupTopic]:
        """The groups and topics whose subscriptions change or end."""
        return [row.key for row in (*self.changed, *self.ended)]


def changes_of_file(facts: BrokerFacts, given: SubscriptionEvents, filters_only: bool, digest: str) -> Tried:
    """The subscriptions that a night with a file would change and end. Raises UsageError if the broker refuses one.

    ``filters_only``: the file is a consumerFilter.json, without TAG subscriptions. ``digest``: that of its bytes.
    A client subscribes to its retry topic by itself, so that of a group in the file does not end. One without messages
    is as good as unchanged.
    """
    now = {row.key: row for row in facts.in_force}
    is_known = facts.last.inputs.get(SUBSCRIPTION_FILE) == digest and not given.is_snapshot
    events = (
        facts.events if is_known else events_with_file(facts.events, given, facts.in_force, facts.end, filters_only)
    )
    end = max([facts.end, *(event.at for event in events)])
    after = {row.key: row for row in in_force_at(facts.history_after(events), end) if row.is_consuming}
    groups = {group for group, _ in after}
    differing = [row for key, row in after.items() if key not in now or now[key].filter != row.filter]
    changed = [row for row in differing if row.topic in facts.topics or not row.topic.startswith(RETRY_TOPIC_PREFIX)]
    for row in changed:
        _check(row, facts.broker)
    ended = [
        row
        for key, row in now.items()
        if row.is_consuming
        and key not in after
        and not (row.topic.startswith(RETRY_TOPIC_PREFIX) and row.consumer_group in groups)
    ]
    kept = [row for key, row in after.items() if key in now and now[key].filter == row.filter]
    return Tried(facts, changed, ended, kept)


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


def tried_on(brokers: Sequence[BrokerFacts], changes: Callable[[BrokerFacts], Tried]) -> list[Tried]:
    """The ``changes`` of each broker, without those that are tried on other brokers, which alone have messages.

    Raises UsageError, with the broker if there are several, if the broker refuses one.
    """
    tried = []
    for facts in brokers:
        try:
            tried.append(changes(facts))
        except UsageError as error:
            raise UsageError(f"{facts.name}: {error}" if len(brokers) > 1 else str(error)) from None
    with_messages = {key for each in tried for key in each.keys if key[1] in each.facts.topics}

    def shown(each: Tried, rows: Sequence[SubscriptionRow]) -> list[SubscriptionRow]:
        return [row for row in rows if row.topic in each.facts.topics or row.key not in with_messages]

    return [replace(each, changed=shown(each, each.changed), ended=shown(each, each.ended)) for each in tried]


def what_if_on_brokers(
    tried: Sequence[Tried], period: Period, session: Session | None = None
) -> list[tuple[str, WhatIf]]:
    """What each subscription would change, with the broker's name. Those of one group and topic are together."""
    found = [
        (each.facts.name, change)
        for each in tried
        for change in what_if(each.facts, each.changed, period, session, each.ended)
    ]
    order = {key: number for number, key in enumerate(dict.fromkeys(key for each in tried for key in each.keys))}
    return sorted(found, key=lambda each: order[each[1].new.key])
