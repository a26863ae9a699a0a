"""explain where the clients of a group subscribe differently, and where the group once had another filter."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from answers.explain import explanation_facts, why_at
from answers.facts import open_facts
from answers.rendering import facts_as_html
from schemas.delta.warehouse import Warehouse
from tests.nights.commands import Run
from tests.nights.growing_broker import BEFORE, HIGH, LOW, GrowingBroker, after, event, sql
from tests.nights.three_queues import explained, heartbeat, night


def test_the_client_that_drops_a_message_is_named_without_useless_advice(tmp_path: Path, run: Run) -> None:
    night(tmp_path, heartbeat("c1", 1, "paid"), heartbeat("c2", 2, "shipped"))
    assert explained(run, tmp_path, 0, 0).out.splitlines() == [
        "shipped-0  T 0/0 → cg: returned by the broker, dropped by the client",
        "  because     the client that reads the queue drops it: c1 subscribes to 'paid'; the subscription in force is "
        "that of another client",
    ]
    assert ": delivered" in explained(run, tmp_path, 2, 0).out
    stopped = explained(run, tmp_path, 0, 2)
    assert "the tag is 'lost'; the group subscribes to 'shipped'" in stopped.out
    assert "would match" not in stopped.out


def test_all_clients_that_may_have_dropped_a_message_are_named(tmp_path: Path, run: Run) -> None:
    night(tmp_path, heartbeat("c1", 1, "paid"), heartbeat("c2", 2, "paid || lost"), heartbeat("c3", 3, "shipped"))
    out = explained(run, tmp_path, 0, 0).out
    assert "drops it: c1 subscribes to 'paid' or c2 subscribes to 'lost', 'paid'; the subscription" in out


def test_a_change_that_helps_with_every_client_is_shown(tmp_path: Path, run: Run) -> None:
    night(tmp_path, heartbeat("c1", 1, "shipped || paid"), heartbeat("c2", 2, "shipped"))
    assert "would match with TAGS = 'shipped'" in explained(run, tmp_path, 0, 2).out


@pytest.fixture
def changed(broker: GrowingBroker) -> GrowingBroker:
    """The filter is LOW up to message 5, then HIGH."""
    away_and_back = [event(after(7), "unregister", "cg"), sql(after(8), "cg", HIGH)]
    broker.night([sql(BEFORE, "cg", LOW), sql(after(6), "cg", HIGH), *away_and_back])
    return broker


def test_an_earlier_filter_that_decided_is_named(changed: GrowingBroker, run: Run) -> None:
    line = f"  filter      SQL92 {LOW}; since 2026-11-18 11:06:45.500, SQL92 {HIGH} is in force"
    delivered = explained(run, changed.folder, 0, 1).out.splitlines()
    assert delivered[0].endswith(": delivered, uncertain")
    assert delivered[1:3] == ["  because     the expression is TRUE", line]
    assert delivered[3].startswith("  uncertain   stored 4.5 s before the subscription changed")
    stopped = explained(run, changed.folder, 0, 5).out.splitlines()
    assert line in stopped
    answer: dict[str, Any] = json.loads(explained(run, changed.folder, 0, 1, "--json").out)
    assert answer["present"] == {"expression": HIGH, "expression_type": "SQL92", "since": after(6)}


def test_the_filter_in_force_is_not_named_again(changed: GrowingBroker, run: Run) -> None:
    for offset in (6, 9):
        assert "  filter " not in explained(run, changed.folder, 0, offset).out
    assert json.loads(explained(run, changed.folder, 0, 9, "--json").out)["present"] is None


def test_a_notebook_names_the_earlier_filter(changed: GrowingBroker) -> None:
    (explanation,) = why_at(open_facts(Warehouse.at(str(changed.folder / "w"))), "T", 0, 1, "cg")
    assert "since 2026-11-18 11:06:45.500, SQL92 n IN (" in facts_as_html("", explanation_facts(explanation))
