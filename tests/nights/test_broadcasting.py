"""A group whose clients broadcast: each gets every message, and a delivery is counted once.

In the capture ``lives`` of a broker of 5.5.0, b1 begins at the first message and b2 at the end; b2 leaves and comes
back; b3 comes, all leave, b4 comes alone, and then b3 comes back.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jobs import explain, lag, nightly
from tests.captures import capture, rows
from tests.nights.commands import Run, rows_of
from tests.nights.growing_broker import GrowingBroker

LATE = 2_000
"""ms: a client pulls its first message that long after it came, and its others at once."""


@pytest.fixture(scope="module")
def lives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    broker, warehouse = capture("lives"), tmp_path_factory.mktemp("lives") / "w"
    given = ("--store", broker / "store", "--subscriptions", broker / "subscription_events.jsonl",
             "--broker-config", broker / "broker.conf", "--warehouse", warehouse)  # fmt: skip
    nightly.main(list(map(str, given)))
    return warehouse


def test_each_message_is_delivered_once_when_the_first_client_received_it(lives: Path) -> None:
    received: dict[tuple[int, int], int] = {}
    for row in rows("lives", "live"):
        if row["group"] == "cb_each":
            received.setdefault((row["queueId"], row["queueOffset"]), row["at"])
    deliveries = [row for row in rows_of(lives, "deliveries") if row["consumer_group"] == "cb_each"]
    assert {row["outcome"] for row in deliveries} == {"DELIVERED"}
    at = {(row["queue_id"], row["queue_offset"]): row["available_at"] for row in deliveries}
    assert len(deliveries) == len(at) == len(received) == 21
    assert at.keys() == received.keys()
    assert all(0 <= received[place] - at[place] < LATE or place[1] >= 8 for place in at)
    # b4, which was new, did not get the two messages that were stored while nobody was there: b3 got them, later.
    came_back = next(row["at"] for row in reversed(rows("lives", "subscription_events")) if "b3" in row["client_id"])
    assert [at[queue_id, offset] for queue_id, offset in ((0, 8), (1, 7))] == [came_back] * 2
    stats = [row for row in rows_of(lives, "delivery_stats") if row["consumer_group"] == "cb_each"]
    assert sum(row["uncertain"] for row in stats) == 6, "those that were stored before the client came that pulled them"


def test_explain_names_the_clients_that_pulled_it(run: Run, lives: Path) -> None:
    def asked(key: str) -> dict[str, object]:
        ended = run(explain, "--warehouse", lives, "--message", key, "--group", "cb_each", "--json")
        answer: dict[str, object] = json.loads(ended.out)
        return answer

    # b1 and b2 were online, and both failed on it: it is not sent back.
    failed = asked("price-fails")
    assert failed["clients"] == ["127.0.0.1@b1", "127.0.0.1@b2"]
    assert (failed["uncertain"], len(failed["journey"])) == (None, 1)  # type: ignore[arg-type]
    waited = asked("price-14")
    assert waited["clients"] == ["127.0.0.1@b3"]
    assert str(waited["reason"]).endswith("broadcasting, counted once: 127.0.0.1@b3 pulled it then")
    assert "keeps its offsets in a file of its own" in str(waited["uncertain"])


def event(at: int, client: str, comes: bool = True) -> dict[str, object]:
    row = {"at": at, "group": "cg", "client_id": client, "message_model": "broadcasting"}
    if not comes:
        return row | {"op": "unregister"}
    return row | {"op": "heartbeat", "subscriptions": [{"topic": "T", "expression": "*"}]}


def test_what_waits_for_a_client_that_is_away(run: Run, tmp_path: Path) -> None:
    """Three nights: c1 leaves, a message is stored, c2 comes at the end of the queue, c1 comes back."""
    nights = [
        ([1_000_000, 1_010_000], [event(999_000, "c1"), event(1_005_000, "c1", comes=False)]),
        ([1_020_000], [event(1_015_000, "c2")]),
        ([1_030_000], [event(1_025_000, "c1")]),
    ]
    messages: list[dict[str, object]] = []
    events: list[dict[str, object]] = []
    outcomes = []
    for stored, happened in nights:
        for at in stored:
            i = len(messages)
            place = {"topic": "T", "queue_id": 0, "queue_offset": i, "commitlog_offset": 300 * i}
            messages.append(place | {"store_timestamp": at, "properties": {"KEYS": f"k-{i}"}})
        events += happened
        for name, lines in (("log.jsonl", messages), ("events.jsonl", events)):
            (tmp_path / name).write_text("\n".join(map(json.dumps, lines)))
        given = ("--store", tmp_path / "log.jsonl", "--subscriptions", tmp_path / "events.jsonl")
        assert run(nightly, *given, "--warehouse", tmp_path / "w").code == 0
        asked = ("--warehouse", tmp_path / "w", "--message", "k-1", "--group", "cg")
        outcomes.append(run(explain, *asked).out.splitlines()[:2])
    assert outcomes[0][1].endswith("the group is away, and has not pulled it yet")
    assert outcomes[1][1].endswith(
        "no client of the group was online when it was stored; c1 will pull it after a return"
    )
    assert outcomes[2][1].endswith("the subscription takes everything; broadcasting, counted once: c1 pulled it then")
    deliveries = sorted((row["queue_offset"], row["available_at"]) for row in rows_of(tmp_path / "w", "deliveries"))
    assert deliveries == [(0, 1_000_000), (1, 1_025_000), (2, 1_020_000), (3, 1_030_000)]


def test_a_message_from_before_the_first_client(run: Run, lives: Path) -> None:
    """The first client of a group began at the end of the queue, if it had no offsets of an earlier life."""
    log = [
        {"topic": "T", "queue_id": 0, "queue_offset": i, "commitlog_offset": 300 * i, "store_timestamp": at,
         "properties": {"KEYS": f"k-{i}"}}
        for i, at in enumerate([990_000, 1_000_000])
    ]  # fmt: skip
    folder = lives.parent
    (folder / "log.jsonl").write_text("\n".join(map(json.dumps, log)))
    (folder / "events.jsonl").write_text(json.dumps(event(999_000, "c1")))
    given = ("--store", folder / "log.jsonl", "--subscriptions", folder / "events.jsonl")
    assert run(nightly, *given, "--warehouse", folder / "new").code == 0
    out = run(explain, "--warehouse", folder / "new", "--message", "k-0", "--group", "cg").out
    assert "no client of the group was online when it was stored; those that came began at later ones" in out
    assert "uncertain   a client that broadcasts keeps its offsets in a file of its own" in out


def test_only_groups_whose_clients_are_known_are_replayed(broker: GrowingBroker) -> None:
    events = [event(999_000, "c1"), {**event(999_000, "c2"), "group": "cg_unknown"}]
    events[1].pop("client_id")
    events += [{"at": 1_000_000, "op": "unregister", "group": name, "message_model": "broadcasting"}
                   for name in ("cg", "cg_unknown")]  # fmt: skip
    out = broker.night([json.dumps(line) for line in events]).out
    assert "counted once for all clients: what is delivered to groups that broadcast, cg on T" in out
    assert (
        "not replayed: broadcasting, where each client gets every message and keeps its own offsets, of cg_unkn" in out
    )
    row = json.loads(broker.run(lag, "--warehouse", broker.folder / "w", "--json").out)
    assert (row["consumer_group"], row["pulls"], row["would_get"]) == ("cg", "away", 10)
