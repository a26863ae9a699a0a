"""Why a group has not pulled a message, and which other subscription may have filtered it, at the limits of times."""

from __future__ import annotations

import pytest

from answers.explain import Pulled, earlier_filter, later_filter, why_pending
from filtering.broker_config import BrokerConfig
from filtering.subscriptions.events import in_order, parse_event
from filtering.subscriptions.history import subscription_history
from filtering.subscriptions.subscription_row import SubscriptionRow

CONFIG = BrokerConfig(enable_property_filter=True)
STORED_AT = 100
LEAVES = '{"at": %d, "op": "unregister", "group": "cg", "topic": "T"}'


def registers(at: int, expression: str, type: str = "TAG") -> str:
    return (
        f'{{"at": {at}, "op": "register", "group": "cg", "topic": "T", "type": "{type}", "expression": "{expression}"}}'
    )


def states(*lines: str) -> list[SubscriptionRow]:
    return subscription_history(in_order(map(parse_event, lines)), CONFIG)


@pytest.mark.parametrize(
    ("as_of", "why"),
    [
        (100, "the group comes after the end of the last night"),
        (200, "the group does not keep up"),
        (500, "the group comes after the end of the last night"),
        (600, "the group does not keep up"),
    ],
)
def test_why_a_group_that_is_online_now_has_not_pulled(as_of: int, why: str) -> None:
    rows = states(registers(200, "a"), LEAVES % 400, registers(600, "a"))
    assert why_pending(rows, CONFIG, as_of) == f"{why}, and has not pulled it yet"


@pytest.mark.parametrize(("changed_at", "is_uncertain"), [(100, False), (101, True), (5_100, True), (5_101, False)])
def test_a_message_waits_five_seconds_in_a_held_pull(changed_at: int, is_uncertain: bool) -> None:
    rows = states(registers(0, "x > 1", "SQL92"), registers(changed_at, "x > 2", "SQL92"))
    assert (later_filter(rows, Pulled(rows[0], STORED_AT, CONFIG)) is not None) == is_uncertain


@pytest.mark.parametrize(("at", "may_be_dropped"), [(1_000, True), (20_999, True), (21_000, False)])
def test_a_pull_is_held_for_twenty_seconds(at: int, may_be_dropped: bool) -> None:
    """The client checks its answer by the tags with which it asked."""
    rows = states(registers(0, "a"), registers(1_000, "b"))
    assert (earlier_filter(rows, Pulled(rows[1], at, CONFIG)) is not None) == may_be_dropped


@pytest.mark.parametrize(("lines", "is_held"), [((), True), ((LEAVES % 1_000,), False)])
def test_a_group_that_left_has_no_held_pull(lines: tuple[str, ...], is_held: bool) -> None:
    rows = states(registers(0, "a"), *lines, registers(2_000, "b"))
    assert (earlier_filter(rows, Pulled(rows[-1], 3_000, CONFIG)) is not None) == is_held
