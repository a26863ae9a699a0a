"""Where the tables are: a folder of Delta tables by path, or a schema of a catalog by name."""

from __future__ import annotations

import fcntl
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

_CATALOG_NAME = re.compile(r"\w+\.\w+")
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:/")


class WarehouseUnusable(ValueError):
    """No tables can be written there; the message says what to give instead."""


class WarehouseBusy(Exception):
    """Another run is writing to this warehouse."""


@dataclass(frozen=True)
class Warehouse:
    """``location`` is a folder (a path or a URI), or ``catalog.schema``."""

    location: str
    in_catalog: bool

    @classmethod
    def at(cls, text: str) -> Warehouse:
        """``catalog.schema`` names a catalog; everything else is a folder (``./a.b`` for one named so)."""
        if _CATALOG_NAME.fullmatch(text):
            return cls(text, in_catalog=True)
        if _SCHEME.match(text):
            return cls(text.rstrip("/"), in_catalog=False)
        return cls(str(Path(text).expanduser().resolve()), in_catalog=False)

    def identifier(self, table: str) -> str:
        """What SQL calls the table."""
        if self.in_catalog:
            return f"{self.location}.{table}"
        path = f"{self.location}/{table}".replace("`", "``")
        return f"delta.`{path}`"

    @property
    def has_one_writer(self) -> bool:
        """Whether ``writing`` keeps other runs out: a folder on this machine."""
        return not self.in_catalog and _SCHEME.match(self.location) is None

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Holds the warehouse for one run.

        Delta on a local disk is safe in one JVM only: two that commit at once can lose a commit.
        Raises WarehouseBusy if another run holds it, WarehouseUnusable if it is no folder to write to.
        """
        if not self.has_one_writer:
            yield
            return
        with self._lock() as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise WarehouseBusy(
                    f"another run is writing to {self.location}: wait for it to end and try again"
                ) from None
            yield

    def _lock(self) -> IO[str]:
        folder = Path(self.location)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            return (folder / ".lock").open("w")
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            raise WarehouseUnusable(f"cannot write to {folder} ({why}): give a folder that you may write to") from None
