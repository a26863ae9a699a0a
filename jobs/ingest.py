"""ingest: a broker's store, or a message log in JSON lines or Parquet, into commitlog and quarantine."""

from __future__ import annotations

import argparse
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jobs import application
from jobs.run import Run, Step
from jobs.summary import print_steps
from schemas import message_log, quarantine
from schemas.commitlog import COMMITLOG
from schemas.store import commitlog_source
from schemas.store.segments import CommitLogError, segments
from schemas.table import Table, sql_text


def ingest(run: Run, source: Path) -> Step:
    """Adds the messages in ``source`` that the commitlog has not yet, and quarantines what is none.

    ``source``: a store or commitlog folder, a .jsonl or .parquet file, or a folder of those.
    Raises CommitLogError where it is none of these.
    """
    files = _files(source)
    listed = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]

    def work() -> tuple[Table, ...]:
        if message_log.is_message_log(source):
            messages, rejected = message_log.read(run.spark, source, run.broker.broker_name)
        else:
            messages, rejected = _read_store(run, source)
        names = [file.name for file in files]
        quarantined = quarantine.replace(run.spark, run.warehouse, run.broker.broker_name, names, rejected)
        return _add(run, messages) + quarantined

    return run.step("ingest", (str(source.resolve()), listed, run.broker.broker_name), (), work)


def _read_store(run: Run, store: Path) -> tuple[DataFrame, DataFrame]:
    """The messages of a store, and its damage."""
    commitlog_source.register(run.spark)
    messages = run.spark.read.format("rocketmq_commitlog").option("brokerName", run.broker.broker_name).load(str(store))
    damage = run.spark.read.format("rocketmq_commitlog_damage").load(str(store))
    # The name alone: a store that was copied elsewhere is the same store.
    file_name = F.substring_index("source_file", "/", -1)
    return messages, damage.select(
        F.lit(run.broker.broker_name).alias("broker_name"), file_name.alias("source_file"), "offset", "reason", "bytes"
    )


def _add(run: Run, messages: DataFrame) -> tuple[Table, ...]:
    """Appends the messages whose offset the commitlog does not have."""
    of_broker = f"broker_name = {sql_text(run.broker.broker_name)}"
    if COMMITLOG.exists(run.spark, run.warehouse):
        there = COMMITLOG.read(run.spark, run.warehouse).where(of_broker).select("broker_name", "commitlog_offset")
        messages = messages.join(there, ["broker_name", "commitlog_offset"], "left_anti")
        if messages.isEmpty():
            return ()
    COMMITLOG.append(messages, run.warehouse)
    return (COMMITLOG,)


def _files(source: Path) -> list[Path]:
    """The files that hold messages. Raises CommitLogError where there are none."""
    if message_log.is_message_log(source):
        return message_log.files(source)
    return [Path(segment.path) for segment in segments(str(source))]


def _source(text: str) -> Path:
    """The type of --store: what can be ingested, and read."""
    try:
        for file in _files(Path(text)):
            application.input_file(str(file))
    except CommitLogError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    except OSError as error:
        raise argparse.ArgumentTypeError(application.told(error)) from None
    return Path(text)


def add_source(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--store",
        type=_source,
        required=True,
        metavar="DIR",
        help="a broker's store folder, or a message log: JSON lines (.jsonl) or Parquet",
    )


def main(arguments: list[str]) -> None:
    parser = application.broker_parser("ingest", __doc__)
    add_source(parser)
    options = parser.parse_args(arguments)
    with Run.start("ingest", options) as run:
        ingest(run, options.store)
        print_steps(run)


if __name__ == "__main__":
    application.run(main)
