"""Times as timestamps (UTC) beside their milliseconds: ``available_at_utc`` beside ``available_at``."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ArrowRows = TypeVar("ArrowRows", pa.Table, pa.RecordBatch)
SUFFIX = "_utc"
TIMES = frozenset(
    {
        "acknowledged_at", "as_of", "at", "audited_at", "available_at", "began_at", "born_time", "born_timestamp",
        "consumed_at", "dead_time", "filter_version", "first_store_timestamp", "last_store_timestamp", "popped_at",
        "renewed_at", "returned_at", "store_timestamp", "stored_from", "stored_to", "sub_version", "subscription_from",
        "traced_at", "valid_from", "valid_to", "visible_at",
    }
)  # fmt: skip
"""The columns of tables that are milliseconds since the epoch."""
TIMESTAMP = pa.timestamp("ms", "UTC")


def with_times_schema(schema: pa.Schema) -> pa.Schema:
    """The columns, and after them a timestamp for each time."""
    return pa.schema([*schema, *(pa.field(name + SUFFIX, TIMESTAMP) for name in schema.names if name in TIMES)])


def with_times(rows: ArrowRows) -> ArrowRows:
    """The rows with the columns of :func:`with_times_schema`."""
    for name in [name for name in rows.schema.names if name in TIMES]:
        rows = rows.append_column(name + SUFFIX, rows[name].cast(TIMESTAMP))
    return rows


def with_times_in_spark(rows: DataFrame) -> DataFrame:
    """The same for Spark's rows."""
    from pyspark.sql import functions as F

    times = {name + SUFFIX: F.timestamp_millis(F.col(name)) for name in rows.columns if name in TIMES}
    return rows.withColumns(times) if times else rows
