"""Decodes a log and matches its messages once, so that Numba compiles its kernels and keeps them on disk."""

from pathlib import Path

import numpy as np
import pyarrow as pa

from filtering.matcher import kernels, match
from schemas.store.message_decoder import decode_segment
from schemas.store.segments import segments

STORE = Path(__file__).parent.parent / "tests" / "cases" / "captures" / "small" / "store"
EXPRESSIONS = ["a = 'x' OR b = 1", "c > 5.5 AND d BETWEEN 1 AND 2"]

for segment in segments(str(STORE)):
    for piece in decode_segment(segment):
        if isinstance(piece, pa.RecordBatch):
            matches = match(piece["properties"], EXPRESSIONS)
            starts, _ = matches.pairs()
            # Sixteen bits: as delivery blocks keep positions.
            kernels.backend.expand(matches.bits, np.arange(matches.predicates), starts, np.uint16)
