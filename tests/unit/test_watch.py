"""The subscription events between two looks at a broker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from filtering.subscription_data import ConsumerGroupInfo, new_subscription
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


def seen(
    before: WatchedGroup, now: WatchedGroup, first: Mapping[str, int] | None = None, left: str = "", **offsets: int
) -> list[SubscriptionEvent]:
    """The events from ``before``, seen at the first look, to ``now``.

    ``offsets``: of queue 0, by topic; ``first``: those at the first look. ``left``: a topic that the group had left.
    """
    registered = ConsumerGroupInfo()
    committed = [{topic: {0: at} for topic, at in each.items()} for each in (first or {}, offsets)]
    changes("cg", NOBODY, before, FIRST, committed[0], registered)
    events = changes("cg", before, now, LATER, committed[1], registered, committed[0], [left] if left else [])
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
        (1_500, "heartbeat", "B", None, "T=b"), (1_700, "heartbeat", "A", 1_000, "T=b"),
    ]  # fmt: skip


def test_a_group_that_left_has_its_offsets() -> None:
    (left,) = seen(group({"A": A}), NOBODY, T=7)
    assert shown(left) == (2_010, "unregister", "A", 1_000, "")
    assert left.committed == {"T": {0: 7}}


def test_of_a_restart_between_two_looks_the_leave_is_not_known() -> None:
    events = seen(group({"A": A}), group({"A": client(1_500, T=("b", 1_490))}), T=7)
    assert [shown(event) for event in events] == [
        (1_499, "unregister", "A", 1_000, ""), (1_500, "heartbeat", "A", None, "T=b"),
    ]  # fmt: skip
    assert events[0].committed is None


def test_another_client_may_have_come_before_the_old_one_left() -> None:
    events = seen(group({"A": A}), group({"B": client(1_500, T=("b", 1_490))}))
    assert [shown(event) for event in events] == [
        (1_499, "unregister", "A", 1_000, ""), (1_500, "heartbeat", "B", None, "T=b"),
        (2_010, "heartbeat", "B", 1_500, "T=b"),
    ]  # fmt: skip
    assert [event.subscriptions[0]["version"] for event in events[1:]] == [1_490, 1_501]


def test_a_client_that_comes_while_another_remains_does_not_say_when_a_third_left() -> None:
    before = group({"A": A, "C": client(950, T=("c", 940))})
    now = group({"B": client(1_500, T=("b", 1_490)), "C": client(950, T=("c", 940))})
    assert [shown(event) for event in seen(before, now)] == [
        (1_500, "heartbeat", "B", None, "T=b"), (2_010, "unregister", "A", 1_000, ""),
        (2_010, "register", "C", 1_000, "T=c"),
    ]  # fmt: skip


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
    assert shown(event) == (1_800, "register", "A", 1_000, "T=a")
    assert event.subscriptions[0]["version"] == 1_800


def test_a_client_that_does_not_answer_has_the_subscriptions_of_its_group() -> None:
    silent = replace(A, started_at=0, subscriptions=None)
    now = WatchedGroup({"A": silent}, {"T": new_subscription("T", "a", "TAG", 1_700)})
    (event,) = seen(NOBODY, now)
    assert shown(event) == (2_010, "heartbeat", "A", 1_000, "T=a")


def test_a_group_that_comes_goes_on_at_the_offsets_of_the_look_before() -> None:
    (came,) = seen(NOBODY, group({"A": client(1_500, T=("a", 1_490), U=("*", 1_490))}), {"T": 7}, T=9, U=1)
    assert (shown(came)[:4], came.committed) == ((1_500, "heartbeat", "A", None), {"T": {0: 7}})
    (again,) = seen(
        group({"A": A}), group({"A": client(900, T=("a", 890), U=("*", 1_500))}), {"T": 7, "U": 4}, T=9, U=5
    )
    assert (shown(again), again.committed) == ((1_500, "heartbeat", "A", 1_000, "T=a,U=*"), {"U": {0: 4}})


def test_offsets_that_move_after_the_group_has_left() -> None:
    both = {"T": 7, "U": 4}
    (moved,) = seen(group({"A": A}), group({"A": A}), both, left="U", T=9, U=5)
    assert (shown(moved), moved.topic, moved.committed) == ((2_010, "unregister", None, 1_000, ""), "U", {"U": {0: 5}})
    assert seen(group({"A": A}), group({"A": A}), both, left="U", T=9, U=4) == []
    assert seen(NOBODY, NOBODY, both, left="U", T=9, U=4) == []


def test_what_a_client_that_comes_subscribed_to_first_is_not_known() -> None:
    """It has subscribed later than its first queues can explain."""
    late = Look(8_000, 8_010, 1_000)
    events = changes(
        "cg", NOBODY, group({"A": client(1_500, T=("b", 5_000), U=("*", 3_500))}), late, {}, ConsumerGroupInfo()
    )
    assert [shown(event) for event in events] == [
        (1_500, "heartbeat", "A", None, "T=b,U=*"), (5_000, "heartbeat", "A", 1_500, "T=b,U=*"),
    ]  # fmt: skip
    assert [event.subscriptions[0]["version"] for event in events] == [1_500, 5_000]
    both = {"A": client(1_500, T=("b", 5_000)), "B": client(4_900, T=("b", 5_000))}
    events = changes("cg", NOBODY, group(both), late, {}, ConsumerGroupInfo())
    assert [shown(event)[:4] for event in events] == [(1_500, "heartbeat", "A", None), (4_900, "heartbeat", "B", None)]


def test_a_client_that_subscribes_to_the_same_again_may_have_had_another_one_in_between() -> None:
    late = Look(8_000, 8_010, 1_000)
    registered = ConsumerGroupInfo()
    changes("cg", NOBODY, group({"A": A}), FIRST, {}, registered)
    again = replace(A, subscriptions={"T": new_subscription("T", "a", "TAG", 5_000)})
    (event,) = changes("cg", group({"A": A}), group({"A": again}), late, {}, registered)
    assert (shown(event), event.subscriptions[0]["version"]) == ((5_000, "heartbeat", "A", 1_000, "T=a"), 5_000)
    other = client(900, T=("a", 890))
    left = changes("cg", group({"A": A, "B": other}), group({"A": again}), late, {}, registered)
    assert [shown(each)[:4] for each in left] == [(8_010, "unregister", "B", 1_000)]


def test_the_born_time_of_a_filter_is_the_time_of_its_event() -> None:
    sql = new_subscription("T", "n > 1", "SQL92", 1_600)
    now = WatchedGroup({"A": client(1_500)}, {"T": sql}, born={"T": 1_650})
    now = replace(now, clients={"A": replace(now.clients["A"], subscriptions={"T": sql})})
    (event,) = seen(NOBODY, now)
    assert shown(event) == (1_650, "heartbeat", "A", None, "T=n > 1")


def test_before_a_first_look_nothing_was_seen() -> None:
    (event,) = changes("cg", NOBODY, group({"A": A}), FIRST, {}, ConsumerGroupInfo())
    assert shown(event) == (900, "heartbeat", "A", 0, "T=a")
    assert parse_event(event_line(event)) == event


def test_a_filter_that_was_born_long_after_its_client_replaced_another_one() -> None:
    """No look has seen that one: neither a first look nor a later one."""
    sql = new_subscription("T", "n > 1", "SQL92", 15_600)
    now = WatchedGroup({"A": replace(client(1_500), subscriptions={"T": sql})}, {"T": sql}, born={"T": 15_650})
    for before, events in (
        (None, [(1_500, "heartbeat", "A", 0, "T=n > 1"), (15_650, "heartbeat", "A", 1_500, "T=n > 1")]),
        (1_000, [(1_500, "heartbeat", "A", None, "T=n > 1"), (15_650, "heartbeat", "A", 1_500, "T=n > 1")]),
        (9_000, [(15_650, "heartbeat", "A", 9_000, "T=n > 1")]),
    ):
        found = changes("cg", NOBODY, now, Look(18_000, 18_010, before), {}, ConsumerGroupInfo())
        assert [shown(event) for event in found] == events
