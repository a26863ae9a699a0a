"""The files of a Delta table, with the statistics that its log keeps of them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from schemas.delta.data_files import DataFile


@dataclass(frozen=True)
class StoredFile:
    """A file of a table's snapshot. ``least`` and ``greatest`` are statistics of the Delta log, by column."""

    path: str
    size: int
    rows: int
    broker_name: str | None
    least: dict[str, Any] = field(repr=False)
    greatest: dict[str, Any] = field(repr=False)

    @classmethod
    def from_add_action(cls, row: dict[str, Any]) -> StoredFile:
        """A file of a snapshot, from a row of its flattened add actions."""
        least = {key.removeprefix("min."): value for key, value in row.items() if key.startswith("min.")}
        greatest = {key.removeprefix("max."): value for key, value in row.items() if key.startswith("max.")}
        return cls(
            row["path"],
            row["size_bytes"],
            row["num_records"],
            row.get("partition.broker_name"),
            {key: value for key, value in least.items() if value is not None},
            {key: value for key, value in greatest.items() if value is not None},
        )

    @classmethod
    def from_data_file(cls, file: DataFile, broker_name: str | None) -> StoredFile:
        """A file that was just written, as a snapshot shows it after the commit."""
        stats = json.loads(file.stats)
        return cls(file.path, file.size, file.rows, broker_name, stats["minValues"], stats["maxValues"])
