"""The names that programs outside this project call, with the parameters that they use."""

from __future__ import annotations

import pyarrow as pa
import pytest

from filtering.bloom_filter import BloomFilter
from filtering.consumer_filter_manager import ConsumerFilterManager
from filtering.matcher import match
from filtering.sql92 import EvaluationError, InvalidExpression, compile
from filtering.subscription_data import build_subscription_data
from filtering.tags_code import java_hash
from schemas.run_ledger import RUN_LEDGER
from schemas.tables import QUALITY_RESULTS, TABLES

COLUMNS = {
    "commitlog": "broker_name commitlog_offset topic queue_id queue_offset store_size born_timestamp store_timestamp "
    "sys_flag flag reconsume_times prepared_transaction_offset born_host store_host body",
    "consumequeue": "broker_name topic queue_id queue_offset commitlog_offset size tags_code store_timestamp "
    "filter_bit_map",
    "subscriptions": "broker_name consumer_group topic valid_from expression expression_type sub_version born_time "
    "dead_time valid_to tags_set code_set bit_pos bit_num predicate compile_error",
    "consumer_offsets": "broker_name consumer_group topic queue_id as_of decided_to committed",
    "delivery_stats": "run consumer_group topic queue_id scanned passed_stage1 passed_stage2 delivered "
    "bit_map_false_positives hash_collisions evaluation_errors",
    "quarantine": "source_file offset reason bytes",
    "quality_results": "run audit severity bad_rows sample",
    "run_ledger": "run job input_versions output_versions rows outcome",
}


def test_tags() -> None:
    data = build_subscription_data("T", "a || b")
    assert (java_hash("TagA"), data.sub_string) == (2598919, "a || b")
    assert (set(data.tags_set), set(data.code_set)) == ({"a", "b"}, {97, 98})
    assert build_subscription_data("T", None).sub_string == "*"


def test_bloom_filter() -> None:
    bloom_filter = BloomFilter.create_by_fn(20, 64)
    positions = bloom_filter.bit_positions("group#topic")
    bits = int.from_bytes(bloom_filter.bit_map(["group#topic"]), "little")
    assert (len(positions), bits) == (bloom_filter.k, sum(1 << position for position in positions))
    assert bits < 1 << bloom_filter.m
    with pytest.raises(ValueError, match="f must be"):
        BloomFilter.create_by_fn(0, 64)


def test_sql92() -> None:
    compiled = compile("price > 5")
    assert compiled.evaluate({"price": "6"}) is True
    assert compiled.evaluate({}) is None
    assert "m.props['price']" in compiled.spark_predicate(properties="m.props")
    with pytest.raises(EvaluationError):
        compiled.evaluate({"price": "many"})
    with pytest.raises(InvalidExpression) as refused:
        compile("price >")
    assert (isinstance(refused.value, ValueError), refused.value.position) == (True, 7)


@pytest.mark.parametrize(
    "properties",
    [
        pa.record_batch({"price": ["6", "4"]}),
        pa.array([{"price": "6"}, {"price": "4"}], pa.map_(pa.string(), pa.string())),
    ],
)
def test_matcher(properties: pa.RecordBatch | pa.Array) -> None:
    assert [part.tolist() for part in match(properties, ["price > 5", "price < 9"]).pairs()] == [[0, 1, 3], [0, 0, 1]]


def test_consumer_filter_manager() -> None:
    manager = ConsumerFilterManager(20, 64)
    manager.register("g", [{"topic": "T", "expression": "a > 5", "type": "SQL92", "version": 1}], 10)
    manager.unregister("g", 20)
    (state,) = manager.state()
    assert (state["group"], state["bornTime"], state["deadTime"], state["dead"]) == ("g", 10, 20, True)


@pytest.mark.parametrize(("table", "columns"), COLUMNS.items())
def test_tables_have_the_columns_that_readers_use(table: str, columns: str) -> None:
    (definition,) = (each for each in [*TABLES, QUALITY_RESULTS, RUN_LEDGER] if each.name == table)
    assert {*columns.split()} <= {*definition.schema.names}
