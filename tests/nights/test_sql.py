"""sql over the tables of a real broker's store, as readers see them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jobs import sql
from tests.nights.commands import Ended, Run, rows_of


@pytest.fixture
def ask(run: Run, four_nights: Path) -> Run:
    def ask(query: object, *more: object) -> Ended:
        return run(sql, query, "--warehouse", four_nights, *more)

    return ask


def test_deliveries_have_keys_tags_and_times(ask: Run, four_nights: Path) -> None:
    ended = ask("SELECT count(*) AS n, count(tags) AS tagged FROM deliveries WHERE outcome = 'DELIVERED'", "--json")
    row = json.loads(ended.out)
    assert row["n"] == sum(each["outcome"] == "DELIVERED" for each in rows_of(four_nights, "deliveries", "outcome"))
    assert 0 < row["tagged"] <= row["n"]
    ended = ask("SELECT keys, available_at FROM deliveries WHERE keys LIKE 'ord%' ORDER BY available_at LIMIT 1")
    title, first = (line.split() for line in ended.out.splitlines())
    assert title == ["keys", "available_at"]
    assert first[-1].startswith("20")
    assert first[-1].endswith("+00:00")


def test_properties_and_other_tables_can_be_joined(ask: Run) -> None:
    query = (
        "SELECT c.properties['region'] AS region, s.expression FROM deliveries d "
        "JOIN commitlog c ON c.commitlog_offset = d.commitlog_offset "
        "JOIN subscriptions s ON s.consumer_group = d.consumer_group WHERE s.expression LIKE 'region%' LIMIT 1"
    )
    assert "region" in json.loads(ask(query, "--json").out)


def test_the_query_of_an_audit_can_be_asked(ask: Run) -> None:
    query = (
        "WITH commitlog AS (SELECT *, 1 AS one FROM all_commitlog WHERE run >= '') SELECT sum(one) AS n FROM commitlog"
    )
    (as_audit, as_reader) = (ask(each, "--json").out for each in (query, "SELECT count(*) AS n FROM commitlog"))
    assert json.loads(as_audit) == json.loads(as_reader)


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ("SELEC 1", "Invalid expression / Unexpected token"),
        ("SELECT nothing FROM deliveries", "No field named nothing; deliveries has consumer_group, "),
        ("SELECT 1 FROM delivries", "table 'delivries' not found; did you mean deliveries?"),
        ("SELECT 1 FROM messages", "did you mean commitlog?"),
        ("DROP TABLE commitlog", "it must be one SELECT"),
        ("SELECT 1; SELECT 2", "it must be one SELECT"),
    ],
)
def test_errors_are_one_line(ask: Run, query: str, error: str) -> None:
    ended = ask(query)
    assert (ended.code, ended.out) == (2, "")
    assert error in ended.error
    assert ended.error.count("\n") == 1
