"""Message logs of what people have: few fields, RocketMQ's own names, and times as texts."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs import audit, explain, export, ingest, nightly
from schemas.delta.warehouse import Warehouse
from schemas.ledger_check import read_runs
from schemas.messages import message_log
from schemas.run_ledger import NUMBERED_LINES
from tests.broker_log import BrokerLog
from tests.nights.commands import Run, differing, night_on, rows_of, without_runs

TIME = 1_795_237_513_466
POSITION = ("topic", "queue_id", "queue_offset", "commitlog_offset")


def message(number: int, **fields: Any) -> dict[str, Any]:
    """A message without a position. Odd ones have the tag ``paid``."""
    tag = "paid" if number % 2 else "created"
    return {
        "topic": f"T{number % 3 // 2}", "store_timestamp": TIME + number,
        "properties": {"TAGS": tag, "KEYS": f"k{number}"},
    } | fields  # fmt: skip


def write(file: Path, messages: Sequence[dict[str, Any]], end: str = "\n") -> None:
    file.write_text("\n".join(map(json.dumps, messages)) + end)


def ingested(log: Path, warehouse: Path) -> list[tuple[Any, ...]]:
    """Keys and positions of all messages, in the order of the log, after a night on it."""
    ingest.main(["--store", str(log), "--warehouse", str(warehouse)])
    rows = rows_of(warehouse, "commitlog", "commitlog_offset", "topic", "queue_id", "queue_offset", "keys")
    return sorted(tuple(row.values()) for row in rows)


def test_topic_properties_and_a_time_are_enough(tmp_path: Path, run: Run) -> None:
    write(tmp_path / "log.jsonl", [message(i) for i in range(6)])
    (tmp_path / "s.yaml").write_text(
        "- {group: cg_paid, topic: T0, tag: paid, consume_from: first}\n"
        "- {group: cg_sql, topic: T1, sql: KEYS = 'k5', consume_from: first}\n"
    )
    given = ("--store", tmp_path / "log.jsonl", "--subscriptions", tmp_path / "s.yaml", "--warehouse", tmp_path / "w")
    ended = run(nightly, *given)
    assert ended.code == 0
    assert "no queue ids and offsets" in ended.out
    stored = rows_of(tmp_path / "w", "consumequeue", *POSITION)
    assert sorted(tuple(row.values()) for row in stored) == [
        ("T0", 0, 0, 0), ("T0", 0, 1, 1), ("T0", 0, 2, 3), ("T0", 0, 3, 4), ("T1", 0, 0, 2), ("T1", 0, 1, 5),
    ]  # fmt: skip
    delivered = rows_of(tmp_path / "w", "deliveries", "consumer_group", "queue_offset")
    assert sorted(tuple(row.values()) for row in delivered) == [("cg_paid", 1), ("cg_paid", 2), ("cg_sql", 1)]
    (entry,) = read_runs(Warehouse.at(str(tmp_path / "w")))
    assert entry.inputs[NUMBERED_LINES]
    assert run(nightly, *given).code == 0


def test_messages_of_transactions_that_get_no_entry_are_not_numbered(tmp_path: Path, run: Run) -> None:
    """Of a transaction, only the committed message is in its queue. The file grows between two nights."""
    flags = [0, 4, 8, 12, 0]
    given = ("--store", tmp_path / "log.jsonl", "--warehouse", tmp_path / "w")
    for count in (3, 5):
        write(tmp_path / "log.jsonl", [message(0, sys_flag=flag) for flag in flags[:count]])
        assert run(nightly, *given).code == 0
    stored = rows_of(tmp_path / "w", "consumequeue", "queue_offset", "commitlog_offset")
    assert sorted(tuple(row.values()) for row in stored) == [(0, 0), (1, 2), (2, 4)]
    assert run(audit, "--warehouse", tmp_path / "w", "--all").code == 0


@pytest.mark.parametrize(
    "name", ["store_timestamp", "storeTimestamp", "born_timestamp", "bornTimestamp", "timestamp", "time"]
)
@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_a_time_has_any_of_these_names(tmp_path: Path, name: str, suffix: str) -> None:
    line = {"topic": "T", name: TIME}
    log = tmp_path / f"log.{suffix}"
    if suffix == "jsonl":
        write(log, [line])
    else:
        pq.write_table(pa.Table.from_pylist([line]), log)
    ingested(log, tmp_path / "w")
    (row,) = rows_of(tmp_path / "w", "commitlog", "store_timestamp", "born_timestamp")
    assert row["store_timestamp"] == TIME
    assert (row["born_timestamp"] == TIME) is name.startswith("born")


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("2026-11-21T05:05:13.466Z", None), ("2026-11-21T13:05:13.466+08:00", None),
        ("2026-11-21 05:05:13.466999+00:00", None),
        ("2026-11-21T05:05:13", "is not a time: write milliseconds since 1970, or a text with its time zone"),
        ("yesterday", "is not a time: write milliseconds since 1970, or a text with its time zone"),
        (TIME // 1000, "store_timestamp is in seconds; write milliseconds since 1970"),
        (TIME * 1000, "store_timestamp is after the year 9999; write milliseconds since 1970"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_times_are_taken_if_they_are_unambiguous(tmp_path: Path, value: Any, reason: str | None, suffix: str) -> None:
    log = tmp_path / f"log.{suffix}"
    line = message(0, store_timestamp=value)
    if suffix == "jsonl":
        write(log, [line])
    else:
        pq.write_table(pa.Table.from_pylist([{name: line[name] for name in ("topic", "store_timestamp")}]), log)
    ingested(log, tmp_path / "w")
    times = [row["store_timestamp"] for row in rows_of(tmp_path / "w", "commitlog")]
    assert times == ([TIME] if reason is None else [])
    reasons = [row["reason"] for row in rows_of(tmp_path / "w", "quarantine")]
    assert len(reasons) == (reason is not None)
    assert reason is None or reason in reasons[0]


def test_a_log_that_grows_keeps_its_numbers(tmp_path: Path) -> None:
    """Lines are added, the last one first in two halves; a file of the next day comes, and the first grows again."""
    log = tmp_path / "log"
    log.mkdir()
    messages = [message(i) for i in range(12)]
    half = json.dumps(messages[3])
    write(log / "b.jsonl", [*messages[:3]])
    with (log / "b.jsonl").open("a") as file:
        file.write(half[:20])
    first = ingested(log, tmp_path / "w")
    assert [row[4] for row in first] == ["k0", "k1", "k2"]
    assert len(list(rows_of(tmp_path / "w", "quarantine"))) == 1
    with (log / "b.jsonl").open("a") as file:
        file.write(half[20:])
    second = ingested(log, tmp_path / "w")
    write(log / "a.jsonl", messages[4:6], end="")
    third = ingested(log, tmp_path / "w")
    with (log / "b.jsonl").open("a") as file:
        file.write("\n\n" + json.dumps(messages[6]) + "\nbad\n")
    with (log / "a.jsonl").open("a") as file:
        file.write("\n" + json.dumps(messages[7]))
    fourth = ingested(log, tmp_path / "w")
    assert fourth == ingested(log, tmp_path / "w")
    (log / "c.jsonl").write_bytes((log / "a.jsonl").read_bytes() + b"\n" + json.dumps(messages[8]).encode())
    (log / "a.jsonl").unlink()
    fifth = ingested(log, tmp_path / "w")
    for before, after, keys in (
        (first, second, ["k3"]), (second, third, ["k4", "k5"]), (third, fourth, ["k7", "k6"]), (fourth, fifth, ["k8"]),
    ):  # fmt: skip
        assert after[: len(before)] == before
        assert [row[4] for row in after[len(before) :]] == keys
    queues = {topic: [row[3] for row in fifth if row[1] == topic] for topic in ("T0", "T1")}
    assert queues == {"T0": list(range(6)), "T1": list(range(3))}
    quarantined = rows_of(tmp_path / "w", "quarantine", "source_file", "offset", "bytes")
    assert [tuple(row.values()) for row in quarantined] == [("b.jsonl", 7, b"bad")]


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_another_file_of_the_same_name_is_refused(tmp_path: Path, run: Run, suffix: str) -> None:
    log = tmp_path / f"log.{suffix}"
    for count in (2, 3):
        lines = [{"topic": "T", "time": TIME + count * i} for i in range(count)]
        if suffix == "jsonl":
            write(log, lines)
        else:
            pq.write_table(pa.Table.from_pylist(lines), log)
        ended = run(ingest, "--store", log, "--warehouse", tmp_path / "w")
    assert (ended.code, ended.error.count("\n")) == (2, 1)
    assert "give new messages in a file of another name" in ended.error
    assert len(list(rows_of(tmp_path / "w", "commitlog", "topic"))) == 2
    log.rename(tmp_path / f"next.{suffix}")
    assert run(ingest, "--store", tmp_path / f"next.{suffix}", "--warehouse", tmp_path / "w").code == 0
    assert len(list(rows_of(tmp_path / "w", "commitlog", "topic"))) == 5


def test_numbered_messages_and_real_ones_are_not_mixed(tmp_path: Path, run: Run) -> None:
    numbered, real, store = tmp_path / "numbered.jsonl", tmp_path / "real.jsonl", tmp_path / "store"
    write(numbered, [message(i) for i in range(3)])
    write(real, [message(i, queue_id=0, queue_offset=i, commitlog_offset=i) for i in range(3)])
    BrokerLog().append(3).write(store)
    for first, second, reason in (
        (numbered, real, "give all messages with a new --warehouse"),
        (real, numbered, "give all messages with a new --warehouse"),
        (numbered, store, "a new --warehouse"),
    ):
        warehouse = tmp_path / f"{first.name}_{second.name}"
        assert run(ingest, "--store", first, "--warehouse", warehouse).code == 0
        ended = run(ingest, "--store", second, "--warehouse", warehouse)
        assert (ended.code, ended.error.count("\n")) == (2, 1), ended
        assert reason in ended.error
    assert run(ingest, "--store", store, "--warehouse", tmp_path / "numbered.jsonl_store", "--new-epoch").code == 0


@pytest.mark.parametrize("names", [("queue_id",), ("queue_id", "queueOffset"), ("commitLogOffset",)])
def test_some_of_a_position_is_told_at_once(tmp_path: Path, run: Run, names: Sequence[str]) -> None:
    write(tmp_path / "log.jsonl", [message(i, **dict.fromkeys(names, i)) for i in range(3)])
    ended = run(ingest, "--store", tmp_path / "log.jsonl", "--warehouse", tmp_path / "w")
    assert (ended.code, ended.error.count("\n")) == (2, 1)
    assert "write all three of queue_id, queue_offset, commitlog_offset, or none of them" in ended.error


def test_a_line_with_a_position_in_a_log_without_is_quarantined(tmp_path: Path) -> None:
    """And the other way round. The first thousand lines say which log it is."""
    real = {"queue_id": 0, "queue_offset": 0, "commitlog_offset": 9}
    for name, first, other in (("numbered", {}, real), ("real", real, {})):
        lines = [message(0, **first)] + [{}] * 1_100 + [message(1, **other)]
        (tmp_path / name).mkdir()
        write(tmp_path / name / "log.jsonl", lines)
        ingest.main(["--store", str(tmp_path / name), "--warehouse", str(tmp_path / f"{name}_w")])
        reasons = {row["offset"]: row["reason"] for row in rows_of(tmp_path / f"{name}_w", "quarantine")}
        reason = "queue_id is given, but the log's first messages have none" if name == "numbered" else "no queue_id"
        assert reasons[1_102] == reason
        assert len(list(rows_of(tmp_path / f"{name}_w", "commitlog", "topic"))) == 1


def camel_case(name: str) -> str:
    names = {"commitlog_offset": "commitLogOffset", "body_crc": "bodyCRC"}
    first, *others = name.split("_")
    return names.get(name, first + "".join(map(str.title, others)))


def test_the_names_and_bodies_of_rocketmqs_json(replayed: Callable[[str], Warehouse], tmp_path: Path) -> None:
    """MessageExt as JSON has bodies in base64."""
    export.main(["commitlog", "--warehouse", replayed("small").location, "--output", str(tmp_path / "log.jsonl")])
    lines = []
    for text in (tmp_path / "log.jsonl").read_text().splitlines():
        line = {camel_case(name): value for name, value in json.loads(text).items() if value is not None}
        if "body" in line:
            line["body"] = base64.b64encode(bytes.fromhex(line["body"])).decode()
        lines.append(line)
    write(tmp_path / "log.jsonl", lines)
    made, store = without_runs(night_on(tmp_path / "log.jsonl", tmp_path / "w")), without_runs(replayed("small"))
    assert differing(made, {name: store[name] for name in ("consumequeue", "commitlog")}) == []
    assert made["deliveries"] == store["deliveries"]
    assert not made["quarantine"]


def test_the_dashboards_message_with_its_body_as_a_text(tmp_path: Path) -> None:
    view = {
        "queueId": 3, "storeSize": 200, "queueOffset": 5, "sysFlag": 0, "bornTimestamp": TIME - 1,
        "bornHost": "10.0.0.7:5000", "storeTimestamp": TIME, "storeHost": "10.0.0.8:10911", "msgId": "0A00", "flag": 0,
        "commitLogOffset": 1_000, "bodyCRC": 7, "reconsumeTimes": 0, "preparedTransactionOffset": 0, "topic": "T",
        "properties": {"KEYS": "k", "price": 1.50}, "messageBody": "你好",
    }  # fmt: skip
    write(tmp_path / "log.jsonl", [view])
    ingest.main(["--store", str(tmp_path / "log.jsonl"), "--warehouse", str(tmp_path / "w")])
    (row,) = rows_of(tmp_path / "w", "commitlog")
    fields = {name: row[name] for name in ("queue_id", "queue_offset", "commitlog_offset", "store_size", "born_host")}
    assert fields == {
        "queue_id": 3, "queue_offset": 5, "commitlog_offset": 1_000, "store_size": 200, "born_host": "10.0.0.7:5000",
    }  # fmt: skip
    assert (row["properties"], row["body"]) == ({"KEYS": "k", "price": "1.5"}, "你好".encode())
    assert (row["body_crc"], row["body_is_damaged"]) == (7, False)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ({"Topic": "T", "time": TIME}, "no topic: rename Topic"),
        ({"topic": "T", "time": TIME // 1000}, "store_timestamp is in seconds"),
        ({"topic": "T", "properties": {}}, "no store_timestamp"),
        ({"topic": "T", "time": TIME, "properties": "a=b"}, "properties is not a JSON object"),
        ({"topic": "T", "time": TIME, "sysFlag": "0"}, "sysFlag is not a whole number of 32 bits"),
    ],
)
def test_one_wrong_field_is_told_at_once(tmp_path: Path, run: Run, line: dict[str, Any], reason: str) -> None:
    count = message_log.FIRST_LINES + 500
    write(tmp_path / "log.jsonl", [line] * count)
    ended = run(nightly, "--store", tmp_path / "log.jsonl", "--warehouse", tmp_path / "w")
    assert (ended.code, ended.out, ended.error.count("\n")) == (2, "", 1)
    assert f"log.jsonl: none of its first 1,000 lines is a message: {reason}" in ended.error
    write(tmp_path / "log.jsonl", [message(0), *[line] * count])
    ingest.main(["--store", str(tmp_path / "log.jsonl"), "--warehouse", str(tmp_path / "w")])
    assert len(list(rows_of(tmp_path / "w", "quarantine", "offset"))) == count


def test_rows_that_are_no_messages_are_told_at_once(tmp_path: Path, run: Run) -> None:
    count = message_log.FIRST_LINES + 500
    pq.write_table(pa.table({"topic": ["T"] * count, "time": [TIME // 1000] * count}), tmp_path / "log.parquet")
    ended = run(nightly, "--store", tmp_path / "log.parquet", "--warehouse", tmp_path / "w")
    assert (ended.code, ended.out, ended.error.count("\n")) == (2, "", 1)
    assert "none of its first 1,000 rows is a message: store_timestamp is in seconds" in ended.error


@pytest.mark.parametrize("name", ["msgId", "msg_id"])
def test_a_message_is_asked_for_by_the_id_that_the_log_gives(tmp_path: Path, run: Run, name: str) -> None:
    """As the dashboard shows it, which need not be in the properties."""
    ids = ["7F000001000018B4AAC2000000000001", "0a000007000078bf0000000000000384", "order 7"]
    write(tmp_path / "log.jsonl", [message(i, topic="T", **{name: id}) for i, id in enumerate(ids)])
    (tmp_path / "s.yaml").write_text("- {group: cg, topic: T, tag: paid}\n")
    given = ("--store", tmp_path / "log.jsonl", "--subscriptions", tmp_path / "s.yaml", "--warehouse", tmp_path / "w")
    assert run(nightly, *given).code == 0
    for number, id in enumerate(ids):
        ended = run(explain, "--warehouse", tmp_path / "w", "--message", id, "--group", "cg")
        assert ended.code == 0, ended.error
        assert f"k{number}  T 0/{number} → cg" in ended.out
