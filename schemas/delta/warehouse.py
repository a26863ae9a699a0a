"""A warehouse: a folder of Delta tables, local or in an object store, or a schema of a catalog; and its lock."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING

import pyarrow as pa

from schemas.delta.data_files import StoredFile
from schemas.delta.delta_log import DeltaLog
from schemas.delta.lease import leased
from schemas.delta.table import Table
from schemas.delta.table_rows import Where, files_that_may_hold, read_rows
from schemas.errors import WarehouseBusy, WarehouseUnusable
from schemas.shell_command import PROGRAM, option, spark_options
from schemas.storage import Storage, spark_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FILE_MODE = 0o660
LOCK = ".lock"


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
        """The command line of a job on this warehouse, for messages. A catalog needs Spark, with the same options."""
        options = [spark_options()] if self.catalog is not None else []
        return " ".join([PROGRAM, job, *filter(None, options), option("warehouse", self.location)])

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

        In a local folder the lock is a file lock (flock), which ends with the process. In an object store it is a
        lease, ``.lock``, which ends 10 minutes after a run was killed.

        Raises WarehouseBusy if another run holds the lock or took it over, WarehouseUnusable if nothing can be written.
        """
        if self.storage.is_local:
            lock = _file_lock(self.storage.root, self.location)
        else:
            lock = leased(self.storage.child(LOCK), self.location)
        with lock:
            # Another run may have ended since this one read the ledger.
            self._logs.clear()
            yield


@contextmanager
def _file_lock(folder: str, location: str) -> Iterator[None]:
    with _lock_file(folder) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise WarehouseBusy(f"another run is writing to {location}: wait for it to end and try again") from None
        yield


def _lock_file(folder: str) -> IO[str]:
    try:
        Storage(folder).make()
        return os.fdopen(os.open(f"{folder}/{LOCK}", os.O_RDWR | os.O_CREAT, FILE_MODE), "w")
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise WarehouseUnusable(f"cannot write to {folder} ({why}): give a folder that you may write to") from None
