"""What README and --help say exists, and is so."""

from __future__ import annotations

import importlib
import re
import shlex
from itertools import pairwise
from pathlib import Path

import pytest

import benchmarks.__main__
from jobs.cli.application import ExitCode
from schemas.subscription_files import parse_subscriptions

PROJECT = Path(__file__).parents[2]
README = (PROJECT / "README.md").read_text(encoding="utf-8")
JOBS = sorted(
    file.stem for file in (PROJECT / "jobs").glob("*.py") if "application.run(main)" in file.read_text(encoding="utf-8")
)


SPARK_OPTIONS = (
    "--master", "--deploy-mode", "--conf", "--archives", "--jars", "--py-files", "--files", "--packages",
    "--queue",
)  # fmt: skip
PAGES = [PROJECT / "README.md", PROJECT / "CONTRIBUTING.md", *sorted(PROJECT.glob("docs/*.md"))]


def blocks(language: str, text: str = README) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def commands(text: str) -> list[list[str]]:
    """The command lines in a page, in blocks and in running text."""
    in_text = re.findall(r"`(\./spark-submit\.sh [^`\n]+)`", text)
    in_blocks = [line.strip() for block in blocks("sh", text) for line in block.replace("\\\n", " ").split("\n")]
    in_blocks = [line for line in in_blocks if line.startswith("./spark-submit.sh")]
    lines = [shlex.split(line, comments=True) for line in (*in_text, *in_blocks)]
    return [line[: line.index(">")] if ">" in line else line for line in lines]


def help_of(job: str, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(f"jobs.{job}").main(["--help"])
    assert ended.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("job", JOBS)
def test_help_tells_what_a_job_does_and_every_option(job: str, capsys: pytest.CaptureFixture[str]) -> None:
    printed = help_of(job, capsys)
    assert printed.startswith(f"usage: ./spark-submit.sh {job.replace('_', '-')} ")
    doc = str(importlib.import_module(f"jobs.{job}").__doc__).split("\n\n")[0]
    assert " ".join(doc.split()) in " ".join(printed.split())
    for option in re.split(r"\n  (?=-)", printed.partition("options:\n")[2]):
        assert re.search(r"\s{2,}\w", option.strip()), f"{option} is not described"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_is_one(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for _, job, *arguments in commands(page.read_text(encoding="utf-8")):
        if job == "bench":
            assert set(arguments[:1]) <= {*benchmarks.__main__.NAMES, "NAME"}
        if job in ("test", "python", "bench", "JOB"):
            continue
        assert job.replace("-", "_") in JOBS
        printed = help_of(job.replace("-", "_"), capsys)
        for option, value in pairwise([*arguments, ""]):
            if option.startswith("--") and option not in SPARK_OPTIONS:
                assert re.search(rf"{option}\b", printed), f"{job} has no {option}"
            if option in ("--store", "--subscriptions", "--broker-config") and page.name == "README.md":
                assert (PROJECT / value).exists()


def test_the_yaml_is_a_list_of_subscriptions() -> None:
    (block,) = blocks("yaml")
    parsed = parse_subscriptions(block)
    assert not parsed.rejected
    (event,) = parsed.events
    (subscription,) = event.subscriptions
    assert (event.group, subscription["topic"], subscription["type"]) == ("cg_expensive_orders", "OrderEvents", "SQL92")
    assert not parse_subscriptions((PROJECT / "conf" / "subscriptions.example.yaml").read_text("utf-8")).rejected


def test_the_exit_codes() -> None:
    codes = re.search(r"Exit codes: (.*?)\.\n", README, re.DOTALL)
    assert codes is not None
    assert re.findall(r"(\d) (done|failed|usage|a blocking|another)", codes[1]) == [
        (f"{ExitCode.DONE}", "done"), (f"{ExitCode.FAILED}", "failed"), (f"{ExitCode.USAGE}", "usage"),
        (f"{ExitCode.CHECK_FAILED}", "a blocking"), (f"{ExitCode.LOST_RACE}", "another"),
    ]  # fmt: skip
