"""The events that a snapshot of subscriptions stands for, after those known before."""

from __future__ import annotations

from filtering.broker_config import BrokerConfig
from filtering.subscription_data import Subscription
from filtering.subscriptions.events import Operation, SubscriptionEvent, SubscriptionEvents
from filtering.subscriptions.history import in_force_at, subscription_history
from filtering.subscriptions.subscription_row import SubscriptionRow
from schemas.subscription_files import differences, with_retry_topics

SINCE = 5_000
LEFT = SubscriptionEvent(2_000, Operation.UNREGISTER, "cg", topic="T")


def register(at: int, expression: str, version: int, type: str = "SQL92", topic: str = "T") -> SubscriptionEvent:
    subscription = Subscription(topic=topic, expression=expression, type=type, version=version)
    return SubscriptionEvent(at, Operation.REGISTER, "cg", (subscription,))


def history(*events: SubscriptionEvent) -> list[SubscriptionRow]:
    return subscription_history(events, BrokerConfig(enable_property_filter=True))


def new_events(known: list[SubscriptionEvent], *snapshot: SubscriptionEvent) -> tuple[SubscriptionEvent, ...]:
    events = SubscriptionEvents(snapshot, (), is_snapshot=True)
    return differences(events, in_force_at(history(*known), SINCE), SINCE, filters_only=True)


def test_what_happened_up_to_the_last_night_is_known_a_millisecond_later() -> None:
    for at, known_at in ((SINCE - 1, SINCE + 1), (SINCE, SINCE + 1), (SINCE + 1, SINCE + 1), (SINCE + 2, SINCE + 2)):
        (event,) = new_events([], register(at, "qty > 1", 1))
        assert event.at == known_at


def test_a_group_that_is_still_away_does_not_come_back() -> None:
    known = [register(1_000, "qty > 1", 7), LEFT]
    assert new_events(known, *known) == ()
    (event,) = new_events(known, known[0])
    assert event.operation is Operation.REGISTER


def test_its_expression_counts_although_clients_with_a_fast_clock_came_before() -> None:
    """The broker ignores a version that is not higher than the last one: of the subscription, or of its filter."""
    for known in (
        [register(1_000, "qty > 1", 90_000)],
        [register(1_000, "qty > 1", 90_000), LEFT, register(3_000, "paid", 80_000, type="TAG")],
    ):
        last = history(*known, *new_events(known, register(1_000, "qty > 2", 7)))[-1]
        assert (last.valid_from, last.expression, last.filter_expression) == (SINCE + 1, "qty > 2", "qty > 2")


def test_the_retry_topic_of_a_group_ends_with_its_last_filter() -> None:
    """A consumerFilter.json has no TAG subscriptions, and loses a filter a day after the group has left."""
    known = [register(1_000, "qty > 1", 7), register(1_000, "*", 7, "TAG", "%RETRY%cg")]
    gone = new_events(known)
    assert {(event.operation, event.topic) for event in gone} == {
        (Operation.UNREGISTER, "T"), (Operation.UNREGISTER, "%RETRY%cg")
    }  # fmt: skip
    with_tags = [*known, register(1_000, "paid", 7, "TAG", "U")]
    assert [event.topic for event in new_events(with_tags)] == ["T"]


def test_a_retry_topic_that_no_list_names_keeps_its_filter() -> None:
    """Such lists are typed, or made from a warehouse: nobody said that it changed."""
    in_force = in_force_at(history(register(1_000, "qty > 1", 7), register(1_000, "a", 7, "TAG", "%RETRY%cg")), SINCE)
    listed = SubscriptionEvents((register(1_000, "qty > 1", 7),), (), is_snapshot=True)
    completed = with_retry_topics(listed, in_force, lambda key: True)
    assert len(completed.events) == 2
    assert differences(completed, in_force, SINCE, filters_only=False) == ()
