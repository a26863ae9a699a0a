"""Each audit passes on nights of a real broker's store, and fails on tables with its kind of bad rows."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from deltalake import DeltaTable
from deltalake.schema import Field, PrimitiveType

from answers.audits import relations
from answers.audits.audit import AuditList, parse_audits, scope_of
from answers.audits.auditor import AuditReport, AuditResult, run_audits, store
from filtering.time_spans import DAY
from jobs import audit, nightly
from schemas.commitlog import COMMITLOG
from schemas.deliveries import DELIVERY_BLOCKS
from schemas.delta.table import Table
from schemas.delta.warehouse import Warehouse
from schemas.errors import UsageError
from schemas.ledger_check import open_warehouse
from schemas.pull_windows import PULL_WINDOWS
from schemas.subscriptions import SUBSCRIPTION_EVENTS, SUBSCRIPTIONS
from schemas.tables import CONSUMEQUEUE, CONSUMER_OFFSETS, CURRENT_OFFSETS, DELIVERY_STATS, QUARANTINE, QUEUE_PROGRESS
from tests.broker_log import BrokerLog
from tests.captures import UNDAMAGED
from tests.nights.commands import Ended, Run, living, night, rows_of
from tests.nights.damage import Change, Row, copy_of, rewrite, rewrite_ledger, seal
from tests.replayed import Replayed

LISTED = parse_audits(audit.AUDITS.read_text("utf-8"), "audits.yaml")
NAMES = [each.name for each in LISTED.audits]
OF_THE_CLOCK = {"late_nights"}
FOUND_IN_CAPTURES = {"hash_collisions", "groups_that_never_match"}
"""True warnings: the captures have colliding tags, and an expression that matches no message."""


def results(warehouse: Warehouse, *names: str) -> dict[str, AuditResult]:
    """The results of some audits over all nights."""
    audits = [each for each in LISTED.audits if each.name in names or not names]
    audits = [replace(each, caused_by=()) for each in audits]
    scope = scope_of(warehouse, open_warehouse(warehouse), every_night=True)
    report = run_audits(scope, AuditList(LISTED.relations, audits), {}, lambda: pytest.fail("asked for Spark"))
    return {result.audit.name: result for result in report.results}


@pytest.mark.parametrize("name", [*UNDAMAGED, "small_torn"])
def test_captures_pass(replayed: Replayed, tmp_path: Path, name: str) -> None:
    warehouse = Warehouse.at(replayed(name).storage.root)
    failed = {name for name, result in results(warehouse).items() if result.severity.is_failure}
    assert failed - OF_THE_CLOCK - FOUND_IN_CAPTURES == ({"quarantine_growth"} if name == "small_torn" else set())


def first(**values: Any) -> Change:
    """Changes the first row."""
    return lambda rows: [rows[0] | values, *rows[1:]]


def each(**values: Callable[[Row], Any]) -> Change:
    """Changes every row."""
    return lambda rows: [row | {name: value(row) for name, value in values.items()} for row in rows]


def twice(rows: list[Row]) -> list[Row]:
    return [*rows, rows[0]]


def without_one(rows: list[Row]) -> list[Row]:
    """Removes an entry in the middle of a queue."""
    ordered = sorted(rows, key=lambda row: (row["topic"], row["queue_id"], row["queue_offset"]))
    last = max(row["queue_offset"] for row in ordered if row["topic"] == "OrderEvents" and row["queue_id"] == 0)
    gone = next(
        row for row in ordered if (row["topic"], row["queue_id"], row["queue_offset"]) == ("OrderEvents", 0, last // 2)
    )
    return [row for row in rows if row is not gone]


def quarantined(rows: list[Row]) -> list[Row]:
    return [{"source_file": "events.jsonl", "offset": 1, "reason": "not JSON", "bytes": b"x", "run": "2027"}]


BAD: dict[str, tuple[Table, Change]] = {
    "messages_have_entries": (CONSUMEQUEUE, without_one),
    "entries_have_messages": (COMMITLOG, without_one),
    "entries_are_of_their_messages": (CONSUMEQUEUE, first(size=1)),
    "tags_codes": (CONSUMEQUEUE, first(tags_code=7)),
    "no_duplicates": (CONSUMEQUEUE, twice),
    "offsets_dense": (CONSUMEQUEUE, without_one),
    "nights_follow_each_other": (QUEUE_PROGRESS, each(entries=lambda row: row["entries"] - 1)),
    "body_damage": (COMMITLOG, first(body_is_damaged=True)),
    "quarantine_growth": (QUARANTINE, quarantined),
    "conservation": (DELIVERY_STATS, each(pending=lambda row: row["pending"] + 1)),
    "stages_add_up": (DELIVERY_STATS, each(passed_stage2=lambda row: row["passed_stage1"] + 1)),
    "deliveries_are_counted": (DELIVERY_BLOCKS, lambda rows: rows[1:]),
    "deliveries_in_windows": (PULL_WINDOWS, each(subscription_from=lambda row: row["subscription_from"] + 1)),
    "windows_filter_once": (PULL_WINDOWS, lambda rows: [*rows, *rows]),
    "offsets_of_every_queue": (CURRENT_OFFSETS, lambda rows: rows[1:]),
    "events_are_complete": (SUBSCRIPTION_EVENTS, twice),
    "subscriptions_follow_events": (SUBSCRIPTIONS, first(is_consuming=False, registered=False)),
    "bit_maps_hold_nothing_back": (
        CONSUMEQUEUE, each(filter_bit_map=lambda row: row["filter_bit_map"] and bytes(len(row["filter_bit_map"])))
    ),
    "false_positive_rate": (
        DELIVERY_STATS, each(bit_map_false_positives=lambda row: row["scanned"] - row["passed_stage2"])
    ),
    "hash_collisions": (DELIVERY_STATS, each(hash_collisions=lambda row: 1)),
    "expressions_compile": (SUBSCRIPTIONS, each(compile_error=lambda row: "no expression")),
    "groups_that_always_fail": (DELIVERY_STATS, each(evaluation_errors=lambda row: row["scanned"])),
    "groups_that_never_match": (DELIVERY_STATS, each(passed_stage2=lambda row: 0)),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_an_audit_fails_on_rows_that_are_bad_for_it(replayed: Replayed, tmp_path: Path, name: str) -> None:
    warehouse = copy_of(replayed("small"), tmp_path / "w")
    if name not in FOUND_IN_CAPTURES:
        assert results(warehouse, name)[name].severity.value == "ok"
    before = results(warehouse, name)[name].bad_rows
    rewrite(warehouse, *BAD[name])
    result = results(Warehouse.at(warehouse.storage.root), name)[name]
    assert result.severity.value != "ok"
    assert result.bad_rows > before
    assert result.sample
    assert result.query.endswith(result.audit.query)


@pytest.mark.parametrize(
    ("table", "change", "name", "expected"),
    [
        (CURRENT_OFFSETS, twice, "offsets_of_every_queue", {"found": 2, "queues": 1}),
        (CURRENT_OFFSETS, lambda rows: rows[1:], "offsets_of_every_queue", {"found": 0, "queues_of_topic": 1}),
        (SUBSCRIPTIONS, twice, "subscriptions_follow_events", {"difference": "doubled"}),
        (SUBSCRIPTIONS, lambda rows: rows[1:], "subscriptions_follow_events", {"difference": "missing"}),
        (SUBSCRIPTIONS, first(topic="Other"), "subscriptions_follow_events", {"difference": "not from the events"}),
        (SUBSCRIPTIONS, first(born_time=7), "subscriptions_follow_events", {"difference": "born_time"}),
        (SUBSCRIPTION_EVENTS, lambda rows: rows[1:], "events_are_complete", {"events": 91, "last_number": 91}),
    ],
)
def test_rows_of_offsets_and_subscriptions_that_are_missing_or_wrong(
    replayed: Replayed, tmp_path: Path, table: Table, change: Change, name: str, expected: Row
) -> None:
    warehouse = copy_of(replayed("small"), tmp_path / "w")
    rewrite(warehouse, table, change)
    sample = results(Warehouse.at(warehouse.storage.root), name)[name].sample
    assert any(row.items() >= expected.items() for row in sample), sample


def test_a_group_without_any_offset_is_missing(replayed: Replayed, tmp_path: Path) -> None:
    warehouse = copy_of(replayed("small"), tmp_path / "w")
    group = next(
        row["consumer_group"] for row in rows_of(warehouse, "consumer_offsets") if row["decided_to"] is not None
    )
    rewrite(warehouse, CURRENT_OFFSETS, lambda rows: [row for row in rows if row["consumer_group"] != group])
    sample = results(Warehouse.at(warehouse.storage.root), "offsets_of_every_queue")["offsets_of_every_queue"].sample
    assert group in {row["consumer_group"] for row in sample}


def test_conservation_compares_a_queue_with_its_own_night_before(four_nights: Path, tmp_path: Path) -> None:
    """A wrong offset shows in its own night and in the queue's next one, and in no other queue of the group."""
    warehouse = copy_of(Warehouse.at(str(four_nights)), tmp_path / "w")
    decided_rows = [row for row in rows_of(warehouse, "consumer_offsets") if row["decided_to"] is not None]
    by_queue: dict[tuple[str, str, int], list[Row]] = {}
    for row in sorted(decided_rows, key=lambda row: row["run"]):
        by_queue.setdefault((row["consumer_group"], row["topic"], row["queue_id"]), []).append(row)
    queue, rows = next((queue, rows) for queue, rows in by_queue.items() if queue[2] == 1 and len(rows) > 3)

    def wrong(row: Row) -> Row:
        is_it = all(row[name] == rows[1][name] for name in ("consumer_group", "topic", "queue_id", "run"))
        return row | {"decided_to": row["decided_to"] - 1} if is_it else row

    rewrite(warehouse, CONSUMER_OFFSETS, lambda stored: list(map(wrong, stored)))
    result = results(Warehouse.at(warehouse.storage.root), "conservation")["conservation"]
    wrong_rows = {(row["consumer_group"], row["topic"], row["queue_id"], row["run"]) for row in result.sample}
    assert (result.bad_rows, wrong_rows) == (2, {(*queue, row["run"]) for row in rows[1:3]})


@pytest.mark.parametrize("table", [DELIVERY_STATS, CONSUMER_OFFSETS], ids=lambda table: str(table.name))
def test_conservation_misses_the_counts_and_the_offset_of_a_group(
    replayed: Replayed, tmp_path: Path, table: Table
) -> None:
    """Of a group that received nothing of a queue, so that no delivery misses them."""
    warehouse = copy_of(replayed("small"), tmp_path / "w")
    place = ("consumer_group", "topic", "queue_id")
    counts = rows_of(warehouse, "delivery_stats", *place, "scanned", "delivered")
    gone = next(row for row in counts if row["scanned"] and not row["delivered"])
    rewrite(warehouse, table, lambda rows: [row for row in rows if any(row[name] != gone[name] for name in place)])
    (bad,) = results(Warehouse.at(warehouse.storage.root), "conservation")["conservation"].sample
    assert [bad[name] for name in place] == [gone[name] for name in place]


def test_a_flipped_byte_fails_the_page_checksums(replayed: Replayed, tmp_path: Path) -> None:
    warehouse = copy_of(replayed("small"), tmp_path / "w")
    file = max((tmp_path / "w" / "commitlog").glob("*.parquet"), key=lambda each: each.stat().st_size)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    result = results(warehouse, "page_checksums")["page_checksums"]
    assert [row["path"] for row in result.sample] == [file.name]


def test_a_column_too_many_fails_the_schema(replayed: Replayed, tmp_path: Path) -> None:
    warehouse = copy_of(replayed("small"), tmp_path / "w")
    DeltaTable(str(tmp_path / "w" / "quarantine")).alter.add_columns([Field("more", PrimitiveType("string"))])
    seal(warehouse)
    result = results(Warehouse.at(str(tmp_path / "w")), "schema_as_declared")["schema_as_declared"]
    assert [(row["table_name"], row["column_name"]) for row in result.sample] == [("quarantine", "more")]


@pytest.mark.parametrize(
    ("name", "ages"),
    [
        ("late_nights", [(2, "b")]),
        ("missing_days", [(3, "b"), (0, "b")]),
        ("brokers_without_a_night", [(2, "b"), (0, "c")]),
    ],
)
def test_nights_that_are_late_or_missing(
    replayed: Replayed, tmp_path: Path, name: str, ages: list[tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    warehouse = copy_of(replayed("small"), tmp_path / "w")
    now = int(time.time() * 1000)

    def aged(days: list[tuple[int, str]]) -> None:
        entry = open_warehouse(warehouse)[-1]
        rewrite_ledger(
            warehouse,
            lambda _: [
                replace(entry, run=f"{entry.run}{number}", broker_name=broker, as_of=now - age * DAY)
                for number, (age, broker) in enumerate(days)
            ],
        )

    aged([(0, broker) for _, broker in ages])
    assert results(Warehouse.at(warehouse.storage.root), name)[name].severity.value == "ok"
    aged(ages)
    assert results(Warehouse.at(warehouse.storage.root), name)[name].bad_rows == 1


EVENT = (
    '{{"at": {0}, "op": "heartbeat", "group": "cg", "client_id": "c{0}", '
    '"subscriptions": [{{"topic": "T", "expression": "{1}", "sub_version": {0}}}]}}'
)


def small_night(tmp_path: Path, *events: str) -> list[str]:
    (tmp_path / "events.jsonl").write_text("\n".join(events))
    (tmp_path / "broker.conf").write_text("brokerName=b\nenablePropertyFilter=true\n")
    store = BrokerLog().append(5, TAGS="a", secret="of the shop").write(tmp_path / "store")
    return night(tmp_path / "w", store, tmp_path / "events.jsonl", tmp_path / "broker.conf")


def test_every_audit_was_made_to_fail() -> None:
    elsewhere = {
        "page_checksums", "schema_as_declared", "earlier_facts_unchanged", "late_nights", "missing_days",
        "brokers_without_a_night", "inconsistent_subscriptions", "earlier_facts_can_be_compared",
        "record_agrees_with_filters", "record_shows_other_filters", "record_has_no_contradictions",
        "no_trace_without_delivery", "no_delivery_denied",
    }  # fmt: skip
    assert set(NAMES) == BAD.keys() | elsewhere


def json_of(ended: Ended) -> dict[str, dict[str, Any]]:
    return {row["audit"]: row for row in map(json.loads, ended.out.splitlines())}


def test_facts_that_changed_since_the_last_audit(run: Run, replayed: Replayed, tmp_path: Path) -> None:
    warehouse = copy_of(replayed("small"), tmp_path / "w")
    assert run(audit, "--warehouse", tmp_path / "w").code == 0
    rewrite(warehouse, DELIVERY_STATS, lambda rows: list(reversed(rows)))
    assert run(audit, "--warehouse", tmp_path / "w").code == 0, "the same rows in another order"
    rewrite(Warehouse.at(str(tmp_path / "w")), DELIVERY_STATS, each(uncertain=lambda row: row["uncertain"] + 1))
    ended = run(audit, "--warehouse", tmp_path / "w", "--json")
    assert (ended.code, ended.error) == (3, "mqsieve: audits failed: earlier_facts_unchanged\n")
    assert json_of(ended)["earlier_facts_unchanged"]["sample"][0]["table_name"] == "delivery_stats"


def test_nights_are_audited_until_an_audit_passes(run: Run, tmp_path: Path) -> None:
    looked_at = []
    for number in (1, 2, 3):
        nightly.main(living(number, tmp_path / "w"))
        ended = run(audit, "--warehouse", tmp_path / "w", "--json")
        assert ended.code == 0, ended
        looked_at.append(json_of(ended)["messages_have_entries"]["rows"])
    messages = [dict(row["rows"])["commitlog"] for row in rows_of(tmp_path / "w", "run_ledger")]
    assert looked_at == messages
    again = json_of(run(audit, "--warehouse", tmp_path / "w", "--json"))
    assert again["messages_have_entries"]["rows"] == messages[-1]
    rewrite(Warehouse.at(str(tmp_path / "w")), QUEUE_PROGRESS, lambda rows: rows)
    everything = json_of(run(audit, "--warehouse", tmp_path / "w", "--json", "--all"))
    assert everything["messages_have_entries"]["rows"] == sum(messages)
    stored = list(rows_of(tmp_path / "w", "quality_results"))
    assert len(stored) == 5 * len(NAMES)
    assert all(row["passed"] for row in stored)


def test_a_log_in_parts_is_audited_as_a_whole(
    four_nights: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each file is a part. Of two queues, the first entry of the second file is missing, or comes again."""
    warehouse = copy_of(Warehouse.at(str(four_nights)), tmp_path / "w")
    begin = sorted(file.least["commitlog_offset"] for file in warehouse.log(COMMITLOG).files)[1]

    def damaged(rows: list[Row]) -> list[Row]:
        firsts: dict[tuple[str, int], Row] = {}
        for row in sorted(rows, key=lambda row: int(row["commitlog_offset"])):
            if row["commitlog_offset"] >= begin:
                firsts.setdefault((row["topic"], row["queue_id"]), row)
        missing, again = [row for row in firsts.values() if row["queue_offset"] > 0][:2]
        return [
            row | {"queue_offset": row["queue_offset"] - 1} if row is again else row
            for row in rows
            if row is not missing
        ]

    rewrite(warehouse, CONSUMEQUEUE, damaged)
    names = ("messages_have_entries", "entries_have_messages", "no_duplicates", "offsets_dense")
    whole = results(Warehouse.at(warehouse.storage.root), *names)
    monkeypatch.setattr(relations, "MESSAGES_IN_A_PART", 1)
    in_parts = results(Warehouse.at(warehouse.storage.root), *names)
    assert [whole[name].bad_rows for name in names] == [1, 0, 1, 2]
    for name in names:
        assert (in_parts[name].bad_rows, in_parts[name].rows) == (whole[name].bad_rows, whole[name].rows)
        assert in_parts[name].query == whole[name].query, "the user's query reads all parts"
        assert sorted(map(str, in_parts[name].sample)) == sorted(map(str, whole[name].sample))


def test_results_of_two_audits_at_once_are_both_stored(replayed: Replayed, tmp_path: Path) -> None:
    folder = tmp_path / "w"

    def report() -> AuditReport:
        scope = scope_of(each := Warehouse.at(str(folder)), open_warehouse(each), every_night=True)
        return run_audits(scope, LISTED, {}, lambda: pytest.fail("asked for Spark"))

    copy_of(replayed("small"), folder)
    store(report(), passed=True)
    for each in (report(), report()):
        store(each, passed=True)
    assert len(list(rows_of(folder, "quality_results"))) == 3 * len(NAMES)


def test_a_baseline_knows_failures_up_to_their_number(run: Run, replayed: Replayed, tmp_path: Path) -> None:
    copy_of(replayed("small"), tmp_path / "w")
    given = ("--warehouse", tmp_path / "w", "--fail-on", "warn")
    ended = run(audit, *given, "--json")
    assert ended.code == 3
    baseline = tmp_path / "known.jsonl"
    baseline.write_text(ended.out)
    assert run(audit, *given, "--baseline", baseline).code == 0
    baseline.write_text(ended.out.replace('"bad_rows": 16', '"bad_rows": 15'))
    assert run(audit, *given, "--baseline", baseline).error == "mqsieve: audits failed: hash_collisions\n"
    baseline.write_text("{}\n")
    ended = run(audit, *given, "--baseline", baseline)
    assert (ended.code, ended.error.count("\n")) == (2, 1)
    assert "known.jsonl, line 1: not an audit result" in ended.error


def test_consequences_are_folded_under_their_cause(run: Run, replayed: Replayed, tmp_path: Path) -> None:
    rewrite(copy_of(replayed("small"), tmp_path / "w"), CONSUMEQUEUE, without_one)
    ended = run(audit, "--warehouse", tmp_path / "w")
    assert ended.error == "mqsieve: audits failed: messages_have_entries\n"
    lines = ended.out.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("messages_have_entries"))
    assert lines[at + 1].startswith("offsets_dense")
    assert "follows from messages_have_entries" in lines[at + 1]
    assert "SELECT * FROM entries WHERE store_size IS NOT NULL" in ended.out


def test_an_audit_of_ones_own(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nightly.main(small_night(tmp_path, EVENT.format(1, "a"), EVENT.format(2, "b")))
    own = tmp_path / "audits.yaml"
    monkeypatch.setattr(audit, "AUDITS", own)
    text = (
        "relations:\n  shops: SELECT properties['secret'] AS secret, queue_offset FROM commitlog\n"
        "audits:\n- {{name: no_secrets, about: None., from: shops, where: {}, error_if: '{}'}}\n"
    )
    own.write_text(text.format("secret IS NOT NULL", "> 20%"))
    junit, summary = tmp_path / "junit.xml", tmp_path / "summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    ended = run(audit, "--warehouse", tmp_path / "w", "--junit", junit)
    assert (ended.code, ended.error) == (3, "mqsieve: audits failed: no_secrets\n")
    assert "\\x0a" not in ended.out, "the query is one line of SQL"
    (failure,) = ElementTree.parse(junit).getroot().iter("failure")
    assert "properties['secret']" in str(failure.text)
    assert "| no_secrets | ❌ error | 5 | 5 |" in summary.read_text()
    stored = json.dumps(list(rows_of(tmp_path / "w", "quality_results")))
    assert "of the shop" not in ended.out + junit.read_text() + summary.read_text() + stored
    assert "of the shop" in run(audit, "--warehouse", tmp_path / "w", "--show-values").out
    own.write_text(text.format("secret IS NOT NULL AND queue_offset < 1", "> 20%"))
    assert run(audit, "--warehouse", tmp_path / "w").code == 0
    own.write_text(text.format("nothing > 1", "> 0"))
    ended = run(audit, "--warehouse", tmp_path / "w")
    assert ended.code == 2
    assert ended.error.startswith("mqsieve: audit no_secrets: Schema error: No field named nothing.")
    own.write_text(text.format("true", "> 0").replace("about: None.", "about: None., needs: nothing"))
    assert "needs and else_skipped belong together" in run(audit, "--warehouse", tmp_path / "w").error
    own.write_text(
        text.format("true", "> 0").replace("about: None.", "about: None., needs: nothing, else_skipped: none")
    )
    assert run(audit, "--warehouse", tmp_path / "w").error.startswith("mqsieve: audit no_secrets: needs: ")
    own.write_text(text.format("true", "a lot"))
    assert "'a lot' is not a threshold; write '> 5' or '> 0.1%'" in run(audit, "--warehouse", tmp_path / "w").error


def test_an_audit_reads_all_properties_of_a_message(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first 24 names of a topic have columns of their own."""
    many: dict[str, Any] = {f"p{number}": f"v{number}" for number in range(30)} | {"odd": "a\x01b"}
    store = BrokerLog().append(2, **many).append(1).append(1, p29="other").write(tmp_path / "store")
    (tmp_path / "audits.yaml").write_text(
        "audits:\n- name: all_there\n  about: They are.\n  from: commitlog\n  error_if: '> 0'\n"
        "  where: (properties['n'] <= '1' AND properties['p3'] = 'v3' AND properties['p28'] = 'v28'"
        " AND properties['p29'] = 'v29' AND properties['odd'] = concat('a', chr(1), 'b')) IS NOT TRUE\n"
    )
    monkeypatch.setattr(audit, "AUDITS", tmp_path / "audits.yaml")
    nightly.main(["--store", str(store), "--warehouse", str(tmp_path / "w")])
    (result,) = map(json.loads, run(audit, "--warehouse", tmp_path / "w", "--json").out.splitlines())
    assert (result["bad_rows"], result["rows"]) == (2, 4)


def test_clients_that_disagree(run: Run, tmp_path: Path) -> None:
    nightly.main(small_night(tmp_path, EVENT.format(1, "a"), EVENT.format(2, "b")))
    result = results(Warehouse.at(str(tmp_path / "w")), "inconsistent_subscriptions")["inconsistent_subscriptions"]
    assert [row["consumer_group"] for row in result.sample] == ["cg"]


def test_unknown_clients_are_not_judged(
    run: Run, replayed: Replayed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy_of(replayed("small"), tmp_path / "w")
    name, why = "inconsistent_subscriptions", "no subscription event has a client_id"
    junit, summary = tmp_path / "junit.xml", tmp_path / "summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    ended = run(audit, "--warehouse", tmp_path / "w", "--junit", junit)
    assert re.search(rf"^{name} +skipped +- +-  {why}", ended.out, re.MULTILINE)
    # The capture becomes a late night when it is 36 hours old.
    counted = re.search(r"36 audits: \d+ ok, 3 skipped, (\d+) warn, 0 error", ended.out)
    assert counted is not None
    assert f"| {name} | ⏭️ skipped: {why}" in summary.read_text()
    suite = ElementTree.parse(junit).getroot()
    (case,) = (case for case in suite if case.get("name") == name)
    assert str(case[0].get("message")).startswith(why)
    assert (case[0].tag, suite.get("skipped")) == ("skipped", str(3 + int(counted[1])))
    row = json_of(run(audit, "--warehouse", tmp_path / "w", "--json"))[name]
    assert (row["severity"], row["skipped"].startswith(why)) == ("skipped", True)
    stored = [row["severity"] for row in rows_of(tmp_path / "w", "quality_results") if row["audit"] == name]
    assert set(stored) == {"skipped"}


def test_a_failure_says_what_was_expected(run: Run, replayed: Replayed, tmp_path: Path) -> None:
    copy_of(replayed("small"), tmp_path / "w")
    lines = run(audit, "--warehouse", tmp_path / "w").out.splitlines()
    at = lines.index("warn: groups_that_never_match: 1 of 53 rows")
    assert lines[at + 1] == "  expected: Every group that pulled past messages received at least one."
    assert "SELECT" in lines[at + 2]


def test_an_audit_that_cannot_be_counted_is_refused_without_messages_too(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_text("")
    (tmp_path / "log.jsonl").write_text("")
    given = ["--store", tmp_path / "log.jsonl", "--subscriptions", tmp_path / "events.jsonl"]
    nightly.main([*map(str, given), "--warehouse", str(tmp_path / "w")])
    listed = parse_audits(
        "audits: [{name: misspelt, about: a, from: log_messages, where: no_such_column > 0, warn_if: '> 0'}]", "a.yaml"
    )
    warehouse = Warehouse.at(str(tmp_path / "w"))
    scope = scope_of(warehouse, open_warehouse(warehouse), every_night=True)
    with pytest.raises(UsageError, match=r"audit misspelt: .*no_such_column"):
        run_audits(scope, listed, {}, lambda: pytest.fail("asked for Spark"))


def test_audits_of_an_own_file_do_not_count_as_those_of_ours(replayed: Replayed, tmp_path: Path, run: Run) -> None:
    shutil.copytree(replayed("small").location, tmp_path / "w")
    given = ("--warehouse", tmp_path / "w", "--audits", tmp_path / "own.yaml")
    one = "{name: no_b, about: No B., from: commitlog, where: topic = 'OrderEvents', error_if: '> 0'}"
    (tmp_path / "own.yaml").write_text(f"audits:\n  - {one}\n")
    ended = run(audit, *given)
    assert (ended.code, ended.error) == (3, "mqsieve: audits failed: no_b\n")
    (tmp_path / "own.yaml").write_text(f"audits:\n  - {one.replace('OrderEvents', 'nowhere')}\n")
    assert run(audit, *given).code == 0
    stored = list(rows_of(tmp_path / "w", "quality_results"))
    assert [row["passed"] for row in stored] == [False, False]
    for empty in ("", "audits: []\n", "relations: {}\n"):
        (tmp_path / "own.yaml").write_text(empty)
        assert run(audit, *given).code == 2
