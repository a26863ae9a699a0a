"""JSON lines of a message log: the compiled loops say of a line what Python's own decoder says, or leave it to that."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from schemas.commitlog import COMMITLOG, view
from schemas.messages import message_lines
from schemas.messages.commitlog_rows import Bodies
from schemas.messages.message_lines import form_of_lines, read_by_decoder, read_by_loops
from schemas.messages.message_log_rows import KNOWN, LogForm, MessageBatch, MessageLogRows
from tests.depth import examples

POSITIONS = {"queue_id": 0, "queue_offset": 0, "commitlog_offset": 0}
GOOD: dict[str, Any] = {"topic": "T", "store_timestamp": 1_795_237_513_466} | POSITIONS
VIEWED = ["topic", "tags", "keys", "properties", "body", "body_is_damaged", *(n for n in KNOWN if n in (
    "queue_id", "queue_offset", "store_size", "store_timestamp", "born_timestamp", "msg_id", "born_host", "flag",
    "sys_flag",
))]  # fmt: skip


def rows_of(batches: list[MessageBatch]) -> dict[int, dict[str, Any]]:
    """The messages as readers of commitlog see them, by line number."""
    rows_by_line: dict[int, dict[str, Any]] = {}
    for batch in batches:
        numbers = {"queue_id": pa.int32(), "queue_offset": pa.int64(), "commitlog_offset": pa.int64()}
        missing = [name for name in numbers if name not in batch.columns or batch.columns[name].null_count]
        places = batch.with_columns({name: pa.array(batch.lines, numbers[name]) for name in missing})
        made = MessageLogRows("run", Bodies.KEEP).rows(places)
        rows = pa.Table.from_batches([made]).cast(COMMITLOG.file_schema)
        rows_by_line |= dict(
            zip(batch.lines.tolist(), view(rows, VIEWED).to_pylist(maps_as_pydicts="strict"), strict=True)
        )
    return rows_by_line


def assert_same(content: bytes, form: LogForm) -> list[MessageBatch]:
    batches, rejected = read_by_loops(content, 1, form)
    expected, expected_rejected = read_by_decoder(content, 1, form)
    assert rows_of(batches) == rows_of(expected)
    assert rejected == expected_rejected
    return batches


VALUES = (
    '"a"', '"é"', '"\\u00e9"', '"\\ud83d\\ude00"', '"\\ud83d"', '"\\ude00x"', '"a\\nb\\"\\\\\\/"', '"\\u0001"',
    '"\\u0002"', '"\\u0000"', '""', "null", "true", "false", "1.50", "-0", "1e5", "1E+05", "01", "1.", ".5", "-", "+1",
    "NaN", "Infinity", "-Infinity", "123456789012345678901234567890", "9223372036854775807", "-9223372036854775808",
    "2147483648", "7", "[1, {\"a\": []}]", '{"a": 1.50, "a": null}', "tru", "nulll", '"abc', '"\t"', "[1,]", '"\\x"',
    "{}", "[]", '{"a" 1}', '"2026-11-21T05:05:13.466Z"', '"00fF"', '"abc"', '"xyz"', '"TWFu"', '"TQ=="', '"TQ=A"',
    "12345678901234567", '"' + "x" * 70 + '"', '"12345678\\n"',
)  # fmt: skip
REGULAR = (
    '"a"',
    '"é"',
    '"\\u00e9"',
    '"\\ud83d\\ude00"',
    '"a\\nb"',
    '""',
    "null",
    "true",
    "false",
    "1.50",
    "-0",
    "1e5",
    "7",
)
BLANKS = ("", "", "", " ", "\t", "\r")


def value(rng: random.Random) -> str:
    return rng.choice(VALUES if rng.random() < 0.05 else REGULAR)


def random_line(rng: random.Random) -> str:
    """A message of which some things are changed."""
    fields = [(name, json.dumps(value)) for name, value in GOOD.items()]
    names = [*KNOWN, "storeTimestamp", "queueId", "other", "Tags", "to\\u0070ic", "msgId", "messageBody", "time"]
    pairs = [f'"{rng.choice(["a", "b", "é", "", "TAGS"])}":{value(rng)}' for _ in range(rng.randrange(4))]
    fields.append(("properties", "{" + f"{rng.choice(BLANKS)},".join(pairs) + "}"))
    for _ in range(rng.choice([0, 1, 1, 2])):
        name = rng.choice(names)
        is_odd = rng.random() < 0.2
        fields.append(
            (name, rng.choice(VALUES) if is_odd else json.dumps(GOOD.get(name, 7) if name != "body" else "00ff"))
        )
    if rng.random() < 0.1:
        fields.pop(rng.randrange(len(fields)))
    rng.shuffle(fields)
    parts = [f'{rng.choice(BLANKS)}"{name}"{rng.choice(BLANKS)}:{rng.choice(BLANKS)}{value}' for name, value in fields]
    line = rng.choice([*BLANKS, "\v"]) + "{" + ",".join(parts) + "}" + rng.choice(BLANKS)
    if rng.random() < 0.05:
        at = rng.randrange(len(line))
        line = line[:at] + rng.choice(['"', "\\", "{", "}", ",", ":", "\udcff", "\x01", ""]) + line[at + 1 :]
    return line


@pytest.mark.parametrize(
    "form", [LogForm(), LogForm(body="base64"), LogForm(body="text"), LogForm(has_positions=False)]
)
def test_random_lines(form: LogForm) -> None:
    rng = random.Random(7)
    taken = 0
    for _ in range(examples(30, 1_000)):
        lines = [random_line(rng) for _ in range(40)]
        if not form.has_positions:
            lines = [
                line.replace('"queue_id"', '"a"').replace('"queue_offset"', '"b"').replace('"commitlog_offset"', '"c"')
                for line in lines
            ]
        content = "\n".join(lines).encode("utf-8", "surrogateescape")
        if rng.random() < 0.8:
            content = content.replace(b"\xff", b"")
        taken += sum(map(len, assert_same(content, form)))
    assert taken > 300


def test_the_loops_read_regular_lines_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a broker's tools write is read without Python's decoder."""

    def unused(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(message_lines, "_decoded", unused)
    lines = [
        GOOD | {"properties": {"TAGS": "a", "price": 1.5, "vip": True, "city": "上海", "gone": None}, "tags": "a"},
        GOOD | {"body": "00ff", "bornHost": {"address": "10.0.0.1", "port": 1}, "storeHostBytes": [1, [2], {}]},
        {"topic": "T", "storeTimestamp": 1_795_237_513_466, "queueId": 1, "queueOffset": 2, "commitLogOffset": 3},
    ]  # fmt: skip
    del lines[1]["bornHost"]
    for escaped in (True, False):
        content = "\n".join(json.dumps(line, ensure_ascii=escaped) for line in lines).encode()
        (batch,), rejected = read_by_loops(content, 1, LogForm())
        assert (batch.lines.tolist(), rejected) == ([1, 2, 3], [])
        assert rows_of([batch])[1]["properties"] == {"TAGS": "a", "price": "1.5", "vip": "true", "city": "上海"}


@pytest.mark.parametrize(
    ("bodies", "form"),
    [
        (["00ff", "AB"], "hex"), (["00ff", "xyz"], "hex"), (["TWFu", "TQ=="], "base64"), (["hello", "TQ=="], "text"),
        ([], "hex"), (['{"a": 1}', "00"], "hex"), (["你好", "x y"], "text"),
    ],
)  # fmt: skip
def test_bodies_have_the_form_of_the_first_ones(bodies: list[str], form: str) -> None:
    lines = [json.dumps(GOOD | {"body": body}).encode() for body in bodies]
    assert form_of_lines(lines)[1] == form


@pytest.mark.parametrize("read", [read_by_loops, read_by_decoder])
@pytest.mark.parametrize(
    ("form", "body", "octets"),
    [("hex", "00fF", b"\x00\xff"), ("hex", "abc", b"\x0a\xbc"), ("base64", "AP8=", b"\x00\xff"),
        ("text", "é", "é".encode()),
    ],
)  # fmt: skip
def test_a_body_in_each_form(read: Callable[..., Any], form: str, body: str, octets: bytes) -> None:
    batches, _ = read(json.dumps(GOOD | {"body": body}).encode(), 1, LogForm(body=form))
    assert rows_of(batches)[1]["body"] == octets


@pytest.mark.parametrize("name", ["tags", "keys", "msg_id", "born_host", "topic"])
def test_an_empty_text_is_a_text(name: str) -> None:
    lines = [GOOD | {name: ""}, GOOD | {name: None, "topic": "T"}, GOOD | {name: "x"}]
    assert_same("\n".join(map(json.dumps, lines)).encode(), LogForm())


def test_a_log_without_one_of_its_times_has_the_other() -> None:
    """A field of another name is not in its place."""
    line = GOOD | {"born_timestamp": GOOD["store_timestamp"], "Store_Timestamp": 7}
    del line["store_timestamp"]
    (batch,) = assert_same(json.dumps(line).encode(), LogForm())
    assert len(batch) == 1


@pytest.mark.parametrize("read", [read_by_loops, read_by_decoder])
def test_a_missing_field_is_the_reason_before_wrong_values(read: Callable[..., Any]) -> None:
    lines: list[dict[str, Any]] = [{"queue_id": "x"}, {"Topic": "T", "body": "xyz"}, {"topic": None}]
    _, rejected = read("\n".join(json.dumps(GOOD | {"topic": None} | line) for line in lines).encode(), 1, LogForm())
    assert [row.reason for row in rejected] == ["no topic", "no topic: rename Topic", "no topic"]
