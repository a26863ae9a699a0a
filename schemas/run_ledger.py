"""Which run made what from what: the memory that makes the same command again a no-op."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from filtering.broker_config import BrokerConfig
from schemas.python_rows import data_frame
from schemas.table import Table
from schemas.warehouse import Warehouse

RUN_LEDGER = Table(
    "run_ledger",
    "The jobs that changed a table. Key: run, job.",
    """
    run STRING NOT NULL COMMENT 'when the run started, UTC',
    job STRING NOT NULL,
    broker_name STRING NOT NULL,
    broker_config MAP<STRING, STRING> NOT NULL COMMENT 'switches of broker.conf that are not the defaults',
    inputs STRING NOT NULL COMMENT 'fingerprint of all that the job read',
    input_versions MAP<STRING, BIGINT> COMMENT 'Delta versions read',
    output_versions MAP<STRING, BIGINT> COMMENT 'Delta versions written',
    rows BIGINT NOT NULL COMMENT 'rows written',
    outcome STRING NOT NULL
    """,
)


@dataclass(frozen=True)
class Entry:
    run: str
    job: str
    broker_name: str
    broker_config: dict[str, str]
    inputs: str
    input_versions: dict[str, int]
    output_versions: dict[str, int]
    rows: int
    outcome: str = "done"


@dataclass(frozen=True)
class LastRun:
    """The last finished run of a job, and the fingerprint of what it read."""

    run: str
    inputs: str


def last_runs(spark: SparkSession, warehouse: Warehouse, broker_name: str) -> dict[str, LastRun]:
    """By job."""
    if not RUN_LEDGER.exists(spark, warehouse):
        return {}
    done = RUN_LEDGER.read(spark, warehouse).where((F.col("broker_name") == broker_name) & (F.col("outcome") == "done"))
    rows = sorted(done.select("run", "job", "inputs").collect())
    return {job: LastRun(run, inputs) for run, job, inputs in rows}


def broker_configs(spark: SparkSession, warehouse: Warehouse) -> list[BrokerConfig]:
    """The switches that the last run of each broker replayed."""
    if not RUN_LEDGER.exists(spark, warehouse):
        return []
    rows = RUN_LEDGER.read(spark, warehouse).select("run", "broker_name", "broker_config").collect()
    last = {name: switches for _, name, switches in sorted(rows, key=lambda row: row["run"])}
    return [BrokerConfig.of(last[name]) for name in sorted(last)]


def record(spark: SparkSession, warehouse: Warehouse, entries: Sequence[Entry]) -> None:
    """Adds what jobs did."""
    RUN_LEDGER.append(data_frame(spark, [vars(entry) for entry in entries], RUN_LEDGER.columns), warehouse)
