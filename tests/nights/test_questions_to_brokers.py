"""lag and explain in a warehouse of several brokers, without --broker."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from jobs import explain, lag, nightly
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
    of_one = ("--group", "cg_b", "--topic", "T")
    assert _rows(run, lag, "--warehouse", warehouse, *of_one) == _of_each(run, lag, warehouse, ("b",), *of_one)


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
    assert (title, len(choices)) == ("2 messages have this key; choose one:", 2)
    for choice, name in zip(choices, ("a", "b"), strict=True):
        options = choice.split("  ")[1].split()
        assert options[2:] == ["--broker", name]
        assert run(explain, "--warehouse", warehouse, *options).out.startswith("o-3  T 0/")
    rows = _rows(run, explain, *given)
    assert [row["broker_name"] for row in rows] == ["a", "a", "b", "b"]


def test_a_copy_on_another_broker_is_not_a_second_message(run: Run, warehouse: Path) -> None:
    """A client that cannot send a message back to its broker sends it to another one."""
    first = run(explain, "--warehouse", warehouse, "--message", "U6a", *CG).out.splitlines()[0]
    assert first == "o-6  T 0/3 on a → cg: delivered"


def test_a_copy_is_explained_to_a_group_that_only_its_broker_knows(run: Run, warehouse: Path) -> None:
    ended = run(explain, "--warehouse", warehouse, "--message", "U6a", "--group", "cg_b")
    assert (ended.code, ended.out.splitlines()[0]) == (0, "o-6  %RETRY%cg 0/0 on b → cg_b: never asked for")


def test_a_group_that_only_other_brokers_know(run: Run, warehouse: Path) -> None:
    ended = run(explain, "--warehouse", warehouse, "--message", "o-0", "--group", "cg_a")
    assert (ended.code, ended.error) == (2, "mqsieve: the message is on b, where cg_a never subscribed\n")
    ended = run(explain, "--warehouse", warehouse, "--message", "o-0", "--group", "cg_aa")
    assert ended.error.endswith(" on b, where cg_aa never subscribed; did you mean cg_a?\n")
