"""Audits after a topic was deleted and created again: its queues begin again at offset 0."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from answers.explain import why_at
from answers.facts import open_facts
from answers.report import night_summary
from filtering.delivery.pull_window import Reason
from schemas.delta.warehouse import Warehouse
from schemas.tables import CONSUMEQUEUE
from tests.nights.commands import rows_of
from tests.nights.damage import Change, Row, one_row, rewrite
from tests.nights.growing_broker import BEFORE, GrowingBroker, sql

EVENTS = [sql(BEFORE, "cg", "n IS NOT NULL")]


def recreated(broker: GrowingBroker) -> None:
    """The topic is deleted and created again in the second night, after five more messages."""
    broker.night(EVENTS)
    assert broker.failed_audits() == []
    broker.log.append(5)
    broker.log.queues.clear()
    broker.grow()
    broker.night(EVENTS)


def test_a_topic_that_was_created_again_has_no_duplicates(broker: GrowingBroker) -> None:
    recreated(broker)
    for _ in range(2):
        assert broker.failed_audits() == []
        assert broker.failed_audits("--all") == []
        broker.grow()
        broker.night(EVENTS)


def test_the_summary_says_that_a_topic_was_created_again(broker: GrowingBroker) -> None:
    """The pull of the old queue may have been held for 20 s: the new messages of this time are uncertain."""
    recreated(broker)
    facts = open_facts(Warehouse.at(str(broker.folder / "w")))
    (problem,) = (each for each in night_summary(facts).attention if each.code == "began-again")
    assert problem.text.startswith("T began again at 2026-11-18 11:06:55")
    assert "1 queue that had 15" in problem.text
    stats = {row["run"]: row["uncertain"] for row in rows_of(broker.folder / "w", "delivery_stats")}
    assert [stats[run] for run in sorted(stats)] == [0, 10]
    assert [each.uncertain for each in why_at(facts, "T", 0, 3, "cg")] == [None, Reason.HELD_IN_OLD_QUEUE]
    broker.grow()
    broker.night(EVENTS)
    facts = open_facts(Warehouse.at(str(broker.folder / "w")))
    assert [each.code for each in night_summary(facts).attention] == []


def in_new_queue(queue_offset: int) -> Callable[[Row], bool]:
    return lambda row: row["queue_offset"] == queue_offset and row["commitlog_offset"] > 1500


@pytest.mark.parametrize(
    ("fault", "audits"),
    [
        (one_row({"queue_offset": 3}, of=in_new_queue(7)), {"no_duplicates", "offsets_dense"}),
        (lambda rows: [*rows, next(filter(in_new_queue(0), rows))], {"no_duplicates", "nights_follow_each_other"}),
        (lambda rows: [row for row in rows if not in_new_queue(4)(row)], {"messages_have_entries"}),
    ],
)
def test_faults_in_a_topic_that_was_created_again(broker: GrowingBroker, fault: Change, audits: set[str]) -> None:
    recreated(broker)
    rewrite(Warehouse.at(str(broker.folder / "w")), CONSUMEQUEUE, fault)
    assert audits <= set(broker.failed_audits())
