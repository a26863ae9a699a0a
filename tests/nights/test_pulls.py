"""pulls: its simulation against the pulls of real consumers in the captures."""

import json
import re
import struct
from pathlib import Path

import pytest

from jobs import pulls
from schemas.delta.warehouse import Warehouse
from schemas.errors import UsageError
from tests.captures import capture, rows
from tests.nights.commands import Run
from tests.replayed import Replayed


def arguments(warehouse: Warehouse, group: str, topic: str, conf: Path | None = None) -> list[str]:
    return [
        "--warehouse", warehouse.location, "--group", group, "--topic", topic,
        "--broker-config", str(conf or capture("small") / "broker.conf"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("group", "topic"),
    [("cg_tag_AaAa_BBBB", "TagLab"), ("cg_sql_temp_hum", "DeviceTelemetry"), ("cg_sql_retry", "%RETRY%cg_sql_retry")],
)
def test_totals_are_those_of_the_real_consumer(
    replayed: Replayed, capsys: pytest.CaptureFixture[str], group: str, topic: str
) -> None:
    pulls.main(arguments(replayed("small"), group, topic))
    out = capsys.readouterr().out
    totals = re.findall(r"as configured: (\d+) pulls?, (\d+) scanned, (\d+) read, (\d+) found", out)
    summed = [sum(map(int, column)) for column in zip(*totals, strict=True)]
    key = (group, topic, "wire, registered subscription")
    (delivered,) = (r for r in rows("small", "delivered") if (r["group"], r["topic"], r["mode"]) == key)
    (passed,) = (r for r in rows("small", "cqfilter") if (r["group"], r["topic"], r["mode"]) == key)
    stage1 = passed["queues"].values()
    assert summed == [
        delivered["pulls"],
        sum(queue["scanned"] for queue in stage1),
        sum(queue["cqPass"] for queue in stage1),
        delivered["brokerCount"],
    ]


def test_every_pull_has_its_status(replayed: Replayed, capsys: pytest.CaptureFixture[str]) -> None:
    pulls.main([*arguments(replayed("small"), "cg_sql_flag_bare", "OrderEvents"), "--offset", "60"])
    out = capsys.readouterr().out
    assert [line for line in out.splitlines() if line.startswith("queue")] == [
        "queue 0: MIN_OFFSET 0, MAX_OFFSET 82",
        "queue 1: MIN_OFFSET 0, MAX_OFFSET 59",
        "queue 2: MIN_OFFSET 0, MAX_OFFSET 67",
        "queue 3: MIN_OFFSET 0, MAX_OFFSET 100",
    ]
    assert re.findall(r"^ +60 +(\d+) +(\d+) .* ([A-Z_]+)$", out, re.MULTILINE) == [
        ("82", "22", "NO_MATCHED_MESSAGE"),
        ("59", "0", "OFFSET_OVERFLOW_BADLY"),
        ("67", "7", "NO_MATCHED_MESSAGE"),
        ("100", "40", "NO_MATCHED_MESSAGE"),
    ]
    assert "without bit map: 1 pull, 22 scanned, 22 read, 0 found" in out


def test_a_queue_begins_where_the_brokers_log_does(nights: Path, run: Run) -> None:
    """Before night 4 the broker had deleted its first segments; the tables keep their messages."""
    store = capture("nights_dev") / "night_4" / "store"
    log_start = min(int(segment.name) for segment in (store / "commitlog").iterdir())
    expected = {}
    for queue in (store / "consumequeue" / "OrderEvents").iterdir():
        files = sorted(queue.iterdir())
        entries = [entry for file in files for entry in struct.iter_unpack(">qiq", file.read_bytes()) if entry[1]]
        first = next(number for number, entry in enumerate(entries) if entry[0] >= log_start)
        expected[int(queue.name)] = int(files[0].name) // 20 + first
    assert max(expected.values()) > 0
    given = ("--warehouse", nights / "4", "--group", "cg_expired", "--topic", "OrderEvents")
    begins = re.findall(r"^queue (\d+): MIN_OFFSET (\d+)", run(pulls, *given).out, re.MULTILINE)
    assert {int(queue): int(offset) for queue, offset in begins} == expected


def test_a_group_without_pulls_says_why(replayed: Replayed, tmp_path: Path) -> None:
    warehouse = replayed("small")
    with pytest.raises(UsageError, match="cg_nobody has no subscription in"):
        pulls.main(arguments(warehouse, "cg_nobody", "TagLab"))
    conf = (capture("small") / "broker.conf").read_text()
    unfiltered = tmp_path / "broker.conf"
    unfiltered.write_text(conf.replace("enablePropertyFilter=true", "enablePropertyFilter=false"))
    with pytest.raises(UsageError, match="answers every pull of cg_sql_retry on OrderEvents with SYSTEM_ERR"):
        pulls.main(arguments(warehouse, "cg_sql_retry", "OrderEvents", unfiltered))


def test_the_only_topic_of_a_group_need_not_be_named(replayed: Replayed, run: Run) -> None:
    given = ("--warehouse", replayed("small").location, "--group")
    assert run(pulls, *given, "cg_sql_city") == run(pulls, *given, "cg_sql_city", "--topic", "OrderEvents")
    ended = run(pulls, *given, "cg_tag_multi_topic")
    message = "cg_tag_multi_topic subscribes to DeviceTelemetry, OrderEvents, TagLab: say which with --topic"
    assert (ended.code, ended.error) == (2, f"mqsieve: {message}\n")


def test_a_batch_has_a_message(run: Run) -> None:
    for batch in ("0", "-5", "many"):
        code, _, error = run(pulls, "--warehouse", "w", "--group", "g", "--topic", "T", f"--batch={batch}")
        assert (code, f"{batch} is not a number of messages, 1 or more" in error) == (2, True)


def test_json_has_the_numbers_of_the_text(replayed: Replayed, run: Run) -> None:
    given = arguments(replayed("small"), "cg_sql_temp_hum", "DeviceTelemetry")
    queues = [json.loads(line) for line in run(pulls, *given, "--json").out.splitlines()]
    numbers = re.findall(r"as configured: (\d+) pulls?, (\d+) scanned, (\d+) read, (\d+) found", run(pulls, *given).out)
    names = ("pulls", "scanned", "read", "found")
    assert [[str(queue["as_configured"][name]) for name in names] for queue in queues] == [list(row) for row in numbers]
    assert {pull["status"] for queue in queues for pull in queue["without_bit_map"]["first"]} <= {
        "FOUND", "NO_MATCHED_MESSAGE",
    }  # fmt: skip
