"""Records decoded to columns, compared with what a real broker wrote."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from schemas.rocketmq_store.commitlog_walk import Damage, Records, scan
from schemas.rocketmq_store.message_decoder import SCHEMA, decode
from schemas.rocketmq_store.segments import Segment, segments
from schemas.storage import Storage
from tests.captures import UNDAMAGED, capture, rows
from tests.records import V2, log_of

NAMES = {
    "physicalOffset": "commitlog_offset",
    "topic": "topic",
    "queueId": "queue_id",
    "queueOffset": "queue_offset",
    "storeSize": "store_size",
    "msgId": "msg_id",
    "bornTimestamp": "born_timestamp",
    "storeTimestamp": "store_timestamp",
    "sysFlag": "sys_flag",
    "flag": "flag",
    "bodyCRC": "body_crc",
    "reconsumeTimes": "reconsume_times",
    "preparedTransactionOffset": "prepared_transaction_offset",
    "bornHost": "born_host",
    "storeHost": "store_host",
    "magicCode": "magic_code",
    "bodyLength": "body_length",
    "bodyCrcComputed": "body_crc_computed",
}


def undamaged(pieces: Iterable[Records | Damage]) -> Iterator[Records]:
    for piece in pieces:
        assert isinstance(piece, Records)
        yield piece


def batches(segment: Segment, columns: Sequence[str] = tuple(SCHEMA.names)) -> list[pa.RecordBatch]:
    """The records of a segment that has no damage."""
    return [decode(piece, columns) for piece in undamaged(scan(segment))]


def decoded(log: bytes, folder: Path) -> list[dict[str, Any]]:
    file = folder / "00000000000000000000"
    file.write_bytes(log)
    pieces = batches(Segment(0, file.name, len(log), Storage.at(str(folder))))
    for batch in pieces:
        batch.validate(full=True)
    rows: list[dict[str, Any]] = pa.Table.from_batches(pieces).to_pylist(maps_as_pydicts="strict")
    return rows


@pytest.mark.parametrize("name", UNDAMAGED)
def test_every_field_is_what_the_broker_wrote(name: str) -> None:
    pieces = [batch for segment in segments(Storage.at(str(capture(name) / "store"))) for batch in batches(segment)]
    messages = pa.Table.from_batches(pieces)
    expected = [row for row in rows(name, "messages") if not row.get("blank")]

    messages.validate(full=True)
    for theirs, ours in NAMES.items():
        assert messages[ours].to_pylist() == [row[theirs] for row in expected], ours
    properties = [row["properties"] for row in expected]
    assert messages["properties"].to_pylist(maps_as_pydicts="strict") == properties
    for column, key in (("tags", "TAGS"), ("keys", "KEYS")):
        assert messages[column].to_pylist() == [(row or {}).get(key) for row in properties]


def test_property_quirks(tmp_path: Path) -> None:
    texts = {
        b"": None,
        b"\x02": {},
        b"a\x011": {"a": "1"},
        b"a\x011\x02": {"a": "1"},
        b"a\x011\x02a\x012\x02": {"a": "2"},
        b"a\x011\x02b\x01x\x02a\x01\x02": {"a": "1", "b": "x"},
        b"\x011\x02ab\x02": {},
        b"a\x01\x011\x01\x02": {"a": "\x011\x01"},
        b"\x01a\x011\x02": {},
        b"a\x011\x02\x02\x02b\x012": {"a": "1", "b": "2"},
        b"ab\x02\x01c": {},
        "城\x01杭州\x02".encode(): {"城": "杭州"},
        b"a\x01\xff\x02b\x01\xed\xa0\x80\x02": {"a": "\ufffd", "b": "\ufffd"},
        b"\xff\x011\x02\xfe\x012\x02": {"\ufffd": "2"},
        b"a\x01\xe4\xb8\x02b\x01\xf0\x90\x80": {"a": "\ufffd", "b": "\ufffd"},
    }
    messages = decoded(log_of(*({"properties": text} for text in texts)), tmp_path)

    assert [message["properties"] for message in messages] == list(texts.values())


def test_halves_of_a_character_in_two_values_are_none(tmp_path: Path) -> None:
    [message] = decoded(log_of({"properties": b"a\x01\xc3\x02b\x01\xa9\x02"}), tmp_path)

    assert message["properties"] == {"a": "\ufffd", "b": "\ufffd"}


def test_hosts_and_message_ids_as_java_prints_them(tmp_path: Path) -> None:
    v6 = bytes.fromhex("20010db8000000000000000000000001")
    mapped = bytes(10) + b"\xff\xff\x01\x02\x03\x04"
    log = log_of(
        {},
        {"store_host": v6, "sys_flag": 0x20},
        {"born_host": v6, "sys_flag": 0x10},
        {"store_host": mapped, "born_host": mapped, "sys_flag": 0x30},
    )
    first, store_v6, born_v6, both_mapped = decoded(log, tmp_path)

    assert first["msg_id"] == "0A000002" + "00002A9F" + f"{0:016X}"
    assert store_v6["store_host"] == "2001:db8:0:0:0:0:0:1:10911"
    assert store_v6["msg_id"] == v6.hex().upper() + "00002A9F" + f"{store_v6['commitlog_offset']:016X}"
    assert (born_v6["born_host"], born_v6["store_host"]) == ("2001:db8:0:0:0:0:0:1:10911", "10.0.0.2:10911")
    assert both_mapped["born_host"] == both_mapped["store_host"] == "1.2.3.4:10911"
    assert both_mapped["msg_id"] == "01020304" + "00002A9F" + f"{both_mapped['commitlog_offset']:016X}" + "0" * 24


def test_a_long_topic_needs_the_second_version(tmp_path: Path) -> None:
    topic = "%RETRY%" + "g" * 200
    [message] = decoded(log_of({"topic": topic.encode(), "magic": V2}), tmp_path)

    assert message["topic"] == topic


def test_small_chunks_change_nothing(tmp_path: Path) -> None:
    [segment, *_] = segments(Storage.at(str(capture("small") / "store")))
    whole = [decode(records, SCHEMA.names) for records in undamaged(scan(segment))]
    chunks = [decode(records, SCHEMA.names) for records in undamaged(scan(segment, chunk_bytes=1))]

    assert len(chunks) > 100
    assert pa.Table.from_batches(chunks).combine_chunks() == pa.Table.from_batches(whole)


def test_only_the_asked_columns_in_the_asked_order(tmp_path: Path) -> None:
    [segment, *_] = segments(Storage.at(str(capture("small") / "store")))
    [batch] = batches(segment, ["flag", "topic"])

    assert batch.schema.names == ["flag", "topic"]
