"""One run: its session, its warehouse, the broker it replays, and the steps it has taken."""

from __future__ import annotations

import argparse
import gc
import hashlib
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property

from pyspark.sql import SparkSession

from filtering.broker_config import BrokerConfig
from filtering.subscriptions.history import SubscriptionRow
from jobs import application
from jobs.session import spark_session
from schemas import run_ledger, subscriptions
from schemas.table import Commit, Table
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
    """``broker_source`` tells where the switches of ``broker`` come from."""

    spark: SparkSession
    warehouse: Warehouse
    broker: BrokerConfig
    broker_source: str
    started: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="milliseconds"))
    steps: list[Step] = field(default_factory=list)
    _commits: dict[Table, Commit] = field(default_factory=dict)
    _done: list[run_ledger.Entry] = field(default_factory=list)

    @classmethod
    @contextmanager
    def start(cls, job: str, options: argparse.Namespace) -> Iterator[Run]:
        """A run with the session there is, or a new one, that holds its warehouse until it ends."""
        warehouse = Warehouse.at(options.warehouse)
        told = application.broker_config(options)
        with warehouse.writing():
            spark = spark_session(f"mqsieve {job}")
            run = cls(spark, warehouse, *(told or application.remembered(run_ledger.broker_configs(spark, warehouse))))
            try:
                yield run
            finally:
                if run._done:
                    run_ledger.record(run.spark, run.warehouse, run._done)

    def step(
        self,
        job: str,
        inputs: tuple[object, ...],
        reads: tuple[Table, ...],
        work: Callable[[], Iterable[Table]],
    ) -> Step:
        """Does ``work``, which tells the tables it wrote, unless the job's last run had the same inputs.

        ``inputs`` is whatever besides the versions of the tables in ``reads`` decides the outcome.
        Raises NotYetWritten where a table in ``reads`` is not there.
        """
        begun = time.monotonic()
        self._tell(f"{job} …")
        self._commits |= self._last_commits(table for table in reads if table not in self._commits)
        versions = {table.name: self._commits[table].version for table in reads}
        for name, version in versions.items():
            if version < 0:
                raise application.NotYetWritten(self.warehouse, name)
        fingerprint = hashlib.sha256(repr((inputs, sorted(versions.items()))).encode()).hexdigest()
        last = self._last_runs.get(job)
        if last is not None and last.inputs == fingerprint:
            step = Step(job, None, time.monotonic() - begun)
        else:
            with _no_garbage_collection():
                written = self._last_commits(work())
            self._commits |= written
            outputs = {table.name: commit.version for table, commit in written.items()}
            rows = sum(commit.rows for commit in written.values())
            broker = self.broker.broker_name, self.broker.changed
            self._last_runs[job] = run_ledger.LastRun(self.started, fingerprint)
            self._done.append(run_ledger.Entry(self.started, job, *broker, fingerprint, versions, outputs, rows))
            step = Step(job, rows, time.monotonic() - begun, tuple(outputs))
        self.steps.append(step)
        done = "nothing new" if step.rows is None else f"{step.rows:,} rows"
        self._tell(f"{job}: {done} ({step.seconds:.1f} s)\n")
        return step

    def _last_commits(self, tables: Iterable[Table]) -> dict[Table, Commit]:
        """Asked side by side: each is a small Spark job."""
        tables = tuple(tables)
        with ThreadPoolExecutor() as threads:
            commits = threads.map(lambda table: table.last_commit(self.spark, self.warehouse), tables)
            return dict(zip(tables, commits, strict=True))

    @cached_property
    def history(self) -> list[SubscriptionRow]:
        """The whole history of subscriptions."""
        return subscriptions.rows(self.spark, self.warehouse)

    def last_run(self, job: str) -> str | None:
        """When the run started that did a job's work last; None where there is none."""
        return self._last_runs[job].run if job in self._last_runs else None

    @cached_property
    def _last_runs(self) -> dict[str, run_ledger.LastRun]:
        return run_ledger.last_runs(self.spark, self.warehouse, self.broker.broker_name)

    @staticmethod
    def _tell(text: str) -> None:
        if os.environ.get("MQSIEVE_TERMINAL") == "1":
            sys.stderr.write(f"\r\033[K{text}")
            sys.stderr.flush()


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Python looks through the expressions of thousands of groups again and again otherwise: half the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
