"""java.lang.String.hashCode of many strings at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def string_hashes(texts: pa.StringArray) -> npt.NDArray[np.int32]:
    """The hash code of each text (over UTF-16 units, wrapped to 32 bits); 0 if it is null."""
    hashes = np.zeros(len(texts), np.int32)
    _, offsets, data = texts.buffers()
    if len(texts) and data is not None:
        # Importing Numba takes longer than most commands.
        from filtering.java.hash_loop import hash_texts

        bounds = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
        hash_texts(np.frombuffer(data, np.uint8), bounds, hashes)
        if texts.null_count:
            hashes[texts.is_null().to_numpy(zero_copy_only=False)] = 0
    return hashes
