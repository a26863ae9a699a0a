"""Consume queue extension files: tags code, store time and filter bit map of an entry (RocketMQ ConsumeQueueExt).

A unit: size i16, tagsCode i64, msgStoreTime i64, bitMapSize i16, bit map. It never crosses the end of a file and
leaves at least 4 bytes there; where it would, a short -1 ends the file and the unit begins the next.
"""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import njit
from numpy.typing import ArrayLike, NDArray

from schemas.rocketmq_store import gather
from schemas.rocketmq_store.record_layout import short_at
from schemas.storage import Storage

UNIT_BYTES = 20
END_BLANK_BYTES = 4
MAX_UNIT_BYTES = 2**15 - 1
ADDRESS_BASE = -(2**63)
MAX_ADDRESS = -(2**31) - 1
UNIT = np.dtype([("size", ">i2"), ("tags_code", ">i8"), ("store_timestamp", ">i8"), ("bit_map_size", ">i2")])
EMPTY = pa.schema(
    {"address": pa.int64(), "tags_code": pa.int64(), "store_timestamp": pa.int64(), "filter_bit_map": pa.binary()}
).empty_table()


class ExtensionError(ValueError):
    """Units that the extension's files cannot hold."""


def has_extension(store: Storage) -> bool:
    """Whether a store folder holds a consume queue extension with anything in it: the broker's bit maps were on."""
    return any(file.size > 0 for file in store.files("consumequeue_ext", recursive=True))


def is_address(tags_codes: ArrayLike) -> NDArray[np.bool_]:
    """Whether the tags codes of consume queue entries are addresses of units, and not tags codes."""
    return np.asarray(tags_codes) <= MAX_ADDRESS


def encode_units(
    tags_codes: ArrayLike,
    store_timestamps: ArrayLike,
    filter_bit_maps: pa.BinaryArray,
    file_size: int,
    position: int = 0,
) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """One unit for each entry of a queue, in order: what the entries hold as tags code, and the bytes of the units.

    The bytes begin at ``position`` of the queue's extension, where the unit before ended, and end with the last unit.
    ``store_timestamps`` are ms, ``filter_bit_maps`` may be null, ``file_size`` is mappedFileSizeConsumeQueueExt.
    A bit map too long for a unit gets none, and its entry keeps the tags code. Raises ExtensionError where a unit
    is too long for a file.
    """
    codes = np.asarray(tags_codes, np.int64)
    bit_maps = filter_bit_maps.fill_null(b"")
    lengths = pc.binary_length(bit_maps).to_numpy().astype(np.int64)
    kept = UNIT_BYTES + lengths <= MAX_UNIT_BYTES
    if not kept.all():
        bit_maps, lengths = bit_maps.filter(pa.array(kept)), lengths[kept]
    sizes = UNIT_BYTES + lengths
    if len(sizes) and sizes.max() > file_size - END_BLANK_BYTES:
        raise ExtensionError(f"a unit of {sizes.max()} bytes does not fit in a file of {file_size}; give larger files")
    positions = _place(sizes, file_size, position)
    codes = codes.copy()
    codes[kept] = positions + ADDRESS_BASE
    starts = positions - position
    ends = starts + sizes
    octets = np.zeros(int(ends.max(initial=0)), np.uint8)
    units = np.zeros(len(sizes), UNIT)
    units["size"], units["tags_code"] = sizes, np.asarray(tags_codes, np.int64)[kept]
    units["bit_map_size"] = lengths
    units["store_timestamp"] = np.asarray(store_timestamps, np.int64)[kept]
    octets[starts[:, None] + np.arange(UNIT_BYTES)] = units.view(np.uint8).reshape(-1, UNIT_BYTES)
    before = np.cumsum(lengths) - lengths
    bits = np.frombuffer(b"".join(bit_maps.to_pylist()), np.uint8)
    octets[np.repeat(starts + UNIT_BYTES - before, lengths) + np.arange(len(bits))] = bits
    previous_ends = np.append(0, ends[:-1])
    in_a_file = (previous_ends + position) % file_size != 0
    filled_up = previous_ends[(previous_ends != starts) & in_a_file]
    octets[filled_up[:, None] + np.arange(2)] = 0xFF
    return codes, octets


def decode_consume_queue_ext(files: Mapping[str, bytes]) -> pa.Table:
    """The units of one queue, from its files by name: address, tags_code, store_timestamp (ms), filter_bit_map or null.

    ``address`` is what the consume queue entry of the unit holds.
    """
    return pa.concat_tables([EMPTY, *(_decode_file(int(name), files[name]) for name in sorted(files, key=int))])


def _decode_file(offset: int, data: bytes) -> pa.Table:
    log = np.frombuffer(data, np.uint8)
    positions = _units(log)
    lengths = (gather.ints(log, positions) >> 16).astype(np.int64) - UNIT_BYTES
    bit_maps = gather.binary_array(*gather.spans(log, positions + UNIT_BYTES, lengths), missing=lengths == 0)
    columns = [
        pa.array(positions + offset + ADDRESS_BASE),
        pa.array(gather.longs(log, positions + 2)),
        pa.array(gather.longs(log, positions + 10)),
        bit_maps,
    ]
    return pa.Table.from_arrays(columns, schema=EMPTY.schema)


@njit(cache=True)
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


@njit(cache=True)
def _units(log: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Where the units of a file begin: up to the end mark, to zeros, or to what cannot be a unit."""
    positions = np.empty(len(log) // UNIT_BYTES, np.int64)
    count = 0
    at = 0
    while at + UNIT_BYTES <= len(log):
        size = short_at(log, at)
        if size < UNIT_BYTES or at + size > len(log) or size != UNIT_BYTES + max(0, short_at(log, at + 18)):
            break
        positions[count] = at
        count += 1
        at += size
    return positions[:count]
