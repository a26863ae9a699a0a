"""lint: for every finding, one subscription triggers it and a similar one does not."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from answers.facts import open_facts
from answers.lint import findings
from jobs import explain, lint, nightly, what_if
from schemas.delta.warehouse import Warehouse
from tests.broker_log import FIRST_TIME, BrokerLog
from tests.captures import PUBLIC, rows
from tests.nights import commands
from tests.nights.commands import Run
from tests.replayed import Replayed

CONF = "enablePropertyFilter=true\nenableCalcFilterBitMap=true\nenableConsumeQueueExt=true\n"
SQL92 = {
    "fails": "price > 50", "fails_not": "price > 50.0", "typo": "pricee > 50.0", "typo_not": "price > 51.0",
    "bare": "flag", "all": "price > 1.0", "never": "region = 'mars'", "int_is_fine": "weight > 5", "left": "n > 5",
    "same_1": "TAGS = 'C'",
}  # fmt: skip
TAG = {"collides": "Aa", "collides_not": "BB", "same_2": "C", "elsewhere": "*"}
EXPECTED = {
    ("fails", "fails"): ("error", 60, 60),
    ("typo", "unknown-property"): ("error", 0, 0),
    ("bare", "bare-property"): ("error", 0, 0),
    ("elsewhere", "topic-without-messages"): ("error", 0, 0),
    ("all", "matches-all"): ("info", 60, 60),
    ("never", "never-matched"): ("warn", 0, 60),
    ("collides", "hash-collision"): ("warn", 20, 60),
    ("same_1", "equivalent-groups"): ("info", 0, 0),
    ("left", "dead-filter"): ("info", 30, 30),
    ("clients", "inconsistent-clients"): ("error", 40, 40),
    ("clients", "assumed-queues"): ("warn", 0, 0),
}


def _register(group: str, expression: str, type_: str, topic: str = "T") -> dict[str, Any]:
    fields = {"at": FIRST_TIME - 1, "op": "register", "group": group, "consume_from": "first"}
    return fields | {"topic": topic, "type": type_, "expression": expression}


def _heartbeat(client: str, version: int, expression: str) -> dict[str, Any]:
    subscription = {"topic": "T", "expression": expression, "sub_version": version}
    fields = {"at": FIRST_TIME - 1, "op": "heartbeat", "group": "clients", "client_id": client}
    return fields | {"subscriptions": [subscription]}


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a warehouse ``w`` with 60 messages, and of its subscription events."""
    folder = tmp_path_factory.mktemp("lint")
    log = BrokerLog()
    for tag, price, weight in (("BB", "55.50", "7"), ("C", "12.50", "7"), ("D", "55.50", "3")):
        log.append(20, price=price, weight=weight, region="earth", flag="true", TAGS=tag)
    log.write(folder / "store")
    half = FIRST_TIME + 29_500
    events = [_register(group, text, "SQL92") for group, text in SQL92.items()]
    events += [_register(group, text, "TAG", "U" if group == "elsewhere" else "T") for group, text in TAG.items()]
    events += [_heartbeat("a@1", 1, "C"), _heartbeat("b@2", 2, "D")]
    events += [{"at": half, "op": "unregister", "group": "left"}]
    (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    (folder / "broker.conf").write_text(CONF)
    nightly.main(commands.night(folder / "w", folder / "store", folder / "events.jsonl", folder / "broker.conf"))
    return folder


def test_every_finding_has_its_numbers_and_no_other_group_has_one(night: Path) -> None:
    all_findings = findings(open_facts(Warehouse.at(str(night / "w"))))
    assert {
        (each.consumer_group, each.code): (each.severity, each.messages, each.of) for each in all_findings
    } == EXPECTED
    texts = {(each.consumer_group, each.code): each.text for each in all_findings}
    assert (
        texts["fails", "fails"]
        == "60 of 60 messages (100%) fail: price is a decimal there, such as '55.50'; write 50.0"
    )
    assert texts["typo", "unknown-property"] == "no message has pricee; did you mean price?"
    assert texts["collides", "hash-collision"].startswith("shares a hash with BB: 20 of 60 messages (33%) are returned")


def test_the_exit_code_is_what_fail_on_asks_for(night: Path, run: Run) -> None:
    given = ("--warehouse", night / "w")
    assert run(lint, *given).code == 0
    assert run(lint, *given, "--fail-on", "error").code == 3
    fine = night / "fine.yaml"
    fine.write_text("- {group: g, topic: T, sql: price > 55}\n")
    assert run(lint, "--subscriptions", fine, "--fail-on", "warn").code == 0
    ended = run(lint, "--subscriptions", fine, *given, "--fail-on", "warn")
    assert (ended.code, ended.error) == (3, "mqsieve: 1 finding is error or warn\n")
    fine.write_text("- {group: g, topic: T, sql: price > 55.0}\n- {group: h}\n")
    ended = run(lint, "--subscriptions", fine, "--fail-on", "error")
    assert (ended.code, "fine.yaml, line 2: topic: is missing" in ended.out) == (3, True)
    assert run(lint).code == 2
    ended = run(lint, "--subscriptions", fine, "--broker", "b")
    assert (ended.code, ended.error.endswith("of a warehouse: give --warehouse DIR as well\n")) == (2, True)


def test_known_findings_are_left_out(night: Path, run: Run) -> None:
    given = ("--warehouse", night / "w", "--fail-on", "error", "--subscriptions", night / "s.yaml", "--baseline")
    known, entry = night / "known.json", "- {{group: {}, topic: T, sql: {}}}\n".format
    (night / "s.yaml").write_text(entry("old", "price > 50"))
    known.write_text(run(lint, *given[:-1], "--json").out)
    (night / "s.yaml").write_text(entry("old", "price > 51"))
    left_out = f"left out, as {known} has them: 1 finding\n"
    ended = run(lint, *given, known)
    assert (ended.code, ended.out, ended.error) == (0, "no findings\n", left_out)
    (night / "s.yaml").write_text(entry("old", "price > 51") + entry("new", "price > 51"))
    ended = run(lint, *given, known)
    assert (ended.code, ended.error) == (3, f"{left_out}mqsieve: 1 finding is error\n")
    assert ended.out.startswith("✗ new on T  60 of 60 messages (100%) fail")
    known.write_text('{"broker_name": "a", "findings": []}\n{"broker_name": "b"')
    ended = run(lint, *given, known)
    assert (ended.code, ended.error) == (2, f"mqsieve: {known} has no findings: lint --json writes them\n")


def test_json_has_all_fields(night: Path, run: Run) -> None:
    made = json.loads(run(lint, "--warehouse", night / "w", "--json").out)["findings"]
    assert len(made) == len(EXPECTED)
    assert made[0].keys() == {"severity", "consumer_group", "topic", "code", "text", "messages", "of"}


def test_shares_on_a_capture_are_those_that_the_broker_had(replayed: Replayed) -> None:
    all_findings = findings(open_facts(replayed("dev")))
    collided = {
        each.consumer_group: each.messages
        for each in all_findings
        if (each.code, each.topic) == ("hash-collision", "TagLab")
    }
    for row in rows("dev", "delivered"):
        if row["topic"] == "TagLab" and row["type"] == "TAG":
            assert collided.get(row["group"], 0) == row["brokerCount"] - row["clientCount"]
    assert collided["cg_tag_Aa_only"] == 310


def test_a_filter_that_reads_only_tags_asks_for_a_known_property(tmp_path: Path, run: Run) -> None:
    store = BrokerLog().append(3, TAGS="C").write(tmp_path / "store")
    (tmp_path / "s.yaml").write_text("- {group: cg, topic: T, sql: TAGS = 'C'}\n")
    (tmp_path / "broker.conf").write_text(CONF)
    nightly.main(commands.night(tmp_path / "w", store, tmp_path / "s.yaml", tmp_path / "broker.conf"))
    assert "no message has" not in run(lint, "--warehouse", tmp_path / "w").out


def test_tags_that_were_meant_as_something_else(tmp_path: Path, run: Run) -> None:
    store = BrokerLog().append(3, TAGS="a,b").write(tmp_path / "store")
    tags = {"sql": "price > 5.0", "separated": "paid, shipped", "one": "a,b"}
    file = tmp_path / "s.yaml"
    file.write_text("".join(f"- {{group: {group}, topic: T, tag: '{tag}'}}\n" for group, tag in tags.items()))
    (tmp_path / "broker.conf").write_text(CONF)
    night = run(nightly, *commands.night(tmp_path / "w", store, file, tmp_path / "broker.conf"))
    assert "lint: subscriptions that look wrong whatever the messages are: 3\n" in night.out
    texts = [line.split(" on T ")[1].strip() for line in run(lint, "--warehouse", tmp_path / "w").out.splitlines()[:2]]
    assert texts == [
        "paid, shipped is one tag here; || separates tags",
        "price > 5.0 is a tag here, not SQL92: only messages with exactly this tag match; subscribe with "
        "MessageSelector.bySql, or write sql: in a YAML list",
    ]
    in_json = json.loads(run(lint, "--warehouse", tmp_path / "w", "--json").out)["findings"]
    assert [each["code"] for each in in_json] == ["one-tag", "sql-as-tag"]


def test_properties_without_a_column_are_known(tmp_path: Path) -> None:
    log = BrokerLog()
    properties: dict[str, Any] = {f"p{number}": "x" for number in range(40)}
    log.append(3, **properties)
    log.write(tmp_path / "store")
    filters = {f"cg_{number}": f"p{number} = 'x'" for number in range(41)}
    events = [json.dumps(_register(group, text, "SQL92")) + "\n" for group, text in filters.items()]
    (tmp_path / "events.jsonl").write_text("".join(events))
    (tmp_path / "broker.conf").write_text(CONF)
    inputs = (tmp_path / name for name in ("w", "store", "events.jsonl", "broker.conf"))
    nightly.main(commands.night(*inputs))
    all_findings = findings(open_facts(Warehouse.at(str(tmp_path / "w"))))
    assert [each.consumer_group for each in all_findings if each.code == "unknown-property"] == ["cg_40"]
    (matching,) = (each for each in all_findings if each.code == "matches-all" and each.consumer_group == "cg_39")
    assert (matching.messages, matching.of) == (3, 3)


def test_a_filter_that_does_not_compile_is_told_on_one_line_with_the_place(run: Run, tmp_path: Path) -> None:
    """A caret below the expression points at nothing on one line."""
    BrokerLog().append(1, "T").write(tmp_path / "store")
    file = tmp_path / "s.yaml"
    entries = ["{group: cg, topic: T, sql: \"price >\\n AND region = 'x'\"}", "{group: cg_end, topic: T, sql: a =}"]
    file.write_text("".join(f"- {entry}\n" for entry in entries))
    problem = "A property, a literal or a parenthesis is expected here"
    message = f"{problem}. Place: AND region = 'x'\n"
    at_end = f"{problem}, but the expression ends.\n"
    on_store = ("--store", tmp_path / "store", "--warehouse", tmp_path / "w")
    summary = run(nightly, *on_store, "--subscriptions", file).out
    assert f"cg on T does not compile: {message}" in summary
    assert f"cg_end on T does not compile: {at_end}" in summary
    linted = run(lint, "--subscriptions", file).out
    assert linted.splitlines(keepends=True)[:2] == [f"✗ cg on T      {message}", f"✗ cg_end on T  {at_end}"]
    given = ("--warehouse", tmp_path / "w", "--group", "cg", "--topic", "T")
    assert run(what_if, *given, "--sql", "price > AND region = 'x'").error.endswith(f"does not compile: {message}")
    explained = run(explain, *given, "--queue", 0, "--offset", 0).out
    assert f"because it does not compile: {message}" in explained
    long = "a = 'an apple a day' AND AND b = 'keeps the doctor away'"
    assert run(what_if, *given, "--sql", long).error.endswith(" Place: AND b = 'keeps the d…\n")


def test_a_narrow_terminal_gets_all_of_the_advice(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "s.yaml").write_text("- {group: cg_flag, topic: OrderEvents, sql: flag}\n")
    whole = run(lint, "--subscriptions", tmp_path / "s.yaml").out
    out = StringIO()
    out.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setenv("COLUMNS", "70")
    monkeypatch.setenv("NO_COLOR", "1")
    run(lint, "--subscriptions", tmp_path / "s.yaml")
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= 70
    assert " ".join(out.getvalue().split()) == " ".join(whole.split())
    assert [line.startswith("✗ cg_flag on OrderEvents  ") for line in lines[:2]] == [True, False]
    assert lines[1].startswith(" " * 26)


def test_a_file_without_a_subscription_does_not_pass_as_clean(run: Run, tmp_path: Path) -> None:
    (tmp_path / "s.yaml").touch()
    ended = run(lint, "--subscriptions", tmp_path / "s.yaml", "--fail-on", "warn")
    assert (ended.code, ended.error) == (
        2,
        f"mqsieve: --subscriptions: there is no subscription in {tmp_path / 's.yaml'}\n",
    )


def test_a_new_filter_that_matches_nothing(replayed: Callable[[str], Warehouse], run: Run, tmp_path: Path) -> None:
    filters = {"cg_sql": "sql: color = 'nosuch'", "cg_tag": "tag: nosuch", "cg_some": "sql: price IS NOT NULL"}
    entries = [f"- {{group: {group}, topic: OrderEvents, {text}}}\n" for group, text in filters.items()]
    (tmp_path / "s.yaml").write_text("".join(entries))
    given = ("--subscriptions", tmp_path / "s.yaml", "--warehouse", replayed("small").location, "--json")
    in_json = json.loads(run(lint, *given).out)["findings"]
    warned = [(each["consumer_group"], each["text"]) for each in in_json if each["code"] == "matches-none"]
    text = "none of the newest 308 messages matches"
    assert warned == [("cg_sql", text), ("cg_tag", text)]


@pytest.mark.parametrize(
    ("expression", "severity", "code"),
    [
        ("NOT color = 'red'", "error", "not-binds-tightly"),
        ("NOT color = 5 OR region = 'nosuch'", "warn", "not-binds-tightly"),
        ("NOT region = TRUE", "warn", "not-binds-tightly"),
        ("price > 50 AND price < 40", "error", "never-true"),
        ("TRUE = flag", "error", "never-true"),
        ("abs(price) > 3", "error", "ignored-input"),
        ("TAGS = 'paid || shipped'", "warn", "impossible-tag"),
        ("colour IS NULL", "error", "unknown-property"),
        ("TRUE = flag OR color = 'red'", "error", "fails"),
    ],
)
def test_one_cause_gives_one_finding(
    replayed: Replayed, run: Run, tmp_path: Path, expression: str, severity: str, code: str
) -> None:
    (tmp_path / "s.yaml").write_text(f'- {{group: cg, topic: OrderEvents, sql: "{expression}"}}\n')
    given = ("--subscriptions", tmp_path / "s.yaml", "--warehouse", replayed("small").location, "--json")
    in_json = json.loads(run(lint, *given).out)["findings"]
    assert [(each["severity"], each["code"]) for each in in_json] == [(severity, code)]


def test_a_failure_that_no_number_causes_is_told_with_the_broker_s_reason(
    replayed: Replayed, run: Run, tmp_path: Path
) -> None:
    (tmp_path / "s.yaml").write_text("- {group: cg, topic: OrderEvents, sql: \"TRUE = flag OR color = 'red'\"}\n")
    given = ("--subscriptions", tmp_path / "s.yaml", "--warehouse", replayed("small").location)
    assert "messages (37%) fail: " in run(lint, *given).out


def test_text_without_quotes_is_told_by_the_messages(run: Run, tmp_path: Path) -> None:
    """And a comparison of two properties that messages have is none."""
    public = PUBLIC / "unquoted-text"
    run(nightly, *commands.night(tmp_path, public / "log.jsonl", public / "subscriptions.yaml", public / "broker.conf"))
    out = run(lint, "--warehouse", tmp_path).out
    assert "no message has beijing: it is a value of region; write 'beijing'" in out
    assert "is a property here" not in out
    (tmp_path / "s.yaml").write_text(
        "- {group: g1, topic: t, sql: region = amount}\n- {group: g2, topic: t, sql: region = mars}\n"
        "- {group: g3, topic: t, sql: tag = 'x'}\n- {group: g4, topic: t, sql: region = mars OR beijing}\n"
        "- {group: g5, topic: t, sql: region = 'x' OR mars}\n"
    )
    out = run(lint, "--warehouse", tmp_path, "--subscriptions", tmp_path / "s.yaml").out
    assert "no message has mars; if it is a text, write 'mars'" in out
    assert "g4 on t  no message has beijing: it is a value of region; write region = 'beijing'" in out
    assert "g5 on t  no message has mars; if it is a text, write region = 'mars'" in out
    assert "no message has tag; RocketMQ's property is TAGS" in out
    assert "g1 on t  none of the newest 4 messages matches" in out
    answer = run(explain, "--warehouse", tmp_path, "--message", "p0", "--group", "g_beijing").out
    assert "would match with region = 'beijing'" in answer
    answer = run(explain, "--warehouse", tmp_path, "--message", "p1", "--group", "g_beijing").out
    assert "without region" not in answer
