"""What the SQL looks like: tests/cases/sql92_golden.sql, a comment with dialect and expression, and its text below."""

import re
import tracemalloc
from collections import Counter

import pytest
from sqlglot import UnsupportedError

from filtering.sql92 import compile
from tests.unit.broker import CASES

GOLDEN = (CASES / "sql92_golden.sql").read_text().split("\n-- ")[1:]


@pytest.mark.parametrize("entry", GOLDEN, ids=lambda entry: entry.split("\n")[0])
def test_text(entry: str) -> None:
    title, sql = entry.rstrip("\n").split("\n", 1)
    dialect, expression = title.split(": ", 1)
    assert compile(expression).sql(dialect) == sql


def test_columns_instead_of_a_map() -> None:
    predicate = compile("region = 'x' AND vip IS NULL").spark_predicate({"region": "m.region"})
    assert predicate == "m.region IS NOT DISTINCT FROM 'x' AND CAST(NULL AS STRING) IS NULL"


def test_another_map_column() -> None:
    assert compile("a IS NULL").spark_predicate("m.props") == "m.props['a'] IS NULL"


def test_a_path_into_json() -> None:
    predicate = compile("a <> 'x'").sql("duckdb", lambda name: f"(body ->> '$.{name}')")
    assert predicate == "COALESCE((body ->> '$.a') <> 'x', FALSE)"


def test_what_postgres_cannot_say_names_the_leaf() -> None:
    with pytest.raises(UnsupportedError, match=r"postgres cannot write TextContains: .*U\+0000"):
        compile("a CONTAINS '\x00'").sql("postgres")


def test_an_engine_without_variables_refuses_a_text_that_would_repeat_itself_too_often() -> None:
    text = "a = 1"
    for number in range(40):
        text = f"({text} OR b = {number}) AND c <> {number}"
    with pytest.raises(UnsupportedError, match="duckdb cannot say the predicate: it has no variables"):
        compile(text).sql("duckdb")


def test_what_a_deep_predicate_shares_is_not_repeated() -> None:
    text = "a = 1"
    for number in range(200):
        text = f"({text} OR b{number} = {number}) AND c{number} <> {number}"
    predicate = compile(text).spark_predicate()
    uses = Counter(re.findall(r"\bs\d+\.v\d+\b", predicate))
    assert (len(predicate) < 2_000_000, min(uses.values())) == (True, 2)
    for number in (0, 7, 199):
        assert predicate.count(f".v) = {number} AND NOT properties['b{number}']") == 1


def test_the_text_of_a_deep_expression_takes_little_more_memory_than_the_text() -> None:
    expression = "a = 1"
    for number in range(100):
        expression = f"NOT ({expression} = (b > {number}))"
    compiled = compile(expression)
    assert compiled.predicate.operands  # lowered before: the table of all predicates may grow by megabytes then
    tracemalloc.start()
    text = compiled.spark_predicate()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 30 * len(text)
