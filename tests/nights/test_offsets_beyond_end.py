"""Committed offsets beyond the end of a queue: its topic was created again, or the store was wiped."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jobs import lag, lint, nightly
from tests.nights.commands import Ended, Run
from tests.nights.growing_broker import BEFORE, GrowingBroker, after, event, sql

PUBLIC = Path(__file__).parents[1] / "cases" / "public" / "offset-beyond-end"
EVERYTHING = "n IS NOT NULL"
MOVED = "when it pulls, the broker moves it to the end (OFFSET_OVERFLOW_BADLY)"


def test_a_public_question(run: Run, tmp_path: Path) -> None:
    given = ("--store", PUBLIC / "log.jsonl", "--subscriptions", PUBLIC / "events.jsonl")
    night = run(nightly, *given, "--broker-config", PUBLIC / "broker.conf", "--warehouse", tmp_path / "w")
    assert night.code == 0, night

    def asked(*arguments: object) -> Ended:
        return run(lag, "--warehouse", tmp_path / "w", "--offsets", PUBLIC / "consumerOffset.json", *arguments)

    lines = asked().out.splitlines()
    assert lines[0].startswith("0 of 1 subscription")
    assert lines[1].startswith(
        "cg on orders: its committed offsets are beyond the end of 2 queues, by up to 647,260,578"
    )
    assert MOVED in lines[1]
    assert all("-647,260,578" in line for line in asked("--group", "cg").out.splitlines()[1:3])
    rows = [json.loads(line) for line in asked("--json").out.splitlines()]
    assert [(row["ahead"], row["would_get"]) for row in rows] == [(647_260_578, 0)] * 2
    gauges = [line for line in asked("--prometheus").out.splitlines() if line.startswith("mqsieve_consumer_ahead")]
    assert [line.rsplit(maxsplit=1)[1] for line in gauges] == ["647260578"] * 2


@pytest.mark.parametrize(("committed", "beyond"), [(10, 0), (11, 1), (5000, 4990)])
def test_the_snapshot_of_a_night_shows_it(broker: GrowingBroker, committed: int, beyond: int) -> None:
    broker.commit(cg=committed, cg_other=10)
    lines = [sql(BEFORE, "cg", EVERYTHING), event(after(1), "unregister", "cg"), sql(BEFORE, "cg_other", EVERYTHING)]
    summary = broker.night(lines).out
    assert (f"by {beyond:,}: {MOVED}" in summary) is bool(beyond)
    warehouse = ("--warehouse", broker.folder / "w")
    assert (MOVED in broker.run(lint, *warehouse).out) is bool(beyond)
    answer = broker.run(lag, *warehouse).out
    assert (MOVED in answer, "2 of 2 subscriptions" in answer) == (bool(beyond), not beyond)
    rows = [json.loads(line) for line in broker.run(lag, *warehouse, "--json").out.splitlines()]
    assert {row["consumer_group"]: row["ahead"] for row in rows} == {"cg": beyond, "cg_other": 0}


def test_when_it_returns_it_gets_only_what_is_stored_from_then_on(broker: GrowingBroker) -> None:
    broker.commit(cg=5000)
    lines = [sql(BEFORE, "cg", EVERYTHING), event(after(1), "unregister", "cg")]
    broker.night(lines)
    broker.grow()
    broker.night([*lines, sql(after(15), "cg", EVERYTHING)])
    assert broker.received("cg") == [0, *range(15, 20)]


def test_a_group_that_pulls_is_not_reported(broker: GrowingBroker) -> None:
    """The broker corrects its offset: the log was copied before the offsets."""
    broker.commit(cg=12)
    assert MOVED not in broker.night([sql(BEFORE, "cg", EVERYTHING)]).out
