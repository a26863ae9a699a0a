"""Bloom filters of Parquet files: whether a row group may have a text in a column, without reading the column.

PyArrow writes them, but does not read them. A filter is a header and blocks of 32 bytes; the hash of a text selects a
block, and one bit in each of its eight words. Source: BloomFilter.md of Parquet's format.
"""

from __future__ import annotations

from struct import iter_unpack, unpack_from

_BLOCK = 32
_WORDS = 8
_LOW = 0xFFFFFFFF
_SALTS = (0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31)


def may_contain(bloom_filter: bytes, text_hash: int) -> bool:
    """Whether a Bloom filter, with its header, may contain a text. ``text_hash``: its :func:`xxhash64`."""
    blocks = _bytes_of_blocks(bloom_filter)
    block = (text_hash >> 32) * (blocks // _BLOCK) >> 32
    words = unpack_from(f"<{_WORDS}I", bloom_filter, len(bloom_filter) - blocks + block * _BLOCK)
    return all(word >> ((text_hash * salt & _LOW) >> 27) & 1 for word, salt in zip(words, _SALTS, strict=True))


def _bytes_of_blocks(bloom_filter: bytes) -> int:
    """The header's first field, a varint in zigzag encoding behind the field's type."""
    encoded = shift = 0
    for octet in bloom_filter[1:]:
        encoded |= (octet & 0x7F) << shift
        shift += 7
        if octet < 0x80:
            break
    return encoded >> 1


# XXH64 with the seed 0.


_ALL = 0xFFFFFFFFFFFFFFFF
_P1, _P2, _P3, _P4, _P5 = (
    0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5,
)  # fmt: skip


def xxhash64(data: bytes) -> int:
    """The hash that Bloom filters of Parquet are over."""
    stripes = len(data) // 32 * 32
    if stripes:
        lanes = [(_P1 + _P2) & _ALL, _P2, 0, -_P1 & _ALL]
        for words in iter_unpack("<4Q", data[:stripes]):
            lanes = [_round(lane, word) for lane, word in zip(lanes, words, strict=True)]
        result = sum(_rotated(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)) & _ALL
        for lane in lanes:
            result = ((result ^ _round(0, lane)) * _P1 + _P4) & _ALL
    else:
        result = _P5
    result = (result + len(data)) & _ALL
    at = stripes
    while at + 8 <= len(data):
        result = (_rotated(result ^ _round(0, *unpack_from("<Q", data, at)), 27) * _P1 + _P4) & _ALL
        at += 8
    if at + 4 <= len(data):
        (word,) = unpack_from("<I", data, at)
        result = (_rotated(result ^ (word * _P1 & _ALL), 23) * _P2 + _P3) & _ALL
        at += 4
    for octet in data[at:]:
        result = _rotated(result ^ (octet * _P5 & _ALL), 11) * _P1 & _ALL
    result = (result ^ result >> 33) * _P2 & _ALL
    result = (result ^ result >> 29) * _P3 & _ALL
    return result ^ result >> 32


def _round(lane: int, word: int) -> int:
    return _rotated((lane + word * _P2) & _ALL, 31) * _P1 & _ALL


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> (64 - bits)) & _ALL
