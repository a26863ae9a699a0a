"""Exports of a selection."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from jobs import export, pulls
from schemas.delta.warehouse import Warehouse
from tests.nights.commands import Run

Replayed = Callable[[str], Warehouse]


def test_an_unknown_group_is_refused_with_the_nearest_one(replayed: Replayed, run: Run) -> None:
    selection = ("--group", "cg_sql_region_prize", "--output", "-", "--warehouse", replayed("small").location)
    ended = run(export, "deliveries", *selection)
    assert (ended.code, ended.out) == (2, "")
    assert ended.error.endswith("; did you mean cg_sql_region_price?\n")


@pytest.mark.parametrize(("topic", "rows"), [("OrderEvents", 21), ("TagLab", 0)])
def test_csv_has_its_titles_whatever_was_selected(replayed: Replayed, run: Run, topic: str, rows: int) -> None:
    selection = ("--group", "cg_sql_region_price", "--topic", topic, "--columns", "topic,queue_id", "--format", "csv")
    ended = run(export, "deliveries", *selection, "--output", "-", "--warehouse", replayed("small").location)
    lines = ended.out.splitlines()
    assert (ended.code, lines[0], len(lines) - 1) == (0, "topic,queue_id", rows)
    assert ended.error == f"deliveries: {rows} rows to stdout\n"


def test_a_misspelt_topic_of_pulls(replayed: Replayed, run: Run) -> None:
    warehouse = ("--warehouse", replayed("small").location)
    ended = run(pulls, "--group", "cg_sql_region_price", "--topic", "OrderEvent", *warehouse)
    assert (ended.code, ended.error) == (
        2, "mqsieve: cg_sql_region_price has no subscription to OrderEvent; did you mean OrderEvents?\n",
    )  # fmt: skip
