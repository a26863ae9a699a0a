"""CRC-32 of many bodies at once (UtilAll.crc32): slicing by eight (Kounavis and Berry, 2005)."""

from __future__ import annotations

import zlib

import numpy as np
from numpy.typing import NDArray

from filtering.matcher.kernels.words import load_word
from filtering.numba_compile import compiled
from schemas.rocketmq_store.gather import Bytes

POLYNOMIAL = 0xEDB88320
_LOW = np.uint32(0xFF)


def _tables() -> NDArray[np.uint32]:
    """table[k][b]: the CRC of the byte b followed by k zero bytes."""
    numbers = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        numbers = np.where(numbers & 1, np.uint32(POLYNOMIAL) ^ (numbers >> np.uint32(1)), numbers >> np.uint32(1))
    tables = [numbers]
    for _ in range(7):
        tables.append(tables[0][tables[-1] & _LOW] ^ (tables[-1] >> np.uint32(8)))
    return np.stack(tables)


TABLES = _tables()


def crc_of(body: bytes) -> int:
    """The bodyCRC of an undamaged record with this body."""
    return zlib.crc32(body) & 0x7FFFFFFF


@compiled
def body_crcs(log: Bytes, starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int32]:
    """The bodyCRC of undamaged records: crc32 of the stored body without the sign bit, 0 for an empty one."""
    crcs = np.empty(len(starts), np.int32)
    for row in range(len(starts)):
        at = int(starts[row])
        end = at + int(lengths[row])
        crc = np.uint32(0xFFFFFFFF)
        while at + 8 <= end:
            word = load_word(log, at) ^ np.uint64(crc)
            crc = np.uint32(0)
            for byte in range(8):
                crc ^= TABLES[7 - byte, np.int64((word >> np.uint64(8 * byte)) & np.uint64(0xFF))]
            at += 8
        while at < end:
            crc = TABLES[0, np.int64((crc ^ np.uint32(log[at])) & _LOW)] ^ (crc >> np.uint32(8))
            at += 1
        crcs[row] = np.int32((crc ^ np.uint32(0xFFFFFFFF)) & np.uint32(0x7FFFFFFF))
    return crcs
