"""explain says what to do, not only what happened."""

from __future__ import annotations

import json

import pytest

from jobs import explain, lag, nightly
from tests.nights.commands import Run
from tests.nights.growing_broker import BEFORE, GrowingBroker, event, sql
from tests.nights.three_queues import explained, heartbeat, night

FIRST = ("--group", "cg", "--topic", "T", "--queue", 0, "--offset", 0)


def lines_of(broker: GrowingBroker, expression: str) -> list[str]:
    """The lines about the first message, without the first one."""
    broker.night([sql(BEFORE, "cg", expression)])
    return broker.run(explain, "--warehouse", broker.folder / "w", *FIRST).out.splitlines()[1:]


def lint_in_json(broker: GrowingBroker) -> list[str]:
    """What the JSON about the first message says as ``lint``."""
    lint: list[str] = json.loads(broker.run(explain, "--warehouse", broker.folder / "w", *FIRST, "--json").out)["lint"]
    return lint


@pytest.mark.parametrize(
    ("expression", "finding"),
    [
        ("n LIKE '0%'", """The expression is complete before character 3; the broker ignores "LIKE '0%'"."""),
        ("NOT n = '5'", "NOT takes only the next operand, not the comparison after it."),
        ("n", "A property alone is never TRUE"),
    ],
)
def test_an_expression_that_means_something_else(broker: GrowingBroker, expression: str, finding: str) -> None:
    (line,) = (line for line in lines_of(broker, expression) if line.startswith("  lint "))
    assert finding in line
    assert lint_in_json(broker) == [line.removeprefix("  lint").lstrip()]


@pytest.mark.parametrize("expression", ["n = '5'", "price > 5", "n > 5"])
def test_an_expression_that_means_what_it_says(broker: GrowingBroker, expression: str) -> None:
    assert not any(line.startswith("  lint ") for line in lines_of(broker, expression))
    assert lint_in_json(broker) == []


def test_a_client_that_was_overruled_is_named(broker: GrowingBroker, run: Run) -> None:
    night(broker.folder, heartbeat("c1", 1, "paid"), heartbeat("c2", 2, "shipped"))
    stopped = explained(run, broker.folder, 0, 1).out
    overruled = "c1 subscribes to it, but the broker has the subscription of another client"
    assert f"the group subscribes to 'shipped'; {overruled}" in stopped
    reason = json.loads(explained(run, broker.folder, 0, 1, "--json").out)["reason"]
    assert "c1 subscribes to it" in reason


def test_clients_that_were_overruled_are_named(broker: GrowingBroker, run: Run) -> None:
    night(broker.folder, heartbeat("c1", 1, "paid"), heartbeat("c2", 1, "paid"), heartbeat("c3", 2, "shipped"))
    assert "; c1, c2 subscribe to it, but the broker" in explained(run, broker.folder, 0, 1).out


def test_a_warehouse_without_subscriptions(broker: GrowingBroker) -> None:
    given = ("--store", broker.folder / "store", "--broker-config", broker.folder / "broker.conf")
    broker.run(nightly, *given, "--warehouse", broker.folder / "w")
    place = ("--topic", "T", "--queue", 0, "--offset", 0)
    where = ("--warehouse", broker.folder / "w")
    reason = "no night had --subscriptions"
    assert broker.run(explain, *where, *place).out.endswith(f": {reason}\n")
    assert broker.run(explain, *where, *place, "--group", "cg").error.endswith(f": {reason}\n")
    assert broker.run(lag, *where, "--group", "cg").error.endswith(f": {reason}\n")


def test_a_message_that_is_not_there_may_be_newer(broker: GrowingBroker) -> None:
    broker.night([sql(BEFORE, "cg", "n = '5'")])
    error = broker.run(explain, "--warehouse", broker.folder / "w", "--message", "nope").error
    assert error.endswith(" no message with the id or key nope; the last night ended at 2026-11-18 11:06:49.000\n")


@pytest.mark.parametrize(
    ("topic", "why"),
    [
        ("%RETRY%cg", "no event subscribes the group to its retry topic, as its clients do: add one with the tag *"),
        ("%DLQ%cg", "its consumers failed on it too often: nothing is delivered from a dead-letter queue"),
    ],
)
def test_copies_for_consumers_that_failed(broker: GrowingBroker, topic: str, why: str) -> None:
    broker.log.append(1, topic, KEYS="o-1")
    broker.log.write(broker.folder / "store")
    broker.night([event(BEFORE, "register", "cg", type="TAG", expression="*")])
    out = broker.run(explain, "--warehouse", broker.folder / "w", "--message", "o-1", "--group", "cg").out
    assert out.splitlines()[1] == f"  because     {why}"


def test_a_client_with_sql92_that_was_overruled_is_named(broker: GrowingBroker, run: Run) -> None:
    own, in_force = (heartbeat("c1", 1, "TAGS = 'paid'", type="SQL92"), heartbeat("c2", 2, "n = 'x'", type="SQL92"))
    night(broker.folder, own, in_force, conf="enablePropertyFilter=true\n")
    overruled = "c1 subscribes to it, but the broker has the subscription of another client"
    assert overruled in explained(run, broker.folder, 0, 1).out
    assert "subscribes to it" not in explained(run, broker.folder, 0, 2).out


@pytest.mark.parametrize(
    ("tags", "finding"),
    [("region = 'eu'", "is a tag here, not SQL92"), ("a,b", "is one tag here"), ("paid || *", "not every tag")],
)
def test_a_list_of_tags_that_means_something_else(broker: GrowingBroker, run: Run, tags: str, finding: str) -> None:
    night(broker.folder, heartbeat("c1", 1, tags))
    (line,) = (line for line in explained(run, broker.folder, 0, 0).out.splitlines() if line.startswith("  lint "))
    assert finding in line


@pytest.mark.parametrize(
    ("expression", "advice"), [("n IS NULL", "without n"), ("n IS NULL AND m = 'a'", "with m = 'a' and without n")]
)
def test_a_property_that_should_not_be_there(broker: GrowingBroker, expression: str, advice: str) -> None:
    assert lines_of(broker, expression)[-1] == f"  would match {advice}"


def test_a_connected_client_whose_pulls_are_refused_is_not_away(broker: GrowingBroker, run: Run) -> None:
    """The heartbeat of the other client does not list the topic, and so removes the group's subscription."""
    night(broker.folder, heartbeat("c1", 1, "paid"), heartbeat("c2", 2, "*", topic="U"))
    out = explained(run, broker.folder, 0, 1).out
    assert "refuses the group's pulls (SUBSCRIPTION_NOT_EXIST)" in out
    assert "c1 subscribes to the topic, but the heartbeat of c2 does not list it" in out
    assert "away" not in out
    behind = run(lag, "--warehouse", broker.folder / "w", "--json").out.splitlines()
    assert {json.loads(line)["refusal"] for line in behind} == {"SUBSCRIPTION_NOT_EXIST"}
    assert "refused: SUBSCRIPTION_NOT_EXIST" in run(lag, "--warehouse", broker.folder / "w").out


def test_a_list_typed_by_hand_has_no_dates_of_1970(broker: GrowingBroker) -> None:
    broker.night("- {group: cg, topic: T, tag: a}", name="list.yaml")
    out = broker.run(explain, "--warehouse", broker.folder / "w", *FIRST, "--full").out
    assert "in force    the beginning – now" in out
    assert "1970" not in out
