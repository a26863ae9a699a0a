"""what-if, compared with the deliveries of a real broker with the old and the new filter."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from answers.facts import open_facts
from answers.what_if import WhatIf, subscription_of
from answers.what_if import what_if as tried
from filtering.relation import Kind
from filtering.subscription_data import SQL92, TAG
from filtering.tags_code import SCHEDULE_TOPIC
from filtering.time_spans import BEGINNING, FOREVER
from jobs import nightly, what_if
from schemas.delta.warehouse import Warehouse
from schemas.messages.stored_messages import scan_entries
from tests.broker_log import FIRST_TIME, BrokerLog
from tests.captures import rows
from tests.depth import examples
from tests.nights import commands
from tests.nights.commands import Run
from tests.nights.consumption_model import Model
from tests.nights.growing_broker import BEFORE, GrowingBroker, after, event, sql
from tests.nights.random_broker import RandomBroker, Trouble
from tests.reference import matches
from tests.replayed import Replayed

Places = set[tuple[int, int]]
OLD, FINAL = "level > 2", "level > 3 AND color <> 'blue'"
ORDERS = "OrderEvents"


def one(warehouse: Warehouse, group: str, topic: str, text: str, type_: str = SQL92) -> WhatIf:
    facts = open_facts(warehouse)
    (change,) = tried(facts, [subscription_of(facts, group, topic, text, type_)], (BEGINNING, FOREVER))
    return change


def places(messages: Any) -> Places:
    return set(zip(messages.rows["queue_id"].to_pylist(), messages.rows["queue_offset"].to_pylist(), strict=True))


def delivered(group: str, column: str, topic: str = ORDERS) -> Places:
    """The messages that a consumer received: live (``liveDelivered``), or with its last filter (``client``)."""
    (row,) = (
        row
        for row in rows("dev", "delivered")
        if (row["group"], row["topic"], row["mode"]) == (group, topic, "wire, registered subscription")
    )
    return {(queue, offset) for queue, offset in row[column]}


def test_the_final_filter_gives_the_difference_of_the_brokers_own_sets(replayed: Replayed) -> None:
    live, final = delivered("cg_sql_changes", "liveDelivered"), delivered("cg_sql_changes", "client")
    change = one(replayed("dev"), "cg_sql_changes", ORDERS, FINAL)
    assert (places(change.gained), places(change.lost)) == (final - live, live - final)
    assert (change.kept, change.relation and change.relation.kind) == (len(live & final), Kind.EQUIVALENT)


def test_back_to_the_old_filter_gives_the_difference_of_the_brokers_own_sets(replayed: Replayed) -> None:
    live = delivered("cg_sql_changes", "liveDelivered")
    with_entry = {entry["commitLogOffset"] for entry in rows("dev", "consumequeue")}
    old = {
        (row["queueId"], row["queueOffset"])
        for row in rows("dev", "messages")
        if row.get("topic") == ORDERS and row["physicalOffset"] in with_entry and matches(OLD, row["properties"])
    }
    change = one(replayed("dev"), "cg_sql_changes", ORDERS, OLD)
    assert places(change.gained) == old - live != set()
    assert places(change.lost) == live - old
    assert sum(each.gained for each in change.by_queue) == len(change.gained)
    assert change.gained.traits[0].text == "level = '3'"


@pytest.mark.parametrize(("other", "topic"), [("cg_tag_orders_late", ORDERS), ("cg_all_orders", ORDERS)])
def test_the_filter_of_another_group_gives_what_that_group_received(replayed: Replayed, other: str, topic: str) -> None:
    (text,) = {row["expression"] for row in rows("dev", "delivered") if (row["group"], row["topic"]) == (other, topic)}
    change = one(replayed("dev"), "cg_tag_orders_paid", topic, text, TAG)
    own, theirs = delivered("cg_tag_orders_paid", "client"), delivered(other, "client")
    assert (places(change.gained), places(change.lost)) == (theirs - own, own - theirs)


def test_what_a_group_has_yet_to_pull_is_neither_gained_nor_lost(replayed: Replayed) -> None:
    change = one(replayed("dev"), "cg_sql_offline_stays", ORDERS, "qty IS NOT NULL OR qty IS NULL")
    assert change.kept + len(change.gained) == change.scanned
    assert change.scanned + change.pending == len(delivered("cg_all_orders", "client"))


@pytest.mark.parametrize("capture", ["small", "dev"])
def test_entries_that_follow_from_messages_are_those_in_the_table(replayed: Replayed, capture: str) -> None:
    """After a complete night, what-if does not read them. Some messages, as prepared ones, have none."""
    facts = open_facts(replayed(capture))
    properties: dict[str, tuple[str, ...]] = {topic: () for topic in facts.topics if topic != SCHEDULE_TOPIC}

    def read(each_has_entry: bool) -> list[tuple[Any, ...]]:
        parts = scan_entries(
            facts.warehouse, facts.name, properties, list, None, bit_maps=False, each_has_entry=each_has_entry
        )
        columns = "queue_id", "queue_offset", "commitlog_offset", "tags_code", "store_timestamp"
        places = ((each.topic, *(getattr(each, name).tolist() for name in columns)) for part in parts for each in part)
        return sorted((topic, *row) for topic, *lists in places for row in zip(*lists, strict=True))

    assert facts.last.is_complete
    assert read(True) == read(False) != []


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a warehouse ``w`` of 30 orders. ``g`` receives the 20 from us, and ``h`` all."""
    folder = tmp_path_factory.mktemp("what_if")
    log = BrokerLog()
    for region in ("us", "eu", "us"):
        log.append(10, region=region, price="5.50", TAGS="a|b")
    log.write(folder / "store")
    (folder / "subscriptions.yaml").write_text(
        "- {group: g, topic: T, sql: region = 'us', consume_from: first}\n- {group: h, topic: T, tag: '*'}\n"
    )
    (folder / "broker.conf").write_text("enablePropertyFilter=true\n")
    nightly.main(commands.night(folder / "w", folder / "store", folder / "subscriptions.yaml", folder / "broker.conf"))
    return folder


def test_markdown_has_all_that_a_reviewer_needs(night: Path, run: Run) -> None:
    ended = run(what_if, "--warehouse", night / "w", "--group", "g", "--sql", "region = 'eu' AND price > 1.0")
    assert ended.code == 0
    for line in (
        "## g on T: 10 gained, 20 lost, 0 kept",
        "- in force: SQL92 `region = 'us'`",
        "- the new filter is disjoint: it delivers nothing that the old one delivers",
        "- only the new one delivers `region='eu', price='2.0'`",
        "- cost: 30 entries scanned, 30 pass on the entry alone",
        "- 100% have `region = 'eu'` (0% of the others)",
        "| 2026-11-18 | 0     | 0    | 10     | 20   |",
    ):
        assert line in ended.out.splitlines()
    assert "| 0/19         |" in ended.out


def test_only_the_cells_of_a_table_have_escaped_bars(night: Path, run: Run) -> None:
    """Elsewhere, Markdown shows the backslash in code."""
    lines = run(what_if, "--warehouse", night / "w", "--group", "g", "--tags", "a||b").out.splitlines()
    assert "- instead: TAG `a||b`" in lines
    assert sum("| `TAGS='a\\|b', region='us'` |" in line for line in lines) == 5


def test_backticks_do_not_end_code(night: Path, run: Run) -> None:
    lines = run(what_if, "--warehouse", night / "w", "--group", "g", "--tags", "`a``b").out.splitlines()
    assert "- instead: TAG ``` `a``b ```" in lines


def test_a_terminal_shows_plain_text(night: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    out = StringIO()
    out.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stdout", out)
    sql = "note_text <> '*' OR note_text = '[b]'"
    run(what_if, "--warehouse", night / "w", "--group", "h", "--sql", sql)
    lines = out.getvalue().splitlines()
    assert lines[0] == "h on T: 0 gained, 30 lost, 0 kept"
    assert f"- instead: SQL92 {sql}" in lines
    assert "Lost: 30 messages" in lines
    assert "  2026-11-18  0      0     0       30" in lines
    assert "of the others" not in out.getvalue(), "all messages of the topic are lost"
    assert not {"\\", "`", "#"} & set(out.getvalue())


def test_limits_and_expectations_end_with_3(night: Path, run: Run) -> None:
    given = ("--warehouse", night / "w", "--group", "g", "--sql", "region IN ('us', 'eu')")
    assert run(what_if, *given, "--max-lost", 0, "--max-gained", 10).code == 0
    ended = run(what_if, *given, "--max-lost", 0, "--max-gained", 9)
    assert (ended.code, ended.error) == (3, "mqsieve: the change gains 10 messages, more than --max-gained 9\n")
    expected = night / "messages.yaml"
    expected.write_text("- pass: {region: eu}\n- stop: {region: mars}\n- {pass: {region: mars}, group: h}\n")
    assert run(what_if, *given, "--expect", expected).code == 0
    expected.write_text("- pass: {region: mars}\n")
    ended = run(what_if, *given, "--expect", expected)
    assert (ended.code, ended.error) == (
        3, "mqsieve: g: message 1 (region: 'mars') must pass and does not: the filter is FALSE\n",
    )  # fmt: skip
    for misspelt in ("- stop: {regoin: mars}\n", "- pass: {region: eu}\n- stop: {region: mars, Region: eu}\n"):
        expected.write_text(misspelt)
        ended = run(what_if, *given, "--expect", expected)
        assert (ended.code, "no message has it; did you mean region?" in ended.error) == (2, True)
    expected.write_text("- {pass: {}, stop: {}}\n")
    assert "entry 1: give either pass: or stop:" in run(what_if, *given, "--expect", expected).error
    expected.write_text("- {pass: {}, group: [g]}\n")
    assert "entry 1: group: must be a text" in run(what_if, *given, "--expect", expected).error
    expected.write_text("- {pass: {region: mars}, group: gg}\n")
    ended = run(what_if, *given, "--expect", expected)
    assert (ended.code, "entry 1: there is no group gg; did you mean g?" in ended.error) == (2, True)
    verdict = json.loads(run(what_if, *given, "--max-lost", 0, "--max-gained", 9, "--json").out)["verdict"]
    checks = [(each["name"], each["limit"], each["value"], each["passed"]) for each in verdict["checks"]]
    assert checks == [("max-lost", 0, 0, True), ("ended", 0, 0, True), ("max-gained", 9, 10, False)]
    assert (verdict["passed"], verdict["compares_nothing"]) == (False, False)
    assert json.loads(run(what_if, *given, "--json").out)["verdict"]["passed"] is None, "no limit"


def test_changes_of_a_file_are_those_that_differ(night: Path, run: Run) -> None:
    changes = night / "changes.yaml"
    same = (night / "subscriptions.yaml").read_text()
    changes.write_text(same.replace("tag: '*'", "tag: a") + "- {group: new, topic: T, sql: price = '5.50'}\n")
    made = json.loads(run(what_if, "--warehouse", night / "w", "--changes", changes, "--json").out)
    assert (made["gained"], made["lost"], made["kept"]) == (30, 30, 0)
    assert [(each["consumer_group"], each["gained"], each["lost"]) for each in made["changes"]] == [
        ("h", 0, 30), ("new", 30, 0),
    ]  # fmt: skip
    assert made["changes"][0]["relation"] == "narrower"
    offsets = [message["commitlog_offset"] for message in made["changes"][1]["gained_messages"]["messages"]]
    assert len(offsets) == 30
    assert offsets == sorted(offsets)
    changes.write_text(same)
    given = ("--warehouse", night / "w", "--changes", changes, "--max-lost", "0")
    ended = run(what_if, *given)
    assert (ended.code, ended.error) == (0, "")
    assert ended.out.startswith("no subscription differs from what is in force\n\n**Verdict: passed**\n")
    made = json.loads(run(what_if, *given, "--json").out)
    assert made.pop("verdict")["passed"] is True
    assert made == {"gained": 0, "lost": 0, "kept": 0, "changes": [], "unmet": []}
    changes.write_text("")
    ended = run(what_if, *given)
    assert (ended.code, ended.error) == (2, f"mqsieve: --changes: there is no subscription in {changes}\n")


SAME = "- {group: g, topic: T, sql: region = 'us', consume_from: first}\n- {group: h, topic: T, tag: '*'}\n"
WITHOUT_H, WITHOUT_G = SAME.splitlines(keepends=True)
ONLY_NEW = "- {group: new, topic: T, tag: '*'}\n"
RENAMED_H = SAME.replace("group: h", "group: hh")
LEFT = '{"at": 1900000000000, "op": "unregister", "group": "h"}\n'
LEFT_TOPIC = '{"at": 1900000000000, "op": "unregister", "group": "h", "topic": "T"}\n'
OTHER_TOPIC = (
    '{"at": 1900000000000, "op": "heartbeat", "group": "h", "client_id": "c", '
    '"subscriptions": [{"topic": "%RETRY%h", "expression": "*"}]}\n'
)
HISTORY_WITHOUT_H = '{"at": 0, "op": "register", "group": "g", "topic": "T", "type": "SQL92", "expression": "a = 5"}\n'


@pytest.mark.parametrize(
    ("text", "lost", "subscriptions"),
    [
        (WITHOUT_H, 30, 1),
        (WITHOUT_G, 20, 1),
        (RENAMED_H, 30, 1),
        (ONLY_NEW, 50, 2),
        (LEFT, 30, 1),
        (LEFT_TOPIC, 30, 1),
        (OTHER_TOPIC, 30, 1),
        (HISTORY_WITHOUT_H, 50, 1),
    ],
    ids=["h", "g", "renamed", "all", "left", "left the topic", "not in a heartbeat", "withdrawn"],
)
def test_subscriptions_that_a_night_with_the_file_ends_are_lost(
    night: Path, run: Run, tmp_path: Path, text: str, lost: int, subscriptions: int
) -> None:
    """A list of subscriptions in a pull request that lacks a group is the same for a night: the group has left."""
    file = tmp_path / "changes"
    file.write_text(text)
    given = ("--warehouse", night / "w", "--changes", file, "--max-lost")
    ended = run(what_if, *given, 0, "--json")
    (max_lost, max_ended) = json.loads(ended.out)["verdict"]["checks"]
    assert (ended.code, max_lost["value"], max_ended["value"]) == (3, lost, subscriptions), ended.error
    assert (max_lost["name"], max_lost["limit"], max_lost["passed"]) == ("max-lost", 0, False)
    limits = run(what_if, *given, 1_000_000)
    assert (limits.code, limits.error.startswith("mqsieve: the file ends ")) == (3, True), "whatever --max-lost is"
    assert "**Verdict: FAILED**" in limits.out.splitlines()
    assert "- instead: no subscription: the file ends it" in limits.out.splitlines()
    allowed = run(what_if, *given, 0, "--allow-ended")
    assert allowed.code == (3 if text == HISTORY_WITHOUT_H else 0), allowed.error
    again = shutil.copytree(night, tmp_path / "again")
    nightly.main(["--warehouse", str(again / "w"), "--store", str(again / "store"), "--subscriptions", str(file)]
                 + ["--redo-from", "0"] * (text == HISTORY_WITHOUT_H))  # fmt: skip
    facts = open_facts(Warehouse.at(str(again / "w")))
    consuming = {row.consumer_group for row in facts.in_force if row.is_consuming and row.topic == "T"}
    assert len({"g", "h"} - consuming) == subscriptions, "what-if says what the night does"


def test_ended_groups_are_allowed_by_name(night: Path, run: Run, tmp_path: Path) -> None:
    file = tmp_path / "changes.yaml"
    file.write_text(ONLY_NEW)
    given = ("--warehouse", night / "w", "--changes", file, "--max-lost", "0")
    ended = run(what_if, *given, "--allow-ended", "g")
    assert (ended.code, ended.error) == (
        3, "mqsieve: the change loses 30 messages, more than --max-lost 0; the file ends 1 subscription (h on T); "
        "--allow-ended GROUP allows it\n",
    )  # fmt: skip
    assert run(what_if, *given, "--allow-ended", "g", "--allow-ended", "h").code == 0
    ended = run(what_if, *given, "--allow-ended", "gg")
    assert (ended.code, ended.error) == (2, "mqsieve: --allow-ended: there is no group gg; did you mean g?\n")
    ended = run(what_if, *given[:4], "--allow-ended", "g")
    assert (ended.code, ended.error.startswith("mqsieve: --allow-ended is for --changes with --max-lost")) == (2, True)


def test_expectations_are_for_groups_whose_filter_stays_or_ends_too(night: Path, run: Run, tmp_path: Path) -> None:
    file, expected = tmp_path / "changes.yaml", tmp_path / "expected.yaml"
    expected.write_text("- {pass: {region: mars}, group: g}\n")
    file.write_text(SAME)
    ended = run(what_if, "--warehouse", night / "w", "--changes", file, "--expect", expected)
    assert (ended.code, "g: message 1 (region: 'mars') must pass and does not: the filter" in ended.error) == (3, True)
    file.write_text(WITHOUT_G)
    ended = run(what_if, "--warehouse", night / "w", "--changes", file, "--expect", expected)
    assert (ended.code, "must pass and does not: the group has no subscription" in ended.error) == (3, True)
    expected.write_text("- {stop: {region: mars}, group: g}\n")
    assert run(what_if, "--warehouse", night / "w", "--changes", file, "--expect", expected).code == 0
    expected.write_text("- {stop: {region: mars}, group: h}\n")
    ended = run(what_if, "--warehouse", night / "w", "--group", "g", "--tags", "*", "--expect", expected)
    assert (ended.code, "h: message 1 (region: 'mars') must not pass and does" in ended.error) == (3, True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--max-lost", "-1"), "--max-lost: -1 is not a number of messages"),
        (("--from", "2026-11-22", "--to", "2026-11-21"), "--to must be later than --from"),
    ],
)
def test_limits_and_times_that_cannot_be(night: Path, run: Run, options: tuple[str, ...], message: str) -> None:
    ended = run(what_if, "--warehouse", night / "w", "--group", "g", "--tags", "a", *options)
    assert (ended.code, message in ended.error) == (2, True)


def test_a_period_leaves_out_other_messages(night: Path, run: Run) -> None:
    period = ("--from", FIRST_TIME + 10_000, "--to", FIRST_TIME + 25_000)
    made = json.loads(run(what_if, "--warehouse", night / "w", "--group", "g", "--sql", "TRUE", *period, "--json").out)
    assert (made["gained"], made["lost"], made["kept"]) == (10, 0, 5)


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (("--group", "g"), "needs --sql or --tags for the group, or --changes FILE"),
        (("--sql", "a"), "needs --group with --sql or --tags, or --changes FILE"),
        (("--group", "gg", "--sql", "a = 5"), "gg has no subscription in"),
        (("--group", "brand-new", "--sql", "a = 5"), "; --changes FILE tries a group that is new\n"),
        (("--group", "g", "--sql", "a ="), "g on T: the filter does not compile"),
        (("--group", "g", "--topic", "U", "--sql", "a = 5"), "no message of the log has the topic U; it has T"),
        (("--group", "g", "--topic", "t", "--sql", "a = 5"), "has the topic t; did you mean T?"),
        (("--group", "g", "--sql", "a = 5", "--from", "1795237513"), "write milliseconds, as in 1795237513000"),
        (("--group", "g", "--sql", "a = 5", "--from", "noon"), "argument --from: 'noon' is not a time"),
    ],
)
def test_wrong_usage_is_one_line(night: Path, run: Run, given: tuple[str, ...], error: str) -> None:
    ended = run(what_if, "--warehouse", night / "w", *given)
    assert (ended.code, ended.error.count("\n"), error in ended.error) == (2, 1, True)


def test_messages_before_the_first_start_are_not_gained_unless_a_reset_repeats_them(tmp_path: Path, run: Run) -> None:
    log = BrokerLog(segment=1 << 11)
    for _ in range(40):
        log.append(1, "T").append(1, "U")
    log.write(tmp_path / "store", start=log.segment)  # with offset 0, a new group would begin there
    registered: Mapping[str, object] = {"group": "cg", "at": log.messages[60].stored_at - 1, "op": "register"}
    events: list[Mapping[str, object]] = [
        *({"topic": topic, "type": "SQL92", "expression": "n = '35'"} for topic in "TU"),
        {"op": "reset_offset", "topic": "U", "queue_id": 0, "offset": 25, "at": log.messages[-1].stored_at},
    ]
    lines = [json.dumps({**registered, **event}) for event in events]
    (tmp_path / "events.jsonl").write_text("\n".join(lines))
    (tmp_path / "broker.conf").write_text("enablePropertyFilter=true\n")
    nightly.main(
        commands.night(tmp_path / "w", tmp_path / "store", tmp_path / "events.jsonl", tmp_path / "broker.conf")
    )
    for topic, gained in (("T", 9), ("U", 14)):
        given = ("--warehouse", tmp_path / "w", "--group", "cg", "--topic", topic, "--tags", "*", "--json")
        (change,) = json.loads(run(what_if, *given).out)["changes"]
        assert (topic, change["gained"], change["lost"]) == (topic, gained, 0)


def same_filter(broker: GrowingBroker) -> tuple[int, int, int]:
    """The messages that the group gains, loses and keeps with its own filter."""
    given = ("--warehouse", broker.folder / "w", "--group", "cg", "--sql", "n IS NOT NULL", "--json")
    (change,) = json.loads(broker.run(what_if, *given).out)["changes"]
    return change["gained"], change["lost"], change["kept"]


def test_the_filter_in_force_changes_nothing_after_damage(broker: GrowingBroker) -> None:
    broker.log.damage(4)
    broker.log.write(broker.folder / "store")
    broker.night([sql(BEFORE, "cg", "n IS NOT NULL")])
    assert same_filter(broker) == (0, 0, 9)


def test_messages_that_a_group_will_receive_again_are_kept(broker: GrowingBroker) -> None:
    leave, reset = event(after(6), "unregister", "cg"), event(after(7), "reset_offset", "cg", queue_id=0, offset=2)
    broker.night([sql(BEFORE, "cg", "n IS NOT NULL"), leave, reset])
    assert same_filter(broker) == (0, 0, 6)


@pytest.mark.parametrize("trouble", [Trouble.DELETES, Trouble.EXPIRES, Trouble.RECREATES], ids=lambda each: each.value)
@pytest.mark.parametrize("seed", range(101, 101 + examples(1, 6)))
def test_a_group_that_takes_everything_gains_what_it_pulled_by_a_slow_model(
    run: Run, tmp_path: Path, seed: int, trouble: Trouble
) -> None:
    broker, model, warehouse = RandomBroker(seed, tmp_path), Model(), tmp_path / "w"
    broker.has_queues = True
    for _ in range(4):
        model.night(*broker.next_night(trouble))
        assert run(nightly, *commands.night(warehouse, broker.store, broker.events, broker.config)).code == 0
    facts = open_facts(Warehouse.at(str(warehouse)))
    keys = sorted({(pull.group, pull.topic) for pull in model.pulls})
    wanted = [subscription_of(facts, group, topic, "*", TAG) for group, topic in keys]
    for key, change in zip(keys, tried(facts, wanted, (BEGINNING, FOREVER)), strict=True):
        pulls = [pull for pull in model.pulls if (pull.group, pull.topic) == key]
        received = {pull.stored_at for pull in pulls if pull.matches}
        pulled = {pull.stored_at for pull in pulls}
        gained = change.gained.rows["store_timestamp"].to_pylist()
        assert (key, sorted(gained), change.kept) == (key, sorted(pulled - received), len(received))
        assert (len(change.lost), change.scanned) == (0, len(pulled))
