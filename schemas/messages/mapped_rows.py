"""Converts messages with their properties in a dictionary to rows of the table commitlog."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from schemas.commitlog import COMMITLOG, NAME_SEPARATOR, NAMED_PROPERTIES, SLOTS
from schemas.messages.bodies import Bodies
from schemas.messages.commitlog_rows import store_dates
from schemas.rocketmq_store.commitlog.crc import crc_of

_SAME = (
    "commitlog_offset", "topic", "queue_id", "queue_offset", "store_size", "born_timestamp", "store_timestamp",
    "sys_flag", "flag", "body_crc", "reconsume_times", "prepared_transaction_offset", "born_host", "store_host",
    "msg_id", "magic_code", "body_length", "body",
)  # fmt: skip
_PAIR_END = "\u0002"


class MappedRows:
    """Converts lists of messages. A property name of a topic keeps its column from list to list."""

    def __init__(self, run: str, bodies: Bodies) -> None:
        self._run = run
        self._bodies = bodies
        self._slots: defaultdict[str, dict[str, int]] = defaultdict(dict)

    def rows(self, messages: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
        """``messages`` have the columns of _SAME, tags, keys and properties (a dictionary of texts, or None).

        Without tags or keys, those are TAGS and KEYS of the properties. A body is damaged if it does not match its
        body_crc.
        """
        count = len(messages)
        columns = {
            name: pa.array([message[name] for message in messages], COMMITLOG.schema.field(name).type) for name in _SAME
        }
        columns |= self._property_columns(messages)
        columns["store_date"] = store_dates(columns["store_timestamp"].to_numpy())
        crcs = [None if message["body"] is None else crc_of(message["body"]) for message in messages]
        computed = pa.array(crcs, pa.int32())
        columns["body_is_damaged"] = pc.not_equal(columns["body_crc"], computed).fill_null(False)
        if self._bodies is not Bodies.KEEP:
            columns["body_crc"] = pc.coalesce(columns["body_crc"], computed)
            kept = columns["body_is_damaged"] if self._bodies is Bodies.DAMAGED else False
            columns["body"] = pc.if_else(kept, columns["body"], None)
        columns["run"] = pa.repeat(self._run, count)
        return COMMITLOG.batch(columns, count)

    def _property_columns(self, messages: Sequence[Mapping[str, Any]]) -> dict[str, pa.Array]:
        columns: dict[str, list[str | None]] = {
            name: [None] * len(messages)
            for name in (*SLOTS, *NAMED_PROPERTIES.values(), "property_names", "more_properties")
        }
        for row, message in enumerate(messages):
            topic_slots, others = self._slots[message["topic"]], []
            for name, value in (message["properties"] or {}).items():
                slot = topic_slots.get(name)
                if name in NAMED_PROPERTIES:
                    columns[NAMED_PROPERTIES[name]][row] = value
                    continue
                if slot is None and len(topic_slots) < len(SLOTS):
                    slot = topic_slots[name] = len(topic_slots)
                if slot is None:
                    others.append(f"{name}{NAME_SEPARATOR}{value}")
                else:
                    columns[SLOTS[slot]][row] = value
            if others:
                columns["more_properties"][row] = _PAIR_END.join(others)
            for column in ("tags", "keys"):
                if message[column] is not None:
                    columns[column][row] = message[column]
            if message["properties"] is not None:
                columns["property_names"][row] = NAME_SEPARATOR.join(topic_slots)
            elif columns["tags"][row] is not None or columns["keys"][row] is not None:
                columns["property_names"][row] = ""
        return {name: pa.array(values, pa.string()) for name, values in columns.items()}
