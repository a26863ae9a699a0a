"""A warehouse in a schema of a catalog."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from jobs import export, nightly, replay
from schemas.errors import UsageError
from schemas.run_ledger import RUN_LEDGER
from schemas.tables import TABLES
from tests.nights.commands import arguments, rows_of

NIGHTS, REPLAYED = "spark_catalog.nights", "spark_catalog.replayed"


@pytest.fixture
def _schemas(spark: SparkSession, tmp_path: Path) -> Iterator[None]:
    for name in (NIGHTS, REPLAYED):
        spark.sql(f"CREATE SCHEMA {name} LOCATION '{tmp_path}/o\\'clock {name}'")
    yield
    for name in (NIGHTS, REPLAYED):
        spark.sql(f"DROP SCHEMA {name} CASCADE")


@pytest.mark.usefixtures("_schemas")
def test_tables_are_found_by_name(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    nightly.main(arguments("small", NIGHTS))
    assert f"--warehouse {NIGHTS}" in capsys.readouterr().out
    folder = tmp_path / f"o'clock {NIGHTS}"
    for table in (*TABLES, RUN_LEDGER):
        frame = spark.table(f"{NIGHTS}.{table.name}")
        assert frame.columns == table.schema.names

    for view, rows, time in (("deliveries", 3829, "available_at"), ("messages", 743, "store_timestamp")):
        frame = spark.table(f"{NIGHTS}.{view}")
        assert frame.selectExpr(f"count_if(unix_millis({time}_utc) = {time})", "count(*)").first() == (rows, rows)
        assert all(frame.schema[name].metadata["comment"] for name in (time, f"{time}_utc", "commitlog_offset"))
    assert {"keys", "properties"} < set(spark.table(f"{NIGHTS}.messages").columns)

    nightly.main(arguments("small", NIGHTS))
    assert "There was nothing new" in capsys.readouterr().out
    export.main(["subscriptions", "--warehouse", NIGHTS, "--output", str(tmp_path / "subscriptions.jsonl")])
    assert len((tmp_path / "subscriptions.jsonl").read_text().splitlines()) == len(
        list(rows_of(folder, "subscriptions"))
    )
    replay.main(["--warehouse", NIGHTS, "--into", REPLAYED])
    assert spark.table(f"{REPLAYED}.delivery_blocks").count() > 0
    assert list(here.iterdir()) == []


@pytest.mark.usefixtures("spark")
def test_a_schema_that_is_not_there() -> None:
    with pytest.raises(
        UsageError,
        match=r"there is no schema spark_catalog.nowhere \(.*\): create it first; for a folder write ./spark",
    ):
        nightly.main(arguments("small", "spark_catalog.nowhere"))
