"""DuckDB and DataFusion on the broker's cases: the SQL is true where the broker delivers, or the engine refuses."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from filtering.sql92 import CompiledExpression, compile
from tests.depth import DEEP
from tests.unit.sql92.cases import compiled, expressions

Run: TypeAlias = Callable[[Sequence[dict[str, str]], Sequence[str]], list[list[bool | None]]]

A_QUERY = 100
REFUSED = re.compile(r"(?![0-9])\d|0[xX].*[pP]")
"""Texts that an engine may refuse: digits beyond ASCII, and hexadecimal doubles."""
MOST_REFUSED = 0.05


def in_duckdb(messages: Sequence[dict[str, str]], predicates: Sequence[str]) -> list[list[bool | None]]:
    with duckdb.connect() as connection:
        connection.register("messages", table(messages))
        connection.execute(query(predicates))
        return [list(column) for column in zip(*connection.fetchall(), strict=True)][1:]


def in_datafusion(
    folder: Path, messages: Sequence[dict[str, str]], predicates: Sequence[str]
) -> list[list[bool | None]]:
    write_deltalake(folder, table(messages), mode="overwrite")
    engine = QueryBuilder()
    engine.register("messages", DeltaTable(folder))
    return [column.to_pylist() for column in pa.table(engine.execute(query(predicates)).read_all()).columns][1:]


def table(messages: Sequence[dict[str, str]]) -> pa.Table:
    maps = pa.array([list(message.items()) for message in messages], pa.map_(pa.string(), pa.string()))
    return pa.table({"row": pa.array(range(len(messages)), pa.int64()), "properties": maps})


def query(predicates: Sequence[str]) -> str:
    columns = ", ".join(f"{predicate} AS p{number}" for number, predicate in enumerate(predicates))
    return f"SELECT row, {columns} FROM messages ORDER BY row"  # noqa: S608


@pytest.fixture
def engines(tmp_path: Path) -> dict[str, Run]:
    return {"duckdb": in_duckdb, "datafusion": lambda *asked: in_datafusion(tmp_path / "messages", *asked)}


@pytest.mark.parametrize(("dialect", "each"), [("duckdb", 1 if DEEP else 5), ("datafusion", 20)])
def test_an_engine_delivers_what_the_broker_delivers(engines: dict[str, Run], dialect: str, each: int) -> None:
    known = [(compiled(row["expression"]), row["cases"]) for row in expressions() if row["compiles"]][::each]
    all_cases = sum(len(cases) for _, cases in known)
    asked = [(expression, [case for case in cases if not may_be_refused(case)]) for expression, cases in known]
    assert sum(len(cases) for _, cases in asked) > (1 - MOST_REFUSED) * all_cases
    wrong = []
    for first in range(0, len(asked), A_QUERY):
        wrong += disagreements(engines[dialect], dialect, asked[first : first + A_QUERY])
    assert not wrong, wrong[:10]


def may_be_refused(case: dict[str, Any]) -> bool:
    return any(REFUSED.search(text) for text in case["properties"].values())


def disagreements(
    run: Run, dialect: str, asked: Sequence[tuple[CompiledExpression, list[dict[str, Any]]]]
) -> list[tuple[str, dict[str, Any]]]:
    places: dict[tuple[tuple[str, str], ...], int] = {}
    for _, cases in asked:
        for case in cases:
            places.setdefault(tuple(case["properties"].items()), len(places))
    answers = run([dict(message) for message in places], [expression.sql(dialect) for expression, _ in asked])
    return [
        (expression.expression, case)
        for (expression, cases), answer in zip(asked, answers, strict=True)
        for case in cases
        if answer[places[tuple(case["properties"].items())]] is not (case["result"] == "TRUE")
    ]


@pytest.mark.parametrize("dialect", ["duckdb", "datafusion"])
@pytest.mark.parametrize(("expression", "text"), [("a > 5.0", "0x1p3"), ("a > 5.0", "-0x1p3"), ("a > 5", "٦")])
def test_an_engine_refuses_what_it_cannot_read(
    engines: dict[str, Run], dialect: str, expression: str, text: str
) -> None:
    with pytest.raises(Exception, match=r"(?i)(convert|cast) string"):
        engines[dialect]([{"a": text}], [compile(expression).sql(dialect)])
