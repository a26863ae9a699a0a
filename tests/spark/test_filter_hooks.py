"""deliver with the filter hooks of clients."""

import io
import json
import logging
import shutil
import struct
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from jobs import maintain, nightly
from jobs.night.hooked_task import with_answers
from jobs.night.inputs import FilterHook
from schemas.deliveries import DELIVERY_BLOCKS
from schemas.delta.warehouse import Warehouse
from schemas.errors import UsageError
from schemas.tables import CONSUMEQUEUE
from tests.broker_log import FIRST_TIME, BrokerLog
from tests.captures import rows
from tests.nights.commands import arguments, contents, night, rows_of
from tests.replayed import Replayed

ARROW_BATCH = "spark.sql.execution.arrow.maxRecordsPerBatch"
HOOKS = """
- {group: cg_all_orders, topic: OrderEvents, predicate: "properties['region'] = 'hangzhou'"}
- {group: cg_all_orders, topic: OrderEvents, predicate: "store_timestamp > 0 AND queue_id < 2"}
- group: cg_sql_true
  topic: TagLab
  predicate: IF(topic = 'TagLab', properties['color'] = 'red', raise_error('not asked of others'))
- {group: cg_tag_AaAa_BBBB, topic: TagLab, function: "tests.spark.example_hooks:even_queue_offsets"}
"""


def test_what_hooks_drop_is_counted_and_listed(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "hooks.yaml").write_text(HOOKS)
    given = arguments("small", tmp_path / "w", "--filter-hooks", tmp_path / "hooks.yaml")
    nightly.main(given)
    got: dict[tuple[str, str], dict[str, set[tuple[int, int]]]] = {}
    for row in rows_of(tmp_path / "w", "deliveries"):
        outcomes = got.setdefault((row["consumer_group"], row["topic"]), {})
        outcomes.setdefault(row["outcome"], set()).add((row["queue_id"], row["queue_offset"]))
    properties = {
        (m["topic"], m["queueId"], m["queueOffset"]): m["properties"] or {}
        for m in rows("small", "messages")
        if not m.get("blank")
    }
    kept_by: dict[str, Callable[[int, int], bool]] = {
        "cg_all_orders": lambda queue, offset: (
            properties["OrderEvents", queue, offset].get("region") == "hangzhou" and queue < 2
        ),
        "cg_sql_true": lambda queue, offset: properties["TagLab", queue, offset].get("color") == "red",
        "cg_tag_AaAa_BBBB": lambda queue, offset: offset % 2 == 0,
        "cg_all_taglab": lambda queue, offset: True,
    }
    for row in rows("small", "delivered"):
        kept = kept_by.get(row["group"])
        if kept is not None and row["mode"] == "wire, registered subscription":
            passed = {(queue, offset) for queue, offset in row["client"]}
            delivered = {place for place in passed if kept(*place)}
            outcomes = got[row["group"], row["topic"]]
            assert outcomes.get("DELIVERED", set()) == delivered
            assert outcomes.get("DROPPED_BY_HOOK", set()) == passed - delivered
            assert outcomes.get("DROPPED_BY_CLIENT", set()) == set(map(tuple, row["broker"])) - passed
    counted: dict[tuple[str, str], Counter[str]] = {}
    for row in rows_of(tmp_path / "w", "delivery_stats"):
        group_counts = counted.setdefault((row["consumer_group"], row["topic"]), Counter())
        group_counts.update({name: row[name] for name in ("delivered", "dropped_by_hook", "hash_collisions")})
    for key, outcomes in got.items():
        names = {"DELIVERED": "delivered", "DROPPED_BY_HOOK": "dropped_by_hook", "DROPPED_BY_CLIENT": "hash_collisions"}
        assert {name: len(outcomes.get(name, ())) for name in names} == {
            name: counted[key][column] for name, column in names.items()
        }, key
    assert "hook drops" in capsys.readouterr().out
    nightly.main(given)
    assert "There was nothing new" in capsys.readouterr().out


def test_a_warehouse_whose_name_reads_as_a_pattern(spark: SparkSession, tmp_path: Path) -> None:
    store = BrokerLog().append(4).write(tmp_path / "store")
    (tmp_path / "subscriptions.yaml").write_text("- {group: g, topic: T, tag: '*'}")
    (tmp_path / "hooks.yaml").write_text("- {group: g, topic: T, predicate: queue_offset % 2 = 0}")
    warehouse = tmp_path / "w[1]{2}*"
    given = ("--subscriptions", tmp_path / "subscriptions.yaml", "--filter-hooks", tmp_path / "hooks.yaml")
    nightly.main(list(map(str, ("--store", store, "--warehouse", warehouse, *given))))
    outcomes = [(row["queue_offset"], row["outcome"]) for row in rows_of(warehouse, "deliveries")]
    assert sorted(outcomes) == [(0, "DELIVERED"), (1, "DROPPED_BY_HOOK"), (2, "DELIVERED"), (3, "DROPPED_BY_HOOK")]


def test_small_arrow_batches_make_no_more_blocks(spark: SparkSession, tmp_path: Path) -> None:
    store = BrokerLog().append(2_000, region="hangzhou").write(tmp_path / "store")
    (tmp_path / "subscriptions.yaml").write_text("- {group: g, topic: T, tag: '*'}")
    (tmp_path / "hooks.yaml").write_text("- {group: g, topic: T, predicate: queue_offset % 2 = 0}")
    before = spark.conf.get(ARROW_BATCH) or ""
    spark.conf.set(ARROW_BATCH, "100")
    try:
        given = ("--subscriptions", tmp_path / "subscriptions.yaml", "--filter-hooks", tmp_path / "hooks.yaml")
        nightly.main(list(map(str, ("--store", store, "--warehouse", tmp_path / "w", *given))))
    finally:
        spark.conf.set(ARROW_BATCH, before)
    warehouse = Warehouse.at(str(tmp_path / "w"))
    blocks = warehouse.rows(DELIVERY_BLOCKS, ["messages"])["messages"].to_pylist()
    assert sum(blocks) == 2_000
    assert len(blocks) <= int(spark.conf.get("spark.sql.shuffle.partitions") or 0)
    assert Counter(row["outcome"] for row in rows_of(warehouse, "deliveries")) == {
        "DELIVERED": 1_000,
        "DROPPED_BY_HOOK": 1_000,
    }


@pytest.mark.parametrize(
    ("predicate", "message"),
    [
        ("queue_id >", "cg_all_taglab on TagLab: queue_id >: .*Syntax error"),
        ("body = 5", "body = 5: .*`body` cannot be resolved"),
        ("queue_id + 1", "must be a boolean, but has the type int"),
    ],
)
def test_a_predicate_that_is_none(spark: SparkSession, replayed: Replayed, predicate: str, message: str) -> None:
    hook = FilterHook("cg_all_taglab", "TagLab", predicate, None)
    with pytest.raises(UsageError, match=message):
        with_answers(replayed("small").read(spark, CONSUMEQUEUE), [hook])


def test_an_error_of_spark_is_shown_once(spark: SparkSession, replayed: Replayed) -> None:
    """PySpark also logs an error that it raises, with Java's stack trace."""
    shown = io.StringIO()
    loggers = [PySparkLogger.getLogger(name) for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger")]
    for logger in loggers:
        logger.addHandler(logging.StreamHandler(shown))
    hook = FilterHook("cg_all_taglab", "TagLab", "nothing = 5", None)
    with pytest.raises(UsageError, match="`nothing` cannot be resolved"):
        with_answers(replayed("small").read(spark, CONSUMEQUEUE), [hook])
    assert shown.getvalue() == ""
    for logger in loggers:
        logger.handlers.pop()


def test_messages_between_those_of_an_earlier_night_repeat_no_delivery(spark: SparkSession, tmp_path: Path) -> None:
    """A message log may grow in the middle: here each night adds a queue."""
    (tmp_path / "s.yaml").write_text("- {group: g, topic: T, tag: '*', consume_from: first, at: 1}")
    (tmp_path / "hooks.yaml").write_text("- {group: g, topic: T, predicate: 'true'}")
    lines = []
    for queue_id in (0, 1):
        for queue_offset in (0, 1):
            at = queue_offset * 200 + queue_id * 100
            place = {"topic": "T", "queue_id": queue_id, "queue_offset": queue_offset, "commitlog_offset": at}
            lines.append(json.dumps(place | {"store_timestamp": 1_795_000_000_000, "properties": {"n": "1"}}))
        (tmp_path / "log.jsonl").write_text("\n".join(lines))
        given = ("--subscriptions", tmp_path / "s.yaml", "--filter-hooks", tmp_path / "hooks.yaml")
        nightly.main(list(map(str, ("--store", tmp_path / "log.jsonl", "--warehouse", tmp_path / "w", *given))))
    delivered = Counter(row["commitlog_offset"] for row in rows_of(tmp_path / "w", "deliveries"))
    assert delivered == {0: 1, 100: 1, 200: 1, 300: 1}


def test_a_night_with_hooks_is_repeated_with_them_or_not_at_all(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "events.yaml").write_text("- {group: g, topic: T, tag: '*', at: 1, consume_from: first}")
    (tmp_path / "broker.conf").write_text("brokerName=b\n")
    hooks, others = tmp_path / "hooks.yaml", tmp_path / "others.yaml"
    hooks.write_text("- {group: g, topic: T, predicate: queue_offset % 2 = 0}")
    others.write_text("- {group: g, topic: T, predicate: queue_offset > 0}")
    log = BrokerLog()

    def again(*more: object) -> None:
        store = log.write(tmp_path / "store")
        nightly.main(night(tmp_path / "w", store, tmp_path / "events.yaml", tmp_path / "broker.conf", *more))

    log.append(6)
    again("--filter-hooks", hooks)
    log.append(6)
    again("--filter-hooks", hooks)
    log.append(6)
    again()
    before = contents(tmp_path / "w")
    for more, refused in (
        ((), "repeated without: give the --filter"),
        (("--filter-hooks", others), "with these: give"),
    ):
        with pytest.raises(UsageError, match=refused):
            again("--redo-from", 0, *more)
    shutil.rmtree(shutil.copytree(tmp_path / "w", tmp_path / "damaged") / "delivery_stats")
    with pytest.raises(UsageError, match="had filter hooks and cannot be repeated"):
        maintain.main(["--rebuild", "--warehouse", str(tmp_path / "damaged")])
    cut = BrokerLog().append(8)
    cut.time += 1
    log = cut.append(6)
    with pytest.raises(UsageError, match="run this night once with the --filter-hooks that it had"):
        again()
    assert contents(tmp_path / "w") == before
    log = BrokerLog().append(18)
    again("--redo-from", 0, "--filter-hooks", hooks)
    after = contents(tmp_path / "w")
    for table in ("consumequeue", "deliveries", "delivery_stats", "consumer_offsets", "queue_progress"):
        assert after[table] == before[table], table


def test_what_was_popped_too_often_is_dead_beside_the_hooks_of_others(spark: SparkSession, tmp_path: Path) -> None:
    log = BrokerLog().append(2)
    attempts_at = len(log.data) + 72
    log.append(1, topic="%RETRY%g_T")
    log.data = log.data[:attempts_at] + struct.pack(">i", 17) + log.data[attempts_at + 4 :]
    store = log.write(tmp_path / "store")
    group = {"at": FIRST_TIME - 1, "op": "register", "topic": "T", "expression": "*", "consume_from": "first"}
    events = [group | {"group": "g", "protocol": "grpc_simple"}, group | {"group": "h"}]
    (tmp_path / "events.jsonl").write_text("\n".join(map(json.dumps, events)))
    (tmp_path / "hooks.yaml").write_text("- {group: h, topic: T, predicate: queue_offset % 2 = 0}")
    given = ("--subscriptions", tmp_path / "events.jsonl", "--filter-hooks", tmp_path / "hooks.yaml")
    nightly.main(list(map(str, ("--store", store, "--warehouse", tmp_path / "w", *given))))
    deliveries = Counter((row["consumer_group"], row["outcome"]) for row in rows_of(tmp_path / "w", "deliveries"))
    assert deliveries["g", "DEAD"] == 1, deliveries
    assert deliveries["h", "DROPPED_BY_HOOK"] == 1
