"""The body of a message: stored compressed if sysFlag says so (MessageSysFlag, CompressionType)."""

import zlib

import lz4.frame
import zstandard

COMPRESSED = 0x1
COMPRESSION_TYPE = 0x700
LZ4, ZSTD, ZLIB = 0x100, 0x200, 0x300


def decompress(body: bytes, sys_flag: int) -> bytes:
    """The body that the producer sent, from the stored one and the record's sysFlag.

    Raises ValueError where the bytes are not what sysFlag says, or where it names no known compression.
    """
    if not sys_flag & COMPRESSED or not body:
        return body
    kind = sys_flag & COMPRESSION_TYPE
    try:
        if kind == LZ4:
            return bytes(lz4.frame.decompress(body))
        if kind == ZSTD:
            return zstandard.ZstdDecompressor().decompressobj().decompress(body)
        if kind in (ZLIB, 0):  # 0: written by a RocketMQ that knew no other
            return zlib.decompress(body)
    except (RuntimeError, zstandard.ZstdError, zlib.error) as error:
        raise ValueError(f"the body is not compressed as sysFlag {sys_flag} says: {error}") from error
    raise ValueError(f"sysFlag {sys_flag} names the compression {kind >> 8}, which RocketMQ does not know")


def body_crc(body: bytes | memoryview) -> int:
    """What bodyCRC of an undamaged record is: crc32 of the stored body without the sign bit (UtilAll.crc32)."""
    return zlib.crc32(body) & 0x7FFFFFFF
