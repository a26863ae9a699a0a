"""The record of pops: which checkpoints are deliveries, which groups pop, and the names of retry topics."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from filtering.broker_config import BrokerConfig
from filtering.names import retry_topics, subscribed_topic
from filtering.pops.handed_out import NONE, Records, handed_out, matching
from filtering.pops.modes import PopGroups, PopModes, Pops, as_consumed, pulled_rows
from filtering.subscription_data import TAG, new_subscription
from filtering.subscriptions.events import Operation, SubscriptionEvent, event_line, parse_event
from filtering.subscriptions.history import subscription_history
from filtering.time_spans import BEGINNING, FOREVER

KEY = "cg", "T"


def records(*rows: tuple[int, int, int]) -> Records:
    """Of message, time of the pop, and physical offset."""
    message, popped_at, offset = np.array(rows, np.int64).reshape(-1, 3).T
    return Records(message, popped_at, offset, offset)


def deliveries(
    checkpoints: Records, acknowledgements: Records, is_copy: bool = False
) -> list[tuple[int, int, int, int]]:
    """Message, time of the pop, when it can be popped again, and when it was acknowledged."""
    single = np.ones(len(checkpoints), bool)
    copies = np.full(len(acknowledgements), is_copy)
    result = handed_out(checkpoints, checkpoints.popped_at + 10, single, acknowledgements, copies)
    columns = (
        checkpoints.message[result.checkpoint], checkpoints.popped_at[result.checkpoint], result.visible_at,
        result.acknowledged_at,
    )  # fmt: skip
    return sorted(zip(*(column.tolist() for column in columns), strict=True))


def test_copies_count_once() -> None:
    assert deliveries(records((7, 100, 1), (7, 100, 5)), records((7, 100, 2), (7, 100, 6))) == [(7, 100, 110, 2)]


def test_a_checkpoint_before_the_acknowledgement_of_the_former_one_is_a_renewal() -> None:
    checkpoints, acks = records((7, 100, 1), (7, 105, 2)), records((7, 100, 3), (7, 105, 4))
    assert deliveries(checkpoints, acks) == [(7, 100, 115, 4)]
    assert deliveries(checkpoints, records((7, 100, 3), (8, 1, 4))) == [(7, 100, 115, NONE)]


def test_a_checkpoint_after_an_offset_reset_is_another_delivery() -> None:
    checkpoints, acks = records((7, 100, 1), (7, 205, 3)), records((7, 100, 2), (7, 205, 4))
    assert deliveries(checkpoints, acks) == [(7, 100, 110, 2), (7, 205, 215, 4)]
    never_acknowledged = records((7, 205, 4))
    assert deliveries(checkpoints, never_acknowledged) == [(7, 100, 110, NONE), (7, 205, 215, 4)]


def test_a_late_acknowledgement_of_the_former_checkpoint_does_not_make_a_delivery_a_renewal() -> None:
    """A client kept a message while the broker was killed, and acknowledged it after it was handed out again."""
    for acknowledged_at, expected in (
        (5_105, [(7, 100, 115, NONE)]),
        (5_106, [(7, 100, 110, 5_106), (7, 105, 115, NONE)]),
    ):
        late = Records(*np.array([[7], [100], [3], [acknowledged_at]], np.int64))
        assert deliveries(records((7, 100, 1), (7, 105, 2)), late) == expected
    assert deliveries(records((7, 100, 1), (7, 105, 2)), late, is_copy=True) == [(7, 100, 115, NONE)]


def test_at_the_end_of_the_record_the_acknowledgement_of_the_former_one_may_be_missing() -> None:
    assert deliveries(records((7, 100, 1), (7, 105, 2)), records()) == [(7, 100, 115, NONE)]
    assert deliveries(records((7, 100, 1), (7, 111, 2)), records()) == [(7, 100, 110, NONE), (7, 111, 121, NONE)]


def test_equal_rows_match_in_their_order() -> None:
    keys, wanted = np.array([5, 3, 5]), np.array([5, 5, 4, 5])
    assert matching([keys], [wanted]).tolist() == [0, 2, NONE, NONE]
    assert matching([keys[:0]], [wanted]).tolist() == [NONE] * 4


def test_retry_topics_of_both_versions() -> None:
    assert [subscribed_topic("cg", topic) for topic in ("T", *retry_topics(*KEY))] == ["T"] * 3
    assert subscribed_topic("cg", "%RETRY%cg") == "%RETRY%cg"
    assert subscribed_topic("cg", "%RETRY%cg2_T") == "%RETRY%cg2_T"


def registered(at: int, protocol: str | None = None) -> SubscriptionEvent:
    subscription = new_subscription("T", "*", TAG, at)
    return SubscriptionEvent(at, Operation.REGISTER, "cg", (subscription,), protocol=protocol)


LEFT = SubscriptionEvent(200, Operation.UNREGISTER, "cg")


@pytest.mark.parametrize(
    ("modes", "protocols", "expected"),
    [
        (PopModes(), (None, None), []),
        (PopModes(), ("remoting_pop", None), [(BEGINNING, FOREVER)]),
        (PopModes(), ("grpc_push", "remoting"), [(BEGINNING, 300)]),
        (PopModes(), ("remoting", "grpc_simple"), [(300, FOREVER)]),
        (PopModes({KEY: 150}), (None, None), [(BEGINNING, FOREVER)]),
        (PopModes({KEY: 350}), (None, None), [(300, FOREVER)]),
        (PopModes({}, {KEY: 350}), ("remoting", None), [(300, FOREVER)]),
    ],
)
def test_when_a_group_pops(
    modes: PopModes, protocols: tuple[str | None, str | None], expected: list[tuple[int, int]]
) -> None:
    events = [registered(100, protocols[0]), LEFT, registered(300, protocols[1])]
    rows = subscription_history(events, BrokerConfig())
    pops = PopModes.from_text(modes.text).pops({KEY: rows}, events, PopGroups(), BrokerConfig())
    periods = (pops.recorded if modes.recorded else pops.planned).get(KEY, [])
    assert periods == expected
    pulls = [row.valid_from for row in pulled_rows(rows, periods) if row.is_consuming]
    popping = [row.valid_from for row in rows if any(begin <= row.valid_from < end for begin, end in periods)]
    assert pulls == [at for at in (100, 300) if at not in popping]


OTHER = "other", "T"
"""A group whose pops show that the broker writes them down."""


@pytest.mark.parametrize(
    ("groups", "popped", "night", "expected"),
    [
        (PopGroups(), {KEY: (150, 160)}, (BEGINNING, 199), [(150, FOREVER)]),
        (PopGroups(frozenset({KEY})), {OTHER: (150, 160)}, (BEGINNING, 199), [(199, FOREVER)]),
        (PopGroups(), {KEY: (150, 160)}, (120, 199), [(150, FOREVER)]),
        (PopGroups(frozenset({KEY})), {}, (120, 199), [(199, FOREVER)]),
        (PopGroups(set_to_pull=frozenset({KEY})), {KEY: (150, 160)}, (120, 199), [(150, 161)]),
        (PopGroups(set_to_pull=frozenset({KEY})), {KEY: (150, 160)}, (BEGINNING, 199), [(150, 161)]),
        (PopGroups(frozenset({KEY})), {KEY: (150, 160)}, (BEGINNING, 199), [(150, FOREVER)]),
        (PopGroups(frozenset({KEY})), {KEY: (150, 160)}, (90, 199), [(150, FOREVER)]),
        (PopGroups(set_to_pull=frozenset({KEY})), {}, (120, 199), []),
    ],
)
def test_a_group_that_is_switched_while_it_is_online(
    groups: PopGroups,
    popped: dict[tuple[str, str], tuple[int, int]],
    night: tuple[int, int],
    expected: list[tuple[int, int]],
) -> None:
    events = [registered(100)]
    rows = {KEY: subscription_history(events, BrokerConfig())}
    modes = PopModes().with_configuration(groups, night[1]).with_mode_changes(popped, rows, events, groups, night)
    modes = PopModes.from_text(modes.with_pops({key: first for key, (first, _) in popped.items()}, groups).text)
    pops = modes.pops(rows, events, groups, BrokerConfig(), expects_record=True)
    assert pops.recorded.get(KEY, []) == expected


def test_a_group_in_order_is_planned_unless_the_record_of_the_night_has_it() -> None:
    """Remoting clients may pop it out of order. The broker writes that down."""
    events, groups = [registered(100, "remoting_pop")], PopGroups(in_order=frozenset({KEY[0]}))
    rows = {KEY: subscription_history(events, BrokerConfig())}
    for popped, is_recorded in (({KEY: 150, OTHER: 150}, True), ({OTHER: 250}, False)):
        modes = PopModes.from_text(PopModes().with_pops(popped, groups).text)
        pops = modes.pops(rows, events, groups, BrokerConfig())
        assert (KEY in pops.recorded, KEY in pops.planned) == (is_recorded, not is_recorded)


@pytest.mark.parametrize(
    ("protocol", "first_pop", "expected"),
    [
        ("remoting_pop", 250, (250, FOREVER)),
        ("remoting_pop", 350, (300, FOREVER)),
        ("remoting_pop", None, (BEGINNING, FOREVER)),
        ("grpc_simple", 250, (BEGINNING, FOREVER)),
    ],
)
def test_a_protocol_that_is_first_seen_while_the_group_is_online(
    protocol: str, first_pop: int | None, expected: tuple[int, int]
) -> None:
    """gRPC clients cannot be switched."""
    events = [registered(100), registered(300, protocol)]
    rows = {KEY: subscription_history(events, BrokerConfig())}
    modes = PopModes({} if first_pop is None else {KEY: first_pop})
    pops = modes.pops(rows, events, PopGroups(), BrokerConfig(), expects_record=True)
    assert pops.recorded[KEY] == [expected]


def test_events_keep_their_protocol_and_what_requests_carry() -> None:
    line = '{"at": 5, "op": "pop_subscription", "group": "cg", "topic": "T", "type": "SQL92", "expression": "a > 1"}'
    popped = parse_event(line)
    assert (popped.pops, parse_event(event_line(popped))) == (True, popped)
    (row,) = subscription_history([replace(registered(1, "remoting_pop"), at=5), popped], BrokerConfig())
    assert (row.expression, row.sent_with_pull, row.is_consuming) == ("a > 1", True, True)
    assert parse_event(event_line(registered(1, "grpc_push"))) == registered(1, "grpc_push")
    with pytest.raises(ValueError, match="protocol must be one of"):
        parse_event('{"at": 5, "op": "register", "group": "cg", "topic": "T", "expression": "*", "protocol": "amqp"}')


def test_groups_give_up_after_their_own_number_of_attempts() -> None:
    groups = PopGroups(frozenset({KEY}), {"cg": 1}, frozenset({"cg_in_order"}), frozenset({("cg_back", "T")}))
    assert PopGroups.from_text(groups.text) == groups
    assert (groups.most_attempts("cg"), groups.most_attempts("other")) == (2, 17)


@pytest.mark.parametrize(("since", "pops"), [(99, True), (100, False)])
def test_a_subscription_that_ends_when_its_group_begins_to_pop_was_pulled_by(since: int, pops: bool) -> None:
    row = replace(subscription_history([registered(50)], BrokerConfig())[-1], valid_to=100)
    assert as_consumed(row, Pops(recorded={row.key: [(since, FOREVER)]})).pops == pops
