"""Clients of one group that subscribe differently: whose subscription is in force."""

from filtering.broker_config import BrokerConfig
from filtering.subscription_data import Subscription
from filtering.subscriptions.events import Operation, SubscriptionEvent
from filtering.subscriptions.history import subscription_history
from filtering.subscriptions.inconsistency import (
    ClientSubscription,
    GroupClients,
    group_clients,
)


def heartbeat(at: int, client: str, version: int, **topics: str) -> SubscriptionEvent:
    subscriptions = tuple(
        Subscription(topic=topic, expression=tags, type="TAG", version=version) for topic, tags in topics.items()
    )
    return SubscriptionEvent(at, Operation.HEARTBEAT, "cg", subscriptions, client_id=client)


def leaves(at: int, client: str) -> SubscriptionEvent:
    return SubscriptionEvent(at, Operation.UNREGISTER, "cg", client_id=client)


def summary(*events: SubscriptionEvent, topic: str = "OrderEvents") -> list[tuple[object, ...]]:
    rows = [row for row in group_clients(events) if row.topic == topic]
    return [
        (
            row.valid_from,
            row.valid_to,
            row.expression,
            row.agreeing,
            tuple(c.client_id for c in row.overruled),
            row.absent,
        )
        for row in rows
    ]


def test_the_higher_version_wins_and_stays() -> None:
    events = [
        heartbeat(100, "a", 10, OrderEvents="paid"),
        heartbeat(200, "b", 20, OrderEvents="shipped"),
        heartbeat(300, "a", 10, OrderEvents="paid"),
        heartbeat(400, "b", 20, OrderEvents="shipped"),
    ]
    alone, overruled = group_clients(events)
    assert alone == GroupClients("cg", "OrderEvents", 100, 200, "paid", "TAG", False, ("a",), (), ())
    assert alone.is_consistent
    assert overruled == GroupClients(
        "cg", "OrderEvents", 200, None, "shipped", "TAG", False, ("b",), (ClientSubscription("a", "paid", "TAG"),), ()
    )
    assert not overruled.is_consistent


def test_a_rebalance_of_the_overruled_client_turns_the_tables() -> None:
    assert summary(
        heartbeat(100, "a", 10, OrderEvents="paid"),
        heartbeat(200, "b", 20, OrderEvents="shipped"),
        heartbeat(300, "a", 30, OrderEvents="paid"),
    )[1:] == [
        (200, 300, "shipped", ("b",), ("a",), ()),
        (300, None, "paid", ("a",), ("b",), ()),
    ]


def test_a_topic_that_one_client_does_not_list_comes_and_goes() -> None:
    assert summary(
        heartbeat(100, "a", 10, OrderEvents="paid", TagLab="*"),
        heartbeat(200, "b", 20, OrderEvents="paid"),
        heartbeat(300, "a", 10, OrderEvents="paid", TagLab="*"),
        topic="TagLab",
    ) == [
        (100, 200, "*", ("a",), (), ()),
        (200, 300, None, (), ("a",), ("b",)),
        (300, None, "*", ("a",), (), ("b",)),
    ]


def test_the_same_subscription_of_another_version_is_no_conflict() -> None:
    assert summary(heartbeat(100, "a", 10, OrderEvents="paid"), heartbeat(200, "b", 20, OrderEvents="paid")) == [
        (100, 200, "paid", ("a",), (), ()),
        (200, None, "paid", ("a", "b"), (), ()),
    ]


def test_what_a_client_that_left_brought_stays_in_force() -> None:
    events = [
        heartbeat(100, "a", 10, OrderEvents="paid"),
        heartbeat(200, "b", 20, OrderEvents="shipped"),
        leaves(300, "b"),
        leaves(400, "a"),
    ]
    assert summary(*events) == [
        (100, 200, "paid", ("a",), (), ()),
        (200, 300, "shipped", ("b",), ("a",), ()),
        (300, 400, "shipped", (), ("a",), ()),
    ]


def test_a_lower_version_counts_after_the_last_client_left() -> None:
    """Source: ConsumerManager.unregisterConsumer removes a group with its last client."""
    assert summary(
        heartbeat(100, "a", 10, OrderEvents="paid"), leaves(200, "a"), heartbeat(300, "a", 5, OrderEvents="shipped")
    ) == [(100, 200, "paid", ("a",), (), ()), (300, None, "shipped", ("a",), (), ())]


def test_registrations_of_unknown_clients_count() -> None:
    unknown = SubscriptionEvent(
        200,
        Operation.REGISTER,
        "cg",
        (Subscription(topic="OrderEvents", expression="qty > 1", type="SQL92", version=20),),
    )
    gone = SubscriptionEvent(300, Operation.UNREGISTER, "cg", topic="OrderEvents")
    assert summary(heartbeat(100, "a", 10, OrderEvents="paid"), unknown, gone) == [
        (100, 200, "paid", ("a",), (), ()),
        (200, 300, "qty > 1", (), ("a",), ()),
    ]


def test_a_client_that_leaves_one_topic_ends_no_other_subscription() -> None:
    """As in the subscription history, which decides the deliveries."""
    leaves_one = SubscriptionEvent(200, Operation.UNREGISTER, "cg", topic="TagLab", client_id="a")
    events = [
        heartbeat(100, "a", 10, OrderEvents="paid", TagLab="*"),
        leaves_one,
        heartbeat(300, "b", 5, OrderEvents="shipped"),
    ]
    (row,) = (row for row in subscription_history(events, BrokerConfig()) if row.topic == "OrderEvents")
    assert (row.expression, row.is_consuming, row.valid_to) == ("paid", True, None)
    assert summary(*events)[-1] == (300, None, "paid", (), ("b",), ())


def test_a_subscription_sent_with_pulls_overrules_no_client() -> None:
    """The broker filters such pulls by what they bring, whatever is registered (PullMessageProcessor)."""
    shipped = Subscription(topic="OrderEvents", expression="shipped", type="TAG", version=20)
    pulls = SubscriptionEvent(200, Operation.PULL_SUBSCRIPTION, "cg", (shipped,), client_id="a")
    assert summary(heartbeat(100, "a", 10, OrderEvents="paid"), pulls) == [(100, None, "paid", ("a",), (), ())]
    assert summary(pulls) == []
