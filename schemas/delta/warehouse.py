"""A warehouse: a folder of Delta tables, local or in an object store, or a schema of a catalog."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from schemas.delta.delta_log import DeltaLog
from schemas.delta.one_writer import one_writer
from schemas.delta.stored_files import StoredFile
from schemas.delta.table import Table
from schemas.delta.table_rows import Where, files_that_may_hold, read_rows
from schemas.shell_command import PROGRAM, option
from schemas.storage import Storage, spark_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass
class Warehouse:
    """A warehouse. ``storage`` is its folder, with a folder for each table.

    ``catalog`` is ``catalog.schema`` if the tables are also in a catalog; ``storage`` is then the folder of the schema.
    Readers see the tables as the last run left them.
    """

    storage: Storage
    catalog: str | None = None
    _logs: dict[str, DeltaLog] = field(default_factory=dict)

    @classmethod
    def at(cls, text: str) -> Warehouse:
        """The warehouse in a folder: a path or a URI."""
        return cls(Storage.at(text))

    @property
    def location(self) -> str:
        """Its name in messages."""
        return self.catalog or self.storage.root

    def command(self, job: str) -> str:
        """The command line of a job on this warehouse, for messages."""
        return f"{PROGRAM} {job} {option('warehouse', self.location)}"

    def log(self, table: Table) -> DeltaLog:
        """The Delta log of a table."""
        if table.name not in self._logs:
            self._logs[table.name] = DeltaLog(table, self.storage.child(table.name))
        return self._logs[table.name]

    def exists(self, table: Table) -> bool:
        return self.log(table).exists

    def files(self, table: Table, broker_name: str) -> list[StoredFile]:
        """The files of a table with rows of a broker. A table that does not exist has none."""
        files = self.log(table).files
        return [file for file in files if file.broker_name == broker_name] if table.partition_by else files

    def read(self, spark: SparkSession, table: Table) -> DataFrame:
        """The rows of a table, by Spark."""
        rows = spark.read.format("delta")
        if self.log(table).pinned is not None:
            rows = rows.option("versionAsOf", self.log(table).pinned)
        return rows.load(spark_path(self.log(table).storage))

    def rows(
        self,
        table: Table,
        columns: Sequence[str] | None = None,
        where: Where = (),
        files: Sequence[StoredFile] | None = None,
    ) -> pa.Table:
        """The rows of a table, without a Spark session. ``files``: read only these. Partition columns are left out.

        Files that have no such row by their statistics are not opened.
        """
        log = self.log(table)
        chosen = files_that_may_hold(log.files if files is None else files, where)
        return read_rows(table, log.storage, [file.path for file in chosen], columns, where)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Locks the warehouse for one run, which sees the tables as the run before it left them.

        Raises WarehouseBusy, WarehouseUnusable.
        """
        with one_writer(self.storage, self.location):
            # Another run may have ended since this one read the ledger.
            self._logs.clear()
            yield
