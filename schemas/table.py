"""A Delta table: its columns are SQL, and reading and writing it go through here."""

from __future__ import annotations

from dataclasses import dataclass, field

from delta.tables import DeltaTable
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

from schemas.warehouse import Warehouse

EVERY_TABLE = {
    "delta.enableDeletionVectors": "false",
    "delta.autoOptimize.optimizeWrite": "false",
}
"""Without deletion vectors a table's rows are its files' rows, for every reader there is."""


@dataclass(frozen=True)
class Commit:
    """A version of a table, and how many rows it wrote."""

    version: int
    rows: int


@dataclass(frozen=True, eq=False)
class Table:
    """``columns`` is the column list of CREATE TABLE; ``constraints`` are CHECKs by name."""

    name: str
    comment: str
    columns: str
    cluster_by: tuple[str, ...] = ()
    partition_by: tuple[str, ...] = ()
    constraints: dict[str, str] = field(default_factory=dict)
    statistics_on: tuple[str, ...] = ()

    def create(self, spark: SparkSession, warehouse: Warehouse) -> bool:
        """Makes the table unless it is there; tells whether it did."""
        if self.exists(spark, warehouse):
            return False
        properties = EVERY_TABLE | {f"delta.constraints.{name}": check for name, check in self.constraints.items()}
        if self.statistics_on:
            properties["delta.dataSkippingStatsColumns"] = ",".join(self.statistics_on)
        listed = ", ".join(f"'{key}' = {sql_text(value)}" for key, value in properties.items())
        layout = f"CLUSTER BY ({', '.join(self.cluster_by)})" if self.cluster_by else ""
        if self.partition_by:
            layout = f"PARTITIONED BY ({', '.join(self.partition_by)})"
        spark.sql(
            f"CREATE TABLE IF NOT EXISTS {warehouse.identifier(self.name)} ({self.columns}) USING delta "
            f"{layout} COMMENT {sql_text(self.comment)} TBLPROPERTIES ({listed})"
        )
        return True

    def exists(self, spark: SparkSession, warehouse: Warehouse) -> bool:
        if warehouse.in_catalog:
            return spark.catalog.tableExists(warehouse.identifier(self.name))
        return DeltaTable.isDeltaTable(spark, f"{warehouse.location}/{self.name}")

    def read(self, spark: SparkSession, warehouse: Warehouse) -> DataFrame:
        return spark.table(warehouse.identifier(self.name))

    def last_commit(self, spark: SparkSession, warehouse: Warehouse) -> Commit:
        """Version -1 where there is no table."""
        if not self.exists(spark, warehouse):
            return Commit(-1, 0)
        (last,) = self._delta(spark, warehouse).history(1).select("version", "operationMetrics").collect()
        return Commit(int(last["version"]), int((last["operationMetrics"] or {}).get("numOutputRows", 0)))

    def append(self, rows: DataFrame, warehouse: Warehouse) -> None:
        """Adds rows; makes the table unless it is there."""
        self.create(rows.sparkSession, warehouse)
        self._save(rows.write.mode("append"), warehouse)

    def overwrite(self, rows: DataFrame, warehouse: Warehouse, where: str | None = None) -> None:
        """Replaces the rows that ``where`` selects, or all, in one commit; makes the table unless it is there."""
        if self.create(rows.sparkSession, warehouse) and warehouse.has_one_writer:
            writer = rows.write.mode("append")
        else:
            writer = rows.write.mode("overwrite")
            writer = writer if where is None else writer.option("replaceWhere", where)
        self._save(writer, warehouse)

    def _save(self, writer: DataFrameWriter, warehouse: Warehouse) -> None:
        if warehouse.in_catalog:
            writer.format("delta").saveAsTable(warehouse.identifier(self.name))
        else:
            writer.format("delta").save(f"{warehouse.location}/{self.name}")

    def _delta(self, spark: SparkSession, warehouse: Warehouse) -> DeltaTable:
        if warehouse.in_catalog:
            return DeltaTable.forName(spark, warehouse.identifier(self.name))
        return DeltaTable.forPath(spark, f"{warehouse.location}/{self.name}")


def sql_text(text: str) -> str:
    """A string literal of Spark SQL."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
