"""Reads the newest messages of topics, for filters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import numpy as np
import pyarrow as pa

from filtering.delivery.entries import Int64s, has_entry
from filtering.findings import TopicMessages
from filtering.tags_code import tags_codes
from schemas.commitlog import COMMITLOG
from schemas.delta.warehouse import Warehouse
from schemas.messages.columns import Messages, concat
from schemas.messages.stored_messages import newest_messages_first

MOST = 1 << 16
"""The most messages of a topic that are returned."""
MOST_READ = 1 << 20
"""Messages of all topics after which no older ones are read."""
MOST_TEXT = 1 << 30
"""Bytes of the properties of all messages, after which no older ones are read: a column has room for 2 GiB."""
TAGS = "TAGS"


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
    if (np.diff(messages.commitlog_offset) < 0).any():  # a mended message is in a later file than those behind it
        messages = messages.take(np.argsort(messages.commitlog_offset))
    return {
        topic: _topic_messages(messages, rows[-MOST:], properties[topic])
        for topic, rows in messages.rows_by_topic(has_entry(messages.sys_flag))
    }


def _read(warehouse: Warehouse, broker_name: str, topics: Collection[str], names: Collection[str]) -> list[Messages]:
    """The messages of some topics in the newest row groups. Row groups may overlap, and each is read once."""
    storage = warehouse.log(COMMITLOG).storage
    files = sorted(warehouse.files(COMMITLOG, broker_name), key=lambda file: -file.greatest["commitlog_offset"])
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
