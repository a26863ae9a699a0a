"""Lets one run at a time write to a warehouse."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from schemas.delta.lease import leased
from schemas.errors import WarehouseBusy, WarehouseUnusable
from schemas.storage import Storage

FILE_MODE = 0o660
LOCK = ".lock"


@contextmanager
def one_writer(storage: Storage, location: str) -> Iterator[None]:
    """Locks a warehouse for one run. ``location`` is its name in messages.

    In a local folder the lock is a file lock (flock), which ends with the process. In an object store it is a lease,
    ``.lock``, which ends 10 minutes after a run was killed.

    Raises WarehouseBusy if another run holds the lock or took it over, WarehouseUnusable if nothing can be written.
    """
    if storage.is_local:
        with _lock_file(storage.root) as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise WarehouseBusy(f"another run is writing to {location}: wait for it to end and try again") from None
            yield
        return
    with leased(storage.child(LOCK), location):
        yield


def _lock_file(folder: str) -> IO[str]:
    try:
        Storage(folder).make()
        return os.fdopen(os.open(f"{folder}/{LOCK}", os.O_RDWR | os.O_CREAT, FILE_MODE), "w")
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise WarehouseUnusable(f"cannot write to {folder} ({why}): give a folder that you may write to") from None
