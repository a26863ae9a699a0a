"""What needs attention: report, summary, --strict and lint say the same of one night."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path

import pytest

from answers import warehouse
from answers.attention import CONDITIONS
from answers.facts import open_facts
from answers.report import night_summary
from answers.report import report as report_of
from jobs import deliver, dispatch, ingest, lint, nightly, register, report
from schemas.delta.warehouse import Warehouse
from schemas.run_ledger import Remark, RemarkCode
from tests.nights.commands import Run
from tests.nights.growing_broker import BEFORE, LOW, GrowingBroker, event, sql

OFF = "enablePropertyFilter=false\n"


@pytest.mark.parametrize(
    ("expression", "code", "is_in_every_summary"),
    [
        ("n IS NULL AND n = '5'", "wrong-subscription", True),
        ("nn = '5'", "wrong-subscription", False),
        ("n > 5 AND n", "wrong-subscription", True),
        ("n >", "does-not-compile", True),
        (LOW, None, True),
    ],
    ids=["matches nothing", "unknown property", "bare property", "does not compile", "fine"],
)
def test_strict_fails_where_the_report_opens_with_an_error(
    broker: GrowingBroker, run: Run, expression: str, code: str | None, is_in_every_summary: bool
) -> None:
    events = [sql(BEFORE, "cg", expression), sql(BEFORE, "fine", LOW)]
    ended = broker.night(events, "--strict")
    assert ended.code == (0 if code is None else 3), ended.out
    facts = open_facts(Warehouse.at(str(broker.folder / "w")))
    problems = report_of(facts, None).attention  # type: ignore[arg-type]
    assert [each.code for each in problems if each.code != "refused-pulls"] == ([] if code is None else [code])
    assert night_summary(facts, checks_messages=True).attention == problems
    assert bool(night_summary(facts).attention) == (code is not None and is_in_every_summary)
    assert all(each.text in ended.out for each in problems)
    page = broker.folder / "night.html"
    run(report, "--warehouse", broker.folder / "w", "--output", page)
    shown = unescape(page.read_text("utf-8"))
    for each in problems:
        assert each.text[1:] in re.sub(r"<[^>]+>", "", shown)


def test_sql92_that_the_broker_refuses_is_an_error_of_lint_too(broker: GrowingBroker, run: Run) -> None:
    (broker.folder / "broker.conf").write_text(OFF)
    events = [*(sql(BEFORE, f"cg_{n}", LOW) for n in range(3)), event(BEFORE, "register", "tags", expression="*")]
    ended = broker.night(events, "--strict")
    assert (ended.code, "the broker refuses every pull of cg_0 on T, cg_1 on T, cg_2 on T" in ended.error) == (3, True)
    for given in (
        ("--warehouse", broker.folder / "w"),
        ("--warehouse", broker.folder / "w", "--subscriptions", broker.folder / "events.jsonl"),
        ("--subscriptions", broker.folder / "events.jsonl", "--broker-config", broker.folder / "broker.conf"),
    ):
        ended = run(lint, *given, "--json", "--fail-on", "error")
        findings = json.loads(ended.out)["findings"]
        refused = [each["consumer_group"] for each in findings if each["code"] == "refused-pulls"]
        assert (ended.code, refused) == (3, ["cg_0", "cg_1", "cg_2"])
        assert "enablePropertyFilter" in findings[0]["text"]
    ended = run(lint, "--subscriptions", broker.folder / "events.jsonl", "--fail-on", "error")
    assert ended.code == 0, "without a broker.conf, nobody knows"
    (broker.folder / "broker.conf").write_text("enablePropertyFilter=true\n")
    ended = run(lint, *given, "--fail-on", "error")
    assert ended.code == 0


def test_input_of_earlier_nights_in_quarantine_does_not_fail_every_night(broker: GrowingBroker) -> None:
    events = [sql(BEFORE, "cg", LOW), "{no event"]
    assert broker.night(events, "--strict").code == 3
    broker.grow()
    ended = broker.night([*events, sql(BEFORE, "late", LOW)], "--strict", "--redo-from", 0)
    assert (ended.code, "quarantined: events.jsonl, line 2" in ended.out) == (0, True), ended.error


def test_new_lines_in_quarantine_are_counted_without_those_of_earlier_nights(broker: GrowingBroker) -> None:
    broker.night([sql(BEFORE, "cg", LOW), "{no event", "{no event"])
    broker.grow()
    ended = broker.night([sql(BEFORE, "cg", LOW), "{no event", "{no event", "{no event"])
    assert "quarantined: events.jsonl, line 4: " in ended.out


def test_what_ingest_remarks_on_is_in_the_answers_of_the_night(broker: GrowingBroker, run: Run) -> None:
    config = broker.folder / "store" / "config"
    config.mkdir()
    topic = {"rmq_sys_SYNC_BROKER_MEMBER_other": {"readQueueNums": 1}}
    (config / "topics.json").write_text(json.dumps({"topicConfigTable": topic}))
    given = ("--warehouse", broker.folder / "w", "--broker-config", broker.folder / "broker.conf")
    events = broker.folder / "events.jsonl"
    events.write_text(sql(BEFORE, "cg", LOW))
    assert run(ingest, *given, "--store", broker.folder / "store").code == 0
    for job, *more in ((register, "--subscriptions", events), (dispatch,), (deliver,)):
        assert run(job, *given, *more).code == 0
    assert "the topics.json of the store is of" in str(warehouse.open(broker.folder / "w").summary())


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"at": 5, "op": "unregister", "group": "cg"}', '{"at": 5, "op": "reset_offset", "group": "cg", '
     '"topic": "T", "queue_id": 0, "offset": 5}'],
    ids=["empty", "an empty list", "only an end", "only a reset"],
)  # fmt: skip
def test_lint_of_no_subscription_is_refused(tmp_path: Path, run: Run, text: str) -> None:
    (tmp_path / "s").write_text(text)
    ended = run(lint, "--subscriptions", tmp_path / "s", "--fail-on", "warn")
    assert (ended.code, ended.error.count("\n")) == (2, 1), ended.out


def test_lint_of_a_warehouse_without_subscriptions_is_refused(broker: GrowingBroker, run: Run) -> None:
    run(
        nightly, "--store", broker.folder / "store", "--broker-config", broker.folder / "broker.conf",
        "--warehouse", broker.folder / "w",
    )  # fmt: skip
    ended = run(lint, "--warehouse", broker.folder / "w", "--fail-on", "warn")
    assert (ended.code, "has no subscription to check: no night had --subscriptions" in ended.error) == (2, True)


def test_every_condition_has_a_known_severity() -> None:
    assert {severity for severity, _ in CONDITIONS.values()} == {"error", "warn", "info"}


@pytest.mark.parametrize("code", RemarkCode)
def test_the_ledger_keeps_each_remark_as_the_condition_that_it_is(code: RemarkCode) -> None:
    remark = Remark(code, "from here: to there")
    assert (Remark.of_line(remark.line), code in CONDITIONS) == (remark, True)


def test_a_remark_of_an_older_night_is_told_as_it_is() -> None:
    line = "the log was cut: a broker does so"
    assert Remark.of_line(line) == Remark(RemarkCode.OLDER, line)


def test_a_summary_shows_the_groups_of_a_topic_that_wait_or_received_most(broker: GrowingBroker) -> None:
    """What a mail of a night with thousands of groups would be."""
    events = [*(sql(BEFORE, f"cg_{n:02}", "n = 'x'") for n in range(60)), sql(BEFORE, "last", LOW)]
    lines = broker.night(events).out.splitlines()
    shown = [line.split()[0] for line in lines if line.startswith(("  cg_", "  last"))]
    assert (len(shown), shown[-1]) == (50, "last")
    assert "  … and 11 more groups; the table delivery_stats has all" in lines
