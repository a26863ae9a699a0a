"""spark-submit.sh on machines that lack something: one line that says what to install."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
COPIED = ("spark-submit.sh", "setup.cfg", "conf/environment.sh", "conf/requirements.txt", "conf/requirements-test.txt")
JOBS = sorted(file.stem for file in (PROJECT / "jobs").glob("[a-z]*.py"))
TOOLS = (
    "basename",
    "bash",
    "cat",
    "cksum",
    "cp",
    "dirname",
    "flock",
    "grep",
    "head",
    "ls",
    "mkdir",
    "mv",
    "rm",
    "sed",
    "tee",
    "tr",
)


class Machine:
    """A copy of the project, and a PATH with the usual tools and nothing else."""

    def __init__(self, folder: Path) -> None:
        self.project = folder / "my project"
        for name in (*COPIED, *(f"jobs/{job}.py" for job in JOBS)):
            (self.project / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(PROJECT / name, self.project / name)
        self.bin = folder / "bin"
        self.bin.mkdir()
        for tool in TOOLS:
            found = shutil.which(tool)
            if found:
                (self.bin / tool).symlink_to(found)

    def install(self, name: str, script: str) -> Path:
        program = self.bin / name
        program.write_text(f"#!{self.bin}/bash\n{script}\n")
        program.chmod(0o755)
        return program

    def run(self, *arguments: str, **environment: str) -> tuple[int, str, str]:
        ended = subprocess.run(
            [self.bin / "bash", self.project / "spark-submit.sh", *arguments],
            capture_output=True, text=True, check=False, cwd="/", env={"PATH": str(self.bin), **environment},
        )  # fmt: skip
        return ended.returncode, ended.stdout, ended.stderr


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_no_python(machine: Machine) -> None:
    told = (
        "mqsieve: Python 3.11 or newer was not found: install it (e.g. apt-get install python3.11 python3.11-venv).\n"
    )
    assert machine.run("nightly") == (2, "", told)
    machine.install("python3", "exit 1  # 3.10")
    assert machine.run("test") == (2, "", told)
    assert not (machine.project / ".venv").exists()


def test_a_python_that_makes_no_virtual_environment(machine: Machine) -> None:
    machine.install("python3.12", '[ "$1" = -c ]')
    code, out, error = machine.run("nightly")
    assert (code, out) == (2, "")
    assert error.endswith(
        "mqsieve: python3.12 cannot make a virtual environment: install its venv module "
        "(e.g. apt-get install python3-venv).\n"
    )


def test_another_spark(machine: Machine) -> None:
    machine.install("python3.12", 'case "$*" in *"-m venv"*) mkdir -p "$3/bin"; cp "$0" "$3/bin/python" ;; esac')
    assert machine.run("nightly", SPARK_HOME="/opt/spark-3.5")[::2] == (
        2, "mqsieve: first use: installing Python packages into .venv (about a minute)\n"
        "mqsieve: SPARK_HOME (/opt/spark-3.5) is not Spark 4.2: unset it to use the Spark in .venv, "
        "or point it to a Spark 4.2.\n",
    )  # fmt: skip


@pytest.mark.parametrize("job", ["nigthly", "../nightly", "Nightly", "run", "cli", "__init__"])
def test_no_such_job(machine: Machine, job: str) -> None:
    code, out, error = machine.run(job)
    assert (code, out) == (2, "")
    assert f"'{job}'" in error
    assert error.endswith("; ./spark-submit.sh --help lists them.\n")


def test_a_misspelt_job_is_suggested() -> None:
    ended = subprocess.run([PROJECT / "spark-submit.sh", "nigthly"], capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "did you mean nightly?" in ended.stderr


@pytest.mark.parametrize("option", ["--master", "--conf", "--jars"])
def test_an_option_without_its_value(machine: Machine, option: str) -> None:
    expected = f"mqsieve: {option} needs a value; ./spark-submit.sh --help tells more.\n"
    assert machine.run("nightly", option) == (2, "", expected)
    assert machine.run("nightly", option, "--store", "x") == (2, "", expected)


def test_help_lists_every_job_with_what_it_does(machine: Machine) -> None:
    code, out, error = machine.run("--help")
    assert (code, error) == (0, "")
    listed = dict(re.findall(r"^  ([a-z-]+) +(\S.*)$", out.partition("jobs:\n")[2], re.MULTILINE))
    assert sorted(listed) == [job.replace("_", "-") for job in JOBS]
    for job, purpose in listed.items():
        assert f": {purpose}" in (PROJECT / "jobs" / f"{job.replace('-', '_')}.py").read_text("utf-8").split("\n")[0]
    assert machine.run() == (2, "", out)


def test_it_is_executable() -> None:
    assert os.access(PROJECT / "spark-submit.sh", os.X_OK)


def test_a_topics_queue_is_no_queue_of_yarn(tmp_path: Path) -> None:
    place = ("--topic", "T", "--queue", "0", "--offset=3")
    command = [PROJECT / "spark-submit.sh", "explain", "--warehouse", str(tmp_path), *place]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, "has no table yet" in ended.stderr) == (2, True)
