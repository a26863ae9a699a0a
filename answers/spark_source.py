"""``spark.read.format("mqsieve").option("table", "deliveries").load(warehouse)``: a table as Spark rows, by its path.

Python reads the files as ``export`` does, in Arrow batches, a file of the table in each task: the session needs no jars
of Delta. The schema given to ``read.schema`` selects the columns. Filters are applied to the rows that were read.
Executors must be able to read the warehouse, and to import the packages of mqsieve.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from answers.export import DELIVERIES, EXPORTED, batches_of_file, columns_of, files_of, schema_of
from filtering.counted import did_you_mean
from schemas.delta.table import StoredFile
from schemas.delta.warehouse import Warehouse
from schemas.errors import CALLED, UsageError


def register(spark: SparkSession) -> None:
    """Registers the format ``mqsieve`` with a session."""
    spark.dataSource.register(WarehouseDataSource)


@dataclass
class FilePartition(InputPartition):
    """A file of the table, as it was when the query was planned."""

    file: StoredFile


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
            raise UsageError(f"there is no table {table}{did_you_mean(CALLED.get(table, table), known)}")
        return table

    def schema(self) -> StructType:
        return from_arrow_schema(schema_of(self._table))

    def reader(self, schema: StructType) -> "TableReader":
        return TableReader(self.options.get("path", ""), self._table, to_arrow_schema(schema, timezone="UTC"))


class TableReader(DataSourceReader):
    """Reads the files of a table. Raises UsageError if the table lacks a column of ``schema``."""

    def __init__(self, path: str, table: str, schema: pa.Schema) -> None:
        self._warehouse = Warehouse.at(path)
        self._table = table
        self._schema = schema
        known = columns_of(table)
        if unknown := [name for name in schema.names if name not in known]:
            raise UsageError(f"{table} has no column {', '.join(unknown)}; it has {', '.join(known)}")

    def partitions(self) -> list[InputPartition]:
        return [FilePartition(file) for file in files_of(Warehouse(self._warehouse.storage), self._table)]

    def read(self, partition: FilePartition) -> Iterator[pa.RecordBatch]:  # type: ignore[override]
        for batch in batches_of_file(self._warehouse, self._table, partition.file, self._schema.names):
            yield batch.cast(self._schema)
