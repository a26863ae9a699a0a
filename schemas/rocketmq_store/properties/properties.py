"""Decodes the properties of messages to Arrow maps and strings, for the message decoder."""

import numpy as np
import pyarrow as pa

from filtering.java.strings import is_utf8, unchecked_string_array
from schemas.rocketmq_store import gather
from schemas.rocketmq_store.commitlog.commitlog_walk import Records
from schemas.rocketmq_store.properties.property_text import find, split

MAP = pa.map_(pa.string(), pa.string())


class Properties:
    """The properties of some records as pairs: one map for each record."""

    def __init__(self, records: Records):
        lengths = records.at("properties_length")
        self._missing = lengths == 0
        self._split(records.log, records.at("properties"), lengths)
        if not (is_utf8(self._key_ends, self._keys) and is_utf8(self._value_ends, self._values)):
            self._split(*gather.decoded_texts(records.log, records.at("properties"), lengths))

    def _split(self, log: gather.Bytes, starts: gather.Positions, lengths: gather.Positions) -> None:
        self._pairs, self._key_ends, self._keys, self._value_ends, self._values = split(log, starts, lengths)

    def maps(self) -> pa.MapArray:
        """map<string, string>, null if a record has no properties."""
        keys = unchecked_string_array(self._key_ends, self._keys)
        values = unchecked_string_array(self._value_ends, self._values)
        entries = pa.StructArray.from_arrays([keys, values], fields=[MAP.key_field, MAP.item_field])
        buffers = [pa.array(~self._missing).buffers()[1], pa.py_buffer(self._pairs)]
        return pa.Array.from_buffers(MAP, len(self._missing), buffers, children=[entries])

    def value(self, name: str) -> pa.StringArray:
        """The values of one property, null if it is missing."""
        key = np.frombuffer(name.encode(), np.uint8)
        starts, lengths, missing = find(self._pairs, self._key_ends, self._keys, self._value_ends, key)
        return unchecked_string_array(*gather.spans(self._values, starts, lengths), missing)
