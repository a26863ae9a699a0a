"""The whole night on stores of a real broker: every table against what the broker and its consumers did."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from filtering.broker_config import BrokerConfig
from filtering.subscriptions.history import subscription_history
from filtering.subscriptions.sources import parse_subscriptions
from jobs import application, nightly
from jobs.export import NAMES, rows_of
from schemas import deliveries, subscriptions
from schemas.commitlog import COMMITLOG
from schemas.consumequeue import CONSUMEQUEUE
from schemas.delivery_stats import DELIVERY_STATS
from schemas.quarantine import QUARANTINE
from schemas.run_ledger import RUN_LEDGER
from schemas.warehouse import Warehouse
from tests.captures import DAMAGED, UNDAMAGED, capture, rows
from tests.spark.conftest import arguments

MESSAGE_FIELDS = {
    "commitlog_offset": "physicalOffset", "store_size": "storeSize", "magic_code": "magicCode", "body_crc": "bodyCRC",
    "queue_id": "queueId", "flag": "flag", "queue_offset": "queueOffset", "sys_flag": "sysFlag",
    "born_timestamp": "bornTimestamp", "born_host": "bornHost", "store_timestamp": "storeTimestamp",
    "store_host": "storeHost", "reconsume_times": "reconsumeTimes",
    "prepared_transaction_offset": "preparedTransactionOffset", "body_length": "bodyLength",
    "body_crc_computed": "bodyCrcComputed", "topic": "topic", "msg_id": "msgId", "properties": "properties",
}  # fmt: skip


@pytest.mark.parametrize("name", UNDAMAGED)
def test_commitlog_holds_every_field_of_every_message(spark: SparkSession, replayed: Any, name: str) -> None:
    table = COMMITLOG.read(spark, replayed(name)).select(*MESSAGE_FIELDS).collect()
    made = {row["commitlog_offset"]: row.asDict() for row in table}
    expected = {
        row["physicalOffset"]: {ours: row[theirs] for ours, theirs in MESSAGE_FIELDS.items()}
        for row in rows(name, "messages")
        if not row.get("blank")
    }
    assert made == expected
    assert QUARANTINE.read(spark, replayed(name)).count() == 0


@pytest.mark.parametrize("name", UNDAMAGED)
def test_subscriptions_read_back_as_they_were_replayed(spark: SparkSession, replayed: Any, name: str) -> None:
    events = parse_subscriptions((capture(name) / "subscription_events.jsonl").read_text(encoding="utf-8")).events
    broker = BrokerConfig.from_properties((capture(name) / "broker.conf").read_text(encoding="latin-1"))
    read = subscriptions.rows(spark, replayed(name))
    read.sort(key=lambda row: (row.consumer_group, row.topic, row.valid_from))
    assert read == subscription_history(events, broker)


@pytest.mark.parametrize("name", UNDAMAGED)
def test_consumequeue_is_the_brokers(spark: SparkSession, replayed: Any, name: str) -> None:
    table = CONSUMEQUEUE.read(spark, replayed(name)).collect()
    made = {
        (row["topic"], row["queue_id"], row["queue_offset"], row["commitlog_offset"], row["size"], row["tags_code"]): (
            row["filter_bit_map"] and row["filter_bit_map"].hex()
        )
        for row in table
    }
    expected = {
        (e["topic"], e["queueId"], e["queueOffset"], e["commitLogOffset"], e["size"], e["tagsCode"]): (
            e["ext"]["bitMap"] if e.get("ext") else None
        )
        for e in rows(name, "consumequeue")
    }
    assert made == expected
    times = {(row["topic"], row["queue_id"], row["queue_offset"]): row["store_timestamp"] for row in table}
    stored = {
        (e["topic"], e["queueId"], e["queueOffset"]): e["ext"]["msgStoreTime"]
        for e in rows(name, "consumequeue")
        if e.get("ext")
    }
    assert stored.items() <= times.items()


@pytest.mark.parametrize("name", UNDAMAGED)
def test_every_group_gets_what_its_consumer_got(spark: SparkSession, replayed: Any, name: str) -> None:
    made: dict[tuple[str, str], dict[str, list[tuple[int, int]]]] = {}
    for row in deliveries.read(spark, replayed(name)).collect():
        outcomes = made.setdefault((row["consumer_group"], row["topic"]), {"DELIVERED": [], "DROPPED_BY_CLIENT": []})
        outcomes[row["outcome"]].append((row["queue_id"], row["queue_offset"]))
    checked = 0
    for expected in of_subscriptions_in_force(name):
        got = made.get((expected["group"], expected["topic"]), {"DELIVERED": [], "DROPPED_BY_CLIENT": []})
        assert sorted(got["DELIVERED"]) == sorted(map(tuple, expected["client"])), expected["group"]
        assert sorted(got["DELIVERED"] + got["DROPPED_BY_CLIENT"]) == sorted(map(tuple, expected["broker"])), expected[
            "group"
        ]
        checked += 1
    assert checked == 53


def of_subscriptions_in_force(name: str) -> list[dict[str, Any]]:
    """The rows of delivered.jsonl whose subscription the event file tells; the others came with a pull of their own."""
    told = [
        (event["group"], event["topic"], event["expression"])
        for event in rows(name, "subscription_events")
        if "expression" in event
    ]
    return [row for row in rows(name, "delivered") if (row["group"], row["topic"], row["expression"]) in told]


@pytest.mark.parametrize("name", UNDAMAGED)
def test_delivery_stats_count_what_each_stage_passed(spark: SparkSession, replayed: Any, name: str) -> None:
    stats = {
        (row["consumer_group"], row["topic"], row["queue_id"]): row
        for row in DELIVERY_STATS.read(spark, replayed(name)).collect()
    }
    in_force = [(row["group"], row["topic"], row["mode"]) for row in of_subscriptions_in_force(name)]
    for expected in rows(name, "cqfilter"):
        if (expected["group"], expected["topic"], expected["mode"]) in in_force:
            for queue_id, queue in expected["queues"].items():
                row = stats[expected["group"], expected["topic"], int(queue_id)]
                counts = (row["scanned"], row["passed_stage1"], row["passed_stage2"])
                assert counts == (queue["scanned"], queue["cqPass"], queue["matched"]), (expected["group"], queue_id)
                assert row["hash_collisions"] == row["passed_stage2"] - row["delivered"]


def test_the_same_night_again_changes_no_table(
    spark: SparkSession, replayed: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    warehouse = replayed("small")
    tables = (COMMITLOG, CONSUMEQUEUE, DELIVERY_STATS, QUARANTINE, RUN_LEDGER, deliveries.DELIVERY_BLOCKS)
    before = [table.last_commit(spark, warehouse).version for table in tables]
    nightly.main(arguments("small", Path(warehouse.location)))
    assert [table.last_commit(spark, warehouse).version for table in tables] == before
    assert "nothing new" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "kept", "would"),
    [
        ("small_torn", 730, "would end its log at offset 659,900: 730 of these 730"),
        ("small_truncated", 730, "would not start on this store"),
        ("small_corrupt", 743, "restarted after a crash, would end its log at offset 425,623: 372 of these 743"),
    ],
)
def test_damage_loses_nothing_that_can_be_decoded(
    spark: SparkSession, replayed: Any, capsys: pytest.CaptureFixture[str], name: str, kept: int, would: str
) -> None:
    warehouse = replayed(name)
    printed = capsys.readouterr().out
    assert name in DAMAGED
    assert COMMITLOG.read(spark, warehouse).count() == kept
    quarantined = QUARANTINE.read(spark, warehouse).collect()
    if name == "small_corrupt":
        assert quarantined == []
        assert "1 messages whose body" in printed
    else:
        assert [row["offset"] for row in quarantined] == [659900]
        log = (capture(name) / "store/commitlog/00000000000000655360").read_bytes()
        assert quarantined[0]["bytes"] == log[659900 - 655360 : 659900 - 655360 + len(quarantined[0]["bytes"])]
        assert "quarantined: 00000000000000655360, offset 659,900: " in printed
    assert would in printed


def test_a_repaired_store_leaves_quarantine(spark: SparkSession, replayed: Any, tmp_path: Path) -> None:
    shutil.copytree(replayed("small_truncated").location, tmp_path, dirs_exist_ok=True)
    nightly.main(arguments("small", tmp_path))
    warehouse = Warehouse.at(str(tmp_path))
    assert COMMITLOG.read(spark, warehouse).agg(F.count("*"), F.countDistinct("commitlog_offset")).first() == (743, 743)
    assert QUARANTINE.read(spark, warehouse).count() == 0
    assert CONSUMEQUEUE.read(spark, warehouse).count() == 739


def test_every_table_can_be_exported(spark: SparkSession, replayed: Any) -> None:
    for name in NAMES:
        assert rows_of(spark, replayed("small"), name).count() > 0 or name == "quarantine"


def test_an_export_before_the_first_night_says_what_to_run(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(application.UsageError, match="nightly first"):
        rows_of(spark, Warehouse.at(str(tmp_path)), "deliveries")
