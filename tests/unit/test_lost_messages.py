"""What overruled clients lose, against the filters of each subscription alone."""

from typing import Any

from answers.inconsistency import Loss, LostMessages, losses
from filtering.broker_config import BrokerConfig
from filtering.delivery.entries import Entries
from filtering.subscription_data import Subscription
from filtering.subscriptions.events import Operation, SubscriptionEvent
from filtering.subscriptions.history import subscription_history
from filtering.subscriptions.inconsistency import group_clients
from tests.entries import entries

FILTERING = BrokerConfig(enable_property_filter=True)
TAGS = ["Aa", "BB", "paid", "shipped", None]


def heartbeat(at: int, client: str, version: int, expression: str, **more: Any) -> SubscriptionEvent:
    subscription: Any = {"topic": "T", "expression": expression, "type": "TAG", "version": version} | more
    return SubscriptionEvent(at, Operation.HEARTBEAT, "cg", (subscription,), client_id=client)


def leaves(at: int, client: str) -> SubscriptionEvent:
    return SubscriptionEvent(at, Operation.UNREGISTER, "cg", client_id=client)


def messages(each_at: int = 10, until: int = 500) -> list[dict[str, Any]]:
    """A message every 10 ms, its tag one of TAGS in turn, its level 0 to 9 in turn; every seventh of another topic."""
    tags = [TAGS[i % len(TAGS)] for i in range(until // each_at)]
    return [
        {
            "topic": "T" if i % 7 else "Other",
            "queue_offset": i,
            "commitlog_offset": i,
            "store_timestamp": i * each_at,
            "properties": {"level": str(i % 10)} | ({"TAGS": tag} if tag else {}),
        }
        for i, tag in enumerate(tags)
    ]


def blocks() -> list[Entries]:
    result = []
    for topic in ("T", "Other"):
        topic_rows = [row for row in messages() if row["topic"] == topic]
        result.append(entries(topic, topic_rows, [None] * len(topic_rows)))
    return result


def run(*events: SubscriptionEvent, broker: BrokerConfig = FILTERING) -> list[tuple[Loss, list[dict[str, Any]]]]:
    """Each loss, and the messages that it costs."""
    all_losses = losses(group_clients(events), subscription_history(events, broker), broker)
    rows = LostMessages(all_losses, broker.bloom_filter.m)(blocks()).to_pylist()
    return [(loss, [row for row in rows if row["loss"] == i]) for i, loss in enumerate(all_losses)]


def wanted(lost: list[dict[str, Any]], first: int, end: int, keeps: Any) -> bool:
    """Whether ``lost`` is exactly the messages of topic T stored in [first, end) that ``keeps(tag, level)``."""
    expected = [i for i in range(50) if i % 7 and first <= i * 10 < end and keeps(TAGS[i % 5], i % 10)]
    return [row["queue_offset"] for row in lost] == expected and expected != []


def test_each_switch_loses_what_only_the_other_wants() -> None:
    (first, lost_to_a), (second, lost_to_b) = run(
        heartbeat(100, "a", 10, "paid"), heartbeat(200, "b", 20, "shipped || paid"), heartbeat(300, "a", 30, "Aa")
    )
    assert (first.clients, first.state.valid_from, first.state.valid_to) == (("a",), 200, 300)
    assert lost_to_a == [], "paid was in both"
    assert second.clients == ("b",)
    assert wanted(lost_to_b, 300, 500, lambda tag, level: tag in ("shipped", "paid"))


def test_what_the_broker_lets_through_by_hash_is_not_lost() -> None:
    # the client overruled by Aa gets BB too, since they share a hash, and its own tag check keeps it
    ((loss, lost),) = run(heartbeat(100, "a", 10, "BB || paid"), heartbeat(200, "b", 20, "Aa"))
    assert loss.clients == ("a",)
    assert wanted(lost, 200, 500, lambda tag, level: tag == "paid")


def test_expressions_and_clients_that_agree_with_each_other() -> None:
    ((loss, lost),) = run(
        heartbeat(100, "a", 10, "level > 3", type="SQL92"),
        heartbeat(110, "c", 11, "level > 3", type="SQL92"),
        heartbeat(200, "b", 20, "level > 6", type="SQL92"),
        leaves(400, "a"),
        leaves(400, "c"),
    )
    assert loss.clients == ("a", "c")
    assert wanted(lost, 200, 400, lambda tag, level: 3 < level <= 6)


def test_pulls_that_are_refused_hold_messages_back() -> None:
    other = Subscription(topic="Other", expression="*", type="TAG", version=20)
    without_t = SubscriptionEvent(200, Operation.HEARTBEAT, "cg", (other,), client_id="b")
    every = run(heartbeat(100, "a", 10, "paid"), without_t, heartbeat(300, "a", 10, "paid"))
    ((loss, held_back),) = (each for each in every if each[0].own.topic == "T")
    assert loss.in_force is None
    assert wanted(held_back, 200, 300, lambda tag, level: tag == "paid")


def test_a_subscription_that_would_be_refused_loses_nothing() -> None:
    assert run(heartbeat(100, "a", 10, "level >", type="SQL92"), heartbeat(200, "b", 20, "paid")) == []


def test_class_filter_mode_loses_all_that_the_winner_stops() -> None:
    by_class = heartbeat(100, "a", 10, "shop.Paid", class_filter_mode=True)
    ((_, lost),) = run(by_class, heartbeat(200, "b", 20, "paid"))
    assert wanted(lost, 200, 500, lambda tag, level: tag != "paid")
