"""The consume queue entries of new messages: blocks for the filters, and rows of consumequeue."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from filtering.delivery.entries import Entries, Int64s, has_entry
from filtering.tags_code import DELAY_PROPERTY, SCHEDULE_TOPIC, entry_tags_codes, tags_codes
from schemas.arrow_batches import numbered, repeated
from schemas.consumequeue import CONSUMEQUEUE
from schemas.messages.columns import NUMBERS, Messages
from schemas.messages.commitlog_rows import store_dates
from schemas.messages.topic_batches import TopicBatch


@dataclass(frozen=True, eq=False)
class NewEntries:
    """n entries, ordered by topic, queue and queue offset.

    Entry i is that of message ``rows[i]`` of ``messages``. ``numbers`` has NUMBERS of the entries. Topic t has the
    entries ``bounds[t]`` to ``bounds[t + 1]`` (exclusive), at least one.
    """

    messages: Messages
    rows: Int64s
    numbers: Mapping[str, NDArray[Any]]
    tags_code: Int64s
    topics: Sequence[str]
    bounds: Sequence[int]

    @classmethod
    def of(cls, batch: TopicBatch, delay_levels: Sequence[int]) -> NewEntries:
        """The entries of the chosen messages. Prepared and rolled back transactions have none.

        ``delay_levels``: the broker's, in ms. The tags code of a scheduled message is its delivery time.
        """
        messages = batch.messages
        of_topics = {
            topic: messages.by_queue(in_log_order)
            for topic, in_log_order in messages.rows_by_topic(batch.chosen & has_entry(messages.sys_flag))
        }
        rows = np.concatenate([np.empty(0, np.int64), *of_topics.values()])
        tags_code = np.array(tags_codes(messages.named["TAGS"].take(pa.array(rows))))
        bounds = np.cumsum([0, *map(len, of_topics.values())]).tolist()
        topics = list(of_topics)
        if SCHEDULE_TOPIC in of_topics:
            scheduled = topics.index(SCHEDULE_TOPIC)
            codes = _scheduled_tags_codes(messages, of_topics[SCHEDULE_TOPIC], delay_levels)
            tags_code[bounds[scheduled] : bounds[scheduled + 1]] = codes
        return cls(messages, rows, {name: getattr(messages, name)[rows] for name in NUMBERS}, tags_code, topics, bounds)

    def __len__(self) -> int:
        return len(self.rows)

    def blocks(self, properties: Mapping[str, Sequence[str]]) -> Iterator[Entries]:
        """The entries of each topic. ``properties``: by topic, the message properties that its filters read."""
        numbers = self.numbers
        for number, topic in enumerate(self.topics):
            of_topic = slice(self.bounds[number], self.bounds[number + 1])
            yield Entries(
                topic,
                numbers["queue_id"][of_topic],
                numbers["queue_offset"][of_topic],
                numbers["commitlog_offset"][of_topic],
                numbers["store_size"][of_topic],
                self.tags_code[of_topic],
                numbers["store_timestamp"][of_topic],
                self.messages.properties(properties.get(topic, ()), self.rows[of_topic]),
                without_body=np.flatnonzero(numbers["body_length"][of_topic] == 0),
            )

    def table_rows(self, run: str, bit_maps: Sequence[pa.BinaryArray | None]) -> pa.RecordBatch:
        """Rows of consumequeue. ``bit_maps``: the filter bit maps of each topic, None if it has none."""
        sizes = np.diff(self.bounds)
        columns = {name: pa.array(self.numbers[name]) for name in ("queue_id", "queue_offset", "commitlog_offset")}
        columns |= {
            "topic": numbered(self.topics, np.repeat(np.arange(len(sizes)), sizes)),
            "size": pa.array(self.numbers["store_size"]),
            "tags_code": pa.array(self.tags_code),
            "store_timestamp": pa.array(self.numbers["store_timestamp"]),
            "store_date": store_dates(self.numbers["store_timestamp"]),
            "run": repeated(run, len(self)),
        }
        if any(of_topic is not None for of_topic in bit_maps):
            columns["filter_bit_map"] = pa.concat_arrays(
                pa.nulls(size, pa.binary()) if of_topic is None else of_topic
                for of_topic, size in zip(bit_maps, sizes.tolist(), strict=True)
            )
        return CONSUMEQUEUE.batch(columns, len(self))


def _scheduled_tags_codes(messages: Messages, rows: Int64s, delay_levels: Sequence[int]) -> pa.Int64Array:
    """The tags codes of some messages of SCHEDULE_TOPIC."""
    tags = messages.named["TAGS"].take(pa.array(rows))
    delays = messages.properties([DELAY_PROPERTY], rows)
    if not delays:
        return tags_codes(tags)
    times = pa.array(messages.store_timestamp[rows])
    topics = pa.repeat(SCHEDULE_TOPIC, len(rows))
    return entry_tags_codes(topics, tags, delays[DELAY_PROPERTY].text_of_each(), times, delay_levels)
