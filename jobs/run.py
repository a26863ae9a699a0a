"""One run: its session, its warehouse, the broker it replays, and the steps it has taken."""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime

from pyspark.sql import SparkSession

from filtering.broker_config import BrokerConfig
from jobs import application
from jobs.session import spark_session
from schemas import run_ledger
from schemas.table import Table
from schemas.warehouse import Warehouse


@dataclass(frozen=True)
class Step:
    """What a job did. ``rows`` is None where its inputs were those of the last run, and it wrote nothing."""

    job: str
    rows: int | None
    seconds: float
    wrote: tuple[str, ...] = ()


@dataclass
class Run:
    spark: SparkSession
    warehouse: Warehouse
    broker: BrokerConfig
    started: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="milliseconds"))
    steps: list[Step] = field(default_factory=list)

    @classmethod
    @contextmanager
    def start(cls, job: str, options: argparse.Namespace) -> Iterator[Run]:
        """A run with the session there is, or a new one, that holds its warehouse until it ends."""
        warehouse = Warehouse.at(options.warehouse)
        broker = application.broker_config(options)
        with warehouse.writing():
            yield cls(spark_session(f"mqsieve {job}"), warehouse, broker)

    def step(
        self, job: str, inputs: tuple[object, ...], reads: tuple[Table, ...], work: Callable[[], dict[Table, int]]
    ) -> Step:
        """Does ``work`` unless the job's last run had the same inputs; ``work`` tells the rows written by table.

        ``inputs`` is whatever besides the versions of the tables in ``reads`` decides the outcome.
        """
        begun = time.monotonic()
        self._tell(f"{job} …")
        versions = {table.name: table.version(self.spark, self.warehouse) for table in reads}
        fingerprint = hashlib.sha256(repr((inputs, sorted(versions.items()))).encode()).hexdigest()
        last = run_ledger.last_inputs(self.spark, self.warehouse, job, self.broker.broker_name)
        if last == fingerprint:
            step = Step(job, None, time.monotonic() - begun)
        else:
            written = work()
            outputs = {table.name: table.version(self.spark, self.warehouse) for table in written}
            rows = sum(written.values())
            run_ledger.record(
                self.spark,
                self.warehouse,
                run_ledger.Entry(self.started, job, self.broker.broker_name, fingerprint, versions, outputs, rows),
            )
            step = Step(job, rows, time.monotonic() - begun, tuple(outputs))
        self.steps.append(step)
        done = "nothing new" if step.rows is None else f"{step.rows:,} rows"
        self._tell(f"{job}: {done} ({step.seconds:.1f} s)\n")
        return step

    @staticmethod
    def _tell(text: str) -> None:
        if os.environ.get("MQSIEVE_TERMINAL") == "1":
            sys.stderr.write(f"\r\033[K{text}")
            sys.stderr.flush()
