"""The Spark SQL text of every expression, on every message, in every kind of session."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from filtering.sql92 import CompiledExpression, EvaluationError, InvalidExpression, compile
from tests.depth import DEEP
from tests.unit.sql92.cases import expressions
from tests.unit.sql92.generator import Generator

MAP = pa.map_(pa.string(), pa.string())
A_QUERY = 100
LONGEST = 5_000
SESSIONS = {
    "ANSI": {"spark.sql.ansi.enabled": "true", "spark.sql.session.timeZone": "Asia/Kathmandu"},
    "not ANSI, no code generation": {
        "spark.sql.ansi.enabled": "false",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.caseSensitive": "true",
        "spark.sql.session.timeZone": "America/St_Johns",
    },
}


@contextmanager
def session(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    before = {name: spark.conf.get(name) or "" for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    yield
    for name, value in before.items():
        spark.conf.set(name, value)


def evaluated(
    spark: SparkSession, expressions: Sequence[CompiledExpression], messages: Sequence[Sequence[tuple[str, str]]]
) -> list[list[bool | None]]:
    """For each expression whether it is true of each message; None would be a third value."""
    sql = {compiled.predicate: compiled.spark_predicate() for compiled in expressions}
    place = {predicate: number for number, predicate in enumerate(sql)}
    table = pa.table({"row": range(len(messages)), "properties": pa.array(messages, MAP)})
    columns = [f"{text} AS p{number}" for number, text in enumerate(sql.values())]
    rows = spark.createDataFrame(table).selectExpr("row", *columns).toArrow().sort_by("row").drop("row")
    answers = [column.to_pylist() for column in rows.columns]
    return [answers[place[compiled.predicate]] for compiled in expressions]


@pytest.mark.parametrize("settings", SESSIONS.values(), ids=SESSIONS)
def test_spark_delivers_what_the_broker_delivers(spark: SparkSession, settings: Mapping[str, str]) -> None:
    known = [
        (compile(answer["expression"]), answer["cases"])
        for answer in expressions()
        if answer["compiles"] and len(answer["expression"]) < LONGEST
    ]
    assert len(known) > 5_000
    if settings is not SESSIONS["ANSI"] and not DEEP:
        known = known[::5]
    with session(spark, settings), ThreadPoolExecutor(2) as both_cores:
        parts = (known[first : first + A_QUERY] for first in range(0, len(known), A_QUERY))
        wrong = [each for part in both_cores.map(lambda part: list(disagreements(spark, part)), parts) for each in part]
    assert not wrong, wrong[:10]


def disagreements(
    spark: SparkSession, asked: Sequence[tuple[CompiledExpression, list[dict[str, Any]]]]
) -> Iterator[tuple[str, dict[str, Any], bool | None]]:
    rows: dict[tuple[tuple[str, str], ...], int] = {}
    for _, cases in asked:
        for case in cases:
            rows.setdefault(tuple(case["properties"].items()), len(rows))
    answers = evaluated(spark, [compiled for compiled, _ in asked], list(rows))
    for (compiled, cases), answer in zip(asked, answers, strict=True):
        for case in cases:
            outcome = answer[rows[tuple(case["properties"].items())]]
            if outcome is not (case["result"] == "TRUE"):
                yield compiled.expression, case, outcome


def test_spark_agrees_with_the_reference_on_random_expressions(spark: SparkSession) -> None:
    generator = Generator(Random(20_261_121))
    asked: list[CompiledExpression] = []
    while len(asked) < 2 * A_QUERY:
        try:
            asked.append(CompiledExpression(generator.expression()))
        except InvalidExpression:
            continue
    messages = [generator.properties() for _ in range(200)]
    wrong = []
    for compiled, answer in zip(asked, evaluated(spark, asked, [list(m.items()) for m in messages]), strict=True):
        for message, outcome in zip(messages, answer, strict=True):
            try:
                expected = compiled.evaluate(message) is True
            except EvaluationError:
                expected = False
            if outcome is not expected:
                wrong.append((compiled.expression, message, outcome))
    assert not wrong, wrong[:10]


def test_properties_may_be_columns(spark: SparkSession) -> None:
    frame = spark.createDataFrame([("x", "55.10", 1), ("x", "9", 2), (None, "60", 3)], "region string, p string, n int")
    predicate = compile("region = 'x' AND price > 50.0 AND vip IS NULL").spark_predicate(
        {"region": "region", "price": "p"}
    )
    assert [row.n for row in frame.where(predicate).collect()] == [1]


def test_an_integer_with_a_byte_order_mark_is_none(spark: SparkSession) -> None:
    """Spark's CSV parser skips the mark if it is in the first text of a task."""
    expressions = [compile(text) for text in ("a = 5", "a <> 7", "a > 4294967296 OR b = 5")]
    messages = [[("a", "\ufeff5"), ("b", "\ufeff5")], [("a", "٥"), ("b", "５")]]
    assert evaluated(spark, expressions, messages) == [[False, True], [False, True], [False, True]]


@pytest.mark.parametrize("escaped", ["true", "false"])
@pytest.mark.parametrize(
    "text",
    [
        "it's",
        "\\",
        "\\'",
        "\\\\'",
        "' OR TRUE --",
        "${spark.master}",
        "$",
        "a\nb",
        "\x00",
        "/*",
        "*/",
        "%",
        "`",
        "\\u0041",
        "é😀",
        "''",
        ";",
    ],
)
def test_nothing_in_a_string_escapes_into_sql(spark: SparkSession, text: str, escaped: str) -> None:
    expression = "a = '{0}' AND a CONTAINS '{0}' AND a IN ('', '{0}')".format(text.replace("'", "''"))
    values = (text, text + "x", "A", "", str(spark.sparkContext.master))
    messages = [[("a", value)] for value in values]
    with session(spark, {"spark.sql.parser.escapedStringLiterals": escaped}):
        (answer,) = evaluated(spark, [compile(expression)], messages)
    assert answer == [True, False, False, False, False]


def test_ten_thousand_alternatives_and_deep_nesting_run(spark: SparkSession) -> None:
    deep = "a = '1'"
    for number in range(40):
        deep = f"({deep} OR b = '{number}') AND c <> '{number}'"
    integers = "a = 1"
    for number in range(8):
        integers = f"({integers} OR b = {number}) AND c <> {number}"
    asked = [
        compile(" OR ".join(f"a = {number}" for number in range(10_000))),
        compile(" OR ".join(f"a = 'x{number}'" for number in range(10_000))),
        compile(" OR ".join(f"p{number} = 'x'" for number in range(2_000))),
        compile("(" * 20_000 + "a = 1" + ")" * 20_000),
        compile(deep),
        compile(integers),
    ]
    messages = [{"a": "1", "b": "0", "c": "77"}, {"a": "x7", "p1999": "x"}]
    answers = evaluated(spark, asked, [list(message.items()) for message in messages])
    assert answers == [[True, False], [False, True], [False, True], [True, False], [True, False], [True, False]]
