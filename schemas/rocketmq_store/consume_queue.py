"""Consume queue files: 20 bytes an entry, written and read as the broker does (RocketMQ ConsumeQueue).

A file has a fixed size and is named by its offset in the queue, in bytes; what is not yet written is zero.
"""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

ENTRY = np.dtype([("commitlog_offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])
PRE_BLANK = (0, 2**31 - 1, 0)
"""What the broker writes before the first entry of a queue that does not begin at 0."""


def consume_queue_file_size(configured: int) -> int:
    """mappedFileSizeConsumeQueue rounded up to whole entries, in bytes, as the broker does."""
    return -(-configured // ENTRY.itemsize) * ENTRY.itemsize


def encode_consume_queue(
    commitlog_offsets: ArrayLike, sizes: ArrayLike, tags_codes: ArrayLike, file_size: int, first_queue_offset: int = 0
) -> dict[str, bytes]:
    """The files of one queue by name, from its entries in queue order.

    ``tags_codes`` is what is on disk: with an extension, its addresses. ``file_size`` is in bytes, as
    mappedFileSizeConsumeQueue gives it. No entry, no file.
    """
    file_entries = consume_queue_file_size(file_size) // ENTRY.itemsize
    offsets = np.asarray(commitlog_offsets, np.int64)
    if not len(offsets):
        return {}
    first_file, blanks = divmod(first_queue_offset, file_entries)
    files = -(-(blanks + len(offsets)) // file_entries)
    entries = np.zeros(files * file_entries, ENTRY)
    entries[:blanks] = PRE_BLANK
    written = entries[blanks : blanks + len(offsets)]
    written["commitlog_offset"], written["size"], written["tags_code"] = offsets, sizes, tags_codes
    return split_files(entries.view(np.uint8), file_entries * ENTRY.itemsize, first_file)


def decode_consume_queue(files: Mapping[str, bytes]) -> pa.Table:
    """The entries of one queue, from its files by name: queue_offset, commitlog_offset, size, tags_code as on disk."""
    names = sorted(files, key=int)
    entries = written_entries(b"".join(files[name] for name in names))
    queue_offsets = np.arange(len(entries)) + (int(names[0]) // ENTRY.itemsize if names else 0)
    messages = entries != np.array(PRE_BLANK, ENTRY)
    columns = {name: pa.array(entries[name][messages].astype(kind)) for name, kind in _native(ENTRY).items()}
    return pa.table({"queue_offset": pa.array(queue_offsets[messages])} | columns)


def written_entries(data: bytes) -> NDArray[np.void]:
    """The ENTRY rows before the first that is not written (ConsumeQueue.recover)."""
    entries = np.frombuffer(data, ENTRY, len(data) // ENTRY.itemsize)
    written = (entries["commitlog_offset"] >= 0) & (entries["size"] > 0)
    return entries if written.all() else entries[: int(np.argmin(written))]


def split_files(data: NDArray[np.uint8], file_size: int, first_file: int = 0) -> dict[str, bytes]:
    """Cuts consecutive files and names each by its offset (UtilAll.offset2FileName)."""
    starts = range(0, len(data), file_size)
    return {f"{first_file * file_size + start:020d}": data[start : start + file_size].tobytes() for start in starts}


def _native(kind: np.dtype[np.void]) -> dict[str, np.dtype[np.generic]]:
    return {name: kind[name].newbyteorder("=") for name in kind.names or ()}
