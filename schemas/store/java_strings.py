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


def string_array(
    offsets: NDArray[np.int32], data: NDArray[np.uint8], missing: NDArray[np.bool_] | None = None
) -> pa.StringArray:
    """Arrow strings over offsets and data, null where ``missing``; malformed ones are replaced as Java does."""
    validity = None if missing is None else pa.array(~missing).buffers()[1]
    buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(data)]
    array = pa.Array.from_buffers(pa.string(), len(offsets) - 1, buffers)
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        malformed = pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)
        texts = [None if text is None else decode_utf8(text) for text in malformed.to_pylist()]
        return pa.array(texts, pa.string())
    return array
