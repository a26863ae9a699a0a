"""The examples of schedules, alarms and a pull request's checks: they parse, and their command lines run."""

from __future__ import annotations

import importlib
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from jobs import nightly
from tests.captures import capture
from tests.nights.commands import Run, as_nobody, open_to_all
from tests.nights.growing_broker import BEFORE, LOW, GrowingBroker, sql

PROJECT = Path(__file__).parents[2]
EXAMPLES = PROJECT / "conf" / "examples"
LOG = PROJECT / "notebooks" / "your_own_log" / "messages.jsonl"
PROMTOOL = shutil.which("promtool")
PROGRAM = "/opt/mqsieve/bin/mqsieve"
COMMAND = re.compile(r'(?:mqsieve |")([a-z-]+) (--.*?)(?= 2>&1| >>|"|$)', re.MULTILINE)
NIGHT = "/usr/local/bin/mqsieve-night"
JOBS_OF = {
    "airflow_dag.py": ["nightly", "audit", "report"],
    "mqsieve-record.service": ["record"],
    "mqsieve-night.sh": ["nightly", "report", "audit"],
    "mqsieve.cron": ["record"],
    "pull_request.yml": ["subscriptions", "nightly", "lint", "lint", "what-if"],
}


def gauges(file: Path) -> dict[str, list[str]]:
    """The samples of each gauge, without its name. Each has a help and a type."""
    samples: dict[str, list[str]] = {}
    for line in file.read_text().splitlines():
        if line.startswith("# HELP"):
            samples[line.split()[2]] = []
        elif not line.startswith("#"):
            name, _, rest = line.partition("{")
            samples[name].append(rest)
    return samples


@pytest.mark.parametrize("file", sorted(EXAMPLES.iterdir()), ids=lambda file: file.name)
def test_the_command_lines_are_ones(file: Path) -> None:
    commands = COMMAND.findall(file.read_text())
    assert [job for job, _ in commands] == JOBS_OF.get(file.name, [])
    for job, arguments in commands:
        parser = importlib.import_module(f"jobs.{job.replace('-', '_')}").parser()
        options = {action.option_strings[-1] for action in parser._actions if action.option_strings}
        given = [word for word in shlex.split(arguments) if word.startswith("--")]
        assert given
        assert set(given) <= options


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")
def test_units_of_systemd(tmp_path: Path) -> None:
    units = [*EXAMPLES.glob("*.service"), *EXAMPLES.glob("*.timer")]
    for unit in units:  # programs that exist
        (tmp_path / unit.name).write_text(unit.read_text().replace(PROGRAM, "/bin/true").replace(NIGHT, "/bin/true"))
    verify = ["systemd-analyze", "verify", *(str(tmp_path / unit.name) for unit in units)]
    ended = subprocess.run(verify, capture_output=True, text=True, check=False)
    assert (ended.returncode, [line for line in ended.stderr.splitlines() if str(tmp_path) in line]) == (0, [])


def program(file: Path, *lines: str) -> Path:
    file.write_text("\n".join(("#!/bin/bash", *lines, "")))
    file.chmod(0o755)
    return file


class Scheduled:
    """The line of cron and its script, in a folder, with programs in place of rsync, sleep and mqsieve."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "night.log"
        self._programs = folder / "programs"
        self._programs.mkdir()
        self.replace("sleep")
        self.replace("rsync", 'echo "${@: -2}" >>"$(dirname "$0")/copied"')
        self.replace("mqsieve", 'echo "$1"', 'echo "mqsieve: $1" >&2')

    def replace(self, name: str, *lines: str) -> None:
        program(self._programs / name, *lines)

    def run(self) -> tuple[str, list[str]]:
        """Returns the mail, and the log of this run."""
        program(self.folder / "night", self._here((EXAMPLES / "mqsieve-night.sh").read_text()))
        *_, line = (EXAMPLES / "mqsieve.cron").read_text().splitlines()
        command = ["bash", "-c", self._here(line.partition(" mqsieve ")[2])]
        before = len(self.lines)
        path = {"PATH": f"{self._programs}:{os.environ['PATH']}"}
        ended = subprocess.run(command, env=path, capture_output=True, text=True, check=False)
        assert ended.stderr == ""
        return ended.stdout, self.lines[before:]

    @property
    def lines(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []

    @property
    def copied(self) -> list[str]:
        return (self._programs / "copied").read_text().splitlines()

    def _here(self, text: str) -> str:
        places = {PROGRAM: self._programs / "mqsieve", NIGHT: self.folder / "night"}
        places |= dict.fromkeys(("/var/lib/mqsieve", "/var/log/mqsieve"), self.folder)
        for place, here in places.items():
            text = text.replace(place, str(here))
        return text


@pytest.fixture
def scheduled(tmp_path: Path) -> Scheduled:
    return Scheduled(tmp_path)


def test_a_night_copies_the_store_and_mails_nothing(scheduled: Scheduled) -> None:
    mail, log = scheduled.run()
    assert scheduled.copied == ["broker:/store/commitlog /copy/store/", "broker:/store/config /copy/store/"]
    steps = ["nightly", "report", "audit"]
    assert (mail, log) == ("", [*steps, *(f"mqsieve: {step}" for step in steps)])


@pytest.mark.parametrize(("codes", "code"), [((3, 0, 0), 3), ((0, 1, 3), 1), ((2, 0, 3), 2)])
def test_a_night_that_failed_is_mailed_with_its_errors(codes: tuple[int, ...], code: int, scheduled: Scheduled) -> None:
    by_step = " ".join(
        f"{step}) exit {each};;" for step, each in zip(("nightly", "report", "audit"), codes, strict=True)
    )
    scheduled.replace("mqsieve", 'seq 30; echo "mqsieve: why $1" >&2', f"case $1 in {by_step} esac")
    mail, _ = scheduled.run()
    first, *_, nightly_failed, report_failed, audit_failed = mail.splitlines()
    assert first == f"exit code {code}"
    assert [nightly_failed, report_failed, audit_failed] == [
        f"mqsieve: why {step}" for step in ("nightly", "report", "audit")
    ]


@pytest.mark.parametrize(("code", "runs"), [(23, False), (12, False), (24, True)])
def test_where_the_copy_fails_there_is_no_night(code: int, runs: bool, scheduled: Scheduled) -> None:
    scheduled.replace("rsync", f'echo "rsync error" >&2; exit {code}')
    mail, log = scheduled.run()
    assert ("nightly" in log, log.count("rsync error")) == (runs, 2 if runs else 1)
    assert mail == ("" if runs else "exit code 1\nrsync error\n")


def test_one_night_at_a_time(scheduled: Scheduled) -> None:
    scheduled.replace("mqsieve", 'echo "$1"', f'[ "$1" != nightly ] || "{scheduled.folder}/night"')
    mail, log = scheduled.run()
    assert log == ["nightly", "the night before still runs", "report", "audit"]
    assert mail.splitlines() == ["exit code 4", *log]


class Task:
    """What a task of the DAG returns: tasks are put in an order with ``>>``."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __call__(self, *_: object) -> Task:
        return self

    def __rshift__(self, other: Task) -> Task:
        return other


@pytest.mark.parametrize(("code", "error"), [(0, None), (1, "again"), (2, "at once"), (3, "at once"), (4, "again")])
def test_exit_codes_in_airflow(code: int, error: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow has some hundred packages, so a stand-in takes its place: what fails a task, and what repeats it."""
    sdk, exceptions = ModuleType("airflow.sdk"), ModuleType("airflow.sdk.exceptions")
    vars(sdk).update(dag=lambda **_: lambda function: function, task=Task)
    kinds = {"AirflowException": "again", "AirflowFailException": "at once"}
    vars(exceptions).update({name: type(kind, (Exception,), {}) for name, kind in kinds.items()})
    for module in (ModuleType("airflow"), sdk, exceptions):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    run_in_airflow = runpy.run_path(str(EXAMPLES / "airflow_dag.py"))["run"]
    run_in_airflow.__globals__["MQSIEVE"] = str(program(tmp_path / "mqsieve", f"exit {code}"))
    raised = None
    try:
        run_in_airflow("nightly --strict")
    except Exception as failure:
        raised = type(failure).__name__
    assert raised == error


EXPENSIVE, DEARER = "price > 50", "price > 50.0"


@pytest.mark.parametrize(
    ("before", "counts"), [(EXPENSIVE, "1 gained, 0 lost, 1 kept"), (None, "2 gained, 0 lost, 0 kept")]
)
def test_the_checks_of_a_pull_request(before: str | None, counts: str, tmp_path: Path) -> None:
    """The workflow's steps, run as GitHub runs them, on a branch that changes a subscription, or adds the first one.

    What is wrong with another subscription since before fails no pull request.
    """
    origin, checkout, programs = (tmp_path / name for name in ("origin", "checkout", "programs"))
    origin.mkdir()
    (origin / "README.md").write_text("ours")
    git = ["git", "-c", "user.name=n", "-c", "user.email=n@example.com"]
    subprocess.run(["git", "init", "-q"], cwd=origin, check=True)
    for line, expression in (("main", before), ("change", DEARER)):
        if expression is not None:
            shutil.copy(LOG, origin)
            others = "- {group: others, topic: Elsewhere, tag: x}\n" if before else ""
            (origin / "subscriptions.yaml").write_text(f"- {{group: cg, topic: Orders, sql: {expression}}}\n{others}")
        for command in (
            ["init", "-q", "-b", line],
            ["checkout", "-q", "-B", line],
            ["add", "."],
            ["commit", "-qm", line],
        ):
            subprocess.run([*git, *command], cwd=origin, check=True)
    base = subprocess.run([*git, "rev-parse", "main"], cwd=origin, check=True, capture_output=True, text=True).stdout
    subprocess.run(
        [*git, "clone", "-q", "--depth", "1", "--branch", "change", f"file://{origin}", checkout], check=True
    )
    programs.mkdir()
    calls = {
        "mqsieve": f'exec env PYTHONPATH={PROJECT} {sys.executable} -m mqsieve "$@"',
        "gh": f'echo "$*" >{tmp_path}/gh',
    }
    for name, call in calls.items():
        (programs / name).write_text(f"#!/bin/sh\n{call}\n")
        (programs / name).chmod(0o755)
    environment = os.environ | {"PATH": f"{programs}:{os.environ['PATH']}", "BASE": base.strip(), "NUMBER": "7"}
    workflow = yaml.safe_load((EXAMPLES / "pull_request.yml").read_text())
    steps = {step["name"]: step for step in workflow["jobs"]["check"]["steps"] if "run" in step}
    assert list(steps) == ["install", "replay", "lint", "what-if", "comment"]
    codes = {}
    for name in list(steps)[1:]:
        shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail"] if "shell" in steps[name] else ["bash", "-e"]
        command = [*shell, "-c", steps[name]["run"]]
        codes[name] = subprocess.run(command, cwd=checkout, env=environment, check=False).returncode
    assert codes == {"replay": 0, "lint": 0, "what-if": 0, "comment": 0}
    assert (tmp_path / "gh").read_text() == "pr comment 7 --edit-last --create-if-none --body-file comment.md\n"
    comment = (checkout / "comment.md").read_text()
    assert f"## cg on Orders: {counts}" in comment
    known = "left out, as known.json has them: 1 finding\n" if before else ""
    assert comment.endswith(f"```\n{known}no findings\n```\n")


def test_a_night_writes_gauges_that_the_alerts_read(broker: GrowingBroker, tmp_path: Path) -> None:
    file = tmp_path / "mqsieve.prom"
    broker.night([sql(BEFORE, "cg", LOW)], "--metrics", file)
    samples = gauges(file)
    assert samples["mqsieve_night_messages"] == ['broker="b"} 10']
    assert samples["mqsieve_night_deliveries"] == ['broker="b"} 5']
    assert samples["mqsieve_night_quarantined"] == ['broker="b"} 0']
    assert samples["mqsieve_night_newest_timestamp_seconds"] == [
        f'broker="b"}} {broker.log.messages[-1].stored_at / 1000}'
    ]
    assert 'broker="b",condition="behind",severity="warn"} 0' in samples["mqsieve_night_attention"]
    rules = yaml.safe_load((EXAMPLES / "prometheus_alerts.yaml").read_text())["groups"][0]["rules"]
    read = {name for rule in rules for name in re.findall(r"mqsieve_\w+", rule["expr"])}
    assert read <= samples.keys()
    if PROMTOOL:
        subprocess.run([PROMTOOL, "check", "metrics"], input=file.read_bytes(), check=True)
    written = file.read_text()
    broker.run(nightly, "--store", broker.folder / "nowhere", "--warehouse", broker.folder / "w", "--metrics", file)
    assert file.read_text() == written


RAN, ATTENTION, BEHIND = (
    f"mqsieve_{name}" for name in ("night_run_timestamp_seconds", "night_attention", "consumer_exact_lag_messages")
)
NO_NIGHT, NEEDS_ATTENTION, IS_BEHIND = "MqsieveNightIsMissing", "MqsieveNeedsAttention", "MqsieveGroupIsBehind"
OF_A_GROUP = "broker='a',group='{}',topic='T',queue='{}'"


def alarm(summary: str, **labels: str) -> dict[str, Any]:
    return {"exp_labels": labels, "exp_annotations": {"summary": summary}}


def fires(at: str, alert: str, *alarms: dict[str, Any]) -> dict[str, Any]:
    """What promtool expects of an alert at a time."""
    return {"eval_time": at, "alertname": alert, "exp_alerts": list(alarms)}


@pytest.mark.skipif(PROMTOOL is None, reason="needs Prometheus's promtool (CONTRIBUTING.md)")
def test_alerts_fire_when_they_should_and_only_then(tmp_path: Path) -> None:
    """Hours on a clock from 0: broker a has a night at 0, broker b at 20; the file of both is gone from hour 48 on."""
    series = {
        f"{RAN}{{broker='a'}}": "0x48",
        f"{RAN}{{broker='b'}}": f"0x19 {20 * 3600}x28",
        f"{ATTENTION}{{broker='a',condition='does-not-compile',severity='error'}}": "0 2 0x46",
        f"{ATTENTION}{{broker='a',condition='behind',severity='warn'}}": "3x48",
        f"{BEHIND}{{{OF_A_GROUP.format('cg', 0)}}}": "6000x48",
        f"{BEHIND}{{{OF_A_GROUP.format('cg', 1)}}}": "4000 4001 4000x46",
        f"{BEHIND}{{{OF_A_GROUP.format('other', 0)}}}": "10000x48",
    }
    ended = "ended for 26 hours, or its file of gauges is gone"
    without_a, without_b = (alarm(f"no night of {name} {ended}", severity="page", broker=name) for name in ("a", "b"))
    failing = alarm(
        "a: does-not-compile (docs/OPERATIONS.md says what it means)",
        severity="ticket",
        broker="a",
        condition="does-not-compile",
    )
    behind = alarm("cg did not get 10001 messages of T yet", severity="ticket", broker="a", group="cg", topic="T")
    expected = [
        fires("26h", NO_NIGHT),
        fires("27h", NO_NIGHT, without_a),
        fires("47h", NO_NIGHT, without_a, without_b),
        fires("50h", NO_NIGHT, alarm(f"no night {ended}", severity="page")),
        fires("0h", NEEDS_ATTENTION),
        fires("1h", NEEDS_ATTENTION, failing),
        fires("2h", NEEDS_ATTENTION),
        fires("0h", IS_BEHIND),
        fires("1h", IS_BEHIND, behind),
        fires("2h", IS_BEHIND),
    ]
    tests = {
        "rule_files": [str(EXAMPLES / "prometheus_alerts.yaml")],
        "evaluation_interval": "1h",
        "tests": [
            {
                "interval": "1h",
                "input_series": [{"series": name, "values": values} for name, values in series.items()],
                "alert_rule_test": expected,
            }
        ],
    }
    (tmp_path / "tests.yaml").write_text(yaml.safe_dump(tests))
    for verb, file in (("check", EXAMPLES / "prometheus_alerts.yaml"), ("test", tmp_path / "tests.yaml")):
        subprocess.run([str(PROMTOOL), verb, "rules", str(file)], check=True)


def test_a_file_that_prometheus_would_not_read(run: Run, tmp_path: Path) -> None:
    ended = run(nightly, "--store", tmp_path, "--warehouse", tmp_path / "w", "--metrics", tmp_path / "metrics.txt")
    assert (ended.code, "metrics.txt does not end in .prom" in ended.error) == (2, True)
    ended = run(nightly, "--store", tmp_path, "--warehouse", tmp_path / "w", "--metrics", tmp_path / "no" / "m.prom")
    assert (ended.code, f"the folder {tmp_path}/no does not exist: create it first" in ended.error) == (2, True)
    open_to_all(tmp_path)
    with as_nobody():
        ended = run(nightly, "--store", tmp_path, "--warehouse", tmp_path / "w", "--metrics", tmp_path / "m.prom")
    assert (ended.code, f"you may not write to the folder {tmp_path}: " in ended.error) == (2, True)
    assert not (tmp_path / "w").exists()


def test_the_first_example_of_a_night(run: Run, tmp_path: Path) -> None:
    """Lags of a real broker's groups are in the file, as lag --prometheus has them."""
    small = capture("small")
    file = tmp_path / "mqsieve.prom"
    run(nightly, "--store", small / "store", "--warehouse", tmp_path / "w", "--metrics", file)
    assert any('group="cg_sql_region_price"' in sample for sample in gauges(file)["mqsieve_consumer_lag_messages"])
