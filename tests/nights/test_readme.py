"""README's commands work on the store that ships with the project."""

from __future__ import annotations

import importlib
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from answers import warehouse
from schemas.delta.warehouse import Warehouse
from tests.nights.commands import Run
from tests.nights.damage import copy_of

PROJECT = Path(__file__).parents[2]
README = (PROJECT / "README.md").read_text(encoding="utf-8")
QUESTIONS = re.findall(
    r"^\| .+\? \| `\./spark-submit\.sh (.+)` \|$|^\| .+\. \| `\./spark-submit\.sh (.+)` \|$", README, re.M
)


@pytest.mark.parametrize("question", [first or second for first, second in QUESTIONS], ids=lambda text: text.split()[0])
def test_a_question_has_an_answer(
    question: str, replayed: Callable[[str], Warehouse], run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, *arguments = shlex.split(question)
    paths = [str(PROJECT / text) if text.startswith("tests/") else text for text in arguments]
    folder = copy_of(replayed("small"), tmp_path / "warehouse").location
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    ended = run(importlib.import_module(f"jobs.{job.replace('-', '_')}"), *paths, "--warehouse", folder)
    assert ended.code == 0, ended.error
    assert ended.out or list(Path().iterdir())


def test_the_answer_in_the_readme_is_the_one_that_comes(replayed: Callable[[str], Warehouse], run: Run) -> None:
    command, answer = re.findall(r"```sh\n\./spark-submit\.sh explain (.+)\n```\n\n```\n(.+?)```", README, re.S)[0]
    arguments = shlex.split(command.replace("/tmp/mqsieve", replayed("small").location))
    assert run(importlib.import_module("jobs.explain"), *arguments).out == answer


def test_the_answers_in_the_tutorial_are_those_that_come(replayed: Callable[[str], Warehouse], run: Run) -> None:
    text = (PROJECT / "docs" / "TUTORIAL.md").read_text(encoding="utf-8")
    answers = re.findall(r"```sh\n\./spark-submit\.sh (.+)\n```\n\n```\n((?:.*\n)+?)```", text)
    assert len(answers) == 3
    for command, answer in answers:
        job, *arguments = shlex.split(command.replace("/tmp/mqsieve", replayed("small").location))
        assert run(importlib.import_module(f"jobs.{job.replace('-', '_')}"), *arguments).out.strip() == answer.strip()


def test_the_python_runs(replayed: Callable[[str], Warehouse]) -> None:
    (code,) = re.findall(r"```python\n(.+?)```", README, re.S)
    names: dict[str, warehouse.OpenWarehouse] = {}
    exec(code.replace("/tmp/mqsieve", replayed("small").location), names)
    assert names["shop"].why("ord-370", "cg_sql_region_price")
