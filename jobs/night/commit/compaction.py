"""Merges small files of earlier nights, so that tables stay fast to read after a thousand nights.

Files are sorted into tiers by size. A tier's sizes are FILES_IN_A_TIER times those of the one before. The files of a
full tier become one file, as in a log-structured merge tree; it is of the next tier if it is large enough.
A large night writes large files, which stay as they are: its time must not go into merging in the driver.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import pyarrow as pa

from jobs.night.commit.changes import Changes
from schemas.arrow_batches import gathered
from schemas.delta.data_files import ROWS_OF_A_GROUP, DataFileWriter, StoredFile
from schemas.delta.table import Table
from schemas.delta.table_rows import row_groups

FILES_IN_A_TIER = 16
SMALLEST = 64 << 10
"""Bytes of the largest file in the first tier."""
LARGE = 2 << 20
"""Files of this size (bytes) and more are not merged."""
MOST_BYTES = 64 << 20
"""Bytes of a table that a night merges. Other full tiers wait for later nights."""
ROW_GROUP_BYTES = 32 << 20


def compact(table: Table, changes: Changes) -> None:
    """Merges the broker's files of a table until no tier is full, or MOST_BYTES are merged."""
    merged = 0
    while (files := _full_tier(changes.files(table))) is not None:
        merged += sum(file.size for file in files)
        if merged > MOST_BYTES:
            return
        writer = DataFileWriter(table, changes.warehouse.log(table).storage)
        for group in _row_groups(table, files, changes):
            writer.write(group)
        changes.replace_files(table, files, writer.close())


def _full_tier(files: list[StoredFile]) -> list[StoredFile] | None:
    """The files of the lowest full tier in the order of their rows; None if no tier is full."""
    tiers: defaultdict[int, list[StoredFile]] = defaultdict(list)
    for file in files:
        if file.size < LARGE:
            tiers[_tier(file.size)].append(file)
    full = [tier for tier, tier_files in tiers.items() if len(tier_files) >= FILES_IN_A_TIER]
    return sorted(tiers[min(full)], key=_order)[:FILES_IN_A_TIER] if full else None


def _tier(size: int) -> int:
    tier, largest = 0, SMALLEST
    while size > largest:
        tier, largest = tier + 1, largest * FILES_IN_A_TIER
    return tier


def _order(file: StoredFile) -> tuple[int, str, str]:
    """The sort key of a file: its first physical offset, if the table has one, then its run."""
    return file.least.get("commitlog_offset", 0), str(file.least.get("run", "")), file.path


def _row_groups(table: Table, files: list[StoredFile], changes: Changes) -> Iterator[list[pa.RecordBatch]]:
    storage = changes.warehouse.log(table).storage
    stored = (rows for file in files for rows in row_groups(table, storage, file.path))
    batches = (
        batch for rows in stored for batch in rows.cast(table.file_schema).to_batches(max_chunksize=ROWS_OF_A_GROUP)
    )
    return gathered(batches, ROWS_OF_A_GROUP, ROW_GROUP_BYTES)
