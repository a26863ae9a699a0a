"""Filters entries with the filter hooks of clients. Spark reads the entries, since hooks may be Spark SQL."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import BooleanType

from filtering.delivery.entries import Entries
from filtering.delivery.filter_hooks import ENTRY_COLUMNS
from filtering.matcher.column import columns
from jobs.night.commit import Changes
from jobs.night.inputs import FilterHook, answer_names
from jobs.night.tasks import NightWriter, TaskResult, Work
from schemas.arrow_batches import gathered
from schemas.commitlog import COMMITLOG
from schemas.delta.table import StoredFile, Table
from schemas.delta.table_rows import files_that_may_hold, within
from schemas.errors import UsageError
from schemas.spark_tasks import run_on_rows
from schemas.spark_views import with_properties
from schemas.storage import spark_file, spark_path
from schemas.tables import CONSUMEQUEUE

ROWS_AT_ONCE = 1 << 16
BYTES_AT_ONCE = 64 << 20
OF_MESSAGES = ("body_length", "reconsume_times")
"""Columns of commitlog that filters need, but no hook sees."""


def hooked_entries(
    spark: SparkSession, changes: Changes, entry_files: Sequence[StoredFile], hooks: Sequence[FilterHook]
) -> DataFrame:
    """The entries of some files with the answers of the hooks."""
    low = min(file.least["commitlog_offset"] for file in entry_files)
    high = max(file.greatest["commitlog_offset"] for file in entry_files)
    message_files = files_that_may_hold(changes.files(COMMITLOG), [within("commitlog_offset", low, high + 1)])
    messages = with_properties(_read(spark, COMMITLOG, changes, message_files)).select(
        "commitlog_offset", "properties", *OF_MESSAGES
    )
    entries = _read(spark, CONSUMEQUEUE, changes, entry_files).drop("run", "store_date")
    return with_answers(entries.join(messages, "commitlog_offset"), hooks)


def filter_hooked(entries: DataFrame, work: Work) -> TaskResult:
    """Filters the entries on Spark's workers, which write files of the tables in ``work``."""
    total = TaskResult()
    for result in run_on_rows(entries, partial(_filtered, work=work)):
        total.add(result)
    return total


def _read(spark: SparkSession, table: Table, changes: Changes, files: Sequence[StoredFile]) -> DataFrame:
    folder = spark_path(changes.warehouse.log(table).storage)
    paths = [spark_file(f"{folder}/{file.path}") for file in files]
    return spark.read.schema(from_arrow_schema(table.file_schema)).parquet(*paths)


def _filtered(batches: Iterator[pa.RecordBatch], work: Work) -> Iterator[TaskResult]:
    writer = NightWriter(work)
    parts = map(pa.Table.from_batches, gathered(batches, ROWS_AT_ONCE, BYTES_AT_ONCE))  # Spark's own batches are small
    for batch in chain.from_iterable(part.combine_chunks().to_batches() for part in parts):
        for topic in pc.unique(batch["topic"]).to_pylist():
            if topic in work.topics:
                rows_of_topic = batch.filter(pc.equal(batch["topic"], topic))
                writer.filter_stored(_entries(topic, rows_of_topic, work.topics[topic].filters.properties))
    yield writer.close()


def _entries(topic: str, rows: pa.RecordBatch, names: tuple[str, ...]) -> Entries:
    order = pc.sort_indices(rows, sort_keys=[("queue_id", "ascending"), ("queue_offset", "ascending")])
    rows = rows.take(order)
    arrays = {
        name: rows[name].to_numpy()
        for name in ("queue_id", "queue_offset", "commitlog_offset", "size", "tags_code", "store_timestamp")
    }
    return Entries(
        topic=topic,
        **{name: np.ascontiguousarray(array) for name, array in arrays.items()},
        properties=columns(rows["properties"], names),
        bit_maps=rows["filter_bit_map"],
        rows=rows,
        without_body=np.flatnonzero(pc.equal(rows["body_length"], 0).fill_null(False).to_numpy(zero_copy_only=False)),
        reconsume_times=rows["reconsume_times"].fill_null(0).to_numpy(),
    )


def with_answers(entries: DataFrame, hooks: Sequence[FilterHook]) -> DataFrame:
    """The ENTRY_COLUMNS, OF_MESSAGES, and a boolean column for each predicate of a topic.

    Raises UsageError for a bad predicate.
    """
    for hook in hooks:
        if hook.predicate is not None:
            _check(entries, hook)
    answers = (_answer(*key).alias(name) for key, name in answer_names(hooks).items())
    return entries.select(*ENTRY_COLUMNS, *OF_MESSAGES, *answers)


def _answer(topic: str, predicate: str) -> Column:
    """The predicate on entries of the topic only, so that a cast cannot fail on other topics."""
    return F.when(F.col("topic") == topic, F.expr(predicate))


def _check(entries: DataFrame, hook: FilterHook) -> None:
    whose = f"filter hook of {hook.consumer_group} on {hook.topic}: {hook.predicate}"
    try:
        kind = entries.select(F.expr(hook.predicate or "")).schema[0].dataType
    except AnalysisException as error:
        raise UsageError(f"{whose}: {(error.getMessage() or str(error)).strip().splitlines()[0]}") from None
    if not isinstance(kind, BooleanType):
        raise UsageError(f"{whose}: must be a boolean, but has the type {kind.simpleString()}")
