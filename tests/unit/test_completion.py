"""Completion of spark-submit.sh's command line, as bash asks for it."""

from __future__ import annotations

import runpy
import shlex
import subprocess
from pathlib import Path

import pytest

CONF = Path(__file__).parents[2] / "conf"
ASK = 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _mqsieve; printf "%s\\n" "${COMPREPLY[@]}"'


def completed(line: str) -> list[str]:
    """What the last word of a line may become."""
    words = [*shlex.split(line), ""] if line.endswith(" ") else shlex.split(line)
    command = ["bash", "--norc", "-uc", ASK, "bash", str(CONF / "completion.bash"), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def test_the_file_is_that_of_the_parsers() -> None:
    page = runpy.run_path(str(CONF / "make_completion.py"))["page"]
    expected = "run .venv/bin/python conf/make_completion.py"
    assert (CONF / "completion.bash").read_text("utf-8") == page(), expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("./spark-submit.sh nigh", ["nightly"]),
        ("./spark-submit.sh what-if --max-", ["--max-lost", "--max-gained"]),
        ("./spark-submit.sh nightly --bodies ", ["keep", "damaged", "none"]),
        ("./spark-submit.sh nightly --strict --ware", ["--warehouse"]),
        ("./spark-submit.sh export deliveri", ["deliveries"]),
        ("./spark-submit.sh nightly --store ", []),
        ("./spark-submit.sh subscriptions ", []),
        ("./spark-submit.sh nothing --ware", []),
    ],
)
def test_words_of_a_line(line: str, expected: list[str]) -> None:
    assert completed(line) == expected


def test_every_job_is_offered() -> None:
    jobs = {file.stem.replace("_", "-") for file in CONF.parent.glob("jobs/[a-z]*.py")}
    assert set(completed("./spark-submit.sh ")) == jobs | {"test", "python", "bench"}
