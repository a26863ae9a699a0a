"""Several brokers in one warehouse."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from answers import warehouse as door
from answers.facts import open_facts
from answers.report import night_summary
from jobs import lint, nightly, report
from schemas.delta.warehouse import Warehouse
from schemas.errors import UsageError
from tests.broker_log import BrokerLog
from tests.captures import capture
from tests.nights.commands import Run, arguments, contents, differing, living, rows_of, without_runs

PROJECT = Path(__file__).parents[2]
# What a shell starts in the background ignores Ctrl-C, and so does what it starts, unless told otherwise.
LISTENING = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from jobs import nightly
from jobs.cli import application
application.run(nightly.main)
"""


def conf(folder: Path, name: str, broker_name: str) -> Path:
    """The broker.conf of a capture under another name."""
    file = folder / f"{broker_name}.conf"
    file.write_text((capture(name) / "broker.conf").read_text() + f"\nbrokerName={broker_name}\n")
    return file


def night_of(name: str, warehouse: Path, config: Path) -> list[str]:
    given = arguments(name, warehouse)
    given[given.index("--broker-config") + 1] = str(config)
    return given


def rows_of_broker(tables: dict[str, Counter[str]], broker_name: str) -> dict[str, Counter[str]]:
    """The rows of one broker."""
    wanted = f'"broker_name": "{broker_name}"'
    return {
        name: Counter({row: count for row, count in rows.items() if wanted in row}) for name, rows in tables.items()
    }


def test_two_brokers_in_turn_equal_each_alone(tmp_path: Path) -> None:
    a, b = conf(tmp_path, "small", "a"), conf(tmp_path, "otherbloom", "b")
    for name, config in (("small", a), ("otherbloom", b), ("small", a)):
        nightly.main(night_of(name, tmp_path / "both", config))
    for name, config in (("small", a), ("otherbloom", b)):
        alone = tmp_path / f"alone_{config.stem}"
        nightly.main(night_of(name, alone, config))
        assert differing(rows_of_broker(without_runs(tmp_path / "both"), config.stem), without_runs(alone)) == []


def test_living_brokers_that_alternate_equal_each_alone(tmp_path: Path) -> None:
    second = conf(tmp_path, "nights_dev", "second")
    first = conf(tmp_path, "nights_dev", "first")
    for night in (1, 2):
        for config in (first, second):
            for warehouse in (tmp_path / "both", tmp_path / config.stem):
                given = living(night, warehouse)
                given[given.index("--broker-config") + 1] = str(config)
                nightly.main(given)
    for config in (first, second):
        alone = without_runs(tmp_path / config.stem)
        assert differing(rows_of_broker(without_runs(tmp_path / "both"), config.stem), alone) == []


def brokers_file(folder: Path, *entries: tuple[str, str, str]) -> Path:
    """A file for --brokers. ``entries``: name, capture, and store if it is not the capture's."""
    lines = []
    for broker_name, name, store in entries:
        lines += [
            f"- name: {broker_name}",
            f"  store: {store or capture(name) / 'store'}",
            f"  config: {conf(folder, name, broker_name)}",
            f"  subscriptions: {capture(name) / 'subscription_events.jsonl'}",
        ]
    (folder / "brokers.yaml").write_text("\n".join(lines))
    return folder / "brokers.yaml"


@pytest.mark.parametrize("content", [None, "no subscription\n"])
def test_subscriptions_of_one_broker_that_cannot_be_read(run: Run, tmp_path: Path, content: str | None) -> None:
    """The nights of the other brokers are as without it."""
    file = brokers_file(tmp_path, ("a", "small", ""), ("b", "otherbloom", ""))
    if content is not None:
        (tmp_path / "events.jsonl").write_text(content)
    text = file.read_text().replace(str(capture("small") / "subscription_events.jsonl"), "events.jsonl")
    file.write_text(text)
    ended = run(nightly, "--brokers", file, "--warehouse", tmp_path / "w")
    assert (ended.code, "1 of 2 brokers failed" in ended.error) == (2, True)
    assert f"{tmp_path / 'events.jsonl'}" in ended.error
    alone = tmp_path / "alone"
    nightly.main(night_of("otherbloom", alone, tmp_path / "b.conf"))
    assert differing(without_runs(tmp_path / "w"), without_runs(alone)) == []


def test_all_brokers_in_one_run(run: Run, tmp_path: Path) -> None:
    file = brokers_file(tmp_path, ("a", "small", ""), ("b", "otherbloom", ""))
    assert run(nightly, "--brokers", file, "--warehouse", tmp_path / "both").code == 0
    for broker_name, name in (("a", "small"), ("b", "otherbloom")):
        alone = tmp_path / f"alone_{broker_name}"
        nightly.main(night_of(name, alone, tmp_path / f"{broker_name}.conf"))
        assert differing(rows_of_broker(without_runs(tmp_path / "both"), broker_name), without_runs(alone)) == []
    with pytest.raises(UsageError, match=r"the brokers a, b: say which \(--broker NAME, in Python broker=NAME\)"):
        door.open(str(tmp_path / "both")).what_if("cg_sql_city", sql="TRUE")


def test_what_needs_attention_names_the_broker(run: Run, tmp_path: Path) -> None:
    """The printed command finds its broker, also that of the first broker of a new warehouse."""
    file = brokers_file(tmp_path, ("a b", "small", ""), ("c", "small", str(capture("small_corrupt") / "store")))
    code, out, error = run(nightly, "--brokers", file, "--warehouse", tmp_path / "w", "--strict")
    assert (code, "attention, the first: a b: errors: subscriptions whose expression fails" in error) == (3, True)
    commands = [shlex.split(line)[2:] for line in out.splitlines() if line.startswith("  ./spark-submit.sh lint ")]
    assert [command[-1] for command in commands] == ["a b", "c"]
    for command in commands:
        assert run(lint, *command).code == 0


def test_the_summary_of_brokers_has_a_line_for_each(run: Run, tmp_path: Path) -> None:
    """Not the groups of each broker: what is the same on several brokers is counted once."""
    bad = str(capture("small_corrupt") / "store")
    file = brokers_file(tmp_path, ("a", "small", ""), ("b", "small", ""), ("c", "otherbloom", ""), ("d", "small", bad))
    entries = file.read_text()
    file.write_text(entries + f"\n- {{name: e, store: {tmp_path / 'nowhere'}}}\n")
    code, out, error = run(nightly, "--brokers", file, "--warehouse", tmp_path / "w")
    assert (code, error.splitlines()[-1].startswith("mqsieve: 1 of 5 brokers failed: e: ")) == (2, True)
    legend, table, remarks, end = out.split("\n\n")
    assert (legend.startswith("scanned: entries that"), "lost" in legend) == (True, False)
    titles, *lines = table.splitlines()
    assert titles.split()[:3] == ["broker", "messages", "scanned"]
    assert [line.split()[0] for line in lines] == ["a", "b", "c", "d"]
    groups = open_facts(Warehouse.at(str(tmp_path / "w")), "c")
    delivered = sum(group.counts["delivered"] for group in night_summary(groups).groups)
    assert f"{delivered:,}" in lines[2].split()
    assert lines[0].split()[1] == "743"
    assert "\nd: damaged, but kept: 1 message" in f"\n{remarks}"
    assert sum(
        line.startswith("a, b, d: errors: subscriptions whose expression fails") for line in remarks.splitlines()
    )
    assert out.count("The tables are in ") == 1
    assert shlex.split(end.splitlines()[-1])[1:2] == ["report"]
    file.write_text(entries)
    again = run(nightly, "--brokers", file, "--warehouse", tmp_path / "w").out
    assert ["a", *"-----"] in [line.split()[:6] for line in again.splitlines()]


def test_an_interrupted_run_has_the_summary_of_the_brokers_that_ended(tmp_path: Path) -> None:
    """Ctrl-C while the subscriptions of the second broker are read."""
    file, events = brokers_file(tmp_path, ("a", "small", ""), ("b", "otherbloom", "")), tmp_path / "events.jsonl"
    os.mkfifo(events)
    file.write_text(file.read_text().replace(str(capture("otherbloom") / "subscription_events.jsonl"), events.name))
    given = [sys.executable, "-c", LISTENING, "--brokers", str(file), "--warehouse", str(tmp_path / "w")]
    process = subprocess.Popen(given, cwd=PROJECT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    opened = None
    while process.poll() is None and opened is None:
        with suppress(OSError):  # There is no reader yet.
            opened = os.open(events, os.O_WRONLY | os.O_NONBLOCK)
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.05)
    process.send_signal(signal.SIGINT)
    out, error = process.communicate()
    assert opened is not None, error
    os.close(opened)
    assert (process.returncode, error.splitlines()[-1].startswith("mqsieve: interrupted: ")) == (130, True), error
    table = out.split("\n\n")[1].splitlines()
    assert [line.split()[:2] for line in table] == [["broker", "messages"], ["a", "743"]]


def test_each_snapshot_of_a_run_has_its_summary(run: Run, tmp_path: Path) -> None:
    first, *later = ((night, living(night, tmp_path / "w")) for night in (1, 2))
    given = [*first[1], *(part for _, more in later for part in more[:2])]
    ended = run(nightly, *given, "--strict")
    assert ended.out.count("rows added: ") == 2


def test_paths_may_begin_at_home(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "home").symlink_to(capture("small"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    entry = "{store: ~/store, config: ~/broker.conf, subscriptions: ~/subscription_events.jsonl}"
    (tmp_path / "brokers.yaml").write_text(f"- {entry}\n")
    ended = run(nightly, "--brokers", tmp_path / "brokers.yaml", "--warehouse", tmp_path / "w")
    assert (ended.code, sum(1 for _ in rows_of(tmp_path / "w", "commitlog")) > 0) == (0, True), ended.error


@pytest.mark.parametrize("bad", [0, 1])
def test_a_broker_that_fails_does_not_stop_the_others(run: Run, tmp_path: Path, bad: int) -> None:
    entries = [("a", "small", ""), ("b", "otherbloom", "")]
    entries[bad] = (*entries[bad][:2], str(tmp_path / "nowhere"))
    code, _, error = run(nightly, "--brokers", brokers_file(tmp_path, *entries), "--warehouse", tmp_path / "w")
    assert code == 2
    last = error.splitlines()[-1]
    assert last.startswith(f"mqsieve: 1 of 2 brokers failed: {entries[bad][0]}: ")
    assert "nowhere" in last
    good = entries[1 - bad]
    nightly.main(night_of(good[1], tmp_path / "alone", tmp_path / f"{good[0]}.conf"))
    assert differing(without_runs(tmp_path / "w"), without_runs(tmp_path / "alone")) == []


def test_the_exit_code_is_that_of_the_gravest_failure(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = brokers_file(tmp_path, ("b", "small", ""), ("c", "small", str(tmp_path / "nowhere")))
    hooks = tmp_path / "hooks.yaml"  # need Spark, which fails in these tests
    hooks.write_text("- {group: cg_sql_region_price, topic: OrderEvents, predicate: queue_offset > 0}\n")
    monkeypatch.setenv("MQSIEVE_LOG_LEVEL", "info")
    given = ("--brokers", file, "--filter-hooks", hooks, "--warehouse", tmp_path / "w")
    code, _, error = run(nightly, *given)
    line = next(line for line in error.splitlines() if line.startswith("mqsieve: "))
    assert (code, line.startswith("mqsieve: 2 of 2 brokers failed: b: failed: ")) == (1, True), error
    assert "; c: " in line
    assert "asked for a Spark session\n" in error.partition("Traceback")[2]


def test_a_warehouse_that_knows_one_broker_does_not_take_a_nameless_one(run: Run, tmp_path: Path) -> None:
    assert run(nightly, *arguments("small", tmp_path / "w")).code == 0
    before = contents(tmp_path / "w")
    nameless = tmp_path / "nameless.conf"
    lines = (capture("small") / "broker.conf").read_text().splitlines()
    nameless.write_text("\n".join(line for line in lines if not line.startswith("brokerName")))
    store = tmp_path / "store"
    (store / "commitlog").mkdir(parents=True)
    for segment in (capture("small") / "store" / "commitlog").iterdir():
        (store / "commitlog" / segment.name).symlink_to(segment)
    given = night_of("small", tmp_path / "w", nameless)
    given[given.index("--store") + 1] = str(store)
    code, _, error = run(nightly, *given)
    assert (code, "which broker is this?" in error, "brokerName=broker-a" in error) == (2, True, True)
    assert contents(tmp_path / "w") == before


ENTRIES = {
    "not a list": ("name: a", "is not a list of brokers"),
    "no store": ("- name: a", "broker 1: store: is missing"),
    "an unknown key": (
        "- {store: /x, sotre: /y}",
        "broker 1: sotre: is not known; a broker has the fields name, store, config, subscriptions, version; "
        "did you mean store?",
    ),
    "not YAML": ("- {", "not YAML"),
    "no text": ("- {store: /x, config: [1]}", "broker 1: config: must be a text"),
    "a store in no home": ("- {store: ~nobody-at-all/x}", "Could not determine home directory"),
    "a store that is no path": ('- {store: "a\\0b"}', "embedded null byte"),
    "a configuration in no home": ("- {store: /x, config: ~nobody-at-all/x}", "Could not determine home directory"),
    "subscriptions that are no path": ('- {store: /x, subscriptions: "a\\0b"}', "embedded null byte"),
}


@pytest.mark.parametrize(("text", "message"), ENTRIES.values(), ids=ENTRIES)
def test_a_list_of_brokers_that_cannot_be_read(run: Run, tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "brokers.yaml").write_text(text)
    code, _, error = run(nightly, "--brokers", tmp_path / "brokers.yaml", "--warehouse", tmp_path / "w")
    assert (code, message in error, error.count("\n")) == (2, True, 1), error


def test_a_store_of_several_that_does_not_exist(run: Run, tmp_path: Path) -> None:
    """Said before anything that is missing in it, such as the brokerName."""
    file = brokers_file(tmp_path, ("a", "small", ""))
    file.write_text(f"{file.read_text()}\n- {{store: {tmp_path / 'nowhere'}}}\n")
    code, _, error = run(nightly, "--brokers", file, "--warehouse", tmp_path / "w")
    assert (code, f"{tmp_path}/nowhere does not exist; give a broker's store folder" in error) == (2, True), error


def test_one_report_of_all_brokers(run: Run, tmp_path: Path) -> None:
    file = brokers_file(tmp_path, ("a", "small", ""), ("b", "otherbloom", ""))
    assert run(nightly, "--brokers", file, "--warehouse", tmp_path / "w").code == 0
    store = BrokerLog().append(3).write(tmp_path / "store")
    (tmp_path / "c.conf").write_text("brokerName=c\n")
    given = ("--warehouse", tmp_path / "w", "--store", store, "--broker-config", tmp_path / "c.conf")
    assert run(nightly, *given).code == 0
    ended = run(report, "--warehouse", tmp_path / "w", "--output", tmp_path / "all.html")
    assert (ended.code, "no report of c: " in ended.error, "report: 3 brokers" in ended.error) == (0, True, True)
    page = (tmp_path / "all.html").read_text("utf-8")
    overview = page.partition('id="overview"')[2].partition("</table>")[0]
    parts = dict(zip("ab", page.split('<article class="broker"')[1:], strict=True))
    for broker_name, part in parts.items():
        summary = night_summary(open_facts(Warehouse.at(str(tmp_path / "w")), broker_name), checks_messages=True)
        row = overview.partition(f">{broker_name}</a>")[2].partition("<tr>")[0]
        numbers = re.findall(r'class="n">(?:<b class="\w+">)?([\d,]+)', row)
        delivered = sum(group.counts["delivered"] for group in summary.groups)
        severities = Counter(problem.severity for problem in summary.attention)
        expected = [delivered, severities["error"], severities["warn"], severities["info"]]
        assert [int(text.replace(",", "")) for text in numbers[1:]] == expected
        assert all(f"<th>{group.consumer_group}<" in part for group in summary.groups)
        assert f"--broker {broker_name} " in part
    assert "no group subscribes to a topic with messages" in overview.partition(">c<")[2]
    ended = run(report, "--warehouse", tmp_path / "w", "--broker", "a", "--output", tmp_path / "a.html")
    assert (ended.code, 'id="overview"' in (tmp_path / "a.html").read_text("utf-8")) == (0, False)
    assert run(report, "--warehouse", tmp_path / "w", "--broker", "c", "--output", tmp_path / "c.html").code == 2
