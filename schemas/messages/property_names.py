"""Finds the names of the properties that the messages of a topic have."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from schemas.commitlog import COMMITLOG, NAMED_PROPERTIES, SLOTS
from schemas.delta.delta_log import OpenDataFile, open_data_file
from schemas.delta.warehouse import Warehouse
from schemas.messages.commitlog_rows import Int32s
from schemas.messages.stored_messages import shapes_of
from schemas.rocketmq_store.property_text import names_of


def property_names(warehouse: Warehouse, broker_name: str, asked: Mapping[str, Collection[str]]) -> dict[str, set[str]]:
    """By topic, the names of the properties that messages have. TAGS, KEYS and UNIQ_KEY are always among them.

    ``asked``: by topic, the names that some filter reads. A file lists these for a topic even if no message has them,
    so their values are searched until one is found. Other names are taken as listed. Topics without messages are left
    out, and so may be topics for which no name but TAGS, KEYS and UNIQ_KEY is asked.
    """
    search = _Search({topic: set(names) - set(NAMED_PROPERTIES) for topic, names in asked.items()})
    storage = warehouse.log(COMMITLOG).storage
    for file in warehouse.files(COMMITLOG, broker_name):
        with open_data_file(COMMITLOG, storage, file.path, ["topic", "property_names"]) as opened:
            for group in range(len(opened.row_groups)):
                if not any(search.missing.values()):
                    return search.names
                search.look_into(opened, group)
    return search.names


@dataclass
class _Search:
    """``missing``: by topic, the names that were asked for and not found so far."""

    missing: dict[str, set[str]]
    names: dict[str, set[str]] = field(default_factory=lambda: defaultdict(lambda: set(NAMED_PROPERTIES)))

    def look_into(self, opened: OpenDataFile, group: int) -> None:
        rows = opened.read(group, ["topic", "property_names", "more_properties"])
        shapes, shape_of = shapes_of(rows)

        @cache
        def has_value(slot: int) -> NDArray[np.bool_]:
            return _has_value(opened, group, SLOTS[slot], shape_of, len(shapes))

        for number, shape in enumerate(shapes):
            missing = self.missing.get(shape.topic, set())
            self.names[shape.topic].update(set(filter(None, shape.names)) - missing)
            for slot, name in enumerate(shape.names):
                if name in missing and has_value(slot)[number]:
                    self._add(shape.topic, name)
        others = rows.filter(pc.is_valid(rows["more_properties"]))
        if len(others):
            row_of, names = names_of(others["more_properties"].combine_chunks())
            named = pa.table([others["topic"].take(pa.array(row_of)), names], ["topic", "name"])
            for row in named.group_by(["topic", "name"]).aggregate([]).to_pylist():
                self._add(row["topic"], row["name"])

    def _add(self, topic: str, name: str) -> None:
        self.names[topic].add(name)
        self.missing.get(topic, set()).discard(name)


def _has_value(opened: OpenDataFile, group: int, column: str, shape_of: Int32s, shapes: int) -> NDArray[np.bool_]:
    """Which shapes have a row in a row group with a value in a column."""
    is_valid = opened.read(group, [column])[column].is_valid().to_numpy()
    return np.bincount(shape_of[is_valid], minlength=shapes) > 0
