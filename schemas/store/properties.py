"""The properties of messages: a text of ``key 0x01 value 0x02 …`` each, as Arrow maps and strings."""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from schemas.store import gather
from schemas.store.commitlog_walk import Records
from schemas.store.java_strings import string_array

MAP = pa.map_(pa.string(), pa.string())


class Properties:
    """The parsed properties of some records (MessageDecoder.string2messageProperties)."""

    def __init__(self, records: Records):
        lengths = records.at("properties_length")
        texts = string_array(*gather.spans(records.log, records.at("properties"), lengths))
        _, offsets, data = texts.buffers()
        self._missing = lengths == 0
        self._text = np.frombuffer(data or b"", np.uint8)
        bounds = np.frombuffer(offsets, np.int32)[: len(records) + 1]
        most = (int(bounds[-1]) + len(records)) // 4 + 1
        self._pairs = np.zeros(len(records) + 1, np.int32)
        keys, separators, ends = (np.empty(most, np.int64) for _ in range(3))
        count = gather.split_properties(self._text, bounds, self._pairs, keys, separators, ends)
        self._keys, self._separators, self._ends = keys[:count], separators[:count], ends[:count]

    def maps(self) -> pa.MapArray:
        """map<string, string>, null where a record has no properties at all."""
        keys = self._strings(self._keys, self._separators - self._keys)
        values = self._strings(self._separators + 1, self._ends - self._separators - 1)
        entries = pa.StructArray.from_arrays([keys, values], fields=[MAP.key_field, MAP.item_field])
        validity = pa.array(~self._missing).buffers()[1]
        return pa.Array.from_buffers(MAP, len(self._missing), [validity, pa.py_buffer(self._pairs)], children=[entries])

    def value(self, name: str) -> pa.StringArray:
        """The values of one property, null where it is missing."""
        key = np.frombuffer(name.encode(), np.uint8)
        pair = gather.find_key(self._text, self._pairs, self._keys, self._separators, key)
        missing = pair < 0
        found = pair[~missing]
        starts, lengths = (np.zeros(len(pair), np.int64) for _ in range(2))
        starts[~missing] = self._separators[found] + 1
        lengths[~missing] = self._ends[found] - starts[~missing]
        return self._strings(starts, lengths, missing)

    def _strings(
        self, starts: gather.Positions, lengths: gather.Positions, missing: NDArray[np.bool_] | None = None
    ) -> pa.StringArray:
        # Cut at 0x01 and 0x02 out of valid UTF-8, so valid.
        return gather.binary_array(*gather.spans(self._text, starts, lengths), missing).view(pa.string())
