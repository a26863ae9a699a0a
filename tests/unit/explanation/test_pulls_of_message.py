"""Why a group has not pulled a message, at the limits of times."""

from __future__ import annotations

import pytest

from answers.explain import why_pending
from filtering.broker_config import BrokerConfig
from filtering.subscriptions.events import in_order, parse_event
from filtering.subscriptions.history import subscription_history
from filtering.subscriptions.subscription_row import SubscriptionRow

CONFIG = BrokerConfig(enable_property_filter=True)
LEAVES = '{"at": %d, "op": "unregister", "group": "cg", "topic": "T"}'


def registers(at: int) -> str:
    return f'{{"at": {at}, "op": "register", "group": "cg", "topic": "T", "type": "TAG", "expression": "a"}}'


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
    rows = states(registers(200), LEAVES % 400, registers(600))
    assert why_pending(rows, CONFIG, as_of) == f"{why}, and has not pulled it yet"
