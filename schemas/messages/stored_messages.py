"""Reads messages back from the files of commitlog, with only the named properties."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from filtering.delivery.pull_window import FOREVER
from schemas.commitlog import COMMITLOG, NAME_SEPARATOR, NAMED_PROPERTIES, SLOTS
from schemas.delta.data_files import StoredFile
from schemas.delta.open_data_file import OpenDataFile, open_data_file
from schemas.delta.table_rows import chosen, may_hold, within
from schemas.delta.warehouse import Warehouse
from schemas.messages.columns import NUMBERS, Messages, Shape
from schemas.rocketmq_store.properties.more_properties import values_of
from schemas.storage import Storage

PhysicalRange: TypeAlias = tuple[int, int]
"""Physical offsets in bytes, the second exclusive."""
WHOLE_LOG: PhysicalRange = (0, FOREVER)


def read_messages(
    storage: Storage,
    paths: Sequence[str],
    offsets: PhysicalRange,
    topics: Collection[str] | None,
    properties: Collection[str],
) -> Iterator[Messages]:
    """The messages in some files of commitlog, whose physical offsets are in ``offsets``.

    ``topics``: the topics to read; None: all. ``properties``: the names of the properties that are needed.
    """
    for path in paths:
        with open_data_file(COMMITLOG, storage, path, COMMITLOG.dictionary_texts) as file:
            for number, group in enumerate(file.row_groups):
                if not may_hold(group, [within("commitlog_offset", *offsets)]):
                    continue
                messages = _read_group(file, number, offsets, topics, properties)
                if messages is not None and len(messages):
                    yield messages


def has_property(storage: Storage, path: str, name: str) -> bool:
    """Whether a message in a file of commitlog has a property."""
    with open_data_file(COMMITLOG, storage, path, ["property_names"]) as file:
        for group in range(len(file.row_groups)):
            rows = file.read(group, ["property_names", "more_properties"])
            distinct = rows["property_names"].unique().drop_null().to_pylist()
            if any(name in names.split(NAME_SEPARATOR) for names in distinct):
                return True
            others = rows["more_properties"].combine_chunks()
            if others.null_count < len(others) and values_of(others, name).null_count < len(others):
                return True
    return False


def newest_messages_first(
    storage: Storage, path: str, topics: Collection[str], properties: Collection[str]
) -> Iterator[tuple[Messages | None, int]]:
    """The messages of some topics in each row group of a file of commitlog, and the number of all its rows.

    The last row group comes first; a row group without such a message gives None.
    """
    with open_data_file(COMMITLOG, storage, path, COMMITLOG.dictionary_texts) as file:
        for number, group in reversed(list(enumerate(file.row_groups))):
            yield _read_group(file, number, WHOLE_LOG, topics, properties), group.num_rows


def end_of_messages(warehouse: Warehouse, files: Sequence[StoredFile], begun: int) -> int:
    """The physical offset after the last of the messages that begin at ``begun`` or later; 0 without one.

    ``files``: of commitlog.
    """
    columns = ["commitlog_offset", "store_size"]
    rows = warehouse.rows(COMMITLOG, columns, [within("commitlog_offset", begun)], files)
    return pc.max(pc.add(*rows.columns)).as_py() or 0


def _read_group(
    file: OpenDataFile, group: int, offsets: PhysicalRange, topics: Collection[str] | None, properties: Collection[str]
) -> Messages | None:
    first = file.read(group, ["topic", "commitlog_offset", "property_names"])
    at = first["commitlog_offset"]
    wanted = pc.and_(pc.greater_equal(at, offsets[0]), pc.less(at, offsets[1]))
    if topics is not None:
        wanted = pc.and_(wanted, pc.is_in(first["topic"], value_set=pa.array(sorted(topics), pa.string())))
    if not pc.any(wanted).as_py():
        return None
    of_messages = chosen(first, wanted)
    shapes, shape_of = shapes_of(of_messages)
    used = {slot for shape in shapes for slot, name in enumerate(shape.names) if name in properties}
    named = {name: column for name, column in NAMED_PROPERTIES.items() if name in properties or name == "TAGS"}
    columns = [*NUMBERS, *named.values(), *(SLOTS[slot] for slot in sorted(used))]
    with_others = bool(properties)
    rest = file.read(group, [*columns, *(["more_properties"] if with_others else [])])
    kept = chosen(rest, wanted)
    others = kept["more_properties"].combine_chunks() if with_others else None
    nulls = pa.nulls(len(kept), pa.string())
    return Messages(
        shapes=shapes,
        shape_of=shape_of,
        **{name: kept[name].fill_null(-1 if name == "body_length" else 0).to_numpy() for name in NUMBERS},
        named={
            name: kept[column].combine_chunks() if name in named else nulls for name, column in NAMED_PROPERTIES.items()
        },
        slots=[kept[name].combine_chunks() if slot in used else None for slot, name in enumerate(SLOTS)],
        others=others if others is not None and others.null_count < len(others) else None,
    )


def shapes_of(rows: pa.Table) -> tuple[list[Shape], NDArray[np.int32]]:
    """The distinct pairs of ``topic`` and ``property_names``, and the index of each row's pair."""
    topics, names = (rows[name].dictionary_encode().combine_chunks() for name in ("topic", "property_names"))
    codes = names.indices.fill_null(len(names.dictionary)).to_numpy()
    pairs = topics.indices.to_numpy().astype(np.int64) * (len(names.dictionary) + 1) + codes
    distinct, shape_of = np.unique(pairs, return_inverse=True)
    texts = [*names.dictionary.to_pylist(), ""]
    shapes = [
        Shape(
            topics.dictionary[int(pair) // len(texts)].as_py(),
            tuple(texts[int(pair) % len(texts)].split(NAME_SEPARATOR)),
        )
        for pair in distinct
    ]
    return shapes, shape_of.astype(np.int32)
