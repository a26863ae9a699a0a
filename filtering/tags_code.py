"""The tags code of a consume queue entry: Java's hash of the tag, or a delivery time.

Source: MessageExtBrokerInner.tagsString2tagsCode, CommitLog.checkMessageAndReturnSize,
DefaultMessageStore.parseDelayLevel and computeDeliverTimestamp.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from filtering.counted import check_type
from filtering.java import LONG_MAX, parse_int, parse_long

# String.hashCode of many texts at once.


def string_hashes(texts: pa.StringArray) -> npt.NDArray[np.int32]:
    """The hash code of each text (over UTF-16 units, wrapped to 32 bits); 0 if it is null."""
    hashes = np.zeros(len(texts), np.int32)
    _, offsets, data = texts.buffers()
    if len(texts) and data is not None:
        # Importing Numba takes longer than most commands.
        from filtering.kernels.text_loops import hash_texts

        bounds = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
        hash_texts(np.frombuffer(data, np.uint8), bounds, hashes)
        if texts.null_count:
            hashes[texts.is_null().to_numpy(zero_copy_only=False)] = 0
    return hashes


SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
DELAY_PROPERTY = "DELAY"
_MILLISECONDS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def java_hash(text: str) -> int:
    """java.lang.String.hashCode: a hash over UTF-16 units, wrapped to a signed 32-bit integer."""
    check_type(text, str, "a tag is a text")
    value = 0
    for (unit,) in struct.iter_unpack(">H", text.encode("utf-16-be", "surrogatepass")):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - 0x1_0000_0000 if value & 0x8000_0000 else value


def tags_code(tags: str | None) -> int:
    """The tags code of a message's TAGS property; 0 if it has none."""
    return java_hash(tags) if tags else 0


def tags_codes(tags: pa.Array | pa.ChunkedArray) -> pa.Int64Array:
    """The :func:`tags_code` of each string. ``tags`` may be dictionary-encoded."""
    if isinstance(tags, pa.ChunkedArray):
        tags = tags.combine_chunks()
    if pa.types.is_dictionary(tags.type):
        hashes = np.append(string_hashes(tags.dictionary.cast(pa.string())), np.int32(0))
        return pa.array(hashes[tags.indices.fill_null(-1).to_numpy()].astype(np.int64))
    return pa.array(string_hashes(tags.cast(pa.string())).astype(np.int64))


@lru_cache(maxsize=16)  # every night of a ledger has its configuration
def parse_delay_levels(message_delay_level: str) -> tuple[int, ...]:
    """The delay of each level in milliseconds, from a ``messageDelayLevel`` such as ``1s 5s 1m 2h``.

    Raises ValueError if a level is not a number followed by s, m, h or d, or has more milliseconds than a Long.
    """
    levels = []
    for level in message_delay_level.rstrip(" ").split(" "):
        number, unit = parse_long(level[:-1]), _MILLISECONDS.get(level[-1:])
        if number is None or unit is None or abs(number * unit) > LONG_MAX:
            raise ValueError(f"messageDelayLevel: {level!r} is not a delay; write a number and s, m, h or d, as in 10s")
        levels.append(number * unit)
    return tuple(levels)


def delay_of(delay_property: str | None, delay_levels: Sequence[int]) -> int | None:
    """The delay of a message of the schedule topic in milliseconds, or None if its tags code stays a hash.

    ``delay_property`` is the message's property DELAY. A level above the highest counts as the highest. If the text
    is not an integer, the broker's dispatch stops; here the message keeps its tag's hash.
    """
    level = parse_int(delay_property) if delay_property is not None else None
    if level is None or level <= 0:
        return None
    return delay_levels[min(level, len(delay_levels)) - 1]


def entry_tags_codes(
    topics: pa.Array, tags: pa.Array, delays: pa.Array, store_timestamps: pa.Array, delay_levels: Sequence[int]
) -> pa.Int64Array:
    """The tags codes of consume queue entries: delivery times (ms) in the schedule topic, else tag hashes.

    ``topics``, ``tags`` (property TAGS) and ``delays`` (property DELAY) are string arrays of one
    length, dictionary-encoded or not; ``store_timestamps`` are int64 milliseconds.
    """
    codes = tags_codes(tags)
    scheduled = pc.equal(topics, SCHEDULE_TOPIC)
    if not pc.any(scheduled).as_py():
        return codes
    if not pa.types.is_dictionary(delays.type):
        delays = pc.dictionary_encode(delays)
    waits = pa.array([delay_of(text, delay_levels) for text in delays.dictionary.to_pylist()], pa.int64())
    delivery_times = pc.add(store_timestamps, waits.take(delays.indices))
    return pc.if_else(pc.and_(scheduled, pc.is_valid(delivery_times)), delivery_times, codes)
