"""Lets one run at a time write to a warehouse."""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import IO

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from schemas.errors import WarehouseBusy, WarehouseUnusable
from schemas.storage import Storage, one_line

FILE_MODE = 0o660
LOCK = ".lock"


@contextmanager
def one_writer(storage: Storage, location: str) -> Iterator[None]:
    """Locks a warehouse for one run. ``location`` is its name in messages.

    In a local folder the lock is a file lock (flock), which ends with the process. In an object store it is an empty
    Delta table, ``.lock``: the store lets only one writer create the first file of its log, as with every commit. A
    killed run leaves this table behind, and the message of the next run says what to delete.

    Raises WarehouseBusy if another run holds the lock, WarehouseUnusable if nothing can be written.
    """
    if storage.is_local:
        with _lock_file(storage.root) as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise WarehouseBusy(f"another run is writing to {location}: wait for it to end and try again") from None
            yield
        return
    lock_table = storage.child(LOCK)
    _create(lock_table, location)
    try:
        yield
    finally:
        for file in lock_table.files(recursive=True):
            lock_table.file_system.delete_file(file.path)


def _lock_file(folder: str) -> IO[str]:
    try:
        Storage(folder).make()
        return os.fdopen(os.open(f"{folder}/{LOCK}", os.O_RDWR | os.O_CREAT, FILE_MODE), "w")
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise WarehouseUnusable(f"cannot write to {folder} ({why}): give a folder that you may write to") from None


def _create(lock_table: Storage, location: str) -> None:
    error = _try_to_create(lock_table)
    if error is not None and _holder(lock_table) is None:
        error = _try_to_create(lock_table)  # the other run has just ended
    if error is None:
        return
    other = _holder(lock_table)
    if other is not None:
        raise WarehouseBusy(
            f"another run is writing to {location} ({other}): wait for it to end and try again; if it was killed, "
            f"delete {lock_table.root}"
        )
    raise WarehouseUnusable(
        f"cannot write to {location} ({one_line(error)}): check the bucket, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, "
        "AWS_REGION and AWS_ENDPOINT_URL"
    )


def _try_to_create(lock_table: Storage) -> Exception | None:
    holder = f"{socket.gethostname()}, process {os.getpid()}, since {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"
    try:
        DeltaTable.create(
            lock_table.root,
            pa.schema([pa.field("held", pa.bool_())]),
            mode="error",
            description=holder,
            commit_properties=CommitProperties(max_commit_retries=0),
        )
    except (DeltaError, OSError) as error:
        return error
    return None


def _holder(lock_table: Storage) -> str | None:
    """The run that holds the lock, in words; None if there is no lock."""
    try:
        return DeltaTable(lock_table.root).metadata().description
    except (TableNotFoundError, DeltaError, OSError):
        return None
