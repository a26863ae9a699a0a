"""The pull windows of a night, where a store of a test cannot show them."""

from __future__ import annotations

from collections.abc import Sequence

from filtering.broker_config import BrokerConfig
from filtering.consumption.allocation import tag_disagreements
from filtering.consumption.offsets import BrokerOffsets, OffsetsSoFar
from filtering.consumption.plan import NightPlan, plan_night
from filtering.consumption.position import Position, first_position
from filtering.delivery.pull_window import PullWindow
from filtering.predicate import TRUE, TextIn
from filtering.subscriptions.event_lines import parse_event
from filtering.subscriptions.events import ConsumeFrom, SubscriptionEvent
from filtering.subscriptions.history import subscription_history

MINUTE = 60_000
HEARTBEAT = '{"at": %d, "op": "heartbeat", "group": "cg", "client_id": "%s", "subscriptions": [%s]}'


def events_of(*lines: str) -> list[SubscriptionEvent]:
    return [parse_event(line) for line in lines]


def plan(events: Sequence[SubscriptionEvent], offsets: BrokerOffsets) -> NightPlan:
    config = BrokerConfig()
    history = subscription_history(events, config)
    return plan_night(history, events, OffsetsSoFar(), offsets, config)


def has(window: PullWindow, stored_at: int, offset: int) -> bool:
    low, high = window.offsets.get(0, (0, 0) if window.only_listed else (0, 2**63))
    return window.stored_from <= stored_at < window.stored_to and low <= offset < high


def test_an_offset_committed_after_a_reset_does_not_end_what_was_pulled_before_it() -> None:
    """One message a minute: 100 before the reset to offset 10. The group is slow and has come to offset 50 again."""
    events = events_of(
        '{"at": 0, "op": "register", "group": "cg", "topic": "T", "type": "TAG", "expression": "*", '
        '"consume_from": "first"}',
        f'{{"at": {100 * MINUTE}, "op": "reset_offset", "group": "cg", "topic": "T", "queue_id": 0, "offset": 10}}',
    )
    committed_at = 110 * MINUTE
    offsets = BrokerOffsets({("cg", "T"): {0: 50}}, committed_at, stored_at=lambda topic, queue, at: at * MINUTE)
    made = plan(events, offsets)
    pulled = [
        sum(has(window, offset * MINUTE, offset) for window in [*made.online, *made.backlog])
        for offset in (5, 10, 49, 50, 99, 100, 109)
    ]
    assert pulled == [1, 2, 2, 1, 1, 0, 0]
    assert made.groups[0].told_to == {0: 50}


def test_a_client_in_class_filter_mode_checks_no_tags() -> None:
    """Source: PullAPIWrapper.processPullResult."""
    topic = '{"topic": "T", "type": "TAG", "expression": "%s", "version": %d%s}'
    events = events_of(
        HEARTBEAT % (100, "a", topic % ("A", 1, "")),
        HEARTBEAT % (200, "b", topic % ("shop.Paid", 2, ', "class_filter_mode": true')),
    )
    disagreements = tag_disagreements(events, {"T": frozenset({0, 1})})["cg", "T"]
    assert [tags.by_queue for tags in disagreements] == [{0: TextIn("TAGS", frozenset({"A"})), 1: TRUE}]


def test_a_client_with_tags_checks_them_although_the_broker_filters_by_sql92() -> None:
    """Source: PullAPIWrapper.processPullResult."""
    topic = '{"topic": "T", "type": "%s", "expression": "%s", "version": %d}'
    events = events_of(
        HEARTBEAT % (100, "a", topic % ("SQL92", "x = 'y'", 5)),
        HEARTBEAT % (200, "b", topic % ("TAG", "B", 2)),
    )
    disagreements = tag_disagreements(events, {"T": frozenset(range(4))})
    (tags,) = disagreements["cg", "T"]
    check = TextIn("TAGS", frozenset(("B",)))
    assert (tags.valid_from, tags.by_queue) == (200, {0: TRUE, 1: TRUE, 2: check, 3: check})


def test_clients_with_other_expressions_check_nothing() -> None:
    topic = '{"topic": "T", "type": "SQL92", "expression": "x = %d", "version": %d}'
    events = events_of(HEARTBEAT % (100, "a", topic % (1, 1)), HEARTBEAT % (200, "b", topic % (2, 2)))
    assert tag_disagreements(events, {"T": frozenset(range(4))}) == {}


def test_a_group_begins_at_the_first_entry_of_its_retry_topic() -> None:
    """Source: RebalancePushImpl.computePullFromWhereWithException."""
    offsets = BrokerOffsets(min_offsets={topic: {0: 5} for topic in ("T", "%RETRY%cg")})
    assert first_position("T", 1000, ConsumeFrom.LAST, offsets) == Position(stored_from=1000)
    assert first_position("%RETRY%cg", 1000, ConsumeFrom.LAST, offsets) == Position({0: 5})
    assert first_position("%RETRY%cg", 1000, ConsumeFrom.LAST, BrokerOffsets()) == Position()
