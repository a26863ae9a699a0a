"""What could not be decoded: where it is, why, and its bytes."""

from __future__ import annotations

from collections.abc import Collection

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from schemas.table import Table, sql_text
from schemas.warehouse import Warehouse

QUARANTINE = Table(
    "quarantine",
    "Input that could not be decoded. Key: broker_name, source_file, offset.",
    """
    broker_name STRING NOT NULL,
    source_file STRING NOT NULL,
    offset BIGINT NOT NULL COMMENT 'of a commitlog: the physical offset; of a text file: the line, from 1',
    reason STRING NOT NULL,
    bytes BINARY
    """,
)

ROW_TYPES = "broker_name string, source_file string, offset bigint, reason string, bytes binary"
"""What replace takes."""


def replace(
    spark: SparkSession, warehouse: Warehouse, broker_name: str, source_files: Collection[str], rows: DataFrame
) -> tuple[Table, ...]:
    """Makes ``rows`` all that is quarantined of some files; what has become readable leaves.

    Returns the table, or none where nothing changed.
    """
    now = _keys(rows)
    is_new = QUARANTINE.create(spark, warehouse)
    names = ", ".join(sql_text(name) for name in source_files)
    of_files = f"broker_name = {sql_text(broker_name)} AND source_file IN ({names})"
    before = set() if is_new else _keys(QUARANTINE.read(spark, warehouse).where(of_files))
    if now == before:
        return ()
    QUARANTINE.overwrite(rows, warehouse, of_files)
    return (QUARANTINE,)


def _keys(rows: DataFrame) -> set[tuple[str, int, str, str]]:
    keys = rows.select("source_file", "offset", "reason", F.sha2("bytes", 256))
    return {tuple(row) for row in keys.collect()}
