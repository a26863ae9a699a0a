"""What a person at a Python prompt gets wrong: an error that names it, never a wrong answer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from answers import warehouse
from answers.explain import why_on_brokers
from filtering import matcher, sql92
from filtering.bloom_filter import BloomFilter
from filtering.broker_config import read_properties
from filtering.consumer_filter_manager import ConsumerFilterManager
from filtering.relation import relation
from filtering.subscription_data import Subscription, build_subscription_data
from filtering.tags_code import java_hash

BATCH = pa.RecordBatch.from_pydict({"price": ["55", "5"]})
SUBSCRIPTION = Subscription(topic="OrderEvents", expression="price > 5", type="SQL92", version=1)
MISTAKES: dict[str, tuple[Callable[[], Any], str]] = {
    "a number as a property": (
        lambda: sql92.compile("price > 5").evaluate({"price": 55}),  # type: ignore[dict-item]
        "properties are texts: price is 55 (int)",
    ),
    "NaN, as pandas has it": (
        lambda: sql92.compile("region = 'x'").evaluate({"region": float("nan")}),  # type: ignore[dict-item]
        "properties are texts: region is nan (float)",
    ),
    "no expression": (
        lambda: sql92.compile(None),  # type: ignore[arg-type]
        "an expression is a text, not NoneType",
    ),
    "one expression instead of a list": (
        lambda: matcher.match(BATCH, "price > 5"),
        "expressions must be a list of texts, not one text",
    ),
    "numbers as a column": (
        lambda: matcher.match(pa.record_batch({"price": [55.0, 5.5]}), ["price > 5"]),
        "properties are texts: price has the type double",
    ),
    "octets as a column": (
        lambda: matcher.match(pa.record_batch({"region": pa.array([b"x"]).dictionary_encode()}), ["region = 'x'"]),
        "properties are texts: region has the type binary",
    ),
    "numbers in a map": (
        lambda: matcher.match(pa.array([[("price", 55)]], pa.map_(pa.string(), pa.int64())), ["price > 5"]),
        "properties are texts: an item of the map has the type int64",
    ),
    "no properties": (
        lambda: sql92.compile("price > 5").evaluate(None),  # type: ignore[arg-type]
        "properties are a mapping of names to texts, not NoneType",
    ),
    "pairs as properties": (
        lambda: sql92.compile("price > 5").evaluate([("price", "55")]),  # type: ignore[arg-type]
        "properties are a mapping of names to texts, not list",
    ),
    "columns as a list": (
        lambda: sql92.compile("price > 5").spark_predicate(["price"]),  # type: ignore[arg-type]
        "properties are the SQL text of a map, or a mapping of names to SQL texts, not list",
    ),
    "a predicate as an expression": (
        lambda: matcher.match(BATCH, [sql92.compile("price > 5")]),  # type: ignore[list-item]
        "an expression is a text, not CompiledExpression",
    ),
    "no tag": (
        lambda: java_hash(None),  # type: ignore[arg-type]
        "a tag is a text, not NoneType",
    ),
    "a list of tags": (
        lambda: build_subscription_data("OrderEvents", ["paid", "shipped"]),  # type: ignore[arg-type]
        "a tag expression is a text, such as 'paid || shipped', not list",
    ),
    "octets as tags": (
        lambda: build_subscription_data("OrderEvents", b"paid"),  # type: ignore[arg-type]
        "a tag expression is a text, such as 'paid || shipped', not bytes",
    ),
    "one key instead of a list": (
        lambda: BloomFilter.create_by_fn(20, 64).bit_map("cg_paid#OrderEvents"),
        "keys must be a list of texts, not one text",
    ),
    "octets as a Bloom filter's key": (
        lambda: BloomFilter.create_by_fn(20, 64).bit_positions(b"cg_paid#OrderEvents"),  # type: ignore[arg-type]
        "a key is a text, such as 'cg_paid#OrderEvents', not bytes",
    ),
    "a text as an error rate": (
        lambda: BloomFilter.create_by_fn("20", 64),  # type: ignore[arg-type]
        "f and n are whole numbers, not '20' and 64",
    ),
    "a decimal number of groups": (
        lambda: BloomFilter.create_by_fn(20, 64.5),  # type: ignore[arg-type]
        "f and n are whole numbers, not 20 and 64.5",
    ),
    "one subscription instead of a list": (
        lambda: ConsumerFilterManager(20, 64).register("cg", SUBSCRIPTION, 1),  # type: ignore[arg-type]
        "subscriptions must be a list, not one subscription",
    ),
    "expressions that are not compiled": (
        lambda: relation("price > 5", "price > 6"),  # type: ignore[arg-type]
        "a filter is a predicate, such as compile('price > 5').predicate, not str",
    ),
    "the path of a broker.conf": (
        lambda: read_properties(Path("broker.conf")).config,  # type: ignore[arg-type]
        "a broker configuration is the text of its file, not PosixPath",
    ),
    "a number as a key": (
        lambda: why_on_brokers([None], 370),  # type: ignore[arg-type, list-item]
        "a message is named by a text, not by int",
    ),
    "a folder from a variable that is not set": (
        lambda: warehouse.open(None),  # type: ignore[arg-type]
        "expected str, bytes or os.PathLike object, not NoneType",
    ),
}


@pytest.mark.parametrize(("mistake", "message"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_named(mistake: Callable[[], Any], message: str) -> None:
    with pytest.raises(TypeError) as raised:
        mistake()
    assert str(raised.value) == message


def test_completion_of_the_entry_point_offers_what_is_for_users() -> None:
    assert dir(warehouse) == ["OpenWarehouse", "open"]


def test_help_of_match_needs_no_other_page() -> None:
    for word in ("RecordBatch", "StructArray", "MapArray", "counts()", "pairs()"):
        assert word in (matcher.match.__doc__ or "")
