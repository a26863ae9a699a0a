"""The properties of messages as Arrow maps and strings."""

import numpy as np
import pyarrow as pa

from schemas.store import gather, property_text
from schemas.store.commitlog_walk import Records
from schemas.store.java_strings import string_array

MAP = pa.map_(pa.string(), pa.string())


class Properties:
    """The parsed properties of some records."""

    def __init__(self, records: Records):
        lengths = records.at("properties_length")
        texts = string_array(*gather.spans(records.log, records.at("properties"), lengths))
        _, offsets, data = texts.buffers()
        text = np.concatenate([np.frombuffer(data or b"", np.uint8), np.zeros(property_text.SLACK, np.uint8)])
        bounds = np.frombuffer(offsets, np.int32)[: len(records) + 1]
        self._missing = lengths == 0
        self._pairs, self._key_ends, self._keys, self._value_ends, self._values = property_text.split(text, bounds)

    def maps(self) -> pa.MapArray:
        """map<string, string>, null where a record has no properties at all."""
        # Cut at 0x01 and 0x02 out of valid UTF-8, keys and values are valid.
        keys = gather.binary_array(self._key_ends, self._keys).view(pa.string())
        values = gather.binary_array(self._value_ends, self._values).view(pa.string())
        entries = pa.StructArray.from_arrays([keys, values], fields=[MAP.key_field, MAP.item_field])
        buffers = [pa.array(~self._missing).buffers()[1], pa.py_buffer(self._pairs)]
        return pa.Array.from_buffers(MAP, len(self._missing), buffers, children=[entries])

    def value(self, name: str) -> pa.StringArray:
        """The values of one property, null where it is missing."""
        pair = property_text.find(self._pairs, self._key_ends, self._keys, np.frombuffer(name.encode(), np.uint8))
        missing = pair < 0
        starts = np.append(self._value_ends, 0)[pair].astype(np.int64)
        lengths = np.append(np.diff(self._value_ends), 0)[pair].astype(np.int64)
        return gather.binary_array(*gather.spans(self._values, starts, lengths), missing).view(pa.string())
