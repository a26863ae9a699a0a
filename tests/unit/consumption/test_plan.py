"""The pull windows of a night, where a store of a test cannot show them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from filtering.broker_config import BrokerConfig
from filtering.consumption.clients import disagreeing_states, tag_disagreements
from filtering.consumption.group import Position, first_pop, first_position, known_offsets
from filtering.consumption.offsets import BrokerOffsets, OffsetsSoFar, TopicOffsets, offset_by_time
from filtering.consumption.plan import NightPlan, plan_night
from filtering.consumption.uncertainty import ENTRY_DELAY, FIRST_PULL, HELD_PULL_MS, REQUEST_GAP, SETTINGS
from filtering.delivery.pull_window import NO_END, PullWindow, Reason, WindowKind
from filtering.pops.modes import PopGroups, PopModes
from filtering.predicate import TRUE, TextIn
from filtering.sql92 import compile
from filtering.subscriptions.events import ConsumeFrom, ConsumeMode, SubscriptionEvent, in_order, parse_event
from filtering.subscriptions.history import states_by_key, subscription_history

MINUTE = 60_000
HEARTBEAT = '{"at": %d, "op": "heartbeat", "group": "cg", "client_id": "%s", "subscriptions": [%s]}'


def events_of(*lines: str) -> list[SubscriptionEvent]:
    return list(in_order(parse_event(line) for line in lines))


REGISTER = (
    '{"at": %d, "op": "register", "group": "cg", "topic": "T", "type": "TAG", "expression": "*", '
    '"consume_from": "first"}'
)
UNREGISTER = '{"at": %d, "op": "unregister", "group": "cg", "topic": "T"}'
RESET = '{"at": %d, "op": "reset_offset", "group": "cg", "topic": "T", "queue_id": 0, "offset": 10}'


def plan(events: Sequence[SubscriptionEvent], offsets: BrokerOffsets, so_far: OffsetsSoFar | None = None) -> NightPlan:
    config = BrokerConfig(enable_property_filter=True)
    history = subscription_history(events, config)
    return plan_night(history, events, so_far or OffsetsSoFar(), offsets, config)


def came_to(decided_to: int, end: int, as_of: int) -> OffsetsSoFar:
    """The last night ended at ``as_of``: deliveries were decided to ``decided_to`` in a queue that ended at ``end``."""
    topic = TopicOffsets.empty({0: end}, ["cg"])
    topic.decided_to[:] = decided_to
    return OffsetsSoFar(as_of, {"T": topic})


def stored_every_minute(topic: str, queue_id: int, offset: int) -> int:
    return offset * MINUTE


def has(window: PullWindow, stored_at: int, offset: int) -> bool:
    low, high = window.offsets.get(0, (0, 0) if window.only_listed else (0, 2**63))
    return window.stored_from <= stored_at < window.stored_to and low <= offset < high


def test_an_offset_committed_after_a_reset_does_not_end_what_was_pulled_before_it() -> None:
    """One message a minute: 100 before the reset to offset 10. The group is slow and has come to offset 50 again."""
    events = events_of(REGISTER % 0, RESET % (100 * MINUTE))
    committed_at = 110 * MINUTE
    offsets = BrokerOffsets({("cg", "T"): {0: 50}}, committed_at, stored_at=stored_every_minute)
    made = plan(events, offsets)
    pulled = [
        sum(has(window, offset * MINUTE, offset) for window in [*made.online, *made.backlog])
        for offset in (5, 10, 49, 50, 99, 100, 109)
    ]
    assert pulled == [1, 2, 2, 1, 1, 0, 0]
    assert made.groups[0].decided_to == {0: 50}


@pytest.mark.parametrize(("age", "is_behind"), [(30_000, False), (30_001, True)])
def test_a_group_that_keeps_up_has_committed_what_was_stored_30_s_before(age: int, is_behind: bool) -> None:
    """``age`` (ms) is that of the message at its committed offset, when the offsets were saved."""
    saved_at = 100 * MINUTE
    offsets = BrokerOffsets({("cg", "T"): {0: 50}}, saved_at, stored_at=lambda topic, queue_id, at: saved_at - age)
    (group,) = plan(events_of(REGISTER % 0), offsets).groups
    assert (group.is_behind, group.decided_to) == (is_behind, {0: 50} if is_behind else {})


@pytest.mark.parametrize(("committed", "decided_to"), [(60, 60), (40, 50)])
def test_a_group_that_was_behind_still_is_in_a_short_night(committed: int, decided_to: int) -> None:
    """The night lasts ten seconds. An offset that lies before what is decided takes nothing back."""
    as_of = 100 * MINUTE
    offsets = BrokerOffsets({("cg", "T"): {0: committed}}, as_of + 10_000, stored_at=stored_every_minute)
    (group,) = plan(events_of(REGISTER % 0), offsets, came_to(50, 100, as_of)).groups
    assert (group.is_behind, group.decided_to) == (True, {0: decided_to})


@pytest.mark.parametrize("seconds", [10, 40])
@pytest.mark.parametrize("again", [(RESET % (106 * MINUTE),), (UNREGISTER % (105 * MINUTE), REGISTER % (106 * MINUTE))])
def test_a_group_that_was_behind_and_begins_again_has_time_to_commit(again: Sequence[str], seconds: int) -> None:
    offsets = BrokerOffsets({("cg", "T"): {0: 10}}, 106 * MINUTE + 1_000 * seconds, stored_at=stored_every_minute)
    made = plan(events_of(REGISTER % 0, *again), offsets, came_to(50, 100, 100 * MINUTE))
    assert made.groups[0].is_behind == (seconds > 30)


def pulls(made: NightPlan, *stored_at: int, offset: int = 7) -> list[int]:
    """How often the group pulls a message of an offset, for each time at which it may have been stored."""
    windows = [*made.online, *made.backlog]
    return [sum(has(window, at, offset) for window in windows) for at in stored_at]


@pytest.mark.parametrize("more", [(), (RESET % 1_000,)])
def test_events_in_the_last_millisecond_of_a_night_are_not_of_the_next_one(more: Sequence[str]) -> None:
    made = plan(events_of(REGISTER % 1_000, *more), BrokerOffsets(), came_to(100, 100, as_of=1_000))
    assert (made.backlog, len(made.online)) == ([], 1)


def test_a_reset_in_the_millisecond_of_a_change_meets_the_new_subscription() -> None:
    change = (REGISTER % 100).replace('"*"', '"paid"')
    made = plan(events_of(REGISTER % 0, change, RESET % 100), BrokerOffsets())
    assert [window.subscription_from for window in made.backlog if window.only_listed] == [100]


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ((REGISTER % 800,), [1, 1, 1, 1]),
        ((UNREGISTER % 1_000,), [1, 1, 0, 0]),
        ((RESET % 1_000,), [2, 2, 1, 1]),
    ],
)
def test_messages_stored_after_the_copy_of_the_log_are_pulled_as_in_their_night(
    events: Sequence[str], expected: Sequence[int]
) -> None:
    """The last night ended at 1000, but its copy of the log at 500. Each message has offset 70 of 100."""
    change = [line.replace('"*"', '"paid"') for line in events]
    so_far = replace(came_to(70, 70, as_of=1_000), last_stored=500)
    made = plan(events_of(REGISTER % 0, *change), BrokerOffsets(), so_far)
    assert pulls(made, 501, 999, 1_000, 1_001, offset=70) == expected


@pytest.mark.parametrize(("reset_at", "offset"), [(999, 7), (1_000, 7), (1_001, 10), (1_999, 10), (2_000, 7)])
def test_the_later_of_a_snapshot_and_a_reset_tells_where_a_group_begins(reset_at: int, offset: int) -> None:
    """The last night ended at 1000, and the group begins at 2000."""
    so_far = came_to(0, 100, as_of=1_000)
    so_far.topics["T"].committed[:] = 7
    assert known_offsets(("cg", "T"), 2_000, so_far, events_of(RESET % reset_at)) == {0: offset}


def test_a_client_in_class_filter_mode_checks_no_tags() -> None:
    """Source: PullAPIWrapper.processPullResult."""
    topic = '{"topic": "T", "type": "TAG", "expression": "%s", "sub_version": %d%s}'
    events = events_of(
        HEARTBEAT % (100, "a", topic % ("A", 1, "")),
        HEARTBEAT % (200, "b", topic % ("shop.Paid", 2, ', "class_filter_mode": true')),
    )
    disagreements = tag_disagreements(disagreeing_states(events), lambda topic: {0, 1})["cg", "T"]
    assert [tags.by_queue for tags in disagreements] == [{0: TextIn("TAGS", frozenset({"A"})), 1: TRUE}]


def test_a_client_with_tags_checks_them_although_the_broker_filters_by_sql92() -> None:
    """Source: PullAPIWrapper.processPullResult."""
    topic = '{"topic": "T", "type": "%s", "expression": "%s", "sub_version": %d}'
    events = events_of(
        HEARTBEAT % (100, "a", topic % ("SQL92", "x = 'y'", 5)),
        HEARTBEAT % (200, "b", topic % ("TAG", "B", 2)),
    )
    disagreements = tag_disagreements(disagreeing_states(events), lambda topic: range(4))
    (tags,) = disagreements["cg", "T"]
    check = TextIn("TAGS", frozenset(("B",)))
    assert (tags.valid_from, tags.by_queue) == (200, {0: TRUE, 1: TRUE, 2: check, 3: check})


def test_a_committed_offset_counts_in_a_queue_that_no_client_reads() -> None:
    """The second client, which does not subscribe to the topic, gets queue 1 at 5; the group leaves at 8."""
    topic = '{"topic": "%s", "type": "TAG", "expression": "*", "sub_version": %d}'
    events = events_of(
        HEARTBEAT % (0, "a", topic % ("T", 1)),
        HEARTBEAT % (5 * MINUTE, "b", topic % ("U", 2)),
        HEARTBEAT % (5 * MINUTE + 1, "a", topic % ("T", 3)),
        UNREGISTER % (8 * MINUTE),
    )
    offsets = BrokerOffsets({("cg", "T"): {0: 7, 1: 3}}, read_queues={"T": 2}, stored_at=stored_every_minute)
    (group,) = (group for group in plan(events, offsets).groups if group.key == ("cg", "T"))
    assert group.decided_to == {0: 7, 1: 3}


def test_clients_with_other_expressions_check_nothing() -> None:
    topic = '{"topic": "T", "type": "SQL92", "expression": "x = %d", "sub_version": %d}'
    events = events_of(HEARTBEAT % (100, "a", topic % (1, 1)), HEARTBEAT % (200, "b", topic % (2, 2)))
    assert disagreeing_states(events) == []


@pytest.mark.parametrize(("later", "may_meet"), [(HELD_PULL_MS - 1, True), (HELD_PULL_MS, False)])
def test_what_one_client_left_to_another_may_meet_its_next_subscription_while_a_pull_may_be_held(
    later: int, may_meet: bool
) -> None:
    """Client b takes queues of a, and its subscription changes ``later`` (ms after its first pulls)."""
    topic = '{"topic": "T", "type": "SQL92", "expression": "x = %d", "sub_version": %d}'
    first_pulls = MINUTE + FIRST_PULL
    events = events_of(
        HEARTBEAT % (0, "a", topic % (1, 1)),
        HEARTBEAT % (MINUTE, "b", topic % (2, 2)),
        HEARTBEAT % (first_pulls + later, "b", topic % (3, 3)),
    )
    planned = plan(events, BrokerOffsets(watched_to=2 * MINUTE))
    (change,) = (each for each in planned.uncertain_ranges if each.reason == Reason.HANDED_OVER)
    assert change.stored_to == first_pulls
    asked = [compile(f"x = {number}").predicate for number in (1, 2, 3)]
    assert [predicate in change.after.operands for predicate in asked] == [True, True, may_meet]


def test_a_group_begins_at_the_first_entry_of_its_retry_topic() -> None:
    """Source: RebalancePushImpl.computePullFromWhereWithException."""
    offsets = BrokerOffsets(min_offsets={topic: {0: 5} for topic in ("T", "%RETRY%cg")})
    assert first_position("T", 1000, ConsumeFrom.LAST, offsets) == Position(stored_from=1000)
    assert first_position("%RETRY%cg", 1000, ConsumeFrom.LAST, offsets) == Position({0: 5})
    assert first_position("%RETRY%cg", 1000, ConsumeFrom.LAST, BrokerOffsets()) == Position()


def test_a_group_that_begins_at_a_time_begins_at_the_end_of_its_retry_topic() -> None:
    """Source: RebalancePushImpl.computePullFromWhereWithException."""
    offsets = BrokerOffsets(min_offsets={"%RETRY%cg": {0: 5}})
    assert first_position("%RETRY%cg", 1000, 500, offsets) == Position(stored_from=1000)


def test_without_the_queues_a_time_selects_messages_by_their_store_times() -> None:
    offsets = BrokerOffsets(log_start=1)
    assert first_position("T", 1000, 500, offsets) == Position(stored_from=500)
    assert first_position("T", 1000, 1500, offsets) == Position(stored_from=1000)


TIMES = [10, 20, 20, 20, 30, 30, 40]


@pytest.mark.parametrize(
    ("to", "offset"), [(0, 0), (10, 0), (11, 1), (20, 1), (21, 4), (30, 4), (40, 6), (41, 7), (99, 7)]
)
def test_a_reset_by_time_goes_to_the_first_message_since_then(to: int, offset: int) -> None:
    """Source: ConsumeQueue.binarySearchInQueueByTime."""
    assert offset_by_time(TIMES.__getitem__, 0, len(TIMES), to) == offset


def test_a_reset_by_time_where_messages_were_deleted_or_a_clock_was_set_back() -> None:
    deleted = [-1, -1, 20, 30]
    assert [offset_by_time(deleted.__getitem__, 0, 4, to) for to in (0, 10, 20, 25, 31)] == [2, 2, 2, 3, 4]
    assert offset_by_time(deleted.__getitem__, 2, 4, 10) == 2
    back = [10, 50, 60, 20, 30, 40, 70]
    assert [offset_by_time(back.__getitem__, 0, 7, to) for to in (15, 25, 55)] == [1, 4, 6]
    assert offset_by_time(back.__getitem__, 0, 0, 10) == 0


@pytest.mark.parametrize(("min_offset", "lost"), [(4, 0), (5, 0), (8, 3)])
def test_what_the_broker_deleted_before_a_group_returned_is_lost_to_it(min_offset: int, lost: int) -> None:
    """The group waits at offset 5 of a queue that ended at 9."""
    events = events_of(REGISTER % 0, UNREGISTER % MINUTE, REGISTER % (9 * MINUTE))
    made = plan(events, BrokerOffsets(min_offsets={"T": {0: min_offset}}), came_to(5, 9, 5 * MINUTE))
    assert made.groups[0].lost == ({0: lost} if lost else {})
    assert [(window.offsets, window.kind) for window in made.lost] == ([({0: (5, 8)}, WindowKind.LOST)] if lost else [])
    [returned] = made.backlog
    assert returned.offsets == {0: (max(5, min_offset), NO_END)}
    assert (returned.kind, returned.reason) == (WindowKind.BACKLOG, Reason.RETURNED)


# Groups that pop, of which nothing is written down.


POPS = (
    '{"at": %d, "op": "register", "group": "cg", "topic": "T", "type": "SQL92", "expression": "%s", "protocol": "%s"}'
)
CARRIES = (
    '{"at": %d, "op": "pop_subscription", "group": "cg", "topic": "T", "type": "SQL92", "expression": "%s", '
    '"other_until": %s}'
)
HOUR = 60 * MINUTE


def plan_of_pops(
    *lines: str, offsets: BrokerOffsets | None = None, groups: PopGroups | None = None, merges: bool = False
) -> NightPlan:
    config, events = BrokerConfig(enable_pop_buffer_merge=merges), events_of(*lines)
    history, groups = subscription_history(events, config), groups or PopGroups()
    pops = PopModes().pops(states_by_key(history), events, groups, config)
    offsets = offsets or BrokerOffsets(min_offsets={"T": {0: 0}, "%RETRY%cg_T": {0: 0}})
    return plan_night(history, events, OffsetsSoFar(), offsets, config, None, pops, groups)


def test_the_first_pop_of_a_queue_that_lost_its_first_message_begins_at_its_last() -> None:
    offsets = BrokerOffsets(min_offsets={"T": {0: 5, 1: 0, 2: 20}}, stored_at=stored_every_minute, log_start=7)
    at = 10 * MINUTE  # offset 10 is not stored yet
    assert first_pop("T", at, ConsumeFrom.LAST, offsets, from_first_message=True) == Position({0: 9, 2: 20})
    assert first_pop("T", at, ConsumeFrom.LAST, offsets, from_first_message=False) == Position({0: 9, 1: 9, 2: 20})
    assert first_pop("T", at, ConsumeFrom.FIRST, offsets, from_first_message=False) == Position({0: 5, 2: 20})


def test_a_request_filters_the_retry_topic_too_and_needs_no_switch_for_sql92() -> None:
    planned = plan_of_pops(POPS % (0, "a > 1", "grpc_simple"))
    assert {(window.topic, window.mode) for window in planned.online} == {
        ("T", ConsumeMode.POP),
        ("%RETRY%cg_T", ConsumeMode.POP),
    }
    assert len({window.message_filter.expression for window in planned.online}) == 1
    assert plan_of_pops(POPS % (0, "a >", "grpc_simple")).online == [], "it does not compile"


def test_a_change_counts_after_the_last_request_with_the_former_subscription() -> None:
    lines = POPS % (0, "a > 1", "grpc_simple"), CARRIES % (5, "a > 1", "null")
    planned = plan_of_pops(*lines, CARRIES % (HOUR, "a > 2", HOUR - 700))
    cuts = {(window.stored_from, window.subscription_from) for window in planned.online if window.topic == "T"}
    assert (HOUR - 699, HOUR) in cuts
    (change,) = [each for each in planned.uncertain_ranges if each.topic == "T"]
    # The last request may have come before the entry of a message that was stored before it.
    assert (change.stored_from, change.stored_to) == (HOUR - 700 - ENTRY_DELAY, HOUR - 699)
    planned = plan_of_pops(*lines, CARRIES % (HOUR, "a > 2", "null"))
    (change,) = [each for each in planned.uncertain_ranges if each.topic == "T"]
    assert (change.stored_from, change.stored_to, change.mode) == (HOUR - REQUEST_GAP, HOUR, ConsumeMode.POP)


@pytest.mark.parametrize(
    ("protocol", "stored_from", "stored_to", "reason"),
    [
        ("remoting_pop", HOUR, HOUR + 20_000, Reason.NEXT_REQUEST),
        ("grpc_simple", HOUR - SETTINGS, HOUR, Reason.NEXT_REQUEST),
        ("grpc_push", HOUR, 2 * HOUR, Reason.UNTIL_NEW_CLIENT),
    ],
)
def test_what_a_registration_leaves_open(protocol: str, stored_from: int, stored_to: int, reason: str) -> None:
    lines = [POPS % (0, "a > 1", protocol), POPS % (HOUR, "a > 2", protocol), UNREGISTER % (2 * HOUR)]
    planned = plan_of_pops(*lines, POPS % (3 * HOUR, "a > 2", protocol))
    change, *at_leave = [each for each in planned.uncertain_ranges if each.topic == "T"]
    assert (change.stored_from, change.stored_to, change.reason) == (stored_from, stored_to, reason)
    left = [(2 * HOUR - ENTRY_DELAY, Reason.NOT_REGISTERED_YET), (2 * HOUR + 20_000, Reason.LEFT)]
    at_leave.sort(key=lambda each: each.stored_to)
    assert [(each.stored_to, each.reason) for each in at_leave] == (left if protocol == "grpc_simple" else [])
    (after,) = [each for each in planned.online if each.topic == "T" and each.stored_from == 3 * HOUR]
    during = [each for each in planned.online if each.topic == "T" and each.stored_from <= HOUR < each.stored_to]
    same = [each.message_filter.expression == after.message_filter.expression for each in during]
    assert same == [protocol != "grpc_push"], "a PushConsumer asks with its former subscription until it restarts"


@pytest.mark.parametrize("protocol", ["grpc_simple", "grpc_push"])
@pytest.mark.parametrize("carries", [True, False])
def test_requests_of_simple_consumers_may_carry_what_they_have_not_registered_yet(protocol: str, carries: bool) -> None:
    """Until they register it, or leave, or the night ends. Events may say what requests carry."""
    known = [CARRIES % (5, "a > 1", "null")] if carries else []
    lines = [POPS % (0, "a > 1", protocol), UNREGISTER % HOUR, POPS % (2 * HOUR, "a > 1", protocol)]
    offsets = BrokerOffsets(min_offsets={"T": {0: 0}}, taken_at=2 * HOUR + MINUTE)
    planned = plan_of_pops(lines[0], *known, *lines[1:], offsets=offsets)
    times = [
        (change.stored_from, change.stored_to)
        for change in planned.uncertain_ranges
        if change.reason == Reason.NOT_REGISTERED_YET
    ]
    left = HOUR - ENTRY_DELAY  # up to its last request
    expected = [(left - SETTINGS, left), (2 * HOUR, 2 * HOUR + MINUTE)]
    assert times == (expected if protocol == "grpc_simple" and not carries else [])


def test_what_waited_in_order_may_meet_the_next_subscription() -> None:
    lines = POPS % (0, "a > 1", "grpc_simple"), CARRIES % (5, "a > 1", "null")
    groups = PopGroups(in_order=frozenset({"cg"}))
    planned = plan_of_pops(*lines, CARRIES % (HOUR, "a > 2", HOUR - 700), groups=groups)
    (change,) = [each for each in planned.uncertain_ranges if each.topic == "T"]
    assert (change.stored_from, change.stored_to, change.reason) == (5, HOUR - 699, Reason.IN_ORDER)


@pytest.mark.parametrize(
    ("in_order", "merges", "end"), [(False, False, 50), (True, False, NO_END), (False, True, NO_END)]
)
def test_the_broker_keeps_how_far_pops_have_read(in_order: bool, merges: bool, end: int) -> None:
    """A request looks into the retry topic only now and then, so a redelivery may wait for longer than a pull does.

    Of a group in order, the broker has the offset after the last acknowledged message; with enablePopBufferMerge it
    commits later.
    """
    topic = "%RETRY%cg_T"
    offsets = BrokerOffsets(
        {("cg", topic): {0: 50}}, 50 * MINUTE, {"T": {0: 0}, topic: {0: 0}}, stored_at=stored_every_minute,
        taken_at=51 * MINUTE,
    )  # fmt: skip
    groups = PopGroups(in_order=frozenset(["cg"] if in_order else []))
    planned = plan_of_pops(POPS % (0, "a > 1", "grpc_push"), offsets=offsets, groups=groups, merges=merges)
    assert {window.range_of(0)[1] for window in planned.online if window.topic == topic} == {end}
    (group,) = [group for group in planned.groups if group.key == ("cg", topic)]
    assert group.decided_to == ({0: 50} if end == 50 else {})
    assert not group.is_behind, "it is not for long"
