"""One run at a time on a warehouse."""

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
    """Holds a warehouse for one run. ``location`` is what a user calls it.

    In a folder of this machine the lock is a file's (flock), and ends with the process. In an object store it is a
    lease, ``.lock``: that of a run that was killed ends by itself.

    Raises WarehouseBusy where another run holds the warehouse, or took it over, WarehouseUnusable where nothing
    can be written.
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
