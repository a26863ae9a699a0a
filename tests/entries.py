"""Makes the entries of one topic from rows in a test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from filtering.delivery.entries import Entries
from filtering.matcher.column import columns
from filtering.tags_code import entry_tags_codes, parse_delay_levels

PROPERTIES = pa.map_(pa.string(), pa.string())
DELAY_LEVELS = parse_delay_levels("1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h")


def entries(topic: str, rows: Sequence[Mapping[str, Any]], bit_maps: Sequence[bytes | None] | None = None) -> Entries:
    """Rows have queue_id, queue_offset, commitlog_offset, size, store_timestamp and properties; default 0."""

    def numbers(name: str, kind: type[np.generic]) -> Any:
        return np.array([row.get(name, 0) for row in rows], kind)

    properties = [dict(row.get("properties") or {}) for row in rows]
    names = tuple(sorted({name for each in properties for name in each}))
    property_maps = pa.array([list(each.items()) for each in properties], PROPERTIES)
    times = numbers("store_timestamp", np.int64)
    tags, delays = (pa.array([each.get(name) for each in properties], pa.string()) for name in ("TAGS", "DELAY"))
    codes = entry_tags_codes(pa.array([topic] * len(rows)), tags, delays, pa.array(times), DELAY_LEVELS)
    return Entries(
        topic,
        numbers("queue_id", np.int32),
        numbers("queue_offset", np.int64),
        numbers("commitlog_offset", np.int64),
        numbers("size", np.int32),
        codes.to_numpy(),
        times,
        columns(property_maps, names),
        None if bit_maps is None else pa.array(bit_maps, pa.binary()),
        pa.record_batch({"topic": [topic] * len(rows), "properties": property_maps}),
    )
