"""Clients of one group that disagree: the job inconsistency, and the line in the summary."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jobs import application, inconsistency, lost_messages, summary
from jobs.ingest import add_source
from jobs.register import add_subscriptions
from jobs.run import Run
from schemas.warehouse import Warehouse
from tests.captures import capture, rows

Replayed = Callable[[str], Warehouse]
PAID, SHIPPED = "paid || created", "shipped||cancelled"


def orders() -> list[dict[str, Any]]:
    """The messages of OrderEvents that have an entry, as they were stored."""
    with_entry = {entry["commitLogOffset"] for entry in rows("small", "consumequeue")}
    every = (row for row in rows("small", "messages") if row["physicalOffset"] in with_entry)
    return sorted((row for row in every if row["topic"] == "OrderEvents"), key=lambda row: row["storeTimestamp"])


def heartbeat(at: int, client: str, version: int, expression: str) -> dict[str, Any]:
    subscription = {"topic": "OrderEvents", "expression": expression, "sub_version": version}
    return {"at": at, "op": "heartbeat", "group": "cg", "client_id": client, "subscriptions": [subscription]}


@pytest.fixture
def halfway() -> int:
    return int(orders()[len(orders()) // 2]["storeTimestamp"])


@pytest.fixture
def command_line(replayed: Replayed, tmp_path: Path, halfway: int) -> list[str]:
    """a and b disagree from halfway on; another group's clients agree."""
    file = tmp_path / "events.jsonl"
    events = [heartbeat(1, "a@1", 10, PAID), heartbeat(halfway, "b@2", 20, SHIPPED)]
    events += [event | {"group": "cg_same"} for event in (events[0], heartbeat(2, "b@2", 20, PAID))]
    file.write_text("".join(json.dumps(event) + "\n" for event in events))
    conf = capture("small") / "broker.conf"
    return [
        "--warehouse", replayed("small").location, "--broker-config", str(conf), "--subscriptions", str(file),
    ]  # fmt: skip


def lost_to_a(halfway: int) -> list[tuple[int, int]]:
    """Where a's messages are that were stored while b's subscription was in force."""
    return sorted(
        (row["queueId"], row["queueOffset"])
        for row in orders()
        if row["storeTimestamp"] >= halfway and (row["properties"] or {}).get("TAGS") in ("paid", "created")
    )


def test_every_lost_message_is_named(
    command_line: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path, halfway: int
) -> None:
    output = tmp_path / "lost.jsonl"
    inconsistency.main([*command_line, "--output", str(output)])
    lost = [json.loads(line) for line in output.read_text().splitlines()]
    assert [(row["queue_id"], row["queue_offset"]) for row in lost] == lost_to_a(halfway) != []
    offsets = {(row["queueId"], row["queueOffset"]): row["physicalOffset"] for row in orders()}
    for row in lost:
        assert (row["consumer_group"], row["topic"], row["clients"], row["lost"]) == (
            "cg",
            "OrderEvents",
            ["a@1"],
            True,
        )
        assert (row["valid_from"], row["valid_to"]) == (halfway, None)
        assert row["commitlog_offset"] == offsets[row["queue_id"], row["queue_offset"]]
    told = capsys.readouterr().out
    assert "cg on OrderEvents\n" in told
    assert f"– now  {SHIPPED} of b@2 is in force; overruled: a@1 ({PAID})\n" in told
    assert f"    {len(lost):,} messages lost to a@1\n" in told
    assert "cg_same" not in told


def test_the_summary_has_a_line_a_group(
    command_line: list[str], capsys: pytest.CaptureFixture[str], halfway: int
) -> None:
    parser = summary_parser()
    options = parser.parse_args([*command_line, "--store", str(capture("small") / "store")])
    with Run.start("nightly", options) as run:
        summary.print_summary(run, options)
    inconsistent = [line for line in capsys.readouterr().out.splitlines() if line.startswith("inconsistent")]
    assert inconsistent == [
        f"inconsistent: cg on OrderEvents: {SHIPPED} of b@2 is in force; overruled: a@1 ({PAID}); "
        f"{len(lost_to_a(halfway)):,} messages lost to overruled clients"
    ]


def summary_parser() -> Any:
    """The options of nightly that its summary reads."""
    parser = application.broker_parser("nightly", None)
    add_source(parser)
    add_subscriptions(parser)
    return parser


def test_nothing_to_tell(command_line: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    events = capture("small") / "subscription_events.jsonl"
    inconsistency.main([*command_line[:-1], str(events)])
    assert "every client of every group subscribes to the same" in capsys.readouterr().out
    assert lost_messages.inconsistencies([]) == []
