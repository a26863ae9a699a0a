"""lag and explain in a warehouse of several brokers, without --broker."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from answers import warehouse as door
from jobs import advise, explain, lag, lint, maintain, nightly, what_if
from schemas.errors import UsageError
from tests.broker_log import BrokerLog
from tests.nights.commands import Run

BROKERS = ("b", "a")
CG = ("--group", "cg")


def _night(folder: Path, broker: str, log: BrokerLog, groups: dict[str, str]) -> None:
    """The night of one broker whose ``groups`` have a topic each, with expressions of their own."""
    store = log.write(folder / broker)
    entries = [f"- {{group: {group}, topic: {topic}, sql: price > 5.0}}\n" for group, topic in groups.items()]
    (folder / f"{broker}.yaml").write_text("".join(entries))
    (folder / f"{broker}.conf").write_text(f"brokerName={broker}\nenablePropertyFilter=true\n")
    files = ("--subscriptions", folder / f"{broker}.yaml", "--broker-config", folder / f"{broker}.conf")
    nightly.main([*map(str, ("--store", store, *files, "--warehouse", folder / "w"))])


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two brokers with a group ``cg``, and a group that each has alone. The order ``o-3`` is on both."""
    folder = tmp_path_factory.mktemp("brokers")
    for number, broker in enumerate(BROKERS):
        log = BrokerLog()
        for order in range(4):
            log.append(price=f"{3 * order}", KEYS=f"o-{order + 3 * number}", UNIQ_KEY=f"U{order + 3 * number}{broker}")
        log.append(1, "%RETRY%cg", price="1", UNIQ_KEY="U6a", KEYS="o-6")
        _night(folder, broker, log, {"cg": "T", f"cg_{broker}": "T"})
    return folder / "w"


def _rows(run: Run, job: Any, *given: object) -> Sequence[dict[str, Any]]:
    ended = run(job, *given, "--json")
    assert ended.code == 0, ended.error
    return [json.loads(line) for line in ended.out.splitlines()]


def _of_each(run: Run, job: Any, warehouse: Path, brokers: Sequence[str], *given: object) -> list[dict[str, Any]]:
    """The rows that each broker alone has, with its name."""
    return [
        {"broker_name": broker, **row}
        for broker in brokers
        for row in _rows(run, job, "--warehouse", warehouse, "--broker", broker, *given)
    ]


def test_lag_has_the_rows_of_every_broker(run: Run, warehouse: Path) -> None:
    assert _rows(run, lag, "--warehouse", warehouse) == _of_each(run, lag, warehouse, ("a", "b"))
    assert _rows(run, lag, "--warehouse", warehouse, *CG) == _of_each(run, lag, warehouse, ("a", "b"), *CG)
    group_and_topic = ("--group", "cg_b", "--topic", "T")
    assert _rows(run, lag, "--warehouse", warehouse, *group_and_topic) == _of_each(
        run, lag, warehouse, ("b",), *group_and_topic
    )


def test_prometheus_has_each_metric_once(run: Run, warehouse: Path) -> None:
    """Prometheus refuses a text in which the lines of a metric are not together."""
    lines = run(lag, "--warehouse", warehouse, "--prometheus").out.splitlines()
    alone = [run(lag, "--warehouse", warehouse, "--broker", name, "--prometheus").out.splitlines() for name in "ab"]
    assert sorted(lines) == sorted({*alone[0], *alone[1]})
    names = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    metrics = [line.split("{")[0] for line in lines if not line.startswith("#")]
    assert list(dict.fromkeys(metrics)) == [name for name in names if name in metrics]
    assert sorted(metrics, key=names.index) == metrics


def test_people_see_which_broker_a_group_is_behind_on(run: Run, tmp_path: Path) -> None:
    for name in ("b", "a"):
        log = BrokerLog().append(5 if name == "a" else 2, price="9")
        _night(tmp_path, name, log, {"cg": "T"})
    out = run(lag, "--warehouse", tmp_path / "w").out
    assert out.splitlines()[0] == "2 of 2 subscriptions are up to date"
    offsets = tmp_path / "consumerOffset.json"
    offsets.write_text('{"offsetTable":{"T@cg":{0:0}}}')
    ended = run(lag, "--warehouse", tmp_path / "w", "--offsets", offsets)
    assert (ended.code, ended.error) == (
        2,
        "mqsieve: --offsets has the offsets of one broker: say which (--broker NAME)\n",
    )
    queues = run(lag, "--warehouse", tmp_path / "w", *CG).out.splitlines()
    assert queues[0].split()[:4] == ["broker", "group", "topic", "queue"]
    assert [line.split()[:4] for line in queues[1:3]] == [["a", "cg", "T", "0"], ["b", "cg", "T", "0"]]


def test_what_no_broker_knows(run: Run, warehouse: Path) -> None:
    given = ("--warehouse", warehouse)
    assert run(lag, *given, "--group", "cg_c").error.startswith("mqsieve: cg_c has no subscription in ")
    assert run(lag, *given, "--topic", "TT").error.startswith("mqsieve: there is no topic TT in ")
    assert run(explain, *given, "--message", "o-99").error.startswith(
        f"mqsieve: {warehouse} has no message with the id or key o-99; "
    )
    ended = run(explain, *given, "--topic", "T", "--queue", 0, "--offset", 0)
    assert (ended.code, "the warehouse holds the brokers b, a: say which" in ended.error) == (2, True)


def test_a_message_of_any_broker_is_explained(run: Run, warehouse: Path) -> None:
    given = ("--warehouse", warehouse, "--message", "o-0", *CG)
    alone = run(explain, *given, "--broker", "b").out.splitlines()
    first, *rest = run(explain, *given).out.splitlines()
    assert (first, rest) == ("o-0  T 0/0 on b → cg: not delivered", alone[1:])
    assert _rows(run, explain, *given) == _of_each(run, explain, warehouse, ("b",), *given[2:])
    every = run(explain, "--warehouse", warehouse, "--message", "o-0").out.splitlines()
    assert every[0].startswith("o-0  T 0/0 on b, stored ")
    assert [line.split()[0] for line in every[2:]] == ["cg", "cg_b"]


def test_a_key_on_two_brokers_is_a_choice(run: Run, warehouse: Path) -> None:
    given = ("--warehouse", warehouse, "--message", "o-3")
    title, *choices = run(explain, *given).out.splitlines()
    assert (title, len(choices)) == ("2 messages match; choose one:", 2)
    for choice, name in zip(choices, ("a", "b"), strict=True):
        options = choice.split("  ")[1].split()
        assert options[2:] == ["--broker", name]
        assert run(explain, "--warehouse", warehouse, *options).out.startswith("o-3  T 0/")
    rows = _rows(run, explain, *given)
    assert [row["broker_name"] for row in rows] == ["a", "a", "b", "b"]


def test_a_copy_on_another_broker_is_not_a_second_message(run: Run, warehouse: Path) -> None:
    """A client that cannot send a message back to its broker sends it to another one."""
    lines = run(explain, "--warehouse", warehouse, "--message", "U6a", *CG).out.splitlines()
    assert lines[0] == "o-6  T 0/3 on a → cg: delivered, stored again in its retry topic"
    assert lines[-1].strip() == "stored again, and no subscription to the retry topic is known (%RETRY%cg 0/0)"


def test_a_copy_is_explained_to_a_group_that_only_its_broker_knows(run: Run, warehouse: Path) -> None:
    ended = run(explain, "--warehouse", warehouse, "--message", "U6a", "--group", "cg_b")
    assert (ended.code, ended.out.splitlines()[0]) == (0, "o-6  %RETRY%cg 0/0 on b → cg_b: never asked for")


def test_a_group_that_only_other_brokers_know(run: Run, warehouse: Path) -> None:
    ended = run(explain, "--warehouse", warehouse, "--message", "o-0", "--group", "cg_a")
    assert (ended.code, ended.error) == (2, "mqsieve: the message is on b, where cg_a never subscribed\n")
    ended = run(explain, "--warehouse", warehouse, "--message", "o-0", "--group", "cg_aa")
    assert ended.error.endswith(" on b, where cg_aa never subscribed; did you mean cg_a?\n")


@pytest.fixture(scope="module")
def differing_brokers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cluster of two brokers. Clients subscribe at both; prices and the topic ``U`` differ."""
    folder = tmp_path_factory.mktemp("differing")
    subscriptions = {"cg": "T", "cg_u": "U", "cg_typo": "W"}
    _night(folder, "b", BrokerLog().append(4, price="9").append(1, "U", price="1"), subscriptions)
    _night(folder, "a", BrokerLog().append(4, price="1"), subscriptions)
    return folder / "w"


def test_lint_tells_a_finding_of_several_brokers_once(run: Run, differing_brokers: Path) -> None:
    """A topic that lies on one broker only is not missing on the other."""
    lines = run(lint, "--warehouse", differing_brokers).out.splitlines()
    assert lines == [
        "✗ cg_typo on W  no message of the log has this topic",
        "! cg on T       none of 4 messages matched so far (a)",
        "! cg_u on U     none of 1 message matched so far (b)",
        "· cg on T       all of the newest 4 messages match: is a filter needed? (b)",
        "4 findings: 1 error, 2 warn, 1 info",
        "a finding that names no broker is on all 2 of them",
    ]
    lines_of_b = run(lint, "--warehouse", differing_brokers, "--broker", "b").out.splitlines()
    assert lines_of_b[-1] == "3 findings: 1 error, 1 warn, 1 info"


def test_advise_has_the_topics_of_every_broker(run: Run, differing_brokers: Path) -> None:
    lines = run(advise, "--warehouse", differing_brokers).out.splitlines()
    assert [line.split()[:2] for line in lines[:4]] == [["broker", "topic"], ["a", "T"], ["b", "T"], ["b", "U"]]
    assert lines[4] == "  T on a: on: it saves 100% of the reads"
    assert sum(line.startswith("a, b: The filter bit map is off for all topics of the broker") for line in lines) == 1
    assert lines[-2:] == ["4 findings: 1 error, 2 warn, 1 info", "a finding that names no broker is on all 2 of them"]
    objects = _rows(run, advise, "--warehouse", differing_brokers)
    assert [(each["broker_name"], [topic["topic"] for topic in each["topics"]]) for each in objects] == [
        ("a", ["T"]),
        ("b", ["T", "U"]),
    ]


def test_lint_in_json_has_an_object_for_each_broker(run: Run, differing_brokers: Path) -> None:
    objects = _rows(run, lint, "--warehouse", differing_brokers)
    by_broker = [
        (each["broker_name"], [(row["severity"], row["topic"]) for row in each["findings"]]) for each in objects
    ]
    assert by_broker == [("a", [("error", "W"), ("warn", "T")]), ("b", [("error", "W"), ("warn", "U"), ("info", "T")])]


def test_lint_tries_a_file_on_the_messages_of_every_broker(run: Run, differing_brokers: Path, tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text("- {group: new, topic: T, sql: price > 5.0}\n- {group: new}\n")
    given = ("--warehouse", differing_brokers, "--subscriptions", tmp_path / "s.yaml", "--fail-on", "error")
    ended = run(lint, *given)
    assert (ended.code, ended.error) == (3, "mqsieve: 1 finding is error\n")
    assert "! new on T  none of the newest 4 messages matches (a)" in ended.out.splitlines()


def test_a_place_that_only_one_broker_has_needs_no_broker(run: Run, differing_brokers: Path) -> None:
    """Several brokers may have the same topic, queue and offset; then the question must name one."""
    given = ("--warehouse", differing_brokers, "--queue", 0, "--offset", 0, "--topic")
    assert (
        run(explain, *given, "U", "--group", "cg_u").out.splitlines()[0].endswith("  U 0/0 on b → cg_u: not delivered")
    )
    (row,) = _rows(run, explain, *given, "U")
    assert (row["broker_name"], row["consumer_group"]) == ("b", "cg_u")
    assert list(door.open(differing_brokers).why_at("U", 0, 0).broker_names) == ["b"]
    for topic in ("T", "nowhere"):
        assert "say which (--broker NAME" in run(explain, *given, topic).error


def test_maintain_tells_that_it_removes_rows_of_every_broker(run: Run) -> None:
    assert "--broker NAME    the brokerName, default: every one in the warehouse" in run(maintain, "--help").out


def test_what_if_compares_the_messages_of_every_broker(run: Run, differing_brokers: Path) -> None:
    given = ("--warehouse", differing_brokers, "--group", "cg", "--sql", "price < 5.0")
    out = run(what_if, *given).out
    headings = [line for line in out.splitlines() if line.startswith("#")]
    assert headings == [
        "# 1 filter on 2 brokers: 4 gained, 4 lost, 0 kept",
        "## cg on T, a: 4 gained, 0 lost, 0 kept",
        "## cg on T, b: 0 gained, 4 lost, 0 kept",
    ]
    objects = _rows(run, what_if, *given)
    assert [(each["broker_name"], each["gained"], each["lost"]) for each in objects] == [("a", 4, 0), ("b", 0, 4)]
    ended = run(what_if, *given, "--max-gained", 3)
    assert (ended.code, ended.error) == (3, "mqsieve: the change gains 4 messages, more than --max-gained 3\n")
    assert run(what_if, *given, "--broker", "b").out.startswith("## cg on T: 0 gained, 4 lost")


def test_what_if_leaves_out_brokers_without_the_group_or_without_messages(
    run: Run, warehouse: Path, differing_brokers: Path, tmp_path: Path
) -> None:
    first = run(what_if, "--warehouse", warehouse, "--group", "cg_b", "--sql", "TRUE").out.splitlines()[0]
    assert first == "## cg\\_b on T, b: 2 gained, 0 lost, 2 kept"
    objects = _rows(run, what_if, "--warehouse", warehouse, "--group", "cg_b", "--sql", "TRUE")
    assert [(each["broker_name"], len(each["changes"])) for each in objects] == [("a", 0), ("b", 1)]
    ended = run(what_if, "--warehouse", warehouse, "--group", "cg_c", "--sql", "TRUE")
    assert (ended.code, ended.error.startswith("mqsieve: cg_c has no subscription in ")) == (2, True)
    changes = tmp_path / "changes.yaml"
    changes.write_text("- {group: cg_u, topic: U, sql: price > 0.5}\n- {group: cg, topic: T, sql: price > 8.0}\n")
    given = ("--warehouse", differing_brokers, "--changes", changes)
    headings = [line for line in run(what_if, *given).out.splitlines() if line.startswith("#")]
    assert headings == [
        "# 2 filters and 1 ended subscription on 2 brokers: 1 gained, 0 lost, 4 kept",
        "## cg on T, a: 0 gained, 0 lost, 0 kept",
        "## cg on T, b: 0 gained, 0 lost, 4 kept",
        "## cg\\_typo on W, a: 0 gained, 0 lost, 0 kept",
        "## cg\\_typo on W, b: 0 gained, 0 lost, 0 kept",
        "## cg\\_u on U, b: 1 gained, 0 lost, 0 kept",
    ]
    changes.write_text("- {group: cg, topic: nowhere, sql: price > 8.0}\n")
    ended = run(what_if, *given)
    assert (ended.code, "no message of the log has the topic nowhere; it has T" in ended.error) == (2, True)


def test_an_unmet_expectation_is_told_once(run: Run, differing_brokers: Path, tmp_path: Path) -> None:
    (tmp_path / "messages.yaml").write_text("- pass: {price: '1'}\n")
    given = ("--warehouse", differing_brokers, "--group", "cg", "--sql", "price > 8.0", "--expect")
    ended = run(what_if, *given, tmp_path / "messages.yaml")
    message = "cg: message 1 (price: '1') must pass and does not: the filter is FALSE"
    assert (ended.code, ended.error) == (3, f"mqsieve: {message}\n")
    assert ended.out.count("must pass and does not") == 1


def test_a_notebook_asks_all_brokers_and_sees_which_one_a_row_is_of(warehouse: Path, differing_brokers: Path) -> None:
    opened = door.open(warehouse)
    assert str(opened) == f"{warehouse}, brokers a, b"
    every = opened.why("o-0").to_pandas()
    assert list(zip(every["broker_name"], every["group"], strict=True)) == [("b", "cg"), ("b", "cg_b")]
    one = opened.why("o-0", "cg")
    assert " on b → cg: " in str(one).splitlines()[0]
    assert " on b → cg: " in one._repr_html_()
    assert list(opened.lag("cg", "T").to_pandas()["broker_name"]) == ["a", "b"]
    delivered = opened.deliveries.of(group="cg").to_pandas()
    assert set(delivered["broker_name"]) == {"a", "b"}
    differing = door.open(differing_brokers)
    findings = differing.findings().to_pandas()
    assert list(zip(findings["broker_name"], findings["topic"], strict=True)) == [
        ("a", "W"), ("a", "T"), ("b", "W"), ("b", "U"), ("b", "T"),
    ]  # fmt: skip
    advice = differing.advice().to_pandas()
    assert list(zip(advice["broker_name"], advice["topic"], strict=True)) == [("a", "T"), ("b", "T"), ("b", "U")]
    night = differing.summary()
    assert [line for line in night.attention if "U has no message" in line] == [
        "a: U has no message; groups that subscribe to it: 1, such as cg_u"
    ]
    assert list(night.to_pandas()["broker_name"]) == ["a", "b", "b"]


def test_a_notebook_asks_one_broker(warehouse: Path) -> None:
    opened = door.open(warehouse, broker="b")
    assert str(opened) == f"{warehouse}, broker b"
    assert "broker_name" not in opened.lag().to_pandas()
    assert set(opened.deliveries.to_pandas()["broker_name"]) == {"b"}
    assert opened.what_if("cg_b", sql="TRUE").kept == 2
    for ask in (
        lambda: door.open(warehouse).what_if("cg_b", sql="TRUE"),
        lambda: door.open(warehouse).why_at("T", 0, 0),
    ):
        with pytest.raises(UsageError, match=r"say which .*in Python broker=NAME"):
            ask()
