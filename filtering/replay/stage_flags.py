"""Which stages each consume queue entry passes for one group, an Arrow batch at a time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from filtering.replay import bit_planes
from filtering.replay.delivery import Delivery

ENTRY_COLUMNS = (
    "broker_name", "queue_id", "queue_offset", "size", "tags_code", "store_timestamp", "filter_bit_map", "properties",
)  # fmt: skip
FLAG_TYPES = "queue_id int, queue_offset bigint, size int, stage1 boolean, tags boolean, stage2 boolean"


class StageFlags:
    """Picklable, so that Spark can send it to its workers."""

    def __init__(self, delivery: Delivery) -> None:
        """``delivery``: compiled for exactly one filter."""
        self._delivery = delivery

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Batches of ENTRY_COLUMNS to batches of FLAG_TYPES, row for row.

        ``stage1``: passes on the entry; ``tags``: would pass on it if there were no bit map;
        ``stage2``: passes on the message, wherever it passed stage 1.
        """
        for batch in batches:
            rows = batch.num_rows
            times = batch["store_timestamp"].to_numpy()
            no_bit_maps = pa.nulls(rows, pa.binary())
            stage1 = self._delivery.stage1(batch["tags_code"], times, batch["filter_bit_map"])
            tags = self._delivery.stage1(batch["tags_code"], times, no_bit_maps)
            returned = self._delivery.run(batch["properties"], batch["tags_code"], times, no_bit_maps)
            stage2 = np.zeros(rows, bool)
            for shared in (*returned.delivered, *returned.dropped_by_client):
                stage2 |= bit_planes.unpack(shared.bits, rows)
            flags = [pa.array(bit_planes.unpack(bits, rows)[0]) for bits in (stage1, tags)]
            yield pa.RecordBatch.from_arrays(
                [batch["queue_id"], batch["queue_offset"], batch["size"], *flags, pa.array(stage2)],
                ["queue_id", "queue_offset", "size", "stage1", "tags", "stage2"],
            )
