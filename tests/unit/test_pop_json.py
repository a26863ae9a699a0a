"""Bodies of the record of pops: the scanner reads of them what Python's decoder does."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pytest

from filtering.pops.handed_out import NONE
from schemas.messages.pop_json import LISTS, NUMBERS, TEXTS, read_bodies
from schemas.rocketmq_store.segments import SLACK

CHECKPOINT = (
    '{"bm":0,"bn":"broker-a","c":"pop_cg","d":[0,3,12],"it":60000,"n":3,"pt":1795730693283,"q":2,"ro":0,"so":123,'
    '"sp":false,"t":"%RETRY%pop_cg_T","reviveTime":1795730753283}'
)
ACK = '{"ao":7,"bn":"broker-a","c":"cg","pt":1795730693283,"q":0,"so":7,"sp":true,"t":"T"}'
BATCH = '{"aol":[7,8],"bn":"broker-a","c":"cg","pt":1795730693283,"q":0,"so":7,"t":"T"}'


def values_of(bodies: list[str]) -> list[dict[str, Any] | None]:
    """What is read of each body; None of what is no JSON object."""
    encoded = [body.encode("utf-8", "surrogateescape") for body in bodies]
    lengths = np.array([len(body) for body in encoded], np.int64)
    # As in a log, other bytes follow each body.
    log = np.frombuffer(b"".join(body + b"\x05" for body in encoded) + bytes(SLACK), np.uint8)
    starts = np.cumsum(lengths + 1) - lengths - 1
    bodies_read, is_read = read_bodies(log, starts, lengths)
    rows: list[dict[str, Any] | None] = []
    for row in range(len(bodies)):
        values: dict[str, Any] = {name: int(bodies_read.of(name)[row]) for name in NUMBERS}
        for name in TEXTS:
            has_text = bodies_read.sizes(name)[row] > 0
            values[name] = bodies_read.text(name, np.array([row]))[0].as_py() if has_text else None
        for name in LISTS:
            first, length = bodies_read.of(name)[row], bodies_read.sizes(name)[row]
            values[name] = bodies_read.listed[first : first + length].tolist() if length else []
        rows.append(values if is_read[row] else None)
    return rows


def expected(body: str) -> dict[str, Any]:
    values = json.loads(body)
    fields = {name: values.get(name, NONE) for name in NUMBERS} | {name: values.get(name) or None for name in TEXTS}
    return fields | {name: values.get(name, []) for name in LISTS}


@pytest.mark.parametrize(
    "body",
    [
        CHECKPOINT,
        ACK,
        BATCH,
        "{}",
        CHECKPOINT.replace("[0,3,12]", "[]"),
        CHECKPOINT.replace('"c"', '"rp":"1","c"'),
        CHECKPOINT.replace('"c":', '"c" : '),
        CHECKPOINT.replace("pop_cg", "größe"),
        CHECKPOINT.replace("pop_cg", 'a \\"quoted\\" one'),
        CHECKPOINT.replace('"c"', '"\\u0063"'),
        CHECKPOINT.replace('"bm":0', '"bm":1.5e3'),
        CHECKPOINT.replace('"bm":0', '"bm":null'),
        CHECKPOINT.replace('"bm":0', '"more":{"c":"other","d":[1]}'),
        CHECKPOINT.replace("[0,3,12]", "[0, -3]"),
        CHECKPOINT.replace('"so":123', '"so":1234567890123456789'),
    ],
)
def test_a_body_is_read_as_json(body: str) -> None:
    (alone,) = values_of([body])
    assert alone == expected(body)
    assert values_of([ACK, body, CHECKPOINT, body]) == [expected(ACK), alone, expected(CHECKPOINT), alone]


@pytest.mark.parametrize(
    "body",
    [
        "",
        "[]",
        CHECKPOINT[:-1],
        CHECKPOINT[:-1] + ",}",
        CHECKPOINT.replace('"q":2', '"q":02'),
        CHECKPOINT.replace('"q":2', '"q":2.5'),
        CHECKPOINT.replace('"so":123', '"so":"123"'),
        CHECKPOINT.replace('"pop_cg"', "7"),
        CHECKPOINT.replace("[0,3,12]", "[0,3"),
        CHECKPOINT.replace("[0,3,12]", "[0,3,]"),
        CHECKPOINT.replace("[0,3,12]", "3"),
        CHECKPOINT.replace("false", "fals"),
        CHECKPOINT.replace('"bm":0', '"bm":'),
        CHECKPOINT.replace('"bm":0', '"bm":}'),
        CHECKPOINT.replace('"bm":0', "bm:0"),
        CHECKPOINT.replace('"bm":0', '"bm":NaN'),
        CHECKPOINT.replace('"n":3', '"n":3,"n":3'),
        CHECKPOINT.replace("pop_cg", "\udcff"),
    ],
)
def test_a_body_that_a_broker_does_not_write_is_not_read(body: str) -> None:
    assert values_of([CHECKPOINT, body, ACK]) == [expected(CHECKPOINT), None, expected(ACK)]


def by_python(body: str) -> dict[str, Any] | None:
    """What Python's decoder reads, if each known field is there once at the most, and of its kind."""
    pairs: list[list[tuple[str, Any]]] = []

    def kept(of_object: list[tuple[str, Any]]) -> dict[str, Any]:
        pairs.append(of_object)
        return dict(of_object)

    try:
        values = json.loads(body, object_pairs_hook=kept)
    except ValueError:
        return None
    known = [name for name, _ in pairs[-1] if name in (*NUMBERS, *TEXTS, *LISTS)]

    def is_whole(value: Any) -> bool:
        return type(value) is int

    fits = (
        all(is_whole(values[name]) for name in NUMBERS if name in values)
        and all(isinstance(values[name], str) for name in TEXTS if name in values)
        and all(isinstance(values[name], list) and all(map(is_whole, values[name])) for name in LISTS if name in values)
    )
    return expected(body) if len(set(known)) == len(known) and fits else None


def test_random_bodies_are_read_as_python_reads_them() -> None:
    rng = random.Random(3)
    bodies = []
    for _ in range(3_000):
        body = rng.choice([CHECKPOINT, ACK, BATCH])
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(1, len(body) - 1)
            body = (
                body[:at]
                + rng.choice(["", '"', ",", ":", "[", "]", "0", "9", "-", "\\", "e", "c", " "])
                + body[at + 1 :]
            )
        bodies.append(body)
    read = values_of(bodies)
    assert [pair for pair in zip(bodies, read, map(by_python, bodies), strict=True) if pair[1] != pair[2]] == []
    assert 300 < sum(row is not None for row in read) < 2_700
