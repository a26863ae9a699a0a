"""Clients of one group with different subscriptions: the job inconsistency, and the line in the summary."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jobs import audit, inconsistency, nightly
from tests.captures import capture, rows
from tests.nights import commands
from tests.replayed import Replayed

PAID, SHIPPED = "paid || created", "shipped||cancelled"


def orders() -> list[dict[str, Any]]:
    """The messages of OrderEvents that have an entry, in the order of the log."""
    with_entry = {entry["commitLogOffset"] for entry in rows("small", "consumequeue")}
    every = (row for row in rows("small", "messages") if row["physicalOffset"] in with_entry)
    return sorted((row for row in every if row["topic"] == "OrderEvents"), key=lambda row: row["storeTimestamp"])


def heartbeat(at: int, client: str, version: int, expression: str) -> dict[str, Any]:
    subscription = {"topic": "OrderEvents", "expression": expression, "sub_version": version}
    return {"at": at, "op": "heartbeat", "group": "cg", "client_id": client, "subscriptions": [subscription]}


@pytest.fixture(scope="module")
def halfway() -> int:
    return int(orders()[len(orders()) // 2]["storeTimestamp"])


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory, halfway: int) -> Path:
    """A folder with a warehouse ``w``. From halfway on, clients a and b differ; another group's clients agree."""
    folder = tmp_path_factory.mktemp("inconsistent")
    events = [heartbeat(1, "a@1", 10, PAID), heartbeat(halfway, "b@2", 20, SHIPPED)]
    events += [event | {"group": "cg_same"} for event in (events[0], heartbeat(2, "b@2", 20, PAID))]
    (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    conf = capture("small") / "broker.conf"
    nightly.main(commands.night(folder / "w", capture("small") / "store", folder / "events.jsonl", conf))
    return folder


def lost_to_a(halfway: int) -> list[tuple[int, int]]:
    """The places of a's messages that were stored while b's subscription was in force."""
    return sorted(
        (row["queueId"], row["queueOffset"])
        for row in orders()
        if row["storeTimestamp"] >= halfway and (row["properties"] or {}).get("TAGS") in ("paid", "created")
    )


def test_every_lost_message_is_named(
    night: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path, halfway: int
) -> None:
    output = tmp_path / "lost.jsonl"
    inconsistency.main(["--warehouse", str(night / "w"), "--output", str(output)])
    lost = [json.loads(line) for line in output.read_text().splitlines()]
    assert [(row["queue_id"], row["queue_offset"]) for row in lost] == lost_to_a(halfway) != []
    offsets = {(row["queueId"], row["queueOffset"]): row["physicalOffset"] for row in orders()}
    for row in lost:
        named = row["consumer_group"], row["topic"], row["clients"], row["lost"]
        assert named == ("cg", "OrderEvents", ["a@1"], True)
        assert (row["valid_from"], row["valid_to"]) == (halfway, None)
        assert row["commitlog_offset"] == offsets[row["queue_id"], row["queue_offset"]]
    out = capsys.readouterr().out
    assert "cg on OrderEvents\n" in out
    assert f"– now  {SHIPPED} of b@2 is in force; overruled: a@1 ({PAID})\n" in out
    assert f"    {len(lost):,} messages lost to a@1\n" in out
    assert "cg_same" not in out
    inconsistency.main(["--warehouse", str(night / "w"), "--json"])
    (state,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert (state["consumer_group"], state["expression"], state["agreeing"]) == ("cg", SHIPPED, ["b@2"])
    assert [client["client_id"] for client in state["overruled"]] == ["a@1"]
    assert state["losses"] == [{"clients": ["a@1"], "messages": len(lost), "lost": True}]


def test_the_summary_has_a_line_a_group(night: Path, run: Callable[..., Any], halfway: int) -> None:
    conf = capture("small") / "broker.conf"
    given = commands.night(night / "w", capture("small") / "store", night / "events.jsonl", conf)
    out = run(nightly, *given).out
    assert [line for line in out.splitlines() if line.startswith("inconsistent")] == [
        f"inconsistent: cg on OrderEvents: {SHIPPED} of b@2 is in force; overruled: a@1 ({PAID}); "
        f"{len(lost_to_a(halfway)):,} messages lost to overruled clients"
    ]


def test_what_disagreeing_clients_drop_is_no_hash_collision(night: Path, run: Callable[..., Any]) -> None:
    dropped = [
        row
        for row in commands.rows_of(night / "w", "deliveries")
        if (row["consumer_group"], row["outcome"]) == ("cg", "DROPPED_BY_CLIENT")
    ]
    assert dropped
    stats = [row for row in commands.rows_of(night / "w", "delivery_stats") if row["consumer_group"] == "cg"]
    assert sum(row["hash_collisions"] for row in stats) == 0
    assert sum(row["passed_stage2"] - row["delivered"] for row in stats) == len(dropped)
    audited = map(json.loads, run(audit, "--warehouse", night / "w", "--json").out.splitlines())
    failed = {row["audit"] for row in audited if row["bad_rows"]}
    assert failed & {"hash_collisions", "conservation", "stages_add_up", "deliveries_are_counted"} == set()


def test_the_summary_counts_what_disagreeing_clients_drop(
    run: Callable[..., Any], tmp_path: Path, night: Path, halfway: int
) -> None:
    conf = capture("small") / "broker.conf"
    out = run(nightly, *commands.night(tmp_path / "w", capture("small") / "store", night / "events.jsonl", conf)).out
    assert "client drops: stopped by the client's tag check" in out


def test_subscriptions_that_the_warehouse_does_not_have_are_refused(
    night: Path, run: Callable[..., Any], tmp_path: Path
) -> None:
    given = ["--warehouse", night / "w", "--subscriptions"]
    assert run(inconsistency, *given, night / "events.jsonl").code == 0
    other = tmp_path / "other.jsonl"
    other.write_text((night / "events.jsonl").read_text().replace(PAID, "cancelled"))
    code, _, error = run(inconsistency, *given, other)
    assert (code, "differ from those in the warehouse: run nightly with them first" in error) == (2, True)


def test_without_client_ids_nothing_is_known(
    replayed: Replayed, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lost = tmp_path / "lost.jsonl"
    inconsistency.main(["--warehouse", replayed("small").location, "--output", str(lost)])
    out, error = capsys.readouterr()
    assert "no subscription event has a client_id" in out
    assert error.endswith(f"0 rows in {lost}\n")
    assert lost.read_text() == ""
