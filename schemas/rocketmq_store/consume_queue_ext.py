"""Consume queue extension files: tags code, store time and filter bit map of an entry (RocketMQ ConsumeQueueExt).

A unit: size i16, tagsCode i64, msgStoreTime i64, bitMapSize i16, bit map. It never crosses the end of a file and
leaves at least 4 bytes there. If a unit does not fit, a short -1 ends the file and the unit begins the next file. The
tags code of an entry is then the unit's address.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike, NDArray

from filtering.broker_config import CONSUME_QUEUE_EXT_UNIT
from filtering.kernels.compile import compiled
from schemas.errors import UsageError
from schemas.rocketmq_store.queue_files import QueueFiles
from schemas.storage import Storage

END_BLANK_BYTES = 4
MAX_UNIT_BYTES = 2**15 - 1
ADDRESS_BASE = -(2**63)
MAX_ADDRESS = -(2**31) - 1
UNIT = np.dtype([("size", ">i2"), ("tags_code", ">i8"), ("store_timestamp", ">i8"), ("bit_map_size", ">i2")])
TAGS_CODE, STORE_TIMESTAMP = 2, 10
"""Where these fields are, in bytes from the start of a unit."""
FULL = b"\xff\xff"
"""What follows the last unit of a file: a short -1."""


class ExtensionError(UsageError):
    """A unit is too long for the files of the extension."""


def has_extension(store: Storage) -> bool:
    """Whether a store folder has a consume queue extension that is not empty, because bit maps were on."""
    return any(file.size > 0 for file in store.files("consumequeue_ext", recursive=True))


def is_address(tags_codes: ArrayLike) -> NDArray[np.bool_]:
    """Whether each tags code of consume queue entries is the address of a unit instead."""
    return np.asarray(tags_codes) <= MAX_ADDRESS


def encode_units(
    tags_codes: ArrayLike,
    store_timestamps: ArrayLike,
    filter_bit_maps: pa.BinaryArray,
    file_size: int,
    position: int = 0,
) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """One unit for each entry of a queue, in order: the tags codes of the entries, and the bytes of the units.

    The bytes begin at ``position`` of the queue's extension, where the previous unit ended, and end with the last unit.
    ``store_timestamps`` are ms, ``filter_bit_maps`` may be null, ``file_size`` is mappedFileSizeConsumeQueueExt.
    An entry whose bit map is too long for a unit keeps its tags code. Raises ExtensionError if a unit is too long for
    a file.
    """
    codes = np.asarray(tags_codes, np.int64)
    bit_maps = filter_bit_maps.fill_null(b"")
    lengths = pc.binary_length(bit_maps).to_numpy().astype(np.int64)
    kept = CONSUME_QUEUE_EXT_UNIT + lengths <= MAX_UNIT_BYTES
    if not kept.all():
        bit_maps, lengths = bit_maps.filter(pa.array(kept)), lengths[kept]
    sizes = CONSUME_QUEUE_EXT_UNIT + lengths
    if len(sizes) and sizes.max() > file_size - END_BLANK_BYTES:
        raise ExtensionError(
            f"a unit of {sizes.max()} bytes does not fit in a file of {file_size}: give --broker-config with a larger "
            "mappedFileSizeConsumeQueueExt"
        )
    positions = _place(sizes, file_size, position)
    units = np.zeros(len(sizes), UNIT)
    units["size"], units["tags_code"], units["bit_map_size"] = sizes, codes[kept], lengths
    units["store_timestamp"] = np.asarray(store_timestamps, np.int64)[kept]
    codes = codes.copy()
    codes[kept] = positions + ADDRESS_BASE
    return codes, _written(units, bit_maps, positions, position, file_size)


def _written(
    units: NDArray[np.void], bit_maps: pa.BinaryArray, positions: NDArray[np.int64], position: int, file_size: int
) -> NDArray[np.uint8]:
    """The bytes from ``position`` on: each unit and its bit map at its place, and the ends of files between them."""
    starts, lengths = positions - position, units["bit_map_size"].astype(np.int64)
    ends = starts + units["size"]
    octets = np.zeros(int(ends.max(initial=0)), np.uint8)
    octets[starts[:, None] + np.arange(UNIT.itemsize)] = units.view(np.uint8).reshape(-1, UNIT.itemsize)
    before = np.cumsum(lengths) - lengths
    bits = np.frombuffer(b"".join(bit_maps.to_pylist()), np.uint8)
    octets[np.repeat(starts + CONSUME_QUEUE_EXT_UNIT - before, lengths) + np.arange(len(bits))] = bits
    previous_ends = np.append(0, ends[:-1])
    in_a_file = (previous_ends + position) % file_size != 0
    filled_up = previous_ends[(previous_ends != starts) & in_a_file]
    octets[filled_up[:, None] + np.arange(2)] = 0xFF
    return octets


@compiled
def _place(sizes: NDArray[np.int64], file_size: int, at: int) -> NDArray[np.int64]:
    """Where each unit begins, in bytes from the first file on, the first not before ``at`` (ConsumeQueueExt.put)."""
    positions = np.empty(len(sizes), np.int64)
    for i in range(len(sizes)):
        space = file_size - at % file_size
        if sizes[i] > space - END_BLANK_BYTES:
            at += space
        positions[i] = at
        at += sizes[i]
    return positions


def repeated_units(files: QueueFiles, position: int, latest: int, end: int | None = None) -> int:
    """Where the units end that begin at ``position`` and are not newer than ``latest`` (ms); at most ``end``.

    A broker that was killed dispatches its last messages again when it starts: their entries stay as they are, but
    their units follow once more (ConsumeQueue.putMessagePositionInfoWrapper).
    """
    while position != end:
        data = files.read(position, files.start(position) + files.file_size - position) or b""
        at = _units_end(data, latest, None if end is None else end - position)
        position += at
        if position == end or data[at : at + 2] != FULL:
            break
        position = files.start(position) + files.file_size
    return position


def _units_end(data: bytes, latest: int, end: int | None) -> int:
    at = 0
    while at != end and (size := int.from_bytes(data[at : at + 2], "big", signed=True)) >= CONSUME_QUEUE_EXT_UNIT:
        if int.from_bytes(data[at + STORE_TIMESTAMP : at + STORE_TIMESTAMP + 8], "big") > latest:
            break
        at += size
    return at
