"""Which switches count where no --broker-config tells them, and that the user is told."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from jobs import application, deliver, dispatch, nightly, register
from schemas.consumequeue import CONSUMEQUEUE
from schemas.warehouse import Warehouse
from tests.captures import capture, rows


def night(name: str, warehouse: Path, *options: str) -> None:
    log = capture(name)
    given = ["--store", str(log / "store"), "--subscriptions", str(log / "subscription_events.jsonl")]
    nightly.main([*given, "--warehouse", str(warehouse), *options])


def test_bit_maps_count_as_on_where_the_store_has_an_extension(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    night("small", tmp_path)
    told = capsys.readouterr().out
    assert f"the bit map as on, since {capture('small') / 'store'} has a consumequeue_ext" in told
    made = CONSUMEQUEUE.read(spark, Warehouse.at(str(tmp_path))).where("filter_bit_map IS NOT NULL").collect()
    entries = [entry for entry in rows("small", "consumequeue") if entry.get("ext") and entry["ext"]["bitMap"]]
    assert {(row["commitlog_offset"], row["filter_bit_map"].hex()) for row in made} == {
        (entry["commitLogOffset"], entry["ext"]["bitMap"]) for entry in entries
    }
    for job in (dispatch, deliver):
        job.main(["--warehouse", str(tmp_path)])
        told = capsys.readouterr().out
        assert "property filter on, filter bit map on\n  (no --broker-config: as in the last run)\n" in told
        assert "nothing new" in told

    night("plain", tmp_path, "--broker-config", str(capture("plain") / "broker.conf"))
    with pytest.raises(application.UsageError, match="brokers DEFAULT_BROKER, broker-a: say which"):
        deliver.main(["--warehouse", str(tmp_path)])


def test_bit_maps_count_as_off_where_it_has_none(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    register.main(["--subscriptions", "conf/subscriptions.example.yaml", "--warehouse", str(tmp_path)])
    assert "(no --broker-config: the property filter counts as on, the bit map as off)" in capsys.readouterr().out
    night("plain", tmp_path)
    assert f"the bit map as off, since {capture('plain') / 'store'} has no consumequeue_ext" in capsys.readouterr().out
    assert CONSUMEQUEUE.read(spark, Warehouse.at(str(tmp_path))).where("filter_bit_map IS NOT NULL").count() == 0
