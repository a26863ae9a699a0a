"""A broker could have written the store that benchmarks generate, and its nights are timed by step."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from benchmarks.broker_store import BROKER, QUEUES, TOPICS, StoreWriter
from benchmarks.night_files import night_options, write_night_files
from benchmarks.processes import NightProcess
from filtering import sql92
from jobs import nightly
from schemas.delta.warehouse import Warehouse
from tests.nights.commands import rows_of

SEGMENT = 1 << 18
MESSAGES = 4_800
GROUPS = 12


def test_generated_store_is_read_without_damage(tmp_path: Path) -> None:
    store = StoreWriter(tmp_path / "store", SEGMENT)
    store.append(MESSAGES - 500)
    store.append(500)
    expressions = write_night_files(tmp_path, GROUPS, with_bit_map=True)
    files = sorted((tmp_path / "store" / "commitlog").iterdir())
    assert [int(file.name) for file in files] == [i * SEGMENT for i in range(len(files))]
    assert len(files) > 2
    assert {file.stat().st_size for file in files} == {SEGMENT}

    nightly.main(night_options(tmp_path, tmp_path / "store", tmp_path / "w"))

    warehouse = Warehouse.at(str(tmp_path / "w"))
    messages = list(rows_of(warehouse, "commitlog"))
    assert not list(rows_of(warehouse, "quarantine"))
    assert not any(row["body_is_damaged"] for row in messages)
    assert {row["broker_name"] for row in messages} == {BROKER}
    assert any(row["sys_flag"] for row in messages)
    places = Counter((row["topic"], row["queue_id"], row["queue_offset"]) for row in messages)
    each_queue = MESSAGES // len(TOPICS) // QUEUES
    assert set(places) == {(t, q, o) for t in TOPICS for q in range(QUEUES) for o in range(each_queue)}
    assert max(places.values()) == 1

    properties = {(row["topic"], row["commitlog_offset"]): dict(row["properties"]) for row in messages}
    expected = {
        (group, offset)
        for group, topic, text in expressions
        for (of, offset), have in properties.items()
        if of == topic and sql92.compile(text).evaluate(have)
    }
    delivered = {(row["consumer_group"], row["commitlog_offset"]) for row in rows_of(warehouse, "deliveries")}
    assert delivered == expected
    assert expected


def test_the_steps_of_a_night_are_timed(tmp_path: Path) -> None:
    StoreWriter(tmp_path / "store", SEGMENT).append(500)
    write_night_files(tmp_path, GROUPS, with_bit_map=True)
    with NightProcess("--steps") as process:
        measurements = process.night(night_options(tmp_path, tmp_path / "store", tmp_path / "w"))
    assert {"tasks", "tasks: decode", "tasks: filter", "plan", "commit", "other"} <= measurements["steps"].keys()
    assert sum(measurements["steps"].values()) == pytest.approx(measurements["seconds"])
