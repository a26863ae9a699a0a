"""Flips bits in data files such that only the checksums of their pages show it."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable


def readable_flips(file: Path, column: str | None = None) -> Iterator[bytes]:
    """The file with one flipped bit, for each bit 0 of a page whose flip changes values that can still be decoded."""
    content = file.read_bytes()
    rows = pq.read_table(io.BytesIO(content))
    metadata = pq.read_metadata(io.BytesIO(content))
    for index in range(metadata.num_columns):
        chunk = metadata.row_group(0).column(index)
        if column not in (None, chunk.path_in_schema):
            continue
        start = chunk.dictionary_page_offset or chunk.data_page_offset
        for at in range(start, start + chunk.total_compressed_size):
            flipped = content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]
            try:
                if not pq.read_table(io.BytesIO(flipped)).equals(rows):
                    yield flipped
            except (pa.ArrowException, OSError, UnicodeDecodeError):
                continue


def flip(warehouse: Path, name: str, column: str | None = None) -> Path:
    """Flips a bit in the oldest data file of a table. Returns the file."""
    file = min(map(Path, DeltaTable(str(warehouse / name)).file_uris()), key=lambda each: each.stat().st_mtime_ns)
    file.write_bytes(next(readable_flips(file, column)))
    return file
