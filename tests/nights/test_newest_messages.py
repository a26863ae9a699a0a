"""The newest messages of a topic, on which lint runs filters, in files that nights merged."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.broker_store import BROKER, TOPICS, StoreWriter
from jobs import nightly
from jobs.night.commit import FILES_IN_A_TIER, Changes, compact
from schemas.commitlog import COMMITLOG
from schemas.delta.delta_log import open_data_file
from schemas.delta.table import ROWS_OF_A_GROUP
from schemas.delta.warehouse import Warehouse
from schemas.messages.newest_messages import newest_messages

KEY = "UNIQ_KEY"
ROWS_OF_A_FILE = ROWS_OF_A_GROUP // (FILES_IN_A_TIER - 2) + 2
MENDED = ROWS_OF_A_FILE + 7


def test_a_message_counts_once_if_row_groups_overlap(tmp_path: Path) -> None:
    """A recovered message is written in a later night, so the ranges of offsets of merged files overlap."""
    count = ROWS_OF_A_FILE * FILES_IN_A_TIER
    StoreWriter(tmp_path / "store", segment=1 << 26).append(count)
    _night(tmp_path)
    _merge_with_a_recovered_message(Warehouse.at(str(tmp_path / "w")), count)

    opened = Warehouse.at(str(tmp_path / "w"))
    (file,) = opened.files(COMMITLOG, BROKER)
    with open_data_file(COMMITLOG, opened.log(COMMITLOG).storage, file.path) as data:
        statistics = [group.column(0).statistics for group in data.row_groups]  # of commitlog_offset
    bounds = [(each.min, each.max + 1) for each in statistics]
    assert any(before[1] > after[0] for before, after in pairwise(bounds))
    newest = newest_messages(opened, BROKER, {topic: [KEY] for topic in TOPICS})
    for number, topic in enumerate(TOPICS):
        keys = newest[topic].properties[KEY].text_of_each().to_pylist()
        assert newest[topic].count == len(keys) == count // len(TOPICS)
        assert keys == [f"7F00000100015EED0000{each:012X}" for each in range(number, count, len(TOPICS))]


def test_older_messages_are_left_out_before_a_column_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = StoreWriter(tmp_path / "store", segment=1 << 20)
    for _ in range(2):
        store.append(100)
        _night(tmp_path)
    wanted = {topic: [KEY] for topic in TOPICS}
    opened = Warehouse.at(str(tmp_path / "w"))
    assert sum(topic_messages.count for topic_messages in newest_messages(opened, BROKER, wanted).values()) == 200
    monkeypatch.setattr("schemas.messages.newest_messages.MOST_TEXT", 150 * len("7F00000100015EED0000000000000000"))
    newest = newest_messages(opened, BROKER, wanted)
    assert sum(topic_messages.count for topic_messages in newest.values()) == 100
    assert newest[TOPICS[1]].properties[KEY].text_of_each()[-1].as_py().endswith(f"{199:012X}")


def _night(folder: Path) -> None:
    (folder / "broker.conf").write_text(f"brokerName={BROKER}\n")
    given = {"--store": "store", "--warehouse": "w", "--broker-config": "broker.conf"}
    options = [text for option, name in given.items() for text in (option, str(folder / name))]
    nightly.main([*options, "--bodies", "none"])


def _merge_with_a_recovered_message(warehouse: Warehouse, count: int) -> None:
    """Stores the rows as the files of a full tier, the last one with a message of the second, and merges them."""
    changes = Changes(warehouse, BROKER, "a run")
    rows = warehouse.rows(COMMITLOG)
    changes.remove_files(COMMITLOG, changes.files(COMMITLOG))
    at = np.delete(np.arange(count), MENDED)
    parts = [part[part < count] for part in np.split(at, np.arange(1, FILES_IN_A_TIER) * ROWS_OF_A_FILE)]
    for part in [*parts[:-1], np.append(MENDED, parts[-1])]:
        changes.add_rows(COMMITLOG, rows.select(COMMITLOG.file_schema.names).take(pa.array(part)).to_batches())
    compact(COMMITLOG, changes)
    changes.commit()
