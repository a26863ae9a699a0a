"""Reads some messages of a topic by their physical offsets, in the form that readers see."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from schemas.commitlog import COMMITLOG
from schemas.delta.open_data_file import open_data_file
from schemas.delta.table_rows import filtered, one_of
from schemas.delta.warehouse import Warehouse
from schemas.messages.message_view import file_columns, view
from schemas.messages.stored_messages import PhysicalRange

COLUMNS = ("queue_id", "queue_offset", "store_timestamp", "msg_id", "keys", "properties")
MOST = 1_000
MOST_ROW_GROUPS = 8
Rows = list[dict[str, Any]]


def messages_at(warehouse: Warehouse, broker_name: str, topic: str, offsets: NDArray[np.int64]) -> tuple[Rows, Rows]:
    """The newest MOST of the messages at ``offsets`` (ascending), and as many others of the topic stored beside them.

    Rows of COLUMNS, the newest first; ``properties`` is a dictionary, None if the record has none.
    """
    storage = warehouse.log(COMMITLOG).storage
    files = sorted(warehouse.files(COMMITLOG, broker_name), key=lambda file: -file.greatest["commitlog_offset"])
    found: Rows = []
    others: Rows = []
    read = 0
    for file in files:
        if not len(_between(offsets, (file.least["commitlog_offset"], file.greatest["commitlog_offset"] + 1))):
            continue
        with open_data_file(COMMITLOG, storage, file.path) as opened:
            for number, group in reversed(list(enumerate(opened.row_groups))):
                if len(found) >= MOST or read >= MOST_ROW_GROUPS:
                    return found, others
                bounds = group.column(0).statistics  # of commitlog_offset
                if len(wanted := _between(offsets, (bounds.min, bounds.max + 1))):
                    rows = opened.read(number, file_columns(["commitlog_offset", "topic", *COLUMNS]))
                    rows = filtered(rows, [one_of("topic", [topic])])
                    is_wanted = pc.is_in(rows["commitlog_offset"], value_set=pa.array(wanted))
                    found += _newest(rows.filter(is_wanted), MOST - len(found))
                    others += _newest(rows.filter(pc.invert(is_wanted)), MOST - len(others))
                    read += 1
    return found, others


def _between(offsets: NDArray[np.int64], bounds: PhysicalRange) -> NDArray[np.int64]:
    low, below = np.searchsorted(offsets, bounds)
    return offsets[low:below]


def _newest(rows: pa.Table, most: int) -> Rows:
    last = rows.slice(max(0, len(rows) - most))
    return view(last, COLUMNS).to_pylist(maps_as_pydicts="strict")[::-1] if len(last) else []
