"""Tags codes, compared with Java and with real consume queues."""

import pyarrow as pa
import pytest

from filtering.tags_code import delay_of, entry_tags_codes, java_hash, parse_delay_levels, tags_code, tags_codes
from tests.captures import UNDAMAGED, rows
from tests.unit.broker import cases


def test_hashes_are_javas() -> None:
    for case in cases("tag_hashes"):
        assert java_hash(case["tag"]) == case["hash"], case
        assert tags_code(case["tag"]) == case["tagsCode"], case


def test_arrays_hash_as_single_tags_do() -> None:
    tags = ["paid", None, "", "😀", "\U00050000\U0010ffff", "paid"]
    expected = [tags_code(tag) for tag in tags]
    assert tags_codes(pa.array(tags)).to_pylist() == expected
    assert tags_codes(pa.array(tags).dictionary_encode()).to_pylist() == expected
    assert tags_codes(pa.chunked_array([tags[:2], tags[2:]])).to_pylist() == expected
    assert tags_codes(pa.array([], pa.string())).to_pylist() == []


@pytest.mark.parametrize("capture", UNDAMAGED)
def test_every_entry_of_a_real_consume_queue_has_its_tags_code(capture: str) -> None:
    levels = parse_delay_levels("1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h")
    entries = {entry["commitLogOffset"]: entry["tagsCode"] for entry in rows(capture, "consumequeue")}
    messages = [message for message in rows(capture, "messages") if message["physicalOffset"] in entries]
    properties = [message["properties"] or {} for message in messages]
    codes = entry_tags_codes(
        pa.array([message["topic"] for message in messages]),
        pa.array([each.get("TAGS") for each in properties]),
        pa.array([each.get("DELAY") for each in properties], pa.string()),
        pa.array([message["storeTimestamp"] for message in messages]),
        levels,
    )
    assert codes.to_pylist() == [entries[message["physicalOffset"]] for message in messages]


def test_a_scheduled_message_without_a_level_keeps_its_hash() -> None:
    topics, tags = pa.array(["SCHEDULE_TOPIC_XXXX"] * 4), pa.array(["paid", "paid", "paid", None])
    codes = entry_tags_codes(topics, tags, pa.array(["1", "soon", None, "0"]), pa.array([5, 5, 5, 5]), (1_000,))
    assert codes.to_pylist() == [1_005, tags_code("paid"), tags_code("paid"), 0]


def test_delay_levels() -> None:
    assert parse_delay_levels("\u0663s +1m 0h") == (3_000, 60_000, 0), "any number that Long.parseLong reads"
    levels = parse_delay_levels("1s 2m 3h 1d")
    assert levels == (1_000, 120_000, 10_800_000, 86_400_000)
    assert delay_of("2", levels) == 120_000
    assert delay_of("99", levels) == 86_400_000, "above the highest counts as the highest"
    assert delay_of("0", levels) is None
    assert delay_of("soon", levels) is None
    with pytest.raises(ValueError, match=r"messageDelayLevel: '5x' is not a delay"):
        parse_delay_levels("1s 5x")
