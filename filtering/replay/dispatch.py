"""From messages to consume queue entries, an Arrow batch at a time.

Source: org.apache.rocketmq.store.DefaultMessageStore (CommitLogDispatcherBuildConsumeQueue),
org.apache.rocketmq.broker.filter.CommitLogDispatcherCalcBitMap.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from filtering.replay.calc_bit_map import CalcBitMap, FilterDataInForce
from filtering.tags_code import DELAY_PROPERTY, SCHEDULE_TOPIC, entry_tags_codes

TRANSACTION_FLAGS = 0xC
TRANSACTION_PREPARED, TRANSACTION_ROLLBACK = 0x4, 0xC
"""Messages with these sysFlags get no consume queue entry."""

MESSAGE_COLUMNS = (
    "broker_name", "topic", "queue_id", "queue_offset", "commitlog_offset", "store_size", "store_timestamp", "tags",
    "properties",
)  # fmt: skip
ENTRY_COLUMNS = (
    "broker_name", "topic", "queue_id", "queue_offset", "commitlog_offset", "size", "tags_code", "store_timestamp",
    "filter_bit_map", "properties",
)  # fmt: skip


class Dispatch:
    """Picklable, so that Spark can send it to its workers."""

    def __init__(
        self, filter_data: Mapping[str, Sequence[FilterDataInForce]], bit_num: int, delay_levels: Sequence[int]
    ) -> None:
        """``filter_data``: by topic, empty where the broker computes no bit maps; ``delay_levels``: ms."""
        self._calc_bit_maps = {topic: CalcBitMap(data, bit_num) for topic, data in filter_data.items()}
        self._delay_levels = tuple(delay_levels)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Batches of MESSAGE_COLUMNS to batches of ENTRY_COLUMNS, row for row."""
        for batch in batches:
            if batch.num_rows:
                yield self._entries(batch)

    def _entries(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        topics = pc.dictionary_encode(batch["topic"])
        columns = {name: batch[name] for name in MESSAGE_COLUMNS}
        columns["size"] = columns.pop("store_size")
        columns["tags_code"] = entry_tags_codes(
            batch["topic"], batch["tags"], self._delays(batch), batch["store_timestamp"], self._delay_levels
        )
        columns["filter_bit_map"] = self._bit_maps(batch, topics)
        return pa.RecordBatch.from_arrays([columns[name] for name in ENTRY_COLUMNS], ENTRY_COLUMNS)

    @staticmethod
    def _delays(batch: pa.RecordBatch) -> pa.Array:
        if SCHEDULE_TOPIC not in pc.unique(batch["topic"]).to_pylist():
            return pa.nulls(batch.num_rows, pa.string())
        return pc.map_lookup(batch["properties"], DELAY_PROPERTY, "first")

    def _bit_maps(self, batch: pa.RecordBatch, topics: pa.DictionaryArray) -> pa.Array:
        store_timestamps = batch["store_timestamp"].to_numpy()
        order, parts = [], []
        for code, topic in enumerate(topics.dictionary.to_pylist()):
            rows = np.flatnonzero(topics.indices.to_numpy() == code)
            order.append(rows)
            calc_bit_map = self._calc_bit_maps.get(topic)
            if calc_bit_map is None:
                parts.append(pa.nulls(len(rows), pa.binary()))
            else:
                whole = len(rows) == batch.num_rows
                properties = batch["properties"] if whole else batch["properties"].take(pa.array(rows))
                parts.append(calc_bit_map.bit_maps(properties, store_timestamps[rows]))
        return pa.concat_arrays(parts).take(pa.array(np.argsort(np.concatenate(order), kind="stable")))
