"""Deletes data files that no table needs any more, and old entries of Delta logs."""

from __future__ import annotations

from dataclasses import dataclass

from schemas.delta.warehouse import Warehouse
from schemas.run_ledger import RUN_LEDGER
from schemas.tables import TABLES, UNLEDGERED_TABLES


@dataclass
class Cleaning:
    """The number of deleted ``files``, and of ``tables`` that had them."""

    files: int = 0
    tables: int = 0


def clean(warehouse: Warehouse) -> Cleaning:
    """Deletes data files that were removed from their table, or left by a run that died, more than a week ago.

    A reader that opened a table within the week still finds its files. The Delta logs get a checkpoint and lose
    entries older than 30 days.
    """
    done = Cleaning()
    for table in (*TABLES, RUN_LEDGER, *UNLEDGERED_TABLES):
        if warehouse.exists(table):
            files = warehouse.log(table).clean()
            done.files += files
            done.tables += files > 0
    return done
