"""Nights of brokers whose messages have entries in LMQs, the queues that INNER_MULTI_DISPATCH names."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobs import audit, dispatch, explain, ingest, maintain, nightly, register, what_if
from jobs import deliver as deliver_job
from schemas.rocketmq_store.queue_files import ENTRY
from tests.broker_log import BROKER_CONF, EVERY, FIRST_TIME, BrokerLog
from tests.captures import capture, rows
from tests.nights.commands import Run, delivered, received, rows_of
from tests.nights.growing_broker import BEFORE, event
from tests.records import record

SUBSCRIPTIONS = """
- {group: all, topic: "%LMQ%x", tag: "*", consume_from: first}
- {group: tag_a, topic: "%LMQ%x", tag: a, consume_from: first}
- {group: eu, topic: "%LMQ%x", sql: "region = 'eu'", consume_from: first}
"""
ASKED = {"*": "all", "a": "tag_a", "region = 'eu'": "eu"}


def given(folder: Path, subscriptions: str = SUBSCRIPTIONS, config: str = BROKER_CONF) -> tuple[object, ...]:
    (folder / "s.yaml").write_text(subscriptions)
    (folder / "broker.conf").write_text(config)
    return "--subscriptions", folder / "s.yaml", "--broker-config", folder / "broker.conf"


@pytest.mark.parametrize("name", ["4.9.7", "5.5.0"])
def test_what_a_real_broker_returned(name: str, run: Run, tmp_path: Path) -> None:
    """Each pull asked for the messages of an LMQ from its first one on."""
    store = capture("lmq") / name / "store"
    both = SUBSCRIPTIONS + SUBSCRIPTIONS.replace("%x", "%y")
    config = f"{BROKER_CONF}enableMultiDispatch=true\nenableLmq=true\n"
    assert run(nightly, "--store", store, "--warehouse", tmp_path / "w", *given(tmp_path, both, config)).code == 0
    keys = {row["commitlog_offset"]: row["keys"] for row in rows_of(tmp_path / "w", "commitlog")}
    keys_by_place: dict[tuple[str, str], list[tuple[int, str]]] = {}
    for row in rows_of(tmp_path / "w", "deliveries"):
        place = (row["topic"], row["consumer_group"])
        keys_by_place.setdefault(place, []).append((row["queue_offset"], keys[row["commitlog_offset"]]))
    pulled = {(row["topic"], ASKED[row["asked"]]): row["keys"] for row in rows("lmq", f"{name}/pulls")}
    assert {place: [key for _, key in sorted(messages)] for place, messages in keys_by_place.items()} == pulled
    offsets = [row for row in rows_of(tmp_path / "w", "current_offsets") if row["topic"] == "%LMQ%x"]
    assert {row["queue_end"] for row in offsets} == {len(pulled["%LMQ%x", "all"])}
    committed = {row["committed"] for row in offsets if row["consumer_group"] == "cg_lmq"}
    assert committed == {3}, "of config/lmqConsumerOffset.json"


@pytest.mark.parametrize("name", ["4.9.7", "4.9.7_without_lmq", "5.1.4", "5.5.0"])
def test_the_entries_are_those_of_the_broker(name: str, run: Run, tmp_path: Path) -> None:
    store = capture("multi_dispatch") / name
    config = capture("multi_dispatch") / "broker.conf"
    more = ("--broker-config", config, "--rocketmq-version", name.partition("_")[0])
    assert run(nightly, "--store", store, "--warehouse", tmp_path / "w", *more).code == 0
    entries_by_queue: dict[str, list[tuple[int, int, int]]] = {}
    for row in sorted(rows_of(tmp_path / "w", "consumequeue"), key=lambda row: row["queue_offset"]):
        queue = f"{row['topic']}/{row['queue_id']}"
        entries_by_queue.setdefault(queue, []).append((row["commitlog_offset"], row["size"], row["tags_code"]))
    files = (store / "consumequeue").rglob("%LMQ%*/**/00000000000000000000")
    on_disk = {}
    for file in files:
        entries = np.fromfile(file, ENTRY)
        on_disk[str(file.parent.relative_to(store / "consumequeue"))] = entries[entries["size"] > 0].tolist()
    assert on_disk
    assert {queue: entries for queue, entries in entries_by_queue.items() if queue.startswith("%LMQ%")} == on_disk


def lmq_log(nights: int) -> list[BrokerLog]:
    """A log as it grows night by night. Names stand twice, so entries are not at the offsets that messages note."""
    log, noted, grown = BrokerLog(), 0, []
    for night in range(nights):
        for number in range(3):
            names, offsets = ("%LMQ%x,%LMQ%x", f"{noted},{noted}") if number == 1 else ("%LMQ%x", str(noted))
            region = "eu" if number % 2 == 0 else "us"
            log.append(
                queue_id=number % 2, TAGS="ab"[night % 2], region=region, INNER_MULTI_DISPATCH=names,
                INNER_MULTI_QUEUE_OFFSET=offsets,
            )  # fmt: skip
            noted += names.count("x")
        log.append(2, TAGS="a", region="eu")
        copy = BrokerLog()
        copy.data, copy.queues = log.data, log.queues
        grown.append(copy)
    return grown


def lmq_entries(warehouse: Path) -> Sequence[dict[str, Any]]:
    return [
        {name: value for name, value in row.items() if name != "run"}
        for row in rows_of(warehouse, "consumequeue")
        if row["topic"].startswith("%LMQ%")
    ]


def test_nights_and_steps_make_the_entries_of_one_night(run: Run, tmp_path: Path) -> None:
    logs, more = lmq_log(3), given(tmp_path)
    for log in logs:
        nights = ("--store", log.write(tmp_path / "store"), "--warehouse", tmp_path / "nights")
        assert run(nightly, *nights, *more).code == 0
    store = ("--store", tmp_path / "store")
    assert run(nightly, *store, "--warehouse", tmp_path / "one", *more).code == 0
    steps = ("--warehouse", tmp_path / "steps")
    assert run(ingest, *steps, *store, *more[2:]).code == 0
    assert run(register, *steps, *more).code == 0
    assert run(dispatch, *steps).code == 0
    assert run(deliver_job, *steps).code == 0
    entries = lmq_entries(tmp_path / "one")
    assert [row["queue_offset"] for row in entries] == list(range(9))
    for name in ("nights", "steps"):
        assert lmq_entries(tmp_path / name) == entries, name
        assert delivered(tmp_path / name) == delivered(tmp_path / "one"), name
    assert run(nightly, *store, "--warehouse", tmp_path / "nights", *more, "--redo-from", 0).code == 0
    assert lmq_entries(tmp_path / "nights") == entries
    assert received(tmp_path / "nights", "all") == list(range(9))
    assert received(tmp_path / "nights", "tag_a") == [0, 1, 2, 6, 7, 8]
    assert received(tmp_path / "nights", "eu") == [0, 2, 3, 5, 6, 8]
    audited = run(audit, "--warehouse", tmp_path / "nights", "--all")
    assert (audited.code, audited.error) == (0, ""), audited.out


def test_a_group_that_comes_later(run: Run, tmp_path: Path) -> None:
    """It gets the entries of earlier nights from the tables."""
    logs, warehouse = lmq_log(2), ("--warehouse", tmp_path / "w")
    assert run(nightly, "--store", logs[0].write(tmp_path / "store"), *warehouse, *given(tmp_path)).code == 0
    later = f'{SUBSCRIPTIONS}- {{group: late, topic: "%LMQ%x", sql: "region = \'us\'", consume_from: first}}'
    assert run(nightly, "--store", logs[1].write(tmp_path / "store"), *warehouse, *given(tmp_path, later)).code == 0
    assert received(tmp_path / "w", "late") == [1, 4]


def test_answers_on_an_lmq(run: Run, tmp_path: Path) -> None:
    warehouse = ("--warehouse", tmp_path / "w")
    store = lmq_log(1)[0].write(tmp_path / "store")
    more = f"{SUBSCRIPTIONS}- {{group: a, topic: T, sql: \"region = 'eu'\"}}\n- {{group: own, topic: T, tag: '*'}}"
    assert run(nightly, "--store", store, *warehouse, *given(tmp_path, more)).code == 0
    asked = ("--topic", "T", "--queue", 1, "--offset", 0, "--json")
    explained = [json.loads(line) for line in run(explain, *warehouse, *asked).out.splitlines()]
    assert {
        row["consumer_group"]: (row["message"]["topic"], row["message"]["queue_offset"], row["outcome"])
        for row in explained
    } == {
        "a": ("T", 0, "STOPPED_BY_BIT_MAP"),
        "all": ("%LMQ%x", 1, "DELIVERED"),
        "eu": ("%LMQ%x", 1, "STOPPED_BY_EXPRESSION"),
        "own": ("T", 0, "DELIVERED"),
        "tag_a": ("%LMQ%x", 1, "DELIVERED"),
    }
    place = ("--topic", "%LMQ%x", "--queue", 0, "--offset", 1, "--group", "all")
    assert "%LMQ%x 0/1 → all: delivered" in run(explain, *warehouse, *place).out
    changed = run(what_if, *warehouse, "--group", "eu", "--topic", "%LMQ%x", "--sql", "region = 'us'", "--json")
    gained = json.loads(changed.out)["changes"][0]["gained_messages"]["samples"]
    assert [(row["queue_id"], row["queue_offset"], row["properties"]["region"]) for row in gained] == [(0, 1, "us")]


def test_messages_with_more_properties_than_columns(run: Run, tmp_path: Path) -> None:
    properties = {f"p{number}": "v" for number in range(40)} | {"region": "eu"}
    properties |= {"INNER_MULTI_DISPATCH": "%LMQ%x", "INNER_MULTI_QUEUE_OFFSET": "0"}
    text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items()).encode()
    store = tmp_path / "store"
    (store / "commitlog").mkdir(parents=True)
    (store / "commitlog" / f"{0:020d}").write_bytes(record(0, properties=text))
    assert run(nightly, "--store", store, "--warehouse", tmp_path / "w", *given(tmp_path)).code == 0
    assert (received(tmp_path / "w", "eu"), received(tmp_path / "w", "tag_a")) == ([0], [])


def test_a_message_that_is_repaired_later(run: Run, tmp_path: Path) -> None:
    log, whole = BrokerLog(), BrokerLog()
    for number in range(6):
        log.append(INNER_MULTI_DISPATCH="%LMQ%x", INNER_MULTI_QUEUE_OFFSET=str(number))
        if number == 3:
            whole.data = log.data
            log.damage(2)
            night = ("--store", log.write(tmp_path / "store"), "--warehouse", tmp_path / "w")
            assert run(nightly, *night, *given(tmp_path)).code == 0
            log.data = whole.data
    assert received(tmp_path / "w", "all") == [0, 1, 3]
    log.write(tmp_path / "store")
    assert run(nightly, *night, *given(tmp_path)).code == 0
    assert received(tmp_path / "w", "all") == list(range(6))
    assert sorted(row["queue_offset"] for row in lmq_entries(tmp_path / "w")) == list(range(6))
    warehouse = ("--warehouse", tmp_path / "w")
    assert run(audit, *warehouse, "--all").code == 0
    next((tmp_path / "w" / "delivery_blocks").rglob("*.parquet")).unlink()
    assert run(maintain, "--rebuild", *warehouse).code == 0
    assert received(tmp_path / "w", "all") == list(range(6))
    assert run(audit, *warehouse, "--all").code == 0


def test_an_empty_body_in_an_lmq_is_uncertain_for_older_clients(run: Run, tmp_path: Path) -> None:
    log = BrokerLog()
    for at, body in enumerate((b"body", b"", b"body")):
        log.append(body=body, INNER_MULTI_DISPATCH="%LMQ%x", INNER_MULTI_QUEUE_OFFSET=str(at))
    store, more = log.write(tmp_path / "store"), ("--rocketmq-version", "4.9.7")
    assert run(nightly, "--store", store, "--warehouse", tmp_path / "w", *given(tmp_path), *more).code == 0
    stats = [row for row in rows_of(tmp_path / "w", "delivery_stats") if row["consumer_group"] == "all"]
    assert sum(row["uncertain"] for row in stats) == 3
    place = ("--topic", "%LMQ%x", "--queue", 0, "--offset", 2, "--group", "all")
    answer = " ".join(run(explain, "--warehouse", tmp_path / "w", *place).out.split())
    assert "offset 1, which may have been in the same pull, has no body" in answer


def test_a_reset_by_time_of_an_lmq(run: Run, tmp_path: Path) -> None:
    """The third of its three entries was stored then; the first night's log has two more messages."""
    register = event(BEFORE, "register", "cg", topic="%LMQ%x", type="TAG", expression="*", consume_from="first")
    reset = event(FIRST_TIME + 4 * EVERY + 1, "reset_offset", "cg", topic="%LMQ%x", to=FIRST_TIME + 2 * EVERY)
    for log, events in zip(lmq_log(2), ([register], [register, reset]), strict=True):
        (tmp_path / "events.jsonl").write_text("\n".join(events), "utf-8")
        store = log.write(tmp_path / "store")
        config = given(tmp_path)[2:]
        more = ("--warehouse", tmp_path / "w", "--subscriptions", tmp_path / "events.jsonl", *config)
        assert run(nightly, "--store", store, *more).code == 0
    assert received(tmp_path / "w", "cg") == [0, 1, 2, 2, 3, 4, 5]
