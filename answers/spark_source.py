"""``spark.read.format("mqsieve").option("table", "deliveries").load(warehouse)``: a table as Spark rows, by its path.

Python reads the files as ``export`` does, in Arrow batches, a file of the table in each task: the session needs no jars
of Delta. The schema given to ``read.schema`` selects the columns. Filters are applied to the rows that were read.
Executors must be able to read the warehouse, and to import the packages of mqsieve.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from answers.export import EXPORTED, batches_of_file, columns_of, files_of, schema_of
from filtering.counted import did_you_mean
from schemas.deliveries import DELIVERIES
from schemas.delta.table import StoredFile
from schemas.delta.warehouse import Warehouse
from schemas.errors import CALLED, UsageError
from schemas.ledger_check import open_runs


def register(spark: SparkSession) -> None:
    """Registers the format ``mqsieve`` with a session."""
    spark.dataSource.register(WarehouseDataSource)


@dataclass
class FilesPartition(InputPartition):
    """Files of the table, as they were when the query was planned: one, or none of an empty table."""

    files: Sequence[StoredFile]


class WarehouseDataSource(DataSource):
    """A table of a warehouse in the form that readers see. Option ``table``: which one, by default deliveries."""

    @classmethod
    def name(cls) -> str:
        return "mqsieve"

    @property
    def _table(self) -> str:
        """Raises UsageError if there is no such table."""
        table = self.options.get("table", DELIVERIES)
        known = [DELIVERIES, *EXPORTED]
        if table not in known:
            meant = did_you_mean(CALLED.get(table, table), known) or f"; there are {', '.join(known)}"
            raise UsageError(f"there is no table {table}{meant}")
        return table

    def schema(self) -> StructType:
        return from_arrow_schema(schema_of(self._table))

    def reader(self, schema: StructType) -> "TableReader":
        return TableReader(self.options.get("path", ""), self._table, to_arrow_schema(schema, timezone="UTC"))


class TableReader(DataSourceReader):
    """Reads the files of a table. Raises UsageError if it lacks a column of ``schema``, or there is no warehouse."""

    def __init__(self, path: str, table: str, schema: pa.Schema) -> None:
        self._warehouse = Warehouse.at(path)
        self._table = table
        self._schema = schema
        known = columns_of(table)
        if unknown := [name for name in schema.names if name not in known]:
            raise UsageError(f"{table} has no column {', '.join(unknown)}; it has {', '.join(known)}")

    def partitions(self) -> list[InputPartition]:
        warehouse = Warehouse(self._warehouse.storage)
        open_runs(warehouse)
        files = files_of(warehouse, self._table)
        return [FilesPartition([file]) for file in files] or [FilesPartition([])]

    def read(self, partition: FilesPartition) -> Iterator[pa.RecordBatch]:  # type: ignore[override]
        for file in partition.files:
            for batch in batches_of_file(self._warehouse, self._table, file, self._schema.names):
                yield batch.cast(self._schema)
