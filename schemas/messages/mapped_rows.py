"""Converts messages with their properties in a map to rows of the table commitlog."""

from __future__ import annotations

from collections import defaultdict
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.commitlog import COMMITLOG, NAME_SEPARATOR, NAMED_PROPERTIES, SLOTS
from schemas.messages.bodies import Bodies
from schemas.messages.commitlog_rows import store_dates
from schemas.rocketmq_store.crc import crc_of

_SAME = (
    "commitlog_offset", "topic", "queue_id", "queue_offset", "store_size", "born_timestamp", "store_timestamp",
    "sys_flag", "flag", "body_crc", "reconsume_times", "prepared_transaction_offset", "born_host", "store_host",
    "msg_id", "magic_code", "body_length", "body",
)  # fmt: skip
_PAIR_END = "\u0002"


class MappedRows:
    """Converts batches of messages. A property name of a topic keeps its column from batch to batch."""

    def __init__(self, run: str, bodies: Bodies) -> None:
        self._run = run
        self._bodies = bodies
        self._names: defaultdict[str, list[str]] = defaultdict(list)

    def rows(self, messages: pa.RecordBatch) -> pa.RecordBatch:
        """``messages`` has the columns of _SAME, tags, keys and properties (map of strings).

        Of properties with one name, the last counts (MessageDecoder.string2messageProperties). Without tags or keys,
        those are TAGS and KEYS of the properties. A body is damaged if it does not match its body_crc.
        """
        count = messages.num_rows
        columns = {name: messages[name] for name in _SAME}
        slots: list[list[str | None]] = [[None] * count for _ in SLOTS]
        named: dict[str, list[str | None]] = {name: [None] * count for name in NAMED_PROPERTIES}
        more: list[str | None] = [None] * count
        names: list[str | None] = [None] * count
        topics = messages["topic"].to_pylist()
        for row, properties in enumerate(messages["properties"].to_pylist()):
            if properties is None:
                continue
            topic_names = self._names[topics[row]]
            others = []
            for name, value in dict(properties).items():
                if name in named:
                    named[name][row] = value
                    continue
                if name not in topic_names and len(topic_names) < len(SLOTS):
                    topic_names.append(name)
                if name in topic_names:
                    slots[topic_names.index(name)][row] = value
                else:
                    others.append(f"{name}{NAME_SEPARATOR}{value}")
            more[row] = _PAIR_END.join(others) if others else None
            names[row] = NAME_SEPARATOR.join(topic_names)
        columns |= {name: pa.array(values, pa.string()) for name, values in zip(SLOTS, slots, strict=True)}
        columns |= {column: pa.array(named[name], pa.string()) for name, column in NAMED_PROPERTIES.items()}
        for column in ("tags", "keys"):
            columns[column] = pc.coalesce(messages[column], columns[column])
        has_named = reduce(pc.or_, (columns[column].is_valid() for column in NAMED_PROPERTIES.values()))
        only_named = pc.if_else(has_named, "", pa.scalar(None, pa.string()))
        columns["property_names"] = pc.coalesce(pa.array(names, pa.string()), only_named)
        columns["more_properties"] = pa.array(more, pa.string())
        columns["store_date"] = store_dates(messages["store_timestamp"].to_numpy())
        columns["body_is_damaged"] = pa.array(np.zeros(count, bool))
        if self._bodies is not Bodies.KEEP:
            crcs = [None if body is None else crc_of(body) for body in messages["body"].to_pylist()]
            computed = pa.array(crcs, pa.int32())
            columns["body_crc"] = pc.coalesce(messages["body_crc"], computed)
            kept = pc.not_equal(columns["body_crc"], computed) if self._bodies is Bodies.DAMAGED else False
            columns["body"] = pc.if_else(kept, messages["body"], None)
        columns["run"] = pa.repeat(self._run, count)
        return COMMITLOG.batch(columns, count)
