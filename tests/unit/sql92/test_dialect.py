"""RocketMQ's SQL92 in sqlglot: read, written again, and refused where its meaning would be lost."""

import pytest
import sqlglot
from sqlglot import exp

from filtering.sql92 import compile
from filtering.sql92.dialect import MessageFilter
from tests.unit.sql92.cases import compiled, expressions

SAMPLE = 7
LONGEST = 1_000  # sqlglot recurses; so long a text can be too deep for it.


def written(text: str) -> str:
    return sqlglot.parse_one(text, read="rocketmq").sql("rocketmq")


def test_not_takes_the_next_operand() -> None:
    tree = sqlglot.parse_one("NOT a = 5 rest", read="rocketmq")
    assert isinstance(tree, MessageFilter)
    assert isinstance(tree.this, exp.EQ)
    assert isinstance(tree.this.this, exp.Not)
    assert [column.name for column in tree.find_all(exp.Column)] == ["a"]


def test_what_the_broker_refuses_is_no_tree() -> None:
    with pytest.raises(sqlglot.ParseError, match="is not part of the language"):
        sqlglot.parse_one("a = 5 #", read="rocketmq")


@pytest.mark.parametrize(
    "text",
    [
        "a = 5 AND (b <> 'it''s' OR c IS NOT NULL)",
        "NOT a IS NULL",
        "NOT (a IS NULL)",
        "a NOT BETWEEN 1 AND 9L OR a NOT IN ('x', 'y\\n')",
        "a NOT CONTAINS 'x' AND NOT (a CONTAINS 'x')",
        "a STARTSWITH '%' = TRUE AND a NOT ENDSWITH ''",
        "- -5 = a AND -(a = 5) IS NULL",
        "5 = (a IN ('x'))",
    ],
)
def test_canonical_text_is_written_as_it_was_read(text: str) -> None:
    assert written(text) == text


def test_every_expression_that_the_broker_takes_means_the_same_once_written() -> None:
    texts = [answer["expression"] for answer in expressions() if answer["compiles"]]
    for text in [text for text in texts if len(text) < LONGEST][::SAMPLE]:
        again, meant = compile(written(text)), compiled(text)
        assert (again.predicate, again.error_predicate) == (meant.predicate, meant.error_predicate), text


@pytest.mark.parametrize("dialect", ["spark", "databricks", "duckdb", ""])
def test_other_dialects_refuse_to_write_it(dialect: str) -> None:
    tree = sqlglot.parse_one("a = 5", read="rocketmq")
    with pytest.raises(sqlglot.UnsupportedError, match=r"spark_predicate\(\) is the same filter in Spark SQL"):
        tree.sql(dialect)
    with pytest.raises(sqlglot.UnsupportedError):
        sqlglot.transpile("a = 5", read="rocketmq", write=dialect)
