"""Reads the newest messages: those of some topics for filters, and those at some offsets as readers see them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from filtering.delivery.entries import Int64s, has_entry
from filtering.findings import TopicMessages
from filtering.names import is_lmq
from filtering.tags_code import tags_codes
from schemas.arrow_batches import as_dictionaries
from schemas.commitlog import COMMITLOG, file_columns, view
from schemas.delta.delta_log import open_data_file
from schemas.delta.table import StoredFile
from schemas.delta.table_rows import filtered, one_of
from schemas.delta.warehouse import Warehouse
from schemas.messages.commitlog_rows import Messages, concat
from schemas.messages.stored_messages import PhysicalRange, newest_messages_first

MOST = 1 << 16
"""The most messages of a topic that are returned."""
MOST_READ = 1 << 20
"""Messages of all topics after which no older ones are read."""
MOST_TEXT = 1 << 30
"""Bytes of the properties of all messages, after which no older ones are read: a column has room for 2 GiB."""
TAGS = "TAGS"
COLUMNS = ("commitlog_offset", "store_timestamp", "msg_id", "keys", "properties")
MOST_AT_OFFSETS = 1_000
MOST_ROW_GROUPS = 8
Rows = list[dict[str, Any]]


def newest_messages(
    warehouse: Warehouse, broker_name: str, properties: Mapping[str, Sequence[str]]
) -> dict[str, TopicMessages]:
    """The newest messages with an entry of some topics, at most MOST each; topics without any are left out.

    ``properties``: by topic, the message properties that are needed. At most about MOST_READ messages are read, so that
    this takes as long for a large warehouse as for a small one. Long properties (MOST_TEXT) make them fewer.
    """
    names = {name for topic_names in properties.values() for name in topic_names}
    parts = _read(warehouse, broker_name, set(properties), names)
    if not parts:
        return {}
    messages = concat(parts)
    if (np.diff(messages.commitlog_offset) < 0).any():  # a recovered message is in a later file than those behind it
        messages = messages.take(np.argsort(messages.commitlog_offset))
    return {
        topic: _topic_messages(messages, rows[-MOST:], properties[topic])
        for topic, rows in messages.rows_by_topic(has_entry(messages.sys_flag))
    }


def _read(warehouse: Warehouse, broker_name: str, topics: Collection[str], names: Collection[str]) -> list[Messages]:
    """The messages of some topics in the newest row groups. Row groups may overlap, and each is read once."""
    storage = warehouse.log(COMMITLOG).storage
    files = _newest_files_first(warehouse, broker_name)
    counts: Counter[str] = Counter()
    parts: list[Messages] = []
    seen = text = 0
    for file in files if topics else ():
        for part, rows in newest_messages_first(storage, file.path, topics, names):
            seen += rows
            if part is not None:
                text += part.text_bytes()
                if parts and text > MOST_TEXT:
                    return parts[::-1]
                everything = np.ones(len(part), bool)
                counts.update({topic: len(rows_of_topic) for topic, rows_of_topic in part.rows_by_topic(everything)})
                parts.append(part)
            if seen >= MOST_READ or all(counts[topic] >= MOST for topic in topics):
                return parts[::-1]
    return parts[::-1]


def _topic_messages(messages: Messages, rows: Int64s, names: Sequence[str]) -> TopicMessages:
    tags = messages.named[TAGS].take(pa.array(rows))
    return TopicMessages(len(rows), messages.properties({*names, TAGS}, rows), tags_codes(tags))


class MessagesOfTopic:
    """Finds messages of a topic by their offsets. The row groups that it read last are kept for the next search."""

    def __init__(self, warehouse: Warehouse, broker_name: str, topic: str) -> None:
        self._storage = warehouse.log(COMMITLOG).storage
        self._files = _newest_files_first(warehouse, broker_name)
        self._where = () if is_lmq(topic) else [one_of("topic", [topic])]
        self._bounds = cache(self._read_bounds)
        self._rows = lru_cache(MOST_ROW_GROUPS)(self._read_rows)

    def newest_at(self, offsets: NDArray[np.int64]) -> tuple[Rows, Rows]:
        """The newest of the messages at ``offsets`` (ascending), and others of the topic stored beside them.

        Rows of COLUMNS, at most MOST_AT_OFFSETS each, the newest first; ``properties`` is a dictionary or None. An LMQ
        has messages of other topics: only ``offsets`` say which these are.
        """
        at_offsets: Rows = []
        others: Rows = []
        read = 0
        for file in self._files:
            if not len(_between(offsets, (file.least["commitlog_offset"], file.greatest["commitlog_offset"] + 1))):
                continue
            for number, bounds in reversed(list(enumerate(self._bounds(file.path)))):
                if len(at_offsets) >= MOST_AT_OFFSETS or read >= MOST_ROW_GROUPS:
                    return at_offsets, others
                if len(wanted := _between(offsets, bounds)):
                    rows = self._rows(file.path, number)
                    is_wanted = pc.is_in(rows["commitlog_offset"], value_set=pa.array(wanted))
                    at_offsets += _newest(rows, is_wanted, MOST_AT_OFFSETS - len(at_offsets))
                    if self._where:
                        others += _newest(rows, pc.invert(is_wanted), MOST_AT_OFFSETS - len(others))
                    read += 1
        return at_offsets, others

    def _read_bounds(self, path: str) -> Sequence[PhysicalRange]:
        """The physical offsets of the messages in each row group of a file."""
        with open_data_file(COMMITLOG, self._storage, path) as opened:
            statistics = [group.column(0).statistics for group in opened.row_groups]  # of commitlog_offset
        return [(each.min, each.max + 1) for each in statistics]

    def _read_rows(self, path: str, number: int) -> pa.Table:
        with open_data_file(COMMITLOG, self._storage, path) as opened:
            return filtered(opened.read(number, file_columns(["topic", *COLUMNS])), self._where).combine_chunks()


def _newest_files_first(warehouse: Warehouse, broker_name: str) -> list[StoredFile]:
    return sorted(warehouse.files(COMMITLOG, broker_name), key=lambda file: -file.greatest["commitlog_offset"])


def _between(offsets: NDArray[np.int64], bounds: PhysicalRange) -> NDArray[np.int64]:
    low, below = np.searchsorted(offsets, bounds)
    return offsets[low:below]


def _newest(rows: pa.Table, mask: pa.ChunkedArray, most: int) -> Rows:
    if not most:
        return []
    at = pc.indices_nonzero(mask)
    last = rows.take(at.slice(max(0, len(at) - most)))
    return as_dictionaries(view(last, COLUMNS))[::-1] if len(last) else []
