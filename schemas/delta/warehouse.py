"""A warehouse: a folder of Delta tables, local or in an object store, or a schema of a catalog; and its lock."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import FrameType
from typing import IO, TYPE_CHECKING

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from filtering.frozen import frozen
from schemas.delta.delta_log import DeltaLog
from schemas.delta.table import StoredFile, Table
from schemas.delta.table_rows import Where, files_that_may_hold, read_rows
from schemas.errors import PROGRAM, UsageError, WarehouseBusy, WarehouseUnusable, option, spark_options
from schemas.storage import Storage, error_text, spark_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


# A lock in an object store: a lease, which ends unless its holder renews it.
#
# The lease is an empty Delta table, and each version of the table is one holder's: the store makes the file of a
# version for one writer only, as with every commit. Beside the log, the file ``renewed-N`` has the time at which the
# holder of version N renewed the lease. Times are those of the machines that run the jobs: their clocks must agree
# within minutes.


RENEWED_EVERY = timedelta(minutes=1)
ENDS_AFTER = timedelta(minutes=10)
_TAKEN = "taken"
_RENEWED = "renewed-"

Clock = Callable[[], datetime]


def utc_now() -> datetime:
    return datetime.now(UTC)


@frozen
class Lease:
    """One holder's lease. ``table_id`` and ``version`` are those of the table of the lease."""

    lock: Storage
    table_id: str
    version: int

    @classmethod
    def take(cls, lock: Storage, location: str, clock: Clock = utc_now) -> Lease:
        """A lease on what no other run holds, or has not renewed in time. ``location`` is what a user calls it.

        Raises WarehouseBusy where another run holds the lease, WarehouseUnusable where nothing can be written.
        """
        error = _create(lock, clock)
        table = _table(lock)
        if error is not None and table is None:
            error, table = _create(lock, clock), _table(lock)  # the run that was in the way has just ended
        if table is None:
            raise WarehouseUnusable(
                f"cannot write to {location} ({error_text(error) if error else 'the lock is gone'}): "
                f"check {lock.connection}"
            )
        lease = cls(lock, str(table.metadata().id), table.version())
        if error is None:
            return lease
        holder, end = table.metadata().description, _renewed(lock, table) + ENDS_AFTER
        if end < clock():
            with suppress(DeltaError, OSError):  # another run took it over first
                table.alter.set_table_description(_holder(clock), commit_properties=_one_try(clock))
                return cls(lock, lease.table_id, lease.version + 1)
            end = clock() + ENDS_AFTER
        raise WarehouseBusy(
            f"another run is writing to {location} ({holder}): wait for it to end and try again; if it was killed, "
            f"the next run takes over from {end:%H:%M:%S} UTC on"
        )

    def is_held(self) -> bool:
        """Whether no other run took the lease over. Raises DeltaError or OSError where the store is away."""
        try:
            table = DeltaTable(self.lock.root)
        except TableNotFoundError:
            return False
        return (str(table.metadata().id), table.version()) == (self.table_id, self.version)

    def renew(self, clock: Clock = utc_now) -> bool:
        """Moves the end of the lease. Returns whether it is still held. Raises as ``is_held`` does."""
        held = self.is_held()
        if held:
            self.lock.write(_renewal(self.version), clock().isoformat().encode())
        return held

    def release(self) -> None:
        """Ends the lease, unless another run took it over."""
        if self.is_held():
            # The log from its start on: a later version without the first is no table, and so cannot be taken over.
            for file in sorted(self.lock.files(recursive=True), key=lambda file: (_RENEWED in file.path, file.path)):
                self.lock.file_system.delete_file(file.path)


@contextmanager
def leased(
    lock: Storage, location: str, clock: Clock = utc_now, renewed_every: timedelta = RENEWED_EVERY
) -> Iterator[None]:
    """Holds a lease during the block, and renews it. Where another run takes it over, the main thread is interrupted.

    Raises WarehouseBusy where another run holds the lease, or took it over; WarehouseUnusable as ``Lease.take`` does.
    """
    lease = Lease.take(lock, location, clock)
    ended, lost = threading.Event(), threading.Event()

    def keep() -> None:
        while not ended.wait(renewed_every.total_seconds()):
            with suppress(DeltaError, OSError):  # the next renewal may succeed
                if not lost.is_set() and not lease.renew(clock):
                    lost.set()
            if lost.is_set():  # and again: a library may have swallowed the interrupt
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    thread = threading.Thread(target=keep, daemon=True)
    thread.start()
    try:
        with _interruptible(lost):
            yield
    except KeyboardInterrupt:
        ended.set()
        if not lost.is_set():
            raise
        raise WarehouseBusy(
            f"another run took over {location}, since this one had not renewed its lock for "
            f"{ENDS_AFTER.seconds // 60} minutes: run the same command again"
        ) from None
    finally:
        ended.set()
        thread.join()
        with suppress(DeltaError, OSError):  # a lease that cannot be released ends by itself
            lease.release()


@contextmanager
def _interruptible(lost: threading.Event) -> Iterator[None]:
    """SIGINT interrupts a run that lost its lease, even if it ignores SIGINT: shells start background commands so."""
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        if lost.is_set():
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _create(lock: Storage, clock: Clock) -> Exception | None:
    try:
        DeltaTable.create(
            lock.root,
            pa.schema([pa.field("held", pa.bool_())]),
            mode="error",
            description=_holder(clock),
            commit_properties=_one_try(clock),
        )
    except (DeltaError, OSError) as error:
        return error
    return None


def _table(lock: Storage) -> DeltaTable | None:
    try:
        return DeltaTable(lock.root)
    except (DeltaError, OSError):
        return None


def _holder(clock: Clock) -> str:
    return f"{socket.gethostname()}, process {os.getpid()}, since {clock():%Y-%m-%d %H:%M:%S} UTC"


def _one_try(clock: Clock) -> CommitProperties:
    return CommitProperties(custom_metadata={_TAKEN: clock().isoformat()}, max_commit_retries=0)


def _renewed(lock: Storage, table: DeltaTable) -> datetime:
    """When the holder took the lease, or renewed it last."""
    taken = datetime.fromisoformat(table.history(1)[0][_TAKEN])
    renewal = lock.read(_renewal(table.version()))
    return max(taken, datetime.fromisoformat(renewal.decode())) if renewal else taken


def _renewal(version: int) -> str:
    return f"{_RENEWED}{version}"


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
        """The rows of a table, by Spark. Raises UsageError if the session has no Delta Lake."""
        rows = spark.read.format("delta")
        if self.log(table).pinned is not None:
            rows = rows.option("versionAsOf", self.log(table).pinned)
        try:
            return rows.load(spark_path(self.log(table).storage))
        except Exception as error:  # of Spark or Py4J
            if "DATA_SOURCE_NOT_FOUND" not in str(error):
                raise
            raise UsageError(
                "this Spark session has no Delta Lake: take the one of mqsieve.spark.spark_session(), or call "
                "mqsieve.spark.register(spark), then spark.read.format('mqsieve') reads tables without it"
            ) from None

    def rows(
        self,
        table: Table,
        columns: Sequence[str] | None = None,
        where: Where = (),
        files: Sequence[StoredFile] | None = None,
        dictionaries: Sequence[str] = (),
    ) -> pa.Table:
        """The rows of a table, without a Spark session. ``files``: read only these. Partition columns are left out.

        ``dictionaries``: columns of texts to read as dictionaries. Files that have no such row by their statistics are
        not opened.
        """
        log = self.log(table)
        candidates = files_that_may_hold(log.files if files is None else files, where)
        return read_rows(table, log.storage, [file.path for file in candidates], columns, where, dictionaries)

    def rows_of(
        self, broker_name: str, table: Table, columns: Sequence[str] | None = None, where: Where = ()
    ) -> pa.Table:
        """The rows of a broker, read like :meth:`rows`."""
        return self.rows(table, columns, where, self.files(table, broker_name))

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
