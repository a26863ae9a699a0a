"""Message logs in JSON lines and Parquet: the tables are those of the store they tell the same of."""

from __future__ import annotations

import json
import random
import zlib
from collections.abc import Callable, Sequence
from operator import itemgetter
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs import deliver, dispatch, export, ingest, lag, nightly, register
from jobs.cli.application import CheckFailed
from schemas.commitlog import COMMITLOG, VIEW, file_columns, view
from schemas.delta.warehouse import Warehouse
from schemas.messages import message_log, message_row_groups
from schemas.rocketmq_store.segments import CommitLogError
from tests.broker_log import BrokerLog
from tests.captures import MESSAGE_FIELDS, capture, rows
from tests.nights.commands import Run, differing, night_on, rows_of, without_runs


def test_json_lines_make_the_tables_of_the_store(replayed: Callable[[str], Warehouse], tmp_path: Path) -> None:
    """The lines are what RocketMQ's own decoder said of the store."""
    messages = [row for row in rows("small", "messages") if not row.get("blank")]
    lines = [{ours: row[theirs] for ours, theirs in MESSAGE_FIELDS.items()} for row in messages]
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    made, store = without_runs(night_on(tmp_path / "log.jsonl", tmp_path / "w")), without_runs(replayed("small"))
    assert differing(made, {name: store[name] for name in ("consumequeue", "subscriptions")}) == []
    assert made["deliveries"] == store["deliveries"]
    assert not made["quarantine"]


def test_parquet_and_an_export_make_the_commitlog_of_the_store(
    replayed: Callable[[str], Warehouse], tmp_path: Path
) -> None:
    warehouse = replayed("small")
    columns = [name for name in VIEW if name in COMMITLOG.file_schema.names or name == "properties"]
    stored = view(warehouse.rows(COMMITLOG, file_columns(columns)), columns)
    pq.write_table(stored, tmp_path / "log.parquet", row_group_size=100)
    export.main(["commitlog", "--warehouse", warehouse.location, "--output", str(tmp_path / "log.jsonl")])
    for log in ("log.parquet", "log.jsonl"):
        made = tmp_path / log.replace(".", "_")
        broker = ("--broker-config", str(capture("small") / "broker.conf"))
        ingest.main(["--store", str(tmp_path / log), "--warehouse", str(made), *broker])
        tables, expected = without_runs(made), without_runs(warehouse)
        assert differing(tables, {"commitlog": expected["commitlog"]}) == []
        assert not tables["quarantine"]


@pytest.mark.parametrize(
    ("bodies", "kept"), [("keep", {b"right", b"wrong"}), ("damaged", {None, b"wrong"}), ("none", {None})]
)
def test_bodies_are_checked_and_left_out_by_choice(tmp_path: Path, bodies: str, kept: set[bytes | None]) -> None:
    line = {"topic": "T", "queue_id": 0, "store_timestamp": 1, "body": b"right".hex()}
    numbered = [line | {"queue_offset": number, "commitlog_offset": number} for number in range(2)]
    numbered.append(line | {"queue_offset": 2, "commitlog_offset": 2, "body": b"wrong".hex(), "body_crc": 7})
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, numbered)))
    ingest.main(["--store", str(tmp_path / "log.jsonl"), "--warehouse", str(tmp_path / "w"), "--bodies", bodies])
    rows = list(rows_of(tmp_path / "w", "commitlog", "body", "body_crc", "body_is_damaged"))
    assert [row["body_is_damaged"] for row in rows] == [False, False, True]
    assert {row["body"] for row in rows} == kept
    crc = zlib.crc32(b"right") & 0x7FFFFFFF
    assert [row["body_crc"] for row in rows] == [crc, crc, 7]


def test_damaged_bodies_need_attention(tmp_path: Path, run: Run) -> None:
    line = GOOD | {"body": b"wrong".hex(), "body_crc": 7}
    (tmp_path / "log.jsonl").write_text(json.dumps(line))
    (tmp_path / "s.yaml").write_text("- {group: cg, topic: OrderEvents, tag: '*'}\n")
    given = ("--store", tmp_path / "log.jsonl", "--subscriptions", tmp_path / "s.yaml", "--warehouse", tmp_path / "w")
    ended = run(nightly, *given, "--strict")
    assert (ended.code, "damaged, but kept: 1 message whose body does not match the crc32" in ended.out) == (3, True)


def test_the_same_log_again_is_nothing_new_and_a_longer_one_adds_its_messages(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log.jsonl"
    lines = [json.dumps(GOOD | {"commitlog_offset": i, "queue_offset": i}) for i in range(5)]
    log.write_text("\n".join(lines[:3]))
    (tmp_path / "s.yaml").write_text("- {group: cg, topic: OrderEvents, tag: '*', consume_from: first}\n")
    given = ["--store", str(log), "--subscriptions", str(tmp_path / "s.yaml"), "--warehouse", str(tmp_path / "w")]
    nightly.main(given)
    capsys.readouterr()
    nightly.main(given)
    assert "There was nothing new" in capsys.readouterr().out
    log.write_text("\n".join(lines))
    nightly.main(given)
    delivered = without_runs(tmp_path / "w")["deliveries"]
    assert sorted(json.loads(text)["queue_offset"] for text in delivered) == [0, 1, 2, 3, 4]


def test_a_log_without_messages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "log.jsonl").write_text('{"key": 1}\n{"key": 2}\n')
    with pytest.raises(
        CheckFailed, match=r"no message: nothing could be decoded, the first in quarantine: log\.jsonl, "
    ):
        nightly.main(["--store", str(tmp_path / "log.jsonl"), "--warehouse", str(tmp_path / "w"), "--strict"])
    lag.main(["--warehouse", str(tmp_path / "w")])
    assert capsys.readouterr().out.endswith("\nno message has been filtered yet: no group is behind\n")


@pytest.mark.parametrize("content", ["", '{"key": 1}\n'])
def test_a_log_without_messages_after_another_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str
) -> None:
    """A night that only reads no new message is an ordinary one; a whole log without any is a broken export."""
    log = tmp_path / "log.jsonl"
    given = ["--store", str(log), "--warehouse", str(tmp_path / "w")]
    log.write_text(json.dumps(GOOD) + "\n")
    nightly.main(given)
    log.write_text(json.dumps(GOOD) + "\n\n")
    nightly.main(given)
    assert "no message:" not in capsys.readouterr().out
    log.write_text(content)
    for _ in range(2):
        with pytest.raises(CheckFailed, match=r"the first: no message: nothing in log\.jsonl could be decoded"):
            nightly.main([*given, "--strict"])


def test_a_store_goes_on_where_a_message_log_of_it_ended(tmp_path: Path) -> None:
    """The message log is an export of the same broker's commitlog, made between two nights on its store."""
    log, exported = BrokerLog(), tmp_path / "log.jsonl"
    store = tmp_path / "store"
    for folder, inputs in (("made", [store]), ("w", [exported, store, exported, store])):
        given = ("--warehouse", str(tmp_path / folder))
        for each in inputs:
            if each == store:
                log.append(3).write(store)
            nightly.main(["--store", str(each), *given])
            export.main(["commitlog", *given, "--output", str(exported)])
    assert list(rows_of(tmp_path / "w", "quarantine")) == []
    queue_offsets = sorted(row["queue_offset"] for row in rows_of(tmp_path / "w", "consumequeue"))
    assert queue_offsets == list(range(9))


def steps_on(log: Path, warehouse: Path, *jobs: ModuleType) -> None:
    """Runs steps of a night one by one."""
    for job in jobs:
        job.main([*(["--store", str(log)] if job is ingest else []), "--warehouse", str(warehouse)])


@pytest.mark.parametrize("between", [(), (dispatch,), (dispatch, deliver)])
def test_steps_find_messages_between_those_that_they_had(tmp_path: Path, between: Sequence[ModuleType]) -> None:
    log, warehouse = tmp_path / "log.jsonl", tmp_path / "w"
    subscriptions = tmp_path / "s.yaml"
    subscriptions.write_text("- {group: cg, topic: OrderEvents, sql: price IS NULL, consume_from: first}\n")
    register.main(["--subscriptions", str(subscriptions), "--warehouse", str(warehouse)])
    nights: Sequence[tuple[list[int], Sequence[ModuleType]]] = (
        ([0, 1, 8, 9], (ingest, dispatch, deliver)),
        ([0, 1, 4, 5, 8, 9], (ingest, *between)),
        ([0, 1, 2, 4, 5, 7, 8, 9, 10], (ingest, dispatch, deliver)),
    )
    for offsets, jobs in nights:
        log.write_text("\n".join(json.dumps(GOOD | {"commitlog_offset": i, "queue_offset": i}) for i in offsets))
        steps_on(log, warehouse, *jobs)
    for table in ("consumequeue", "deliveries"):
        queue_offsets = [row["queue_offset"] for row in rows_of(warehouse, table, "queue_offset")]
        assert sorted(queue_offsets) == [0, 1, 2, 4, 5, 7, 8, 9, 10], table
    steps_on(log, warehouse, dispatch, deliver)
    assert len(list(rows_of(warehouse, "deliveries", "queue_offset"))) == 9


def test_the_last_of_two_properties_of_one_name_counts(tmp_path: Path) -> None:
    """As in RocketMQ (MessageDecoder.string2messageProperties), which ignores a property without a value."""
    given = [("TAGS", "a"), ("TAGS", "b"), ("KEYS", "k1"), ("n", "1"), ("KEYS", "k2"), ("n", "2"), ("n", "")]
    properties = ", ".join(f'"{name}": "{value}"' for name, value in given)
    line = json.dumps(GOOD)[:-1] + f', "properties": {{{properties}}}}}'
    (tmp_path / "log.jsonl").write_text(line + "\n" + json.dumps(GOOD | {"commitlog_offset": 7, "queue_offset": 1}))
    subscriptions = tmp_path / "s.yaml"
    filters = {"cg_a": "tag: a", "cg_b": "tag: b", "cg_1": "sql: n = '1'", "cg_2": "sql: n = '2'"}
    entries = [
        f"- {{group: {group}, topic: OrderEvents, {each}, consume_from: first}}" for group, each in filters.items()
    ]
    subscriptions.write_text("\n".join(entries))
    warehouse = tmp_path / "w"
    nightly.main(
        ["--store", str(tmp_path / "log.jsonl"), "--subscriptions", str(subscriptions), "--warehouse", str(warehouse)]
    )
    (row,) = (each for each in rows_of(warehouse, "commitlog") if each["commitlog_offset"] == 0)
    assert row["properties"] == {"TAGS": "b", "KEYS": "k2", "n": "2"}
    assert (row["tags"], row["keys"]) == ("b", "k2")
    delivered = rows_of(warehouse, "deliveries", "consumer_group", "queue_offset")
    assert sorted((each["consumer_group"], each["queue_offset"]) for each in delivered) == [("cg_2", 0), ("cg_b", 0)]


GOOD: dict[str, Any] = {
    "topic": "OrderEvents",
    "queue_id": 0,
    "queue_offset": 0,
    "commitlog_offset": 0,
    "store_timestamp": 1_795_237_513_466,
}
SEPARATOR = "a property has U+0001 in its name, or U+0002: RocketMQ ends names and values there"
YEAR_10000 = "store_timestamp is after the year 9999; write milliseconds since 1970"
NO_TIME = (
    "store_timestamp is not a time: write milliseconds since 1970, or a text with its time zone such as "
    "2026-11-21T05:05:13.466Z"
)
LINES: dict[str, str | None] = {
    json.dumps(
        GOOD | {"properties": {"TAGS": "paid", "price": 5, "a": "1\u0001"}, "body": "00fF", "colour": "red"}
    ): None,
    "": None,
    json.dumps(GOOD | {"commitlog_offset": 7, "properties": {"KEYS": "", "": "x", "n": None}}) + "\r": None,
    json.dumps(GOOD): "another message has this commitlog_offset",
    '{"topic": "OrderEvents", ': "not JSON",
    json.dumps(GOOD | {"queue_id": "zero"}): "queue_id is not a whole number of 32 bits",
    json.dumps(GOOD | {"queue_id": 1 << 40}): "queue_id is not a whole number of 32 bits",
    json.dumps(GOOD | {"store_timestamp": "2026-11-25"}): NO_TIME,
    json.dumps(GOOD | {"properties": "a=b"}): "properties is not a JSON object",
    json.dumps({name: GOOD[name] for name in GOOD if name != "topic"}): "no topic",
    json.dumps(
        {"Queue_ID" if name == "queue_id" else name: GOOD[name] for name in GOOD}
    ): "no queue_id: rename Queue_ID",
    json.dumps(GOOD | {"commitlog_offset": -1}): "commitlog_offset is negative",
    json.dumps(GOOD | {"queue_offset": -1}): "queue_offset is negative",
    json.dumps(GOOD | {"store_size": 0}): "store_size is not 1 or more",
    json.dumps(GOOD | {"body": "xyz"}): "body is not hex",
    json.dumps(GOOD | {"commitlog_offset": 6, "body": "abc", "flag": -(2**31), "magic_code": 2**31 - 1}): None,
    json.dumps(GOOD | {"queue_offset": 2**63 - 1}): "queue_offset is over 461168601842738789",
    json.dumps(GOOD | {"commitlog_offset": 2**63 - 1}): "the message ends beyond the last physical offset",
    json.dumps(GOOD | {"store_timestamp": -1}): "store_timestamp is negative",
    json.dumps(GOOD | {"store_timestamp": GOOD["store_timestamp"] * 1000}): YEAR_10000,
    json.dumps(GOOD | {"store_timestamp": 2**63 - 1}): YEAR_10000,
    json.dumps(GOOD | {"store_timestamp": 253_402_300_800_000}): YEAR_10000,
    json.dumps(GOOD | {"commitlog_offset": 2**63 - 2, "queue_offset": 461168601842738789}): None,
    json.dumps(GOOD | {"commitlog_offset": 8, "store_timestamp": 253_402_300_799_999, "born_timestamp": -1}): None,
    json.dumps(GOOD | {"properties": {"a\u0001b": "1"}}): SEPARATOR,
    json.dumps(GOOD | {"properties": {"a\u0002b": "1"}}): SEPARATOR,
    json.dumps(GOOD | {"properties": {"a": "1\u0002b", "b": None}}): SEPARATOR,
    "[]": "not a JSON object",
    "\udcff\udcfe": "not UTF-8",
    json.dumps(GOOD | {"commitlog_offset": 9}).replace("Events", "Events\udcff"): "not UTF-8",
    json.dumps(GOOD | {"commitlog_offset": 9, "properties": {"a": "X"}}).replace("X", "\udce9"): "not UTF-8",
    " \t": None,
    json.dumps(GOOD | {"commitlog_offset": 9, "store_size": 3.0}): "store_size is not a whole number of 32 bits",
}


def test_a_line_that_is_no_message_is_quarantined_with_its_number_its_bytes_and_why(tmp_path: Path) -> None:
    lines = [line.encode("utf-8", "surrogateescape") for line in LINES]
    (tmp_path / "log.jsonl").write_bytes(b"\n".join(lines))
    ingest.main(["--store", str(tmp_path / "log.jsonl"), "--warehouse", str(tmp_path / "w")])
    rejected = rows_of(tmp_path / "w", "quarantine", "source_file", "offset", "bytes", "reason")
    assert sorted(tuple(row.values()) for row in rejected) == [
        ("log.jsonl", number, line, reason)
        for number, (line, reason) in enumerate(zip(lines, LINES.values(), strict=True), start=1)
        if reason is not None
    ]
    messages = rows_of(tmp_path / "w", "commitlog")
    first, odd, second, last, greatest = sorted(messages, key=itemgetter("commitlog_offset"))
    assert first["properties"] == {"TAGS": "paid", "price": "5", "a": "1\u0001"}
    assert (first["body"], first["store_size"]) == (b"\x00\xff", 1)
    assert (odd["body"], odd["flag"], odd["magic_code"]) == (b"\x0a\xbc", -(2**31), 2**31 - 1)
    assert (second["commitlog_offset"], second["properties"]) == (7, None)
    assert last["store_timestamp"] == 253_402_300_799_999
    assert (greatest["commitlog_offset"], greatest["queue_offset"]) == (2**63 - 2, 461168601842738789)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("1.50", "1.50"), ("-0", "-0"), ("1e400", "1e400"), ("NaN", "NaN"), ("true", "true"),
        ("5" * 5_000, "5" * 5_000),
        ('{"a": [1.50, null, "x"], "a": false}', '{"a":[1.50,null,"x"],"a":false}'),
        (r'"\ud83d\ude00 \ud83d"', "\U0001f600 ?"), ("null", None), ('""', None),
    ],
)  # fmt: skip
def test_a_property_is_a_text_as_it_is_written(tmp_path: Path, value: str, text: str | None) -> None:
    line = json.dumps(GOOD)[:-1] + f', "properties": {{"a": {value}, "b": "x"}}}}'
    (tmp_path / "log.jsonl").write_text(line)
    ingest.main(["--store", str(tmp_path / "log.jsonl"), "--warehouse", str(tmp_path / "w")])
    (row,) = rows_of(tmp_path / "w", "commitlog")
    assert row["properties"] == {"b": "x"} | ({"a": text} if text is not None else {})


INT, BIGINT = "is not a whole number of 32 bits", "is not a whole number of 64 bits"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (json.dumps(GOOD).replace('"', "'"), "not JSON"),
        (json.dumps(GOOD) + "}", "not JSON"),
        (json.dumps([GOOD]), "not a JSON object"),
        ("null", "not a JSON object"),
        ("[" * 100_000, "nested too deep"),
        (json.dumps(GOOD | {"properties": ["ab"]}), "properties is not a JSON object"),
        (json.dumps(GOOD | {"flag": int("5" * 4_000)}), f"flag {INT}"),
        (json.dumps(GOOD).replace("0", "5" * 5_000), f"queue_id {INT}"),
        (json.dumps(GOOD | {"flag": 2**31}), f"flag {INT}"),
        (json.dumps(GOOD | {"flag": -(2**31) - 1}), f"flag {INT}"),
        (json.dumps(GOOD | {"born_timestamp": 2**63}), f"born_timestamp {BIGINT}"),
    ],
    ids=range(11),
)
def test_a_line_that_is_not_json_with_these_types(tmp_path: Path, line: str, reason: str) -> None:
    (tmp_path / "log.jsonl").write_text(f"{line}\n{json.dumps(GOOD)}")
    ingest.main(["--store", str(tmp_path / "log.jsonl"), "--warehouse", str(tmp_path / "w")])
    (row,) = rows_of(tmp_path / "w", "quarantine", "offset", "bytes", "reason")
    assert tuple(row.values()) == (1, line.encode(), reason)
    assert len(list(rows_of(tmp_path / "w", "commitlog", "topic"))) == 1


def test_a_byte_order_mark_is_not_part_of_the_first_line(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text("\n".join(json.dumps(GOOD) for _ in range(2)), "utf-8-sig")
    ingest.main(["--store", str(tmp_path / "log.jsonl"), "--warehouse", str(tmp_path / "w")])
    (row,) = rows_of(tmp_path / "w", "quarantine", "offset", "bytes", "reason")
    assert tuple(row.values()) == (2, json.dumps(GOOD).encode(), "another message has this commitlog_offset")


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_a_log_in_parts_is_read_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str) -> None:
    """Messages are in any order, some have the physical offset of an earlier one, and some lines are none."""
    rng = random.Random(7)
    monkeypatch.setattr(message_log, "PART_BYTES", 1_000)
    monkeypatch.setattr(message_row_groups, "ROWS_AT_ONCE", 3)
    log = tmp_path / "log"
    log.mkdir()
    numbers = [rng.randrange(200) for _ in range(400)]
    messages = [GOOD | {"commitlog_offset": number, "queue_offset": at} for at, number in enumerate(numbers)]
    for at in range(50, 400, 50):
        messages[at] = messages[at] | {"topic": None}
    for name, some in (("a", messages[:100]), ("b", messages[100:300]), ("c", messages[300:])):
        if suffix == "jsonl":
            (log / f"{name}.jsonl").write_text("\n".join(map(json.dumps, some)))
        else:
            pq.write_table(pa.Table.from_pylist(some), log / f"{name}.parquet", row_group_size=7)
    expected: dict[int, int] = {}
    rejected = []
    for at, message in enumerate(messages):
        file, number = (("a", at), ("b", at - 100), ("c", at - 300))[(at >= 100) + (at >= 300)]
        if message["topic"] is None:
            rejected.append((f"{file}.{suffix}", number + 1, "no topic"))
        elif message["commitlog_offset"] in expected:
            rejected.append((f"{file}.{suffix}", number + 1, "another message has this commitlog_offset"))
        else:
            expected[message["commitlog_offset"]] = at
    for _ in range(2):
        ingest.main(["--store", str(log), "--warehouse", str(tmp_path / "w")])
        rows = rows_of(tmp_path / "w", "commitlog", "commitlog_offset", "queue_offset")
        assert sorted(tuple(row.values()) for row in rows) == sorted(expected.items())
        quarantined = rows_of(tmp_path / "w", "quarantine", "source_file", "offset", "reason")
        assert sorted(tuple(row.values()) for row in quarantined) == sorted(rejected)


def test_properties_of_parquet_are_those_of_json_lines(tmp_path: Path) -> None:
    """Separators, texts of no and of many bytes, and missing values, in names and values."""
    rng = random.Random(11)
    texts = ["", "a", "price", "eight888", "nine99999", "é" * 20, "\u0001", "b\u0002", "3\u0001"]
    names = [*texts[1:-3] * 8, *texts[-3:]]
    pairs = [{name: rng.choice([*texts, None]) for name in rng.sample(names, rng.randrange(5))} for _ in range(300)]
    properties = [None, *pairs]
    messages = [
        GOOD | {"commitlog_offset": at, "queue_offset": at, "properties": each} for at, each in enumerate(properties)
    ]
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, messages)))
    table = pa.Table.from_pylist([{**message, "properties": None} for message in messages])
    maps = pa.array([None if each is None else list(each.items()) for each in properties], _MAPS)
    at = table.schema.get_field_index("properties")
    pq.write_table(table.set_column(at, "properties", maps), tmp_path / "log.parquet")
    read = []
    for suffix in ("jsonl", "parquet"):
        ingest.main(["--store", str(tmp_path / f"log.{suffix}"), "--warehouse", str(tmp_path / suffix)])
        rows = rows_of(tmp_path / suffix, "commitlog", "commitlog_offset", "properties")
        quarantined = rows_of(tmp_path / suffix, "quarantine", "offset", "reason")
        read.append((sorted(map(str, rows)), sorted(map(str, quarantined))))
    assert len(read[0][0]) > 100
    assert len(read[0][1]) > 30
    assert read[0] == read[1]


_MAPS = pa.map_(pa.string(), pa.string())


def test_bad_lines_of_messages_and_subscriptions_in_files_of_one_name(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "log.jsonl").write_text(json.dumps(GOOD) + "\nno message", encoding="utf-8")
    event = {"at": 1, "op": "register", "group": "g", "topic": "OrderEvents", "expression": "paid"}
    (tmp_path / "log.jsonl").write_text(json.dumps(event) + "\n\nno event", encoding="utf-8")
    subscriptions = ("--subscriptions", str(tmp_path / "log.jsonl"))
    for _ in range(2):
        nightly.main(["--store", str(tmp_path / "log"), *subscriptions, "--warehouse", str(tmp_path / "w")])
    quarantine = [(row["source_file"], row["offset"], row["bytes"]) for row in rows_of(tmp_path / "w", "quarantine")]
    assert sorted(quarantine) == [("log.jsonl", 2, b"no message"), ("log.jsonl (subscriptions)", 3, b"no event")]


def test_a_bad_line_of_a_log_that_grows_keeps_the_run_that_first_read_it(tmp_path: Path) -> None:
    log, warehouse = tmp_path / "log.jsonl", tmp_path / "w"
    for lines in (
        ["bad", "worse"],
        ["bad", "worse", json.dumps(GOOD), "worst"],
        [json.dumps(GOOD), "worse", "", "good"],
    ):
        log.write_text("\n".join(lines))
        ingest.main(["--store", str(log), "--warehouse", str(warehouse)])
    runs = sorted(row["run"] for row in rows_of(warehouse, "run_ledger"))
    rows = rows_of(warehouse, "quarantine", "offset", "bytes", "run")
    assert sorted((row["offset"], row["bytes"], runs.index(row["run"])) for row in rows) == [
        (2, b"worse", 0), (4, b"good", 2),
    ]  # fmt: skip


def test_one_absurd_time_does_not_keep_later_events_out(tmp_path: Path) -> None:
    log, events = tmp_path / "log.jsonl", tmp_path / "events.jsonl"
    given = ["--store", str(log), "--subscriptions", str(events), "--warehouse", str(tmp_path / "w")]
    lines: list[dict[str, Any]] = []
    absurd = GOOD | {"commitlog_offset": 1, "queue_offset": 1, "store_timestamp": 2**63 - 1}
    for group, new in (("g", [GOOD, absurd]), ("h", [GOOD | {"commitlog_offset": 2, "queue_offset": 2}])):
        lines += new
        log.write_text("\n".join(map(json.dumps, lines)))
        event = {"at": GOOD["store_timestamp"] + len(lines), "op": "register", "group": group, "topic": "OrderEvents"}
        with events.open("a") as file:
            file.write(json.dumps(event | {"expression": "*", "consume_from": "first"}) + "\n")
        nightly.main(given)
    delivered = rows_of(tmp_path / "w", "deliveries", "consumer_group", "queue_offset")
    places = sorted((row["consumer_group"], row["queue_offset"]) for row in delivered)
    assert places == [("g", 0), ("g", 2), ("h", 0), ("h", 2)]


@pytest.mark.parametrize(("field", "name"), [("tags", "TAGS"), ("keys", "KEYS")])
def test_tags_or_keys_alone_are_properties(tmp_path: Path, field: str, name: str) -> None:
    (tmp_path / "log.jsonl").write_text(json.dumps(GOOD | {field: "a"}))
    warehouse = tmp_path / "w"
    ingest.main(["--store", str(tmp_path / "log.jsonl"), "--warehouse", str(warehouse)])
    (row,) = rows_of(warehouse, "commitlog")
    assert row["properties"] == {name: "a"}


@pytest.mark.parametrize("name", ["a b%20+é.jsonl", "a[1]{b,c}*?\\[.jsonl"])
def test_a_bad_line_is_told_once_with_any_name_of_its_file(tmp_path: Path, name: str) -> None:
    lines = [json.dumps(GOOD), "bad", json.dumps(GOOD | {"commitlog_offset": 1})]
    for count in (2, 3):
        (tmp_path / name).write_text("\n".join(lines[:count]))
        ingest.main(["--store", str(tmp_path / name), "--warehouse", str(tmp_path / "w")])
    quarantine = rows_of(tmp_path / "w", "quarantine", "source_file", "offset", "bytes")
    assert [tuple(row.values()) for row in quarantine] == [(name, 2, b"bad")]
    assert len(list(rows_of(tmp_path / "w", "commitlog", "topic"))) == 2


def test_a_row_that_is_no_message_is_quarantined_too(tmp_path: Path) -> None:
    columns = {name: [value, value, value, None] for name, value in GOOD.items()}
    columns |= {"commitlog_offset": [0, 7, 7, 8], "queue_id": ["0", "zero", "1", "2"], "tags": ["a", "b", "c", "d"]}
    pq.write_table(pa.table(columns), tmp_path / "log.parquet")
    ingest.main(["--store", str(tmp_path / "log.parquet"), "--warehouse", str(tmp_path / "w")])
    rejected = sorted(rows_of(tmp_path / "w", "quarantine"), key=itemgetter("offset"))
    assert [(row["offset"], row["reason"]) for row in rejected] == [(2, "queue_id is not of type int"), (4, "no topic")]
    assert json.loads(rejected[0]["bytes"])["queue_id"] == "zero"
    messages = rows_of(tmp_path / "w", "commitlog", "commitlog_offset", "queue_id", "tags")
    assert sorted(tuple(row.values()) for row in messages) == [(0, 0, "a"), (7, 1, "c")]


def test_times_of_a_parquet_log_may_be_timestamps(tmp_path: Path) -> None:
    time = GOOD["store_timestamp"]
    for unit, value in (("ms", time), ("us", time * 1000), ("s", time // 1000)):
        columns = {name: [value] for name, value in GOOD.items()}
        columns["store_timestamp"] = pa.array([value], pa.timestamp(unit))
        columns["born_timestamp"] = pa.array([None], pa.timestamp(unit))
        pq.write_table(pa.table(columns), tmp_path / "log.parquet")
        ingest.main(["--store", str(tmp_path / "log.parquet"), "--warehouse", str(tmp_path / unit)])
        (row,) = rows_of(tmp_path / unit, "commitlog")
        assert row["store_timestamp"] == (time if unit != "s" else time // 1000 * 1000)
        assert row["born_timestamp"] is None


def test_columns_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    columns = {name: [value] for name, value in GOOD.items()}
    pq.write_table(pa.table(columns | {"properties": [{"price": "5"}]}), tmp_path / "log.parquet")
    message = "column properties has the type struct<price: string>, not map<string, string>; docs/MESSAGE_LOG.md shows"
    with pytest.raises(CommitLogError, match=message):
        message_log.files(tmp_path)
    other = {"Topic": "topic", "Store_Timestamp": "store_timestamp"}
    renamed = {next((new for new, old in other.items() if old == name), name): columns[name] for name in columns}
    pq.write_table(pa.table(renamed), tmp_path / "log.parquet")
    message = "no column topic, store_timestamp, which every message needs: rename Topic, Store_Timestamp"
    with pytest.raises(CommitLogError, match=message):
        message_log.files(tmp_path)
    (tmp_path / "log.jsonl").touch()
    with pytest.raises(CommitLogError, match="mixes"):
        message_log.files(tmp_path)
