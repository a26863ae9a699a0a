"""Java's strings: decoded as ``new String(bytes, UTF_8)``, which replaces malformed input by U+FFFD, and trimmed."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt
import pyarrow as pa

# Java replaces a surrogate in three bytes, or the first two of them, with one U+FFFD; Python with one for each byte.
_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")

_HIGH_BITS = np.uint64(0x8080808080808080)
_HALF_A_PAIR = re.compile("[\ud800-\udfff]")
_TRIMMED = "".join(map(chr, range(0x21)))


def trim(text: str) -> str:
    """java.lang.String.trim: the text without the characters up to U+0020 at both ends."""
    return text.strip(_TRIMMED)


def decode_utf8(data: bytes) -> str:
    """``data`` decoded as Java decodes UTF-8, malformed or not."""
    return _SURROGATE.sub("\ufffd".encode(), data).decode("utf-8", "replace")


def string_array(offsets: npt.NDArray[np.int32], data: npt.NDArray[np.uint8]) -> pa.StringArray:
    """Arrow strings over offsets (rows + 1) and data. Malformed input is replaced as in Java."""
    array = unchecked_string_array(offsets, data)
    if is_utf8(offsets, data):
        return array
    return pa.array([decode_utf8(text) for text in array.view(pa.binary()).to_pylist()], pa.string())


def unchecked_string_array(
    offsets: npt.NDArray[np.int32], data: npt.NDArray[np.uint8], missing: npt.NDArray[np.bool_] | None = None
) -> pa.StringArray:
    """Arrow strings over offsets (rows + 1) and data, which must be UTF-8; null where ``missing`` is true."""
    validity = None if missing is None or not missing.any() else pa.py_buffer(np.packbits(~missing, bitorder="little"))
    buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.string(), len(offsets) - 1, buffers)


def is_utf8(offsets: npt.NDArray[np.int32], data: npt.NDArray[np.uint8]) -> bool:
    """Whether each string is valid UTF-8: the data is valid as a whole, and no string begins inside a character."""
    if _is_ascii(data):
        return True
    try:
        unchecked_string_array(offsets[[0, -1]], data).validate(full=True)
    except pa.ArrowInvalid:
        return False
    starts = offsets[offsets < len(data)]
    return not np.any(data[starts] & 0xC0 == 0x80)


def _is_ascii(data: npt.NDArray[np.uint8]) -> bool:
    in_words = len(data) // 8 * 8
    words, rest = data[:in_words].view(np.uint64), data[in_words:]
    return bool(np.bitwise_or.reduce(words) & _HIGH_BITS == 0) and not np.any(rest & 0x80)


def has_half_a_pair(text: str) -> bool:
    """Whether a text contains half of a surrogate pair. JSON may have it; UTF-8 does not."""
    return not text.isascii() and _HALF_A_PAIR.search(text) is not None


def without_half_pairs(text: str) -> str:
    """The text with U+FFFD in the place of each half of a surrogate pair."""
    return _HALF_A_PAIR.sub("\ufffd", text)
