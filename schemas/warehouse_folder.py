"""Checks whether a folder holds a warehouse, or may become one."""

from __future__ import annotations

import re
from pathlib import Path

from schemas.delta.table import Table
from schemas.delta.warehouse import LOCK, Warehouse
from schemas.errors import UsageError, WarehouseUnusable
from schemas.run_ledger import RUN_LEDGER
from schemas.tables import TABLES

_PERCENT_ESCAPE = re.compile("%[0-9A-Fa-f]{2}")
NO_CONTENT = frozenset({LOCK, "lost+found"})
"""Names in a folder that may become a warehouse: the lock of a run that ended early, and a new disk's own folder."""


def check_folder(warehouse: Warehouse) -> None:
    """Raises WarehouseUnusable if the folder has content, but not that of a warehouse, UsageError if it is unreadable.

    A night begins with the folder of run_ledger, so an interrupted first night has it.
    """
    if warehouse.catalog is not None:
        return
    if escape := _PERCENT_ESCAPE.search(warehouse.storage.root):
        raise WarehouseUnusable(
            f"{warehouse.location} contains {escape[0]}, which delta-rs takes for another character: give a folder "
            "without it"
        )
    warehouse.storage.check_access()
    names = warehouse.storage.names()
    if names <= NO_CONTENT or RUN_LEDGER.name in names or any(_has_log(warehouse, table) for table in TABLES):
        return
    shown = min(names - NO_CONTENT)
    raise WarehouseUnusable(
        f"{warehouse.location} is not empty, and no mqsieve warehouse (it has {shown}): give another folder"
    )


def no_nights(warehouse: Warehouse) -> UsageError:
    """The error for a warehouse without a night: a missing or empty folder, or another program's folder."""
    create = f"{warehouse.command('nightly')} --store STORE"
    if warehouse.catalog is None:
        if warehouse.storage.is_local and Path(warehouse.storage.root).is_file():
            return UsageError(f"{warehouse.location} is a file: check --warehouse")
        if not warehouse.storage.is_folder():
            return UsageError(f"{warehouse.location} does not exist: check --warehouse, or create it with {create}")
        names = warehouse.storage.names()
        if not names <= NO_CONTENT and RUN_LEDGER.name not in names:
            return UsageError(
                f"{warehouse.location} is no mqsieve warehouse: it has no run_ledger, but {min(names - NO_CONTENT)}; "
                "check --warehouse"
            )
    return UsageError(f"{warehouse.location} has no night yet: run {create} first")


def _has_log(warehouse: Warehouse, table: Table) -> bool:
    return warehouse.storage.child(f"{table.name}/_delta_log").is_folder()
