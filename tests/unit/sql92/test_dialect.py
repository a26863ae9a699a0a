"""RocketMQ's SQL92 in sqlglot: read, written again, and refused where its meaning would be lost."""

import pytest
import sqlglot
from sqlglot import exp

from filtering.sql92 import compile
from filtering.sql92.dialect import RocketMQFilter
from tests.unit.sql92.cases import compiled, expressions

SAMPLE = 7
LONGEST = 1_000  # sqlglot recurses; so long a text can be too deep for it.


def written(text: str) -> str:
    return sqlglot.parse_one(text, read="rocketmq").sql("rocketmq")


def test_not_takes_the_next_operand() -> None:
    tree = sqlglot.parse_one("NOT a = 5 rest", read="rocketmq")
    assert isinstance(tree, RocketMQFilter)
    assert isinstance(tree.this, exp.EQ)
    assert isinstance(tree.this.this, exp.Not)
    assert [column.name for column in tree.find_all(exp.Column)] == ["a"]


@pytest.mark.parametrize(
    ("text", "line", "column", "before", "after"),
    [
        ("a = 5\nAND # b", 2, 5, "a = 5\nAND ", " b"),
        ("# a", 1, 1, "", " a"),
        ("\n# a", 2, 1, "\n", " a"),
    ],
)
def test_what_the_broker_refuses_is_an_error_of_one_line_with_its_place(
    text: str, line: int, column: int, before: str, after: str
) -> None:
    with pytest.raises(sqlglot.ParseError) as refused:
        sqlglot.parse_one(text, read="rocketmq")
    assert str(refused.value).startswith("The character '#' is not part of the language. Place: #")
    (error,) = refused.value.errors
    assert (error["line"], error["col"], error["highlight"]) == (line, column, "#")
    assert (error["start_context"], error["end_context"]) == (before, after)


def test_tokens() -> None:
    read = sqlglot.tokenize("a <> 'it''s' # x", read="rocketmq")
    assert [(token.token_type.name, token.text) for token in read] == [("VAR", "a"), ("NEQ", "<>"), ("STRING", "it's")]


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


@pytest.mark.parametrize("dialect", ["spark", "databricks", "duckdb", "datafusion", "trino", "postgres"])
def test_the_dialects_of_engines_write_the_predicate(dialect: str) -> None:
    text = "price > 50.0 AND region IN ('hangzhou')"
    assert sqlglot.transpile(text, read="rocketmq", write=dialect) == [compile(text).sql(dialect)]


def test_an_older_broker_and_another_map() -> None:
    (sql,) = sqlglot.transpile("CONTAINS = 'x'", read="rocketmq, version=4.9.7, properties=m.props", write="spark")
    assert sql == "m.props['CONTAINS'] IS NOT DISTINCT FROM 'x'"


def test_a_filter_is_part_of_a_query() -> None:
    query = sqlglot.select("*").from_("messages").where("a = 'x' OR b = 'x'", dialect="rocketmq").where("queue_id = 0")
    assert query.sql("spark") == (
        "SELECT * FROM messages WHERE (properties['a'] IS NOT DISTINCT FROM 'x' "
        "OR properties['b'] IS NOT DISTINCT FROM 'x') AND queue_id = 0"
    )


def test_an_edited_tree_is_written_as_edited() -> None:
    tree = sqlglot.parse_one("a <> 'x'", read="rocketmq")
    for column in tree.find_all(exp.Column):
        column.replace(exp.column("b"))
    assert tree.sql("spark") == "COALESCE(properties['b'] <> 'x', FALSE)"


@pytest.mark.parametrize("dialect", ["", "mysql", "bigquery", "spark2"])
def test_other_dialects_refuse_to_write_it(dialect: str) -> None:
    with pytest.raises(sqlglot.UnsupportedError, match="can be written for spark, databricks, duckdb"):
        sqlglot.parse_one("a = 5", read="rocketmq").sql(dialect)
    with pytest.raises(sqlglot.UnsupportedError, match="can be written for spark, databricks, duckdb"):
        compile("a = 5").sql(dialect)
