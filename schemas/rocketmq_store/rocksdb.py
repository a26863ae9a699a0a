"""Opens the RocksDB databases in a copy of a broker's store, with the package rocksdict, if that is installed."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from schemas import IS_PACKAGE
from schemas.errors import PROGRAM, UsageError
from schemas.storage import Storage, error_text

if TYPE_CHECKING:
    from rocksdict import Rdict

INSTALL = "pip install 'mqsieve[rocksdb]'" if IS_PACKAGE else f"{PROGRAM} python -m pip install rocksdict==0.3.29"
DEFAULT_FAMILY = "default"
OPEN_FILES = 256


class DatabaseError(UsageError):
    """A database that cannot be read. The message names it, and says what to do."""


class PackageMissing(DatabaseError):
    """The package rocksdict is not installed."""


def has_database(storage: Storage, folder: str) -> bool:
    """Whether a folder of a store is a database: every one has a file CURRENT."""
    return storage.has_file(f"{folder}/CURRENT")


def listing(storage: Storage, folder: str) -> tuple[tuple[str, int, int], ...]:
    """The path, size and time of each file below a folder of a store: what was read of it holds while they stay."""
    return tuple((file.path, file.size, file.mtime_ns) for file in storage.files(folder, recursive=True))


class Database:
    """A database, read as the broker's copy has it, with what is only in its write-ahead log.

    The package writes files of its own beside those of a database that it only reads, so it works in a temporary
    folder. Raises PackageMissing, and DatabaseError if a file is missing or damaged.
    """

    def __init__(self, storage: Storage, folder: str) -> None:
        try:
            import rocksdict
        except ImportError:
            raise PackageMissing(f"{folder} is a RocksDB database: to read it, run {INSTALL}") from None
        self.name = f"{storage.root}/{folder}"
        self._work = tempfile.mkdtemp(prefix="mqsieve-rocksdb-")
        weakref.finalize(self, shutil.rmtree, self._work, ignore_errors=True)
        _copy(storage, folder, Path(self._work))
        options = rocksdict.Options(raw_mode=True)
        options.set_max_open_files(OPEN_FILES)
        with self._errors():
            self.families: list[str] = rocksdict.Rdict.list_cf(self._work)
            families = {name: rocksdict.Options(raw_mode=True) for name in self.families}
            self._database = rocksdict.Rdict(self._work, options, families, rocksdict.AccessType.read_only())

    def items(
        self, family: str = DEFAULT_FAMILY, prefix: bytes = b"", rest: bytes = b""
    ) -> Iterator[tuple[bytes, bytes]]:
        """The keys that begin with ``prefix`` and their values, in the order of the keys, from ``prefix + rest`` on.

        Raises DatabaseError.
        """
        with self._errors():
            at = self._opened[family].iter()
            at.seek(prefix + rest)
            while at.valid():
                key: bytes = at.key()
                if not key.startswith(prefix):
                    break
                yield key, at.value()
                at.next()
            at.status()  # a damaged block only ends the iteration

    def get(self, key: bytes, family: str = DEFAULT_FAMILY) -> bytes | None:
        """The value of a key; None if there is none. Raises DatabaseError."""
        with self._errors():
            value: bytes | None = self._opened[family].get(key)
            return value

    @cached_property
    def _opened(self) -> dict[str, Rdict]:
        return {name: self._database.get_column_family(name) for name in self.families}

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turns the errors of the package, which have no class of their own, into DatabaseError."""
        try:
            yield
        except Exception as error:
            reason = error_text(error).replace(f"{self._work}/", "")
            raise DatabaseError(
                f"{self.name} cannot be read as a RocksDB database ({reason}): copy all files of its folder again"
            ) from None


def _copy(storage: Storage, folder: str, to: Path) -> None:
    """Table files, which never change, are linked if they are on this machine."""
    for info in storage.files(folder):
        if storage.is_local and info.extension == "sst":
            os.symlink(Path(storage.root) / info.path, to / info.base_name)
            continue
        with storage.file_system.open_input_stream(info.path) as source, open(to / info.base_name, "wb") as target:
            shutil.copyfileobj(source, target)
