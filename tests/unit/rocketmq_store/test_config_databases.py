"""Offsets, topics and groups in the databases of real brokers, and which of several places the broker uses."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
from rocksdict import Options, Rdict

from filtering.pops.modes import NOTHING_READ
from schemas.rocketmq_store.config_files import (
    GROUPS,
    OFFSETS,
    SEPARATE,
    TOPICS,
    UNIFIED,
    VERSION_2,
    broadcasting_groups,
    broker_name,
    read_consumer_offsets,
    read_document,
    read_pop_groups,
    read_topics,
)
from schemas.rocketmq_store.not_replayed import NotReplayed
from schemas.rocketmq_store.rocksdb import INSTALL, DatabaseError
from schemas.storage import Storage
from tests.captures import capture

COMMITTED = {
    "configv2_533": (VERSION_2, {0: 38, 1: 50}, 1795731390905),
    "rocks550": (SEPARATE, {0: 52, 1: 56}, 1795730609553),
    "single550": (UNIFIED, {0: 46, 1: 55}, 1795741173143),
}
"""By capture: the place, the offsets of cg_tag_a on TagLab, and when the broker's data version changed last (ms)."""


@pytest.fixture(params=COMMITTED)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    """A store of each kind, without its log."""
    shutil.copytree(capture(request.param) / "store" / "config", tmp_path / request.param / "config")
    return Storage.at(str(tmp_path / request.param))


def of(store: Storage) -> tuple[str, dict[int, int], int]:
    return COMMITTED[Path(store.root).name]


def write_json(store: Storage, path: str, at: int | None, offset: int = 7) -> None:
    tables = {OFFSETS: {"offsetTable": {"TagLab@cg_tag_a": {"0": offset}}}}
    tables[TOPICS] = {"topicConfigTable": {"Old": {"readQueueNums": 3}}}
    version = {} if at is None else {"dataVersion": {"counter": 1, "stateVersion": 0, "timestamp": at}}
    store.write(path, json.dumps(tables[path.removesuffix(".bak")] | version).encode())


def others(store: Storage) -> tuple[str, ...]:
    return NotReplayed.in_store(store).others


def test_what_a_real_broker_committed(store: Storage) -> None:
    place, committed, at = of(store)
    files = sorted(path for path in Path(store.root).rglob("*"))
    offsets, saved_at = read_consumer_offsets(store) or ({}, None)
    assert (offsets["cg_tag_a", "TagLab"], saved_at) == (committed, at)
    topics = read_topics(store)
    assert (topics["OrderEvents"], topics["TagLab"], topics["DeviceTelemetry"]) == (4, 2, 2)
    # Version 2 stores no topic of the broker's own.
    assert broker_name(topics) == (None if place == VERSION_2 else "broker-a")
    assert sorted(path for path in Path(store.root).rglob("*")) == files
    assert broadcasting_groups(store) == []
    groups = read_document(store, GROUPS)
    assert groups is not None
    # Version 2 stores only groups that an operator made.
    assert ("CID_ONSAPI_OWNER" in groups["subscriptionGroupTable"]) == (place != VERSION_2)


@pytest.mark.parametrize("path", [OFFSETS, TOPICS, f"{OFFSETS}.bak", f"{TOPICS}.bak"])
@pytest.mark.parametrize("older", [86_400_000, 1, 0, None])
def test_older_files_beside_a_database_do_not_count(store: Storage, path: str, older: int | None) -> None:
    """A broker of 4.x wrote no time."""
    place, _, at = of(store)
    before = read_consumer_offsets(store), read_topics(store)
    write_json(store, path, None if older is None else at - older)
    assert (read_consumer_offsets(store), read_topics(store)) == before
    assert any(
        text == f"older configurations: {path.removesuffix('.bak')} (the broker has newer ones in {place})"
        for text in others(store)
    )


@pytest.mark.parametrize("damaged", [b"{", b"[]", b"\0" * 100])
def test_a_damaged_file_beside_a_database_does_not_count(store: Storage, damaged: bytes) -> None:
    before = read_consumer_offsets(store), read_topics(store)
    store.write(OFFSETS, damaged)
    store.write(TOPICS, damaged)
    assert (read_consumer_offsets(store), read_topics(store)) == before


@pytest.mark.parametrize("path", [OFFSETS, f"{OFFSETS}.bak"])
def test_a_broker_that_moved_back_to_files(store: Storage, path: str) -> None:
    place, _, at = of(store)
    write_json(store, path, at + 60_000)
    assert read_consumer_offsets(store) == ({("cg_tag_a", "TagLab"): {0: 7}}, at + 60_000)
    assert read_topics(store) == {}  # not the database's: all of it is older
    assert f"older configurations: {place} (the broker has newer ones in {OFFSETS})" in others(store)


def test_of_two_databases_the_newer_one_counts(store: Storage, tmp_path: Path) -> None:
    """useSingleRocksDBForAllConfigs, and configManagerVersion=v2, leave the former databases where they are."""
    for name, (place, _, _) in COMMITTED.items():
        for folder in (capture(name) / "store" / "config").iterdir():
            if folder.is_dir():
                shutil.copytree(folder, Path(store.root) / "config" / folder.name, dirs_exist_ok=True)
        assert (Path(store.root) / place / "CURRENT").exists()
    offsets, saved_at = read_consumer_offsets(store) or ({}, None)
    newest = max(COMMITTED.values(), key=lambda each: each[2])
    assert (offsets["cg_tag_a", "TagLab"], saved_at) == newest[1:]
    assert f"older configurations: {VERSION_2}, {SEPARATE} (the broker has newer ones in {UNIFIED})" in others(store)


def test_without_the_package_nothing_is_believed(store: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    place, _, at = of(store)
    write_json(store, OFFSETS, at - 1)
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    assert read_consumer_offsets(store) is None
    assert read_topics(store) == {}
    (text,) = (text for text in others(store) if text.startswith("offsets of consumers and topics"))
    assert (
        f"{place} is a RocksDB database: to read it, run {INSTALL}; not read either, since it may be older: {OFFSETS}"
        in text
    )
    lines = (Path(__file__).parents[3] / "setup.cfg").read_text().splitlines()
    assert lines[lines.index("rocksdb =") + 1].strip() == INSTALL.rpartition(" ")[2].replace("==", "~=")


@pytest.mark.parametrize("damage", ["cut", "missing", "flipped"])
def test_a_damaged_database_is_named(store: Storage, damage: str) -> None:
    place, _, _ = of(store)
    for table in (Path(store.root) / place).glob("*.sst"):
        content = bytearray(table.read_bytes())
        content[len(content) // 8] ^= 0xFF
        table.unlink()
        if damage != "missing":
            table.write_bytes(content[: 1000 if damage == "cut" else None])
    with pytest.raises(DatabaseError, match=rf"{store.root}/{place} cannot be read as a RocksDB database \(.*\): copy"):
        read_consumer_offsets(store)


def test_what_a_living_broker_has_only_in_its_write_ahead_log(tmp_path: Path) -> None:
    """Also a broadcasting group, a negative offset, which is none to the broker, and a record that is cut off."""
    living, store = Rdict(str(tmp_path / "living"), Options(raw_mode=True)), Storage.at(str(tmp_path / "store"))

    def key(group: str, topic: str, queue_id: int) -> bytes:
        names = (len(name).to_bytes(2, "big") + name + b"\1" for name in (group.encode(), topic.encode()))
        return b"\1\0\1\2" + b"".join(names) + queue_id.to_bytes(4, "big")

    living[b"\1\0\1\1data_version"] = bytes(8) + (1_700_000_000_000).to_bytes(8, "big") + bytes(8)
    living[key("cg", "订单", 3)] = (70_000).to_bytes(8, "big")
    living[key("cg", "订单", 1)] = b"\xff" * 8
    living[key("cg@broadcast", "T", 0)] = (5).to_bytes(8, "big")
    living[b"\1\0\3\2\0\1T"] = b'\1{"topicName":"T","readQueueNums":2}'
    living[b"\1\0\2\2pull offsets"] = b"x"
    living[b"\1\0\4\2\0\2cg"] = b'\1{"groupName":"cg","retryMaxTimes":3,"consumeMessageOrderly":true}'
    shutil.copytree(tmp_path / "living", tmp_path / "store" / VERSION_2)
    (log,) = (tmp_path / "store" / VERSION_2).glob("*.log")
    living[key("cg", "订单", 4)] = (1).to_bytes(8, "big")
    (later,) = (tmp_path / "living").glob("*.log")
    log.write_bytes(later.read_bytes()[:-5])
    assert not list((tmp_path / "store").rglob("*.sst"))
    assert read_consumer_offsets(store) == ({("cg", "订单"): {3: 70_000}}, 1_700_000_000_000)
    assert broadcasting_groups(store) == [("cg", "T")]
    assert read_topics(store) == {"T": 2}
    groups = read_pop_groups(store, NOTHING_READ)
    assert (groups.retry_max_times, groups.in_order, groups.configs_are_known) == ({"cg": 3}, frozenset({"cg"}), True)
    living.close()
