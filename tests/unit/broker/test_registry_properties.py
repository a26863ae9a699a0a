"""Random registrations: what must hold of any of them."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from filtering.broker_config import BrokerConfig
from filtering.consumer_filter_manager import ConsumerFilterManager, FilterState
from filtering.subscription_data import Subscription
from filtering.subscriptions.events import Operation, SubscriptionEvent
from filtering.subscriptions.history import subscription_history
from filtering.subscriptions.subscription_row import SubscriptionRow
from tests.depth import examples

CLEAN_TIME_SPAN = 40
TOPICS = st.sampled_from(["OrderEvents", "TagLab", "主题"])
GROUPS = st.sampled_from(["cg_paid", "cg_cheap"])
SUBSCRIPTIONS = st.builds(
    Subscription,
    topic=TOPICS,
    expression=st.sampled_from(["qty > 1", "qty > 2", "a = 'x'", "a >", "", "*"]),
    type=st.sampled_from(["SQL92", "SQL92", "SQL92", "TAG", "CLASS"]),
    version=st.integers(0, 5),
)
ATS = st.integers(0, 200)
EVENTS = st.one_of(
    st.builds(SubscriptionEvent, ATS, st.just(Operation.REGISTER), GROUPS, st.tuples(SUBSCRIPTIONS)),
    st.builds(
        SubscriptionEvent,
        ATS,
        st.just(Operation.HEARTBEAT),
        GROUPS,
        st.lists(SUBSCRIPTIONS, max_size=3).map(tuple),
    ),
    st.builds(SubscriptionEvent, ATS, st.just(Operation.UNREGISTER), GROUPS),
)
HISTORIES = st.lists(EVENTS, max_size=12).map(lambda events: sorted(events, key=lambda event: event.at))


def apply(manager: ConsumerFilterManager, event: SubscriptionEvent) -> None:
    if event.operation is Operation.HEARTBEAT:
        manager.register(event.group, event.subscriptions, event.at)
    elif event.operation is Operation.REGISTER:
        (each,) = event.subscriptions
        manager.register_topic(event.group, each, event.at)
    else:
        manager.unregister(event.group, event.at)


def as_of(rows: list[SubscriptionRow], now: int) -> dict[tuple[str, str], Any]:
    return {
        (row.topic, row.consumer_group): (
            row.filter_expression,
            row.filter_version,
            row.born_time,
            row.dead_time,
        )
        for row in rows
        if row.valid_from <= now and (row.valid_to is None or now < row.valid_to) and row.filter_expression is not None
    }


def held(state: list[FilterState]) -> dict[tuple[str, str], Any]:
    return {
        (row["topic"], row["group"]): (
            row["expression"],
            row["clientVersion"],
            row["bornTime"],
            row["deadTime"] if row["dead"] else None,
        )
        for row in state
    }


@settings(deadline=None, max_examples=examples(30, deep=500))
@given(HISTORIES)
def test_the_history_is_the_registry_at_every_instant(events: list[SubscriptionEvent]) -> None:
    config = BrokerConfig(filter_data_clean_time_span=CLEAN_TIME_SPAN)
    rows = subscription_history(events, config)
    manager = ConsumerFilterManager(20, 32, CLEAN_TIME_SPAN)
    pending = list(events)
    for now in range(201 + CLEAN_TIME_SPAN):
        for row in manager.state():
            manager.clean_topic(row["topic"], row["group"], now)
        while pending and pending[0].at == now:
            apply(manager, pending.pop(0))
        assert as_of(rows, now) == held(manager.state()), now


@settings(deadline=None, max_examples=examples(20, deep=300))
@given(HISTORIES, GROUPS, st.lists(SUBSCRIPTIONS, max_size=3, unique_by=lambda each: each["topic"]))
def test_the_same_heartbeat_again_changes_nothing(
    events: list[SubscriptionEvent], group: str, subscriptions: list[Subscription]
) -> None:
    manager = ConsumerFilterManager(20, 32)
    for event in events:
        apply(manager, event)
    manager.register(group, subscriptions, 300)
    once = manager.state()
    manager.register(group, subscriptions, 301)
    assert manager.state() == once
