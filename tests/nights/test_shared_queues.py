"""Clients with other tags share the queues of a topic, whether or not the store has consume queue files."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from jobs import (
    audit,
    deliver,
    dispatch,
    explain,
    export,
    inconsistency,
    ingest,
    lint,
    maintain,
    nightly,
    register,
    replay,
    report,
)  # fmt: skip
from tests.captures import capture
from tests.nights.commands import Run, night, rows_of
from tests.nights.growing_broker import BEFORE, GrowingBroker, event

PUBLIC = Path(__file__).parents[1] / "cases" / "public"
STORE, CONF = capture("small") / "store", capture("small") / "broker.conf"
ASSUMED = "queues assumed: cg on T: "


def heartbeat(at: int, client: str, expression: str, topic: str = "T") -> str:
    subscription = {"topic": topic, "expression": expression, "sub_version": at}
    line = {"at": at, "op": "heartbeat", "group": "cg", "client_id": client, "subscriptions": [subscription]}
    return json.dumps(line | {"consume_from": "first"})


TWO = [heartbeat(BEFORE, "a", "x"), heartbeat(BEFORE + 1, "b", "y")]
"""Client a reads the first half of the queues, and drops y, which is in force."""


def outcomes(warehouse: Path) -> Counter[str]:
    return Counter(row["outcome"] for row in rows_of(warehouse, "deliveries") if row["consumer_group"] == "cg")


def dropped_in(warehouse: Path) -> set[int]:
    """The queues whose client drops messages."""
    rows = rows_of(warehouse, "deliveries")
    return {row["queue_id"] for row in rows if row["outcome"] == "DROPPED_BY_CLIENT"}


def messages(broker: GrowingBroker, *queue_ids: int) -> None:
    """Two messages with the tag y in each queue, in a store without consume queue files."""
    for queue_id in queue_ids:
        broker.log.append(2, queue_id=queue_id, TAGS="y")
    broker.log.write(broker.folder / "store")


def topics(broker: GrowingBroker, queues: int) -> None:
    config = broker.folder / "store" / "config"
    config.mkdir(exist_ok=True)
    topic = {"readQueueNums": queues, "writeQueueNums": queues, "topicName": "T"}
    (config / "topics.json").write_text(json.dumps({"topicConfigTable": {"T": topic}}))


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    """Events of two clients of the small capture's orders."""
    file = tmp_path / "orders.jsonl"
    each = [
        heartbeat(1, "a@1", "paid || created", "OrderEvents"),
        heartbeat(2, "b@2", "shipped||cancelled", "OrderEvents"),
    ]
    file.write_text("\n".join(each))
    return file


@pytest.fixture
def store_warehouse(run: Run, orders: Path, tmp_path: Path) -> Path:
    """The warehouse of a night on the whole store."""
    assert run(nightly, *night(tmp_path / "store_w", STORE, orders, CONF)).code == 0
    return tmp_path / "store_w"


WANTED = {"DELIVERED": 32, "DROPPED_BY_CLIENT": 31}


def without_queues(folder: Path) -> Path:
    return shutil.copytree(STORE, folder / "store", ignore=shutil.ignore_patterns("consumequeue*"))


def test_a_message_log_has_its_queues(run: Run, tmp_path: Path) -> None:
    given = PUBLIC / "clients-message-log"
    out = run(nightly, *night(tmp_path, given / "log.jsonl", given / "events.jsonl", given / "broker.conf")).out
    assert outcomes(tmp_path) == {"DELIVERED": 8, "DROPPED_BY_CLIENT": 8}
    assert dropped_in(tmp_path) == {0, 1}
    assert ASSUMED in out
    assert "4 queues" in out


def test_the_export_of_a_store_gives_what_the_store_gives(
    run: Run, store_warehouse: Path, orders: Path, tmp_path: Path
) -> None:
    assert outcomes(store_warehouse) == WANTED
    log = tmp_path / "log.jsonl"
    assert run(export, "commitlog", "--warehouse", store_warehouse, "--output", log).code == 0
    lines = log.read_text().splitlines()
    half = tmp_path / "half.jsonl"
    half.write_text("\n".join(lines[: len(lines) // 2]))
    for parts in ([log], [half, log]):
        warehouse = tmp_path / f"w{len(parts)}"
        for part in parts:
            assert run(nightly, *night(warehouse, part, orders, CONF)).code == 0
        assert outcomes(warehouse) == WANTED


def test_a_store_without_consume_queue_files(run: Run, orders: Path, tmp_path: Path) -> None:
    out = run(nightly, *night(tmp_path / "w", without_queues(tmp_path), orders, CONF)).out
    assert outcomes(tmp_path / "w") == WANTED
    assert "queues assumed" not in out


def test_its_steps_and_its_repeated_nights(run: Run, orders: Path, tmp_path: Path) -> None:
    warehouse = tmp_path / "w"
    given = ("--warehouse", warehouse, "--broker-config", CONF)
    assert run(ingest, *given, "--store", without_queues(tmp_path)).code == 0
    assert run(dispatch, *given).code == 0
    assert run(register, *given, "--subscriptions", orders).code == 0
    out = run(deliver, *given).out
    assert (outcomes(warehouse), "queues assumed" in out) == (WANTED, False)
    assert run(register, *given, "--subscriptions", orders, "--redo-from", 0).code == 0
    assert outcomes(warehouse) == WANTED
    next((warehouse / "delivery_blocks").rglob("*.parquet")).unlink()
    assert run(maintain, "--warehouse", warehouse, "--rebuild").code == 0
    assert outcomes(warehouse) == WANTED


def test_a_replay_gives_each_queue_to_its_client(run: Run, store_warehouse: Path, orders: Path, tmp_path: Path) -> None:
    assert run(replay, "--warehouse", store_warehouse, "--into", tmp_path / "all").code == 0
    assert outcomes(tmp_path / "all") == WANTED
    other = tmp_path / "other.jsonl"
    other.write_text(event(9, "register", "cg", expression="shipped").replace('"T"', '"OrderEvents"'))
    assert run(replay, "--warehouse", store_warehouse, "--into", tmp_path / "other", "--subscriptions", other).code == 0
    assert set(outcomes(tmp_path / "other")) == {"DELIVERED"}, "all clients would have the new subscription"


def test_topics_json_counts_queues_that_never_had_a_message(broker: GrowingBroker) -> None:
    """Of six queues, three are the first client's; of the three with messages, two would be."""
    messages(broker, 0, 1, 2)
    topics(broker, 6)
    assert ASSUMED not in broker.night(TWO).out
    assert dropped_in(broker.folder / "w") == {0, 1, 2}
    (broker.folder / "store" / "config" / "topics.json").unlink()
    messages(broker, 2)
    assert ASSUMED not in broker.night(TWO).out, "the number is known from the night before"
    broker.night(TWO, "--redo-from", 0)
    assert dropped_in(broker.folder / "w") == {0, 1, 2}
    assert broker.passes_audits()


def test_each_repeated_night_has_the_queues_of_its_time(broker: GrowingBroker) -> None:
    messages(broker, 0, 1, 2)
    topics(broker, 3)
    broker.night(TWO)
    assert dropped_in(broker.folder / "w") == {0, 1}
    topics(broker, 8)
    messages(broker, 2)
    broker.night(TWO)
    before = outcomes(broker.folder / "w")
    assert dropped_in(broker.folder / "w") == {0, 1, 2}
    broker.night(TWO, "--redo-from", 0)
    assert outcomes(broker.folder / "w") == before
    assert broker.passes_audits()


@pytest.mark.parametrize("late", [[2, 3], [5]])
def test_without_topics_json_the_queues_with_messages_count_and_the_night_says_so(
    broker: GrowingBroker, late: list[int], tmp_path: Path
) -> None:
    """Queues appear later in the first night, and more of them in the second one."""
    messages(broker, 0, 1)
    messages(broker, *late)
    out = broker.night(TWO).out
    queues = 2 + len(late)
    assert f"{ASSUMED}" in out
    assert f"{queues} queues" in out
    first = {0, 1} if queues < 5 else {0, 1, 2}
    assert dropped_in(broker.folder / "w") == first
    messages(broker, 6, 7, 8)
    assert f"{queues + 3} queues" in broker.night(TWO).out
    linted = broker.run(lint, "--warehouse", broker.folder / "w")
    assert f"{queues + 3} queues" in linted.out
    page = tmp_path / "page.html"
    assert broker.run(report, "--warehouse", broker.folder / "w", "--output", page).code == 0
    assert "queues assumed: cg on T" in page.read_text()
    assert broker.passes_audits()


def test_topics_json_comes_later(broker: GrowingBroker) -> None:
    """The nights before are repeated with what it says; until then, lint says that they assumed it."""
    messages(broker, 0, 1, 2)
    assert ASSUMED in broker.night(TWO).out
    assert dropped_in(broker.folder / "w") == {0, 1}
    topics(broker, 6)
    messages(broker, 1)
    assert ASSUMED not in broker.night(TWO).out
    codes = [row["code"] for row in _lint(broker)]
    assert "assumed-queues" in codes
    broker.night(TWO, "--redo-from", 0)
    assert dropped_in(broker.folder / "w") == {0, 1, 2}
    assert "assumed-queues" not in [row["code"] for row in _lint(broker)]


def _lint(broker: GrowingBroker) -> list[dict[str, Any]]:
    findings: list[dict[str, Any]] = json.loads(broker.run(lint, "--warehouse", broker.folder / "w", "--json").out)[
        "findings"
    ]
    return findings


def line(at: int, tag: str, **properties: str) -> str:
    return json.dumps({"topic": "T", "time": at, "properties": {"TAGS": tag, "n": tag, **properties}})


def client(at: int, client_id: str, type: str, expression: str, version: int = 1) -> str:
    own = {"topic": "T", "type": type, "expression": expression, "sub_version": version}
    beat = {"at": at, "op": "heartbeat", "group": "cg", "client_id": client_id, "subscriptions": [own]}
    return json.dumps(beat | {"consume_from": "first"})


CLIENTS = {
    "tags": ([("TAG", "x || y"), ("TAG", "y || z")], "yz", "z", "x"),
    "tags, and SQL92 in force": ([("TAG", "x || y"), ("SQL92", "n <> 'u'")], "xyz", "z", "u"),
    "SQL92 only": ([("SQL92", "n = 'x'"), ("SQL92", "n IN ('y', 'z')")], "yz", "", "x"),
    "tags in force, and SQL92": ([("SQL92", "n = 'x'"), ("TAG", "y")], "y", "", "x"),
    "three clients": ([("TAG", "x"), ("TAG", "y"), ("TAG", "x || y || z")], "xyz", "xyz", "u"),
    "one does not subscribe": ([("TAG", "y"), None, ("TAG", "y")], "y", "y", "x"),
}
"""What each client subscribes to, the last of which is in force; the tags delivered, uncertain, and not delivered."""


@pytest.mark.parametrize("at", ["before the messages", "after them"])
@pytest.mark.parametrize(("subscriptions", "delivered", "uncertain", "stopped"), CLIENTS.values(), ids=CLIENTS)
def test_without_queue_ids_it_is_not_known_which_client_read_a_message(
    run: Run,
    tmp_path: Path,
    subscriptions: list[tuple[str, str] | None],
    delivered: str,
    uncertain: str,
    stopped: str,
    at: str,
) -> None:
    """In two nights, whose log grows."""
    begin = 1_000_000 if at == "before the messages" else 1_000_100
    beats = [
        client(begin, f"c{i}", *own, version=i)
        if own is not None
        else json.dumps({"at": begin, "op": "heartbeat", "group": "cg", "client_id": f"c{i}", "subscriptions": []})
        for i, own in enumerate(subscriptions)
    ]
    (tmp_path / "s.jsonl").write_text("\n".join(beats))
    log, warehouse = tmp_path / "log.jsonl", tmp_path / "w"
    rows = [line(1_000_010 + i, tag) for i, tag in enumerate("xyzu")]
    out = ""
    for nights in (1, 2):
        if nights == 2:
            rows += [line(1_000_200 + i, tag) for i, tag in enumerate("xyzu")]
        log.write_text("\n".join(rows) + "\n")
        out = run(nightly, *night(warehouse, log, tmp_path / "s.jsonl", CONF)).out
        assert outcomes(warehouse) == {"DELIVERED": len(delivered) * nights}, nights
        assert sum(row["uncertain"] for row in rows_of(warehouse, "delivery_stats")) == len(uncertain) * nights
    is_uncertain = bool(uncertain)
    assert (f"{ASSUMED}its clients subscribe differently, and the messages have no queue ids" in out) == is_uncertain
    states = [json.loads(each) for each in run(inconsistency, "--warehouse", warehouse, "--json").out.splitlines()]
    assert states[-1]["uncertain"] == len(uncertain) * 2
    says = f"{len(uncertain) * 2} deliveries are uncertain"
    assert (says in run(inconsistency, "--warehouse", warehouse).out) == is_uncertain
    assert (says in run(lint, "--warehouse", warehouse).out) == is_uncertain
    for offset, tag in enumerate("xyzu"):
        asked = ("--topic", "T", "--queue", 0, "--offset", offset, "--group", "cg", "--json")
        answer = json.loads(run(explain, "--warehouse", warehouse, *asked).out)
        assert (answer["outcome"] == "DELIVERED") == (tag in delivered)
        assert bool(answer["uncertain"]) == (tag in uncertain), answer
        every = run(explain, "--warehouse", warehouse, *asked[:-3]).out
        assert ("; uncertain (--group says why)" in every) == (tag in uncertain)
    assert run(audit, "--warehouse", warehouse).code == 0
    assert run(nightly, *night(warehouse, log, tmp_path / "s.jsonl", CONF), "--redo-from", 0).code == 0
    assert sum(row["uncertain"] for row in rows_of(warehouse, "delivery_stats")) == len(uncertain) * 2


def test_without_queue_ids_a_client_that_joins_makes_messages_uncertain_once(run: Run, tmp_path: Path) -> None:
    """The broker may have held a pull when it joined, too, in whose answer the first messages then are."""
    beats = [client(999_000, "a", "TAG", "x || y"), client(1_000_000, "b", "TAG", "y || z", 2)]
    (tmp_path / "s.jsonl").write_text("\n".join(beats))
    (tmp_path / "log.jsonl").write_text("\n".join(line(999_500 + 1_000 * i, "yz"[i % 2]) for i in range(8)))
    run(nightly, *night(tmp_path / "w", tmp_path / "log.jsonl", tmp_path / "s.jsonl", CONF))
    assert sum(row["uncertain"] for row in rows_of(tmp_path / "w", "delivery_stats")) == 4


def test_without_queue_ids_clients_that_check_alike_are_certain(run: Run, tmp_path: Path) -> None:
    """The client whose subscription is in force left: the other two drop what they do not name. And a replay."""
    leaves = json.dumps({"at": 4, "op": "unregister", "group": "cg", "client_id": "c"})
    beats = [client(1, "a", "TAG", "x"), client(2, "b", "TAG", "x"), client(3, "c", "TAG", "x || y", 2), leaves]
    (tmp_path / "s.jsonl").write_text("\n".join(beats))
    (tmp_path / "log.jsonl").write_text("\n".join(line(1_000_000 + i, tag) for i, tag in enumerate("xyz")))
    run(nightly, *night(tmp_path / "w", tmp_path / "log.jsonl", tmp_path / "s.jsonl", CONF))
    assert outcomes(tmp_path / "w") == {"DELIVERED": 1, "DROPPED_BY_CLIENT": 1}
    assert sum(row["uncertain"] for row in rows_of(tmp_path / "w", "delivery_stats")) == 0
    beats.pop()
    (tmp_path / "s.jsonl").write_text("\n".join(beats))
    run(nightly, *night(tmp_path / "w2", tmp_path / "log.jsonl", tmp_path / "s.jsonl", CONF))
    assert run(replay, "--warehouse", tmp_path / "w2", "--into", tmp_path / "again").code == 0
    assert outcomes(tmp_path / "again") == {"DELIVERED": 2}
    assert sum(row["uncertain"] for row in rows_of(tmp_path / "again", "delivery_stats")) == 1
