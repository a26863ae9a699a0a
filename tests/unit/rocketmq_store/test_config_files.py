"""config/consumerOffset.json and config/topics.json with values that a broker does not write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from schemas.rocketmq_store.config_files import (
    BROKER_TOPIC,
    MOST_QUEUES,
    ConfigFileError,
    parse_consumer_offsets,
    read_consumer_offsets,
    read_topics,
)
from schemas.storage import Storage


@pytest.mark.parametrize("offset", [-1, -(2**70), 2**63, True, 1.5, "7", None])
def test_an_offset_that_is_none_does_not_count(offset: Any) -> None:
    """Negative offsets mean to the broker that the group has none."""
    document = {"offsetTable": {"T@cg": {"0": offset, "1": 7, str(2**31): 7}, "T@\ud800": {"0": 1}}}
    committed, _ = parse_consumer_offsets(json.dumps(document).encode(), "consumerOffset.json")
    assert committed == {("cg", "T"): {1: 7}}


@pytest.mark.parametrize("key", ["-1", "", "x", "1.0", str(2**31), "9" * 5000])
def test_a_key_that_is_no_queue_id_does_not_count(key: str) -> None:
    """Python refuses to convert texts of more than 4,300 digits."""
    document = {"offsetTable": {"T@cg": {key: 7, "1": 7}}}
    committed, _ = parse_consumer_offsets(json.dumps(document).encode(), "consumerOffset.json")
    assert committed == {("cg", "T"): {1: 7}}


def test_topics_with_damaged_numbers_of_queues(tmp_path: Path) -> None:
    """The queues of a topic are listed in memory."""
    numbers = {"T": 8, "none": -4, "most": MOST_QUEUES, "damaged": 2**31 - 1, "9" * 5000: 1, "flag": "x"}
    topics = {name: {"readQueueNums": number} for name, number in numbers.items()}
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": topics}))
    assert read_topics(Storage.at(str(tmp_path))) == {
        "T": 8, "none": -4, "most": MOST_QUEUES, "damaged": MOST_QUEUES, "9" * 5000: 1,
    }  # fmt: skip


def test_a_topic_whose_name_is_no_text(tmp_path: Path) -> None:
    """It has half of a surrogate pair, which no table can hold."""
    (tmp_path / "config").mkdir()
    topics = {name: {"readQueueNums": 1} for name in ("T", "T\ud800", f"{BROKER_TOPIC}\ud800")}
    (tmp_path / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": topics}))
    assert read_topics(Storage.at(str(tmp_path))) == {"T": 1}


@pytest.mark.parametrize("damaged", [None, b"", b"{", b"\0" * 100, b"[]"])
def test_a_file_that_is_missing_or_damaged_has_a_backup(tmp_path: Path, damaged: bytes | None) -> None:
    config, storage = tmp_path / "config", Storage.at(str(tmp_path))
    config.mkdir()
    file = config / "consumerOffset.json"
    if damaged is not None:
        file.write_bytes(damaged)
    (config / "consumerOffset.json.bak").write_text('{"offsetTable":{"T@cg":{0:7}}}')
    assert read_consumer_offsets(storage) == ({("cg", "T"): {0: 7}}, None)
    file.write_text('{"offsetTable":{"T@cg":{0:8}}}')
    assert read_consumer_offsets(storage) == ({("cg", "T"): {0: 8}}, None)


def test_a_damaged_file_with_a_damaged_backup(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    for name in ("topics.json", "topics.json.bak"):
        (tmp_path / "config" / name).write_text("{")
    with pytest.raises(ConfigFileError, match=r"config/topics\.json is not JSON"):
        read_topics(Storage.at(str(tmp_path)))


def test_a_time_that_is_no_number_is_unknown() -> None:
    document = {"offsetTable": {}, "dataVersion": {"timestamp": True}}
    assert parse_consumer_offsets(json.dumps(document).encode(), "consumerOffset.json") == ({}, None)
