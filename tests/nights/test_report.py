"""The page of a night agrees with the tables."""

from __future__ import annotations

import importlib
import json
import os
import re
import shlex
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable
from datetime import UTC, datetime
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest

from answers.facts import open_facts
from answers.lag import lag
from answers.report import night_summary
from answers.report import report as read_report
from jobs import deliver, dispatch, ingest, maintain, nightly, register, report
from jobs.cli import options
from schemas.delta.warehouse import Warehouse
from tests.broker_log import BrokerLog
from tests.nights.commands import Run, night, rows_of
from tests.nights.growing_broker import BEFORE, GrowingBroker, after, event, sql

Rows = dict[tuple[str, str], dict[str, str]]


def page_of(warehouse: Path | str, folder: Path, *more: object) -> str:
    output = folder / "night.html"
    report.main(["--warehouse", str(warehouse), "--output", str(output), *map(str, more)])
    return output.read_text(encoding="utf-8")


class Tables(HTMLParser):
    """The rows of cells of all tables, by section."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.rows: defaultdict[str, list[list[str]]] = defaultdict(list)
        self._section = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag == "section":
            self._section = dict(attributes)["id"] or ""
        if tag == "tr":
            self.rows[self._section].append([])
        if tag in ("td", "th"):
            self.rows[self._section][-1].append("")

    def handle_data(self, data: str) -> None:
        if self.rows[self._section] and self.rows[self._section][-1]:
            self.rows[self._section][-1][-1] += data

    def handle_endtag(self, tag: str) -> None:
        if tag == "table":
            self._section += " after its table"


def rows_in(page: str, section: str) -> list[dict[str, str]]:
    """The rows of the first table of a section, by the titles of its columns."""
    titles, *rows = Tables(page).rows[section]
    return [{title.strip(): cell.strip() for title, cell in zip(titles, row, strict=True)} for row in rows]


def group_rows(page: str) -> Rows:
    """The rows of the table of groups, by group and topic."""
    return {(row["Group"], row["Topic"]): row for row in rows_in(page, "groups")}


def number(text: str) -> int:
    return int(text.replace(",", "").replace("−", "-").replace("+", ""))


def delivered(warehouse: Path, run: str) -> Counter[tuple[str, str]]:
    counted: Counter[tuple[str, str]] = Counter()
    for row in rows_of(warehouse, "delivery_stats", "run", "consumer_group", "topic", "delivered"):
        if row["run"] == run:
            counted[row["consumer_group"], row["topic"]] += row["delivered"]
    return counted


def runs(warehouse: Path) -> list[str]:
    return sorted({row["run"] for row in rows_of(warehouse, "run_ledger", "run")})


def test_each_group_has_its_row_beside_the_night_before(four_nights: Path, tmp_path: Path) -> None:
    rows_by_group = group_rows(page_of(four_nights, tmp_path))
    *_, before, last = runs(four_nights)
    now, then = delivered(four_nights, last), delivered(four_nights, before)
    assert rows_by_group.keys() == now.keys() | then.keys()
    for key, row in rows_by_group.items():
        assert number(row["Delivered"]) == now[key], key
        assert row["Change"] == "new" or number(row["Change"]) == now[key] - then[key], key
    assert any(row["Change"] == "new" for row in rows_by_group.values())
    assert sum(number(row["Pending"]) for row in rows_by_group.values()) == sum(
        row["queue_end"] - (row["decided_to"] or 0)
        for row in rows_of(four_nights, "current_offsets", "consumer_group", "queue_end", "decided_to")
        if row["consumer_group"] is not None
    )


def test_false_positives_are_a_part_of_what_the_bit_map_judged(
    replayed: Callable[[str], Warehouse], tmp_path: Path
) -> None:
    warehouse = replayed("small")
    numbers = re.search(r"([\d,]+) of ([\d,]+) entries that do not match", page_of(warehouse.location, tmp_path))
    last_types = {
        (row["consumer_group"], row["topic"]): row["expression_type"]
        for row in rows_of(warehouse, "subscriptions")
        if row["valid_to"] is None
    }
    rows = rows_of(warehouse, "delivery_stats")
    by_sql92 = [row for row in rows if last_types[row["consumer_group"], row["topic"]] == "SQL92"]
    stopped = sum(row["scanned"] - row["passed_stage1"] for row in by_sql92)
    passed = sum(row["bit_map_false_positives"] for row in by_sql92)
    assert numbers is not None
    assert (number(numbers[1]), number(numbers[2])) == (passed, stopped + passed)
    assert passed > 0 < stopped


def test_lag_counts_what_the_group_would_get(four_nights: Path, tmp_path: Path) -> None:
    rows_by_group = group_rows(page_of(four_nights, tmp_path))
    behind: Counter[tuple[str, str]] = Counter()
    for each in lag(open_facts(Warehouse.at(str(four_nights)))):
        behind[each.consumer_group, each.topic] += each.would_get
    assert {key: number(row["Would get"]) for key, row in rows_by_group.items() if number(row["Would get"])} == {
        key: count for key, count in behind.items() if count
    }


def test_another_night_to_compare_with(four_nights: Path, tmp_path: Path) -> None:
    first, *_, last = runs(four_nights)
    page = page_of(four_nights, tmp_path, "--compare", first)
    now, then = delivered(four_nights, last), delivered(four_nights, first)
    for key, row in group_rows(page).items():
        assert row["Change"] == "new" or number(row["Change"]) == now[key] - then[key], key
    assert f"compared with {first}" in page
    (row,) = [row for row in rows_in(page, "compared") if row["Measure"] == "Delivered"]
    assert [number(cell) for cell in list(row.values())[1:3]] == [then.total(), now.total()]


def test_a_night_that_is_not_there(four_nights: Path, tmp_path: Path, run: Run) -> None:
    given = ["--warehouse", four_nights, "--output", tmp_path / "x.html"]
    code, _, error = run(report, *given, "--compare", "1999")
    assert (code, "1999 is not an earlier night" in error) == (2, True)
    code, _, error = run(report, *given, "--compare", "20")
    assert (code, "beginning of 3 nights" in error) == (2, True)
    code, _, error = run(report, *given, "--since", "2999-01-01")
    assert (code, "no night ended at 2999-01-01" in error) == (2, True)
    code, _, error = run(report, *given, "--since", "yesterday")
    assert (code, "'yesterday' is not a time" in error) == (2, True)
    assert not (tmp_path / "x.html").exists()


def test_since_shows_the_later_nights(four_nights: Path, tmp_path: Path) -> None:
    ends = sorted({row["as_of"] for row in rows_of(four_nights, "run_ledger", "as_of")})
    instant = ends[2] / 1000
    since = datetime.fromtimestamp(instant, UTC).isoformat(timespec="milliseconds")
    page = page_of(four_nights, tmp_path, "--since", since)
    assert '<h2 id="nights-title">2 nights</h2>' in page
    assert "2 earlier nights are in the warehouse" in page


def test_a_first_night_has_nothing_to_compare_with(
    replayed: Callable[[str], Warehouse], tmp_path: Path, run: Run
) -> None:
    warehouse = replayed("small").location
    page = page_of(warehouse, tmp_path)
    assert "There is no earlier night to compare with." in page
    assert "Change" not in group_rows(page)["cg_all_orders", "OrderEvents"]
    assert run(report, "--warehouse", warehouse, "--output", tmp_path / "x.html", "--compare", "20").code == 2


def test_a_night_without_subscriptions_needs_them(tmp_path: Path, run: Run) -> None:
    given = ("--warehouse", tmp_path / "w")
    store = BrokerLog().append(5).write(tmp_path / "store")
    assert run(ingest, "--store", store, *given).code == 0
    ended = run(report, *given, "--output", tmp_path / "x.html")
    assert (ended.code, ended.error.endswith(": run nightly or deliver first\n")) == (2, True)
    assert run(nightly, "--store", store, *given).code == 0
    ended = run(report, *given, "--output", tmp_path / "x.html")
    assert (ended.code, "run nightly" in ended.error) == (2, False)
    assert ended.error.endswith(": no group subscribes to a topic with messages; give nightly --subscriptions\n")


def test_findings_and_attention(replayed: Callable[[str], Warehouse], tmp_path: Path) -> None:
    page = page_of(replayed("small").location, tmp_path)
    concerned = {row["Group"] for row in rows_in(page, "findings")}
    assert "cg_sql_flag_bare" in concerned
    assert "cg_all_orders" not in concerned


def test_quarantine_counts_what_was_not_decoded(tmp_path: Path) -> None:
    event = {"at": 1, "op": "register", "group": "cg", "topic": "T", "type": "TAG", "expression": "*", "sub_version": 1}
    (tmp_path / "events.jsonl").write_text(f"{json.dumps(event)}\n{{<b>\n{{<b>\n")
    (tmp_path / "broker.conf").write_text("brokerName=b\n")
    store = BrokerLog().append(5).write(tmp_path / "store")
    nightly.main(night(tmp_path / "w", store, tmp_path / "events.jsonl", tmp_path / "broker.conf"))
    pieces = list(rows_of(tmp_path / "w", "quarantine", "source_file", "reason"))
    assert len(pieces) == 2
    assert Counter((piece["source_file"], piece["reason"]) for piece in pieces) == {
        (row["File"], row["Reason"]): number(row["New this night"])
        for row in rows_in(page_of(tmp_path / "w", tmp_path), "quarantine")
    }


def test_the_same_warehouse_gives_the_same_bytes(four_nights: Path, tmp_path: Path) -> None:
    page = page_of(four_nights, tmp_path)
    command = [sys.executable, "-m", "jobs.report", "--warehouse", str(four_nights), "--output", "-"]
    environment = os.environ | {"PYTHONHASHSEED": "1"}
    assert subprocess.run(command, capture_output=True, check=True, env=environment).stdout.decode() == page


def test_every_command_is_one_that_a_job_takes(four_nights: Path, tmp_path: Path) -> None:
    commands = re.findall(r'<code class="command">(.*?)</code>', page_of(four_nights, tmp_path))
    jobs = Counter[str]()
    for program, job, *given in map(shlex.split, map(unescape, commands)):
        assert program == "./spark-submit.sh"
        jobs[job] += 1
        importlib.import_module(f"jobs.{job.replace('-', '_')}").parser().parse_args(_filled(given))
    assert jobs["explain"] > 10
    assert jobs["report"] == 3


def _filled(given: list[str]) -> list[str]:
    """The arguments, with numbers instead of the placeholders for queue and offset."""
    return ["0" if word in ("QUEUE", "OFFSET") else word for word in given]


def test_names_of_others_are_text(tmp_path: Path) -> None:
    hostile = "<script>alert(1)</script>{{ 7 * 7 }}"
    events = [
        {"at": 1, "op": "register", "group": hostile, "topic": "T", "type": "SQL92", "sub_version": 1,
         "expression": "TAGS = '</script><img src=x onerror=alert(1)>' OR n >= 0"},
    ]  # fmt: skip
    (tmp_path / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    (tmp_path / "broker.conf").write_text("brokerName=<b>b</b>\nenablePropertyFilter=true\n")
    store = BrokerLog().append(5).write(tmp_path / "store")
    nightly.main(night(tmp_path / "w", store, tmp_path / "events.jsonl", tmp_path / "broker.conf"))
    page = page_of(tmp_path / "w", tmp_path)
    assert group_rows(page)[hostile, "T"]["Delivered"] == "5"
    assert page.count("<script>") == 1
    assert "<img" not in page
    assert "<b>b" not in page


def test_each_night_names_the_filter_that_stopped_its_messages(broker: GrowingBroker) -> None:
    by_tags = event(BEFORE, "register", "cg", type="TAG", expression="a", consume_from="first")
    broker.night([by_tags])
    broker.grow()
    broker.night([by_tags, sql(after(10), "cg", "n = '15'")])
    facts = open_facts(Warehouse.at(str(broker.folder / "w")))
    nights = read_report(facts, options.session).nights
    assert [(night.stopped_by_tags_code, night.stopped_by_bit_map) for night in nights] == [(10, 0), (0, 9)]


def test_a_night_with_tags_and_sql92_says_that_either_stopped_the_messages(broker: GrowingBroker) -> None:
    by_tags = event(BEFORE, "register", "cg", type="TAG", expression="a", consume_from="first")
    broker.night([by_tags, sql(after(5), "cg", "n = '7'")])
    (night,) = read_report(open_facts(Warehouse.at(str(broker.folder / "w"))), options.session).nights
    assert (night.stopped_by_tags_code, night.stopped_by_bit_map, night.stopped_by_either) == (0, 0, 9)
    assert (night.totals["passed_stage1"], night.totals["delivered"]) == (1, 1)
    page = page_of(broker.folder / "w", broker.folder)
    assert "Stopped by the tags code or the filter bit map" in page


def nights_of(broker: GrowingBroker) -> list[tuple[int, int, int | None, int]]:
    """Of each night of the report: its messages, log bytes, damaged pieces and deliveries."""
    nights = read_report(open_facts(Warehouse.at(str(broker.folder / "w"))), options.session).nights
    return [(each.messages, each.quarantined, each.log_bytes, each.totals["delivered"]) for each in nights]


@pytest.mark.parametrize("is_new_epoch", [False, True])
def test_a_replaced_night_is_not_shown_and_not_compared_with(broker: GrowingBroker, is_new_epoch: bool) -> None:
    all_messages = [event(BEFORE, "register", "cg", type="TAG", expression="*", consume_from="first")]
    first_end = len(broker.log.data)
    broker.night(all_messages)
    broker.grow()
    broker.night(all_messages)
    kept = 0 if is_new_epoch else 12
    broker.log = BrokerLog().append(kept)
    cut = len(broker.log.data)
    broker.log.append(9, body=b"other")
    broker.log.write(broker.folder / "store")
    assert broker.night(all_messages, *(["--new-epoch"] if is_new_epoch else [])).code == 0
    added = len(broker.log.data) - cut
    assert nights_of(broker) == ([(9, 0, added, 9)] if is_new_epoch else [(10, 0, first_end, 10), (9, 0, added, 11)])
    (group,) = night_summary(open_facts(Warehouse.at(str(broker.folder / "w")))).groups
    assert group.delivered_before == (None if is_new_epoch else 10)


def test_a_night_in_steps_is_shown_as_a_whole_night(run: Run, broker: GrowingBroker, tmp_path: Path) -> None:
    all_messages = [event(BEFORE, "register", "cg", type="TAG", expression="*", consume_from="first")]
    broker.log.damage(3)
    broker.log.write(tmp_path / "store")
    broker.night(all_messages, warehouse="whole")
    given = ("--warehouse", tmp_path / "w", "--broker-config", tmp_path / "broker.conf")
    assert run(ingest, *given, "--store", tmp_path / "store").code == 0
    assert run(register, *given, "--subscriptions", tmp_path / "events.jsonl").code == 0
    for job in (dispatch, deliver):
        assert run(job, *given).code == 0
    assert nights_of(broker) == [(9, 1, len(broker.log.data), 9)]
    pieces = [rows_in(page_of(tmp_path / name, tmp_path), "quarantine") for name in ("w", "whole")]
    assert pieces[0] == pieces[1]


def test_a_night_that_was_made_again_is_compared_with(broker: GrowingBroker) -> None:
    """The first night had no subscriptions, so that it left no counts."""
    broker.night("[]")
    broker.grow()
    everything = [event(BEFORE, "register", "cg", type="TAG", expression="*", consume_from="first")]
    assert broker.night(everything, "--redo-from", "0").code == 0
    assert [delivered for *_, delivered in nights_of(broker)] == [10, 10]


def test_commands_do_not_name_the_only_broker_after_maintenance_either(run: Run, broker: GrowingBroker) -> None:
    warehouse = broker.folder / "w"
    broker.night([sql(BEFORE, "cg", "n IS NOT NULL")])
    assert "--broker" not in page_of(warehouse, broker.folder)
    assert run(maintain, "--warehouse", warehouse).code == 0
    assert "--broker" not in page_of(warehouse, broker.folder)


def test_each_topic_on_which_an_expression_fails_is_named(run: Run, tmp_path: Path) -> None:
    log = BrokerLog().append(10, "T", price="x").append(8, "U", price="1").append(2, "U", price="x")
    (tmp_path / "s.yaml").write_text("".join(f"- {{group: cg, topic: {t}, sql: price > 5.5}}\n" for t in "TU"))
    (tmp_path / "broker.conf").write_text("enablePropertyFilter=true\n")
    given = night(tmp_path / "w", log.write(tmp_path / "store"), tmp_path / "s.yaml", tmp_path / "broker.conf")
    assert "10% of the messages: 2, such as cg on T (100%), cg on U (20%)" in run(nightly, *given).out
