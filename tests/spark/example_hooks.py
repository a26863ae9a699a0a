"""Filter hooks as a user writes them."""

import pyarrow as pa
import pyarrow.compute as pc


def even_queue_offsets(entries: pa.RecordBatch) -> pa.BooleanArray:
    return pc.equal(pc.bit_wise_and(entries["queue_offset"], 1), 0)
