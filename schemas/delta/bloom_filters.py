"""Bloom filters of Parquet files: whether a row group may have a text in a column, without reading the column.

PyArrow writes them, but does not read them. A filter is a header and blocks of 32 bytes; the hash of a text selects a
block, and one bit in each of its eight words. Source: BloomFilter.md of Parquet's format.
"""

from __future__ import annotations

from struct import unpack_from

from xxhash import xxh64_intdigest

_BLOCK = 32
_WORDS = 8
_LOW = 0xFFFFFFFF
_SALTS = (0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31)


def may_contain(bloom_filter: bytes, text: str) -> bool:
    """Whether a Bloom filter, with its header, may contain a text."""
    text_hash = xxh64_intdigest(text.encode())
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
