"""What the answers say about consumption that is not replayed: POP and other storages."""

import json
from pathlib import Path
from typing import Any

import pytest

from jobs import explain, lag, nightly
from schemas.messages.pop_json import INCOMPLETE, NOT_A_RECORD, NOT_JSON
from schemas.rocketmq_store.not_replayed import NotReplayed
from schemas.storage import Storage
from tests.nights.commands import Run, rows_of
from tests.records import log_of

ORDER: dict[str, Any] = {"properties": b"KEYS\x01ord-1\x02"}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    store = tmp_path / "store"
    write(store, "commitlog/00000000000000000000", log_of(ORDER))
    return store


def write(store: Path, name: str, content: bytes) -> None:
    (store / name).parent.mkdir(parents=True, exist_ok=True)
    (store / name).write_bytes(content)


def summary(
    run: Run,
    store: Path,
    groups: str = "- {group: cg_paid, topic: OrderEvents, tag: '*'}",
    begin: str = "not replayed",
) -> list[str]:
    """The lines of a night's summary that begin so."""
    (store.parent / "s.yaml").write_text(groups)
    given = ("--store", store, "--warehouse", store.parent / "w", "--subscriptions", store.parent / "s.yaml")
    ended = run(nightly, *given, "--strict")
    assert (ended.code, "needs attention" in ended.error) == (0, False)
    return [line for line in ended.out.splitlines() if line.startswith(begin)]


def test_a_store_that_shows_nothing_of_it(run: Run, store: Path) -> None:
    assert summary(run, store) == []


def test_groups_that_consume_by_pop(run: Run, store: Path) -> None:
    modes = {
        name: {"consumerGroup": name, "mode": "POP", "popShareQueueNum": 8} for name in ("cg_paid", "cg_1", "cg_2")
    }
    modes |= {"cg_pull": {"mode": "PULL"}}
    table = {"messageRequestModeMap": {"OrderEvents": modes, "Other": {"cg_3": {"mode": "POP"}}}}
    write(store, "config/messageRequestMode.json", json.dumps(table).encode())
    named = "cg_1 on OrderEvents, cg_2 on OrderEvents, cg_3 on Other and 1 more"
    inferred = "not written down by the broker, and inferred: what groups pop"
    assert summary(run, store, begin=inferred) == [f"{inferred}, of {named}"]
    asked = ("--warehouse", store.parent / "w", "--message", "ord-1", "--group", "cg_paid")
    doubt = "uncertain   the group pops the topic, and the broker did not write down what it got"
    assert doubt in run(explain, *asked).out


def test_groups_of_which_the_subscriptions_say_that_they_broadcast(run: Run, store: Path) -> None:
    """As mqadmin consumerConnection prints MessageModel: BROADCASTING."""
    groups = """
- {group: cg_paid, topic: OrderEvents, tag: "*"}
- {group: cg_all, topic: OrderEvents, tag: "*", message_model: broadcasting}
- {group: cg_each, topic: OrderEvents, sql: "a = 1", message_model: broadcasting}
"""
    broadcasting = "broadcasting, where each client gets every message and keeps its own offsets"
    named = "cg_all on OrderEvents, cg_each on OrderEvents"
    assert summary(run, store, groups) == [f"not replayed: {broadcasting}, of {named}"]
    assert {row["consumer_group"] for row in rows_of(store.parent / "w", "subscriptions")} == {"cg_paid"}
    assert "cg_all" not in run(lag, "--warehouse", store.parent / "w").out
    ended = run(explain, "--warehouse", store.parent / "w", "--message", "ord-1", "--group", "cg_all")
    assert (ended.code, f"cg_all is not replayed: it is {broadcasting}" in ended.error) == (2, True)
    later = [f"not replayed: {broadcasting}, of {named}"]
    write(store, "commitlog/00000000000000000000", log_of(ORDER, ORDER))
    out = run(nightly, "--store", store, "--warehouse", store.parent / "w").out
    assert [line for line in out.splitlines() if line.startswith("not replayed")] == later, "remembered"
    write(store, "commitlog/00000000000000000000", log_of(ORDER, ORDER, ORDER))
    assert summary(run, store) == [], "the snapshot has them no more"


def test_groups_whose_clients_broadcast(run: Run, store: Path) -> None:
    """A broker notes the least offset of a broadcasting group's clients under a name of its own."""
    table = {
        "OrderEvents@cg_paid@broadcast": {"0": 1},
        "Other@cg_1@broadcast": {"0": 7},
        "OrderEvents@cg_paid": {"0": 0},
    }
    write(store, "config/consumerOffset.json", json.dumps({"offsetTable": table}).encode())
    named = "cg_1 on Other, cg_paid on OrderEvents"
    line = f"broadcasting, where each client gets every message and keeps its own offsets, of {named}"
    assert summary(run, store) == [f"not replayed: {line}"]
    offsets = rows_of(store.parent / "w", "current_offsets")
    assert [(row["consumer_group"], row["committed"]) for row in offsets] == [("cg_paid", 0)]
    given = ("--warehouse", store.parent / "w", "--offsets", store / "config/consumerOffset.json")
    assert run(lag, *given).code == 0


def test_damaged_offsets_do_not_say_which_groups_broadcast(store: Path) -> None:
    write(store, "config/consumerOffset.json", b'{"offsetTable": {')
    (text,) = NotReplayed.in_store(Storage.at(str(store))).texts()
    assert text.startswith("groups that broadcast, if there are any: ")
    assert "consumerOffset.json is not JSON" in text


def test_a_group_that_two_sources_name_is_named_once(run: Run, store: Path) -> None:
    table = {"OrderEvents@cg_all@broadcast": {"0": 1}}
    write(store, "config/consumerOffset.json", json.dumps({"offsetTable": table}).encode())
    groups = """
- {group: cg_paid, topic: OrderEvents, tag: "*"}
- {group: cg_all, topic: OrderEvents, tag: "*", message_model: broadcasting}
"""
    line = "broadcasting, where each client gets every message and keeps its own offsets, of cg_all on OrderEvents"
    assert summary(run, store, groups) == [f"not replayed: {line}"]


@pytest.mark.parametrize("content", [b"", b'{"messageRequestModeMap": {"T": {"cg": 1, "cg_2": {}}, "U": 7}}'])
def test_no_group_that_consumes_by_pop(content: bytes, run: Run, store: Path) -> None:
    write(store, "config/messageRequestMode.json", content)
    assert summary(run, store) == []


@pytest.mark.parametrize(
    ("content", "reason"), [(b'{"messageRequestModeMap": {', "is not JSON"), (b"[]", "is not a JSON object")]
)
def test_a_damaged_list_of_groups_that_consume_by_pop(content: bytes, reason: str, run: Run, store: Path) -> None:
    write(store, "config/messageRequestMode.json", content)
    (line,) = summary(run, store)
    assert line.startswith("not replayed: groups that consume by POP, if there are any: ")
    assert f"{store}/config/messageRequestMode.json {reason}" in line


CHECKPOINT = (
    b'{"bm":0,"bn":"b","c":"cg_9","d":[0],"it":60000,"n":1,"pt":1700000000001,"q":0,"ro":0,"so":0,"t":"OrderEvents"}'
)
TAG = b"TAGS\x01ck\x02"


def test_a_group_of_which_only_the_record_of_pops_knows(run: Run, store: Path) -> None:
    record = {"topic": b"rmq_sys_REVIVE_LOG_c", "body": CHECKPOINT, "properties": TAG}
    write(store, "commitlog/00000000000000000000", log_of(ORDER, record))
    assert summary(run, store) == []
    deliveries = [row for row in rows_of(store.parent / "w", "deliveries") if row["consumer_group"] == "cg_9"]
    assert [(row["topic"], row["queue_offset"], row["available_at"], row["source"]) for row in deliveries] == [
        ("OrderEvents", 0, 1_700_000_000_001, "RECORDED")
    ]
    assert [row["subscription_from"] for row in deliveries] == [0]


@pytest.mark.parametrize(
    ("body", "tag", "reason"),
    [
        (b"paid", b"", NOT_A_RECORD),
        (b"paid", TAG, NOT_JSON),
        (CHECKPOINT.replace(b'"q":0', b'"q":4294967296'), TAG, INCOMPLETE),
        (CHECKPOINT.replace(b'"so":0', b'"so":9223372036854775808'), TAG, INCOMPLETE),
        (CHECKPOINT.replace(b"[0]", b"[1]").replace(b'"so":0', b'"so":9223372036854775807'), TAG, INCOMPLETE),
    ],
)
def test_what_is_no_record_of_a_pop_is_quarantined(body: bytes, tag: bytes, reason: str, run: Run, store: Path) -> None:
    log = log_of(ORDER, {"topic": b"rmq_sys_REVIVE_LOG_c", "body": body, "properties": tag})
    write(store, "commitlog/00000000000000000000", log)
    given = ("--store", store, "--warehouse", store.parent / "w")
    assert run(nightly, *given).code == 0
    (row,) = rows_of(store.parent / "w", "quarantine")
    assert (row["source_file"], row["offset"]) == ("rmq_sys_REVIVE_LOG_c", len(log_of(ORDER)))
    assert (row["reason"], row["bytes"]) == (reason, body)


@pytest.mark.parametrize(
    ("attribute", "line"),
    [
        (
            {"cleanup.policy": "COMPACTION"},
            "topics that the broker compacts, and whose messages it returns without a filter: T0, T1, T2 and 1 more",
        ),
        (
            {"queue.type": "BatchCQ"},
            "topics whose queues have one entry for a batch of messages: T0, T1, T2 and 1 more",
        ),
    ],
)
def test_topics_with_other_queues(attribute: dict[str, str], line: str, run: Run, store: Path) -> None:
    """A broker wrote such a topics.json."""
    table: dict[str, Any] = {f"T{number}": {"topicName": f"T{number}", "attributes": attribute} for number in range(4)}
    table |= {"U": {"attributes": {"cleanup.policy": "DELETE", "queue.type": "SimpleCQ"}}, "V": {"attributes": None}}
    write(store, "config/topics.json", json.dumps({"topicConfigTable": table}).encode())
    assert summary(run, store) == [f"not replayed: {line}"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("consumequeue/CURRENT", "cannot be read as a RocksDB database"),
        ("consumequeue_rocksdb/CURRENT", "cannot be read as a RocksDB database"),
        ("config/tieredStoreMetadata.json", "tiered storage"),
    ],
)
def test_another_storage(name: str, words: str, run: Run, store: Path) -> None:
    write(store, name, b"MANIFEST-000005\n")
    (line,) = summary(run, store)
    assert line.startswith("not replayed: ")
    assert words in line
    (store / name).unlink()
    write(store, "commitlog/00000000000000000000", log_of(ORDER, ORDER))
    ended = run(nightly, "--store", store, "--warehouse", store.parent / "w")
    assert (ended.code, "not replayed" in ended.out) == (0, False), "the subscriptions are those of the last night"
