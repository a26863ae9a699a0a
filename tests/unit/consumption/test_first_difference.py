"""From when on two lists of events lead to different deliveries, where a store of a test cannot show it."""

from __future__ import annotations

import pytest

from filtering.broker_config import BrokerConfig
from filtering.consumption.plan import first_difference
from filtering.sql92 import Expressions
from filtering.subscriptions.events import parse_event

PULLS = (
    '{"at": 100, "op": "pull_subscription", "group": "cg", "topic": "T", "type": "TAG", "expression": "a", '
    '"sub_version": 1}'
)
LEAVES = '{"at": %d, "op": "unregister", "group": "cg"%s}'
CLIENT = (
    '{"at": %d, "op": "heartbeat", "group": "cg", "client_id": "%s", '
    '"subscriptions": [{"topic": "T", "type": "TAG", "expression": "%s", "sub_version": %d}]}'
)
CLIENTS = (CLIENT % (100, "c1", "a", 1), CLIENT % (200, "c2", "b", 2))


def difference(one: tuple[str, ...], other: tuple[str, ...], as_of: int = 10_000) -> int | None:
    first, second = ([parse_event(line) for line in lines] for lines in (one, other))
    return first_difference(first, second, as_of, BrokerConfig(), Expressions())


@pytest.mark.parametrize(("as_of", "at"), [(99, None), (100, 100)])
def test_an_event_in_the_last_millisecond_counts(as_of: int, at: int | None) -> None:
    assert difference((PULLS,), (), as_of) == at


def test_a_group_that_only_sends_subscriptions_with_its_pulls_leaves() -> None:
    assert difference((PULLS,), (PULLS, LEAVES % (300, ""))) == 300


def test_the_only_client_that_disagrees_leaves_earlier() -> None:
    """The subscription in force stays, but another client reads the queues."""
    first_client = ', "client_id": "c1"'
    assert difference((*CLIENTS, LEAVES % (300, first_client)), (*CLIENTS, LEAVES % (400, first_client))) == 300
    assert difference((*CLIENTS, LEAVES % (300, first_client)), (*CLIENTS, LEAVES % (300, first_client))) is None


def test_the_last_client_leaves_another_topic() -> None:
    """The subscription stays in force, but no client checks other tags any more."""
    client_of_a = CLIENT % (100, "c1", "a", 1)
    all_clients = (
        '{"at": 200, "op": "heartbeat", "group": "cg", '
        '"subscriptions": [{"topic": "T", "type": "TAG", "expression": "b", "sub_version": 2}]}'
    )
    leaves = '{"at": 300, "op": "unregister", "group": "cg", "topic": "U"%s}'
    one, other = (leaves % client for client in (', "client_id": "c1"', ""))
    assert difference((client_of_a, all_clients, one), (client_of_a, all_clients, other)) == 300
