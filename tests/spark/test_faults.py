"""What only Spark's own processes can do wrong: a worker that dies, and names in the paths that workers open."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from jobs import nightly
from jobs.night import night
from schemas import deliveries
from schemas.commitlog import COMMITLOG
from schemas.delta.warehouse import Warehouse
from schemas.tables import DELIVERY_STATS
from tests.broker_log import BrokerLog
from tests.faults.flips import flip
from tests.nights.commands import arguments, differing, without_runs
from tests.nights.damage import copy_of


def killed(*_: Any, **__: Any) -> None:
    """In the worker."""
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.usefixtures("tasks_in_spark")
def test_a_worker_that_dies(
    replayed: Callable[[str], Warehouse], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(night, "read_range", killed)
    with pytest.raises(Exception, match="worker"):
        nightly.main(arguments("small", tmp_path))
    monkeypatch.undo()
    nightly.main(arguments("small", tmp_path))
    assert differing(without_runs(tmp_path), without_runs(replayed("small"))) == []


def test_a_broker_with_a_name_that_paths_and_globs_have_a_meaning_for(spark: SparkSession, tmp_path: Path) -> None:
    name = "a*b=c:d#e,f%2F{g}[h]?/" + "i" * 260
    store = BrokerLog().append(5).write(tmp_path / "store")
    (tmp_path / "subscriptions.yaml").write_text("- {group: cg_all, topic: T, tag: '*', consume_from: first}\n")
    (tmp_path / "broker.conf").write_text(f"brokerName={name}\n")
    given = {"store": store, "subscriptions": tmp_path / "subscriptions.yaml", "warehouse": tmp_path / "w"}
    given["broker-config"] = tmp_path / "broker.conf"
    nightly.main([part for option, value in given.items() for part in (f"--{option}", str(value))])
    warehouse = Warehouse.at(str(tmp_path / "w"))
    for rows in (warehouse.read(spark, COMMITLOG), deliveries.read(spark, warehouse)):
        assert [row["broker_name"] for row in rows.select("broker_name").collect()] == [name] * 5


def test_spark_verifies_the_checksums_of_pages(
    spark: SparkSession, replayed: Callable[[str], Warehouse], tmp_path: Path
) -> None:
    warehouse = copy_of(replayed("small"), tmp_path / "w")
    file = flip(tmp_path / "w", "delivery_stats", "delivered")
    with pytest.raises(Exception, match="CRC checksum verification failed") as refused:
        warehouse.read(spark, DELIVERY_STATS).collect()
    assert file.name in str(refused.value)
