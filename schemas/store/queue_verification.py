"""A queue's files as the broker should have written them, held against those on disk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from schemas.store.consume_queue import ENTRY, decode_consume_queue, encode_consume_queue
from schemas.store.consume_queue_ext import ADDRESS_BASE, encode_consume_queue_ext, is_address

Files = Mapping[str, bytes]
MAX_DIFFERENCES = 1000


@dataclass(frozen=True)
class Difference:
    """A place where a file on disk is not what the broker should have written.

    ``queue_offset`` is the entry's, None where a file as a whole differs.
    """

    file: str
    queue_offset: int | None
    reason: str


@dataclass(frozen=True)
class QueueFiles:
    """The files of one queue by name: its consume queue, and its extension (empty without one)."""

    consume_queue: Files
    extension: Files

    @classmethod
    def on_disk(cls, store: Path, topic: str, queue_id: int) -> QueueFiles:
        folders = [store / kind / topic / str(queue_id) for kind in ("consumequeue", "consumequeue_ext")]
        return cls(*({file.name: file.read_bytes() for file in _files(folder)} for folder in folders))

    @classmethod
    def rebuilt(cls, entries: pa.Table, file_size: int, extension_file_size: int | None) -> QueueFiles:
        """``entries``: rows of consumequeue of one queue, in order; sizes in bytes, None without an extension."""
        codes: NDArray[np.int64] = entries["tags_code"].to_numpy()
        extension: Files = {}
        if extension_file_size is not None:
            bit_maps = entries["filter_bit_map"].combine_chunks()
            times = entries["store_timestamp"].to_numpy()
            codes, extension = encode_consume_queue_ext(codes, times, bit_maps, extension_file_size)
        first = entries["queue_offset"][0].as_py() if len(entries) else 0
        offsets, sizes = entries["commitlog_offset"].to_numpy(), entries["size"].to_numpy()
        return cls(encode_consume_queue(offsets, sizes, codes, file_size, first), extension)


def differences(expected: QueueFiles, found: QueueFiles) -> list[Difference]:
    """Where ``found`` is not ``expected``, an entry at a time, at most MAX_DIFFERENCES."""
    entries = _entry_differences(expected.consume_queue, found.consume_queue)
    units = _unit_differences(expected, found.extension)
    return list(islice(chain(entries, units), MAX_DIFFERENCES))


def _entry_differences(expected: Files, found: Files) -> Iterator[Difference]:
    yield from _file_differences("consumequeue", expected, found)
    for name in sorted(expected.keys() & found.keys()):
        should, are = expected[name], found[name]
        for entry in np.unique(_differing(should, are) // ENTRY.itemsize).tolist():
            at = entry * ENTRY.itemsize
            told = [
                f"{field} is {np.frombuffer(are, ENTRY, 1, at)[field][0]}, should be {value}"
                for field, value in zip(ENTRY.names or (), np.frombuffer(should, ENTRY, 1, at)[0], strict=True)
                if np.frombuffer(are, ENTRY, 1, at)[field][0] != value
            ]
            yield Difference(f"consumequeue/{name}", (int(name) + at) // ENTRY.itemsize, "; ".join(told))


def _unit_differences(expected: QueueFiles, found: Files) -> Iterator[Difference]:
    yield from _file_differences("consumequeue_ext", expected.extension, found)
    entries = decode_consume_queue(expected.consume_queue)
    codes = entries["tags_code"].to_numpy()
    with_unit = np.flatnonzero(is_address(codes))
    starts = codes[with_unit] - ADDRESS_BASE
    for name in sorted(expected.extension.keys() & found.keys()):
        should, are = expected.extension[name], found[name]
        differing = _differing(should, are)
        units = np.searchsorted(starts, differing + int(name), "right") - 1
        for unit in np.unique(units).tolist():
            at = int(starts[unit]) - int(name)
            end = at + int.from_bytes(should[at : at + 2], "big")
            reason = f"unit is {are[at:end].hex()}, should be {should[at:end].hex()}"
            if should[at:end] == are[at:end]:
                position = differing[units == unit][0]
                reason = f"what follows the unit has a byte other than the broker's at position {position}"
            queue_offset = entries["queue_offset"][int(with_unit[unit])].as_py()
            yield Difference(f"consumequeue_ext/{name}", queue_offset, reason)


def _file_differences(kind: str, expected: Files, found: Files) -> Iterator[Difference]:
    for name in sorted(expected.keys() | found.keys()):
        if name not in found:
            yield Difference(f"{kind}/{name}", None, "the file is missing")
        elif name not in expected:
            yield Difference(f"{kind}/{name}", None, "the broker would not have this file")
        elif len(found[name]) != len(expected[name]):
            sizes = f"{len(found[name])} bytes, should be {len(expected[name])}"
            yield Difference(f"{kind}/{name}", None, f"the file has {sizes}")


def _differing(should: bytes, are: bytes) -> NDArray[np.int64]:
    """Positions of bytes that differ, as far as both files go."""
    length = min(len(should), len(are))
    return np.flatnonzero(np.frombuffer(should, np.uint8, length) != np.frombuffer(are, np.uint8, length))


def _files(folder: Path) -> Iterator[Path]:
    if folder.is_dir():
        yield from (file for file in folder.iterdir() if file.name.isdecimal())
