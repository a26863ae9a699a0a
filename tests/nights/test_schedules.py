"""The examples of schedules, alarms and a pull request's checks: they parse, and their command lines run."""

from __future__ import annotations

import configparser
import importlib
import re
import shlex
from pathlib import Path

import pytest
import yaml

from jobs import lint, nightly, what_if
from tests.captures import capture
from tests.nights.commands import Run
from tests.nights.growing_broker import BEFORE, HIGH, LOW, GrowingBroker, sql

EXAMPLES = Path(__file__).parents[2] / "conf" / "examples"
COMMAND = re.compile(r"spark-submit\.sh ([a-z-]+) (.*?)(?= 2>&1| >>|$)", re.MULTILINE)


def gauges(file: Path) -> dict[str, list[str]]:
    """The samples of each gauge, without its name. Each has a help and a type."""
    found: dict[str, list[str]] = {}
    for line in file.read_text().splitlines():
        if line.startswith("# HELP"):
            found[line.split()[2]] = []
        elif not line.startswith("#"):
            name, _, rest = line.partition("{")
            found[name].append(rest)
    return found


@pytest.mark.parametrize("file", sorted(EXAMPLES.iterdir()), ids=lambda file: file.name)
def test_the_command_lines_are_ones(file: Path) -> None:
    for job, arguments in COMMAND.findall(file.read_text()):
        parser = importlib.import_module(f"jobs.{job.replace('-', '_')}").parser()
        options = {action.option_strings[-1] for action in parser._actions if action.option_strings}
        given = [word for word in shlex.split(arguments) if word.startswith("--")]
        assert given
        assert set(given) <= options


def test_units_of_systemd() -> None:
    for name in ("mqsieve.service", "mqsieve.timer", "mqsieve-record.service"):
        unit = configparser.ConfigParser(strict=False, interpolation=None)
        unit.read(EXAMPLES / name)
        assert unit["Unit"]["Description"].startswith("mqsieve: ")
    timer = configparser.ConfigParser(interpolation=None)
    timer.read(EXAMPLES / "mqsieve.timer")
    assert timer["Timer"]["Persistent"] == "true"


def test_the_checks_of_a_pull_request(broker: GrowingBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broker.night([sql(BEFORE, "cg", LOW)])
    (tmp_path / "w").rename(tmp_path / "warehouse")
    (tmp_path / "subscriptions.yaml").write_text(f'- {{group: cg, topic: T, sql: "{HIGH}", consume_from: first}}\n')
    monkeypatch.chdir(tmp_path)
    workflow = yaml.safe_load((EXAMPLES / "pull_request.yml").read_text())
    steps = [step["run"] for step in workflow["jobs"]["check"]["steps"] if "run" in step]
    (linted,), (tried,) = (COMMAND.findall(steps[i]) for i in (0, 1))
    assert broker.run(lint, *shlex.split(linted[1])).code == 0
    ended = broker.run(what_if, *shlex.split(tried[1]))
    assert (ended.code, "5" in ended.out) == (3, True)


def test_a_night_writes_gauges_that_the_alerts_read(broker: GrowingBroker, tmp_path: Path) -> None:
    file = tmp_path / "mqsieve.prom"
    broker.night([sql(BEFORE, "cg", LOW)], "--metrics", file)
    found = gauges(file)
    assert found["mqsieve_night_messages"] == ['broker="b"} 10']
    assert found["mqsieve_night_deliveries"] == ['broker="b"} 5']
    assert found["mqsieve_night_quarantined"] == ['broker="b"} 0']
    assert found["mqsieve_night_newest_timestamp_seconds"] == [
        f'broker="b"}} {broker.log.messages[-1].stored_at / 1000}'
    ]
    assert 'broker="b",condition="behind",severity="warn"} 0' in found["mqsieve_night_attention"]
    rules = yaml.safe_load((EXAMPLES / "prometheus_alerts.yaml").read_text())["groups"][0]["rules"]
    read = {name for rule in rules for name in re.findall(r"mqsieve_\w+", rule["expr"])}
    assert read <= found.keys()
    written = file.read_text()
    broker.run(nightly, "--store", broker.folder / "nowhere", "--warehouse", broker.folder / "w", "--metrics", file)
    assert file.read_text() == written


def test_the_first_example_of_a_night(run: Run, tmp_path: Path) -> None:
    """Lags of a real broker's groups are in the file, as lag --prometheus has them."""
    small = capture("small")
    file = tmp_path / "mqsieve.prom"
    run(nightly, "--store", small / "store", "--warehouse", tmp_path / "w", "--metrics", file)
    assert any('group="cg_sql_region_price"' in sample for sample in gauges(file)["mqsieve_consumer_lag_messages"])
