"""Warehouses in a schema of a Spark catalog, where SQL users find the tables by name."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pyarrow as pa

from schemas.commitlog import COMMITLOG, VIEW, VIEW_COMMENTS
from schemas.deliveries import DELIVERY_BLOCKS, DELIVERY_COLUMNS
from schemas.delta.warehouse import Warehouse
from schemas.errors import WarehouseUnusable
from schemas.run_ledger import RUN_LEDGER
from schemas.storage import Storage, spark_path
from schemas.tables import TABLES
from schemas.utc_times import SUFFIX, TIMES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CATALOG_NAME = re.compile(r"\w+\.\w+")


def is_catalog_name(text: str) -> bool:
    """``catalog.schema`` names a catalog; everything else is a folder (``./a.b`` for one named so)."""
    return _CATALOG_NAME.fullmatch(text) is not None


def catalog_warehouse(spark: SparkSession, name: str) -> Warehouse:
    """The warehouse in a schema of a catalog, ``catalog.schema``. Raises WarehouseUnusable if there is none."""
    try:
        rows = spark.sql(f"DESCRIBE SCHEMA EXTENDED {name}").collect()
    except Exception as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise WarehouseUnusable(
            f"there is no schema {name} ({reason}): create it first; for a folder write ./{name}"
        ) from None
    location = next((row[1] for row in rows if row[0] == "Location"), None)
    if location is None:
        raise WarehouseUnusable(f"the schema {name} has no location; give a schema that has one")
    return Warehouse(Storage.at(location), name)


def register_tables(spark: SparkSession, warehouse: Warehouse) -> None:
    """Registers the tables of a warehouse in its catalog as external tables; registered ones stay.

    The views ``messages`` and ``deliveries`` have the rows of commitlog and of delivery_blocks as readers see them.
    """
    for table in (*TABLES, RUN_LEDGER):
        if warehouse.exists(table):
            location = _quoted(spark_path(warehouse.log(table).storage))
            spark.sql(f"CREATE TABLE IF NOT EXISTS {warehouse.catalog}.{table.name} USING delta LOCATION {location}")
    from schemas.spark_views import MESSAGES, PAIRS

    if warehouse.exists(COMMITLOG):
        comments = {name: VIEW_COMMENTS.get(name) or _comment(COMMITLOG.schema.field(name)) for name in VIEW}
        _create_view(spark, f"{warehouse.catalog}.messages", MESSAGES, f"{warehouse.catalog}.commitlog", comments)
    if warehouse.exists(DELIVERY_BLOCKS):
        comments = {field.name: _comment(field) for field in DELIVERY_COLUMNS}
        _create_view(spark, f"{warehouse.catalog}.deliveries", PAIRS, f"{warehouse.catalog}.delivery_blocks", comments)


def _comment(field: pa.Field) -> str:
    comment: bytes = (field.metadata or {}).get(b"comment", b"")
    return comment.decode()


def _create_view(spark: SparkSession, view: str, query: str, table: str, comments: dict[str, str]) -> None:
    """Creates a view, or brings it up to date, with a timestamp beside each time. ``comments``: by column."""
    times = [name for name in comments if name in TIMES]
    described = comments | {name + SUFFIX: f"{name} as a timestamp" for name in times}
    listed = ", ".join(f"{name} COMMENT {_quoted(comment)}" for name, comment in described.items())
    timestamps = "".join(f", timestamp_millis({name}) AS {name}{SUFFIX}" for name in times)
    spark.sql(f"CREATE OR REPLACE VIEW {view} ({listed}) AS SELECT *{timestamps} FROM ({query.format(rows=table)})")


def _quoted(text: str) -> str:
    """The text as a literal of SQL."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
