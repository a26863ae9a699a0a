"""Warehouses in a schema of a Spark catalog, where SQL users find the tables by name."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from schemas.delta.warehouse import Warehouse
from schemas.errors import WarehouseUnusable
from schemas.run_ledger import RUN_LEDGER
from schemas.storage import Storage, spark_path
from schemas.tables import TABLES

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
    """Registers the tables of a warehouse in its catalog as external tables; registered ones stay."""
    for table in (*TABLES, RUN_LEDGER):
        if warehouse.exists(table):
            location = spark_path(warehouse.log(table).storage).replace("\\", "\\\\").replace("'", "\\'")
            spark.sql(f"CREATE TABLE IF NOT EXISTS {warehouse.catalog}.{table.name} USING delta LOCATION '{location}'")
