"""The subscription events between two looks at a broker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from filtering.consumer_group_info import ConsumerGroupInfo
from filtering.subscription_data import new_subscription
from filtering.subscriptions.events import SubscriptionEvent, event_line, parse_event
from filtering.subscriptions.watch import NOBODY, Look, WatchedClient, WatchedGroup, asked_again, changes

FIRST, LATER = Look(1_000, 1_010, None), Look(2_000, 2_010, 1_000)


def client(started_at: int, **expressions: tuple[str, int]) -> WatchedClient:
    """A client with tags, by topic, each with its version."""
    own = {topic: new_subscription(topic, tags, "TAG", version) for topic, (tags, version) in expressions.items()}
    return WatchedClient("10.0.0.7:1", started_at, own)


def group(clients: Mapping[str, WatchedClient], by: str | None = None) -> WatchedGroup:
    """A group of which the broker has the subscriptions of the client ``by``, or of the last one."""
    return WatchedGroup(clients, clients[by or list(clients)[-1]].subscriptions or {})


def seen(before: WatchedGroup, now: WatchedGroup, **offsets: int) -> list[SubscriptionEvent]:
    """The events from ``before``, seen at the first look, to ``now``. ``offsets``: of queue 0, by topic."""
    registered = ConsumerGroupInfo()
    changes("cg", NOBODY, before, FIRST, {}, registered)
    events = changes("cg", before, now, LATER, {topic: {0: at} for topic, at in offsets.items()}, registered)
    assert [parse_event(event_line(event)) for event in events] == events
    return events


def shown(event: SubscriptionEvent) -> tuple[Any, ...]:
    tags = ",".join(f"{each['topic']}={each['expression']}" for each in event.subscriptions)
    return event.at, event.operation.value, event.client_id, event.since, tags


A = client(900, T=("a", 890))


def test_what_is_the_same_is_no_event() -> None:
    moved = replace(A, subscriptions={"T": new_subscription("T", "a", "TAG", 1_500)})  # the queues were shared anew
    assert seen(group({"A": A}), group({"A": A})) == []
    assert seen(group({"A": A}), group({"A": moved})) == []
    assert asked_again(group({"A": A}), group({"A": A})) == []
    assert asked_again(group({"A": A}), group({"A": moved})) == ["A"]


def test_clients_come_when_they_started_and_change_when_they_subscribed() -> None:
    both = group({"A": client(900, T=("b", 1_700)), "B": client(1_500, T=("b", 1_490))}, by="A")
    assert [shown(event) for event in seen(group({"A": A}), both)] == [
        (1_500, "heartbeat", "B", None, "T=b"), (1_700, "heartbeat", "A", None, "T=b"),
    ]  # fmt: skip


def test_a_group_that_left_has_its_offsets() -> None:
    (left,) = seen(group({"A": A}), NOBODY, T=7)
    assert shown(left) == (2_010, "unregister", "A", 1_000, "")
    assert left.committed == {"T": {0: 7}}


def test_of_a_restart_between_two_looks_the_leave_is_not_known() -> None:
    for name in ("A", "B"):
        events = seen(group({"A": A}), group({name: client(1_500, T=("b", 1_490))}), T=7)
        assert [shown(event) for event in events] == [
            (1_499, "unregister", "A", 1_000, ""), (1_500, "heartbeat", name, 1_000, "T=b"),
        ]  # fmt: skip
        assert events[0].committed is None


def test_a_topic_that_a_client_drops() -> None:
    both = client(900, T=("a", 890), U=("*", 890))
    (dropped,) = seen(group({"A": both}), group({"A": A}), T=3, U=4)
    assert shown(dropped) == (2_010, "heartbeat", "A", 1_000, "T=a")
    assert dropped.committed == {"U": {0: 4}}


def test_a_client_that_overrules_another_once_more() -> None:
    """A sent its own again, because B joined and the queues were shared anew."""
    other = client(950, T=("b", 940))
    before = group({"A": A, "B": other}, by="B")
    again = replace(A, subscriptions={"T": new_subscription("T", "a", "TAG", 1_800)})
    (event,) = seen(before, group({"A": again, "B": other}, by="A"))
    assert shown(event) == (1_800, "register", "A", None, "T=a")
    assert event.subscriptions[0]["version"] == 1_800


def test_a_client_that_does_not_answer_has_the_subscriptions_of_its_group() -> None:
    silent = replace(A, started_at=0, subscriptions=None)
    now = WatchedGroup({"A": silent}, {"T": new_subscription("T", "a", "TAG", 1_700)})
    (event,) = seen(NOBODY, now)
    assert shown(event) == (2_010, "heartbeat", "A", 1_000, "T=a")


def test_the_born_time_of_a_filter_is_the_time_of_its_event() -> None:
    sql = new_subscription("T", "n > 1", "SQL92", 1_600)
    now = WatchedGroup({"A": client(1_500)}, {"T": sql}, born={"T": 1_650})
    now = replace(now, clients={"A": replace(now.clients["A"], subscriptions={"T": sql})})
    (event,) = seen(NOBODY, now)
    assert shown(event) == (1_650, "heartbeat", "A", None, "T=n > 1")
