"""spark-submit.sh on machines that lack something: one line that says what to install. No JVM is started."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
TOOLS = (
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
JAVA_17 = "echo 'openjdk version \"17.0.19\" 2026-04-21' >&2"


class Machine:
    """A copy of the project, and a PATH with the usual tools and nothing else."""

    def __init__(self, folder: Path) -> None:
        self.project = folder / "my project"
        (self.project / "jobs").mkdir(parents=True)
        (self.project / "jobs" / "nightly.py").touch()
        for name in ("spark-submit.sh", "setup.cfg"):
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


def test_no_java(machine: Machine) -> None:
    code, out, error = machine.run("nightly")
    assert (code, out) == (2, "")
    assert error == (
        "mqsieve: Java 17 or newer is needed and none was found: install one "
        "(e.g. apt-get install openjdk-17-jre-headless) or set JAVA_HOME.\n"
    )
    assert machine.run("nightly", JAVA_HOME="/nowhere") == (2, "", error)


@pytest.mark.parametrize(
    ("told", "version"),
    [("11.0.27", "11"), ("1.8.0_452", "8"), ("9-ea", "9"), ("", "unknown")],
)
def test_an_old_java(machine: Machine, told: str, version: str) -> None:
    machine.install("java", f"echo 'openjdk version \"{told}\" 2026-04-21' >&2")
    assert machine.run("nightly") == (
        2, "", f"mqsieve: Java 17 or newer is needed, but java is version {version}: "
        "install Java 17 or set JAVA_HOME to it.\n",
    )  # fmt: skip


def test_java_home_comes_first(machine: Machine) -> None:
    machine.install("java", "echo 'openjdk version \"11.0.27\"' >&2")
    home = machine.bin.parent / "jdk"
    (home / "bin").mkdir(parents=True)
    machine.install("java17", JAVA_17).rename(home / "bin" / "java")
    assert "Python 3.11" in machine.run("nightly", JAVA_HOME=str(home))[2]


def test_no_python(machine: Machine) -> None:
    machine.install("java", JAVA_17)
    told = (
        "mqsieve: Python 3.11 or newer is needed and none was found: install one "
        "(e.g. apt-get install python3.11 python3.11-venv).\n"
    )
    assert machine.run("nightly") == (2, "", told)
    machine.install("python3", "exit 1  # 3.10")
    assert machine.run("test") == (2, "", told)
    assert not (machine.project / ".venv").exists()


def test_a_python_that_makes_no_virtual_environment(machine: Machine) -> None:
    machine.install("java", JAVA_17)
    machine.install("python3.12", '[ "$1" = -c ]')
    code, out, error = machine.run("nightly")
    assert (code, out) == (2, "")
    assert error.endswith(
        "mqsieve: python3.12 cannot make a virtual environment: install its venv module "
        "(e.g. apt-get install python3-venv).\n"
    )


def test_another_spark(machine: Machine) -> None:
    machine.install("java", JAVA_17)
    machine.install("python3.12", 'case "$*" in *"-m venv"*) mkdir -p "$3/bin"; cp "$0" "$3/bin/python" ;; esac')
    assert machine.run("nightly", SPARK_HOME="/opt/spark-3.5")[::2] == (
        2, "mqsieve: first use: installing Python packages into .venv (about a minute)\n"
        "mqsieve: SPARK_HOME (/opt/spark-3.5) is not Spark 4.2: unset it to use the Spark in .venv, "
        "or point it to a Spark 4.2.\n",
    )  # fmt: skip


@pytest.mark.parametrize("job", ["nigthly", "../nightly", "Nightly", "run"])
def test_no_such_job(machine: Machine, job: str) -> None:
    code, out, error = machine.run(job)
    assert (code, out) == (2, "")
    assert f"'{job}'" in error
    assert error.endswith("; ./spark-submit.sh --help lists them.\n")


def test_help_lists_every_job(machine: Machine) -> None:
    code, out, error = machine.run("--help")
    assert (code, error) == (0, "")
    jobs = out.partition("run a job: ")[2].partition("\n")[0].split(", ")
    assert set(jobs) >= {file.stem.replace("_", "-") for file in (PROJECT / "jobs").glob("*.py") if is_job(file)}
    assert machine.run() == (2, "", out)


def is_job(file: Path) -> bool:
    return "application.run(main)" in file.read_text(encoding="utf-8")


def test_it_is_executable() -> None:
    assert os.access(PROJECT / "spark-submit.sh", os.X_OK)
