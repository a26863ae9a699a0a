"""Strings as Java decodes them: ``new String(bytes, UTF_8)``, malformed input replaced by U+FFFD."""

import re

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

# A UTF-16 surrogate in three bytes, or the first two of them, is one malformed piece to Java and several to Python.
SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")


def decode_utf8(data: bytes) -> str:
    """The string that Java makes of ``data``, malformed or not."""
    return SURROGATE.sub("\ufffd".encode(), data).decode("utf-8", "replace")


def string_array(offsets: NDArray[np.int32], data: NDArray[np.uint8]) -> pa.StringArray:
    """Arrow strings over offsets and data; malformed ones are replaced as Java does."""
    array = _strings(offsets, data)
    if not is_utf8(offsets, data):
        return pa.array([decode_utf8(text) for text in array.view(pa.binary()).to_pylist()], pa.string())
    return array


def is_utf8(offsets: NDArray[np.int32], data: NDArray[np.uint8]) -> bool:
    """Whether each string is valid: all of them together are, and none begins inside a character."""
    try:
        _strings(offsets[[0, -1]], data).validate(full=True)
    except pa.ArrowInvalid:
        return False
    starts = offsets[offsets < len(data)]
    return not np.any(data[starts] & 0xC0 == 0x80)


def _strings(offsets: NDArray[np.int32], data: NDArray[np.uint8]) -> pa.StringArray:
    return pa.Array.from_buffers(pa.string(), len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
