"""spark-submit.sh on machines that lack something: one line that says what to install."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import mqsieve

PROJECT = Path(__file__).parents[2]
COPIED = (
    "spark-submit.sh", "setup.cfg", "conf/environment.sh", "conf/requirements.txt", "conf/requirements-test.txt",
    "schemas/__init__.py",
)  # fmt: skip
JOBS = sorted(file.stem for file in (PROJECT / "jobs").glob("[a-z]*.py"))
TOOLS = (
    "basename", "bash", "cat", "cksum", "cp", "dirname", "flock", "grep", "head", "ln", "ls", "mkdir", "mv",
    "readlink", "rm", "sed", "tee", "tr",
)  # fmt: skip


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
            program = shutil.which(tool)
            if program:
                (self.bin / tool).symlink_to(program)

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
    message = (
        "mqsieve: Python 3.11 to 3.14 was not found: install it (e.g. apt-get install python3.11 python3.11-venv).\n"
    )
    assert machine.run("nightly") == (2, "", message)
    machine.install("python3", "exit 1  # 3.10")
    assert machine.run("test") == (2, "", message)
    assert not (machine.project / ".venv").exists()


def test_a_python_that_makes_no_virtual_environment(machine: Machine) -> None:
    machine.install("python3.12", '[ "$1" = -c ]')
    code, out, error = machine.run("nightly")
    assert (code, out) == (2, "")
    assert error.endswith(
        "mqsieve: python3.12 cannot make a virtual environment: install its venv module "
        "(e.g. apt-get install python3-venv).\n"
    )


# A Python whose virtual environments have links to it.
PYTHON_THAT_INSTALLS = """
case "$*" in
  *"-m venv"*) mkdir -p "$3/bin" && ln -sf "$0" "$3/bin/python" && : >"$3/bin/has-pip" ;;
  *"import pip"*) [ -e "${0%/*}/has-pip" ] ;;
esac"""


def test_a_virtual_environment_without_pip_is_made_again(machine: Machine) -> None:
    """Without its package python3-venv, Debian's Python ends with an error, and leaves an environment without pip."""
    machine.install(
        "python3.12", 'case "$*" in *"-m venv"*) mkdir -p "$3/bin"; cp "$0" "$3/bin/python"; exit 1 ;; esac'
    )
    assert machine.run("nightly")[0] == 2
    (machine.project / ".venv/bin/python").write_text("#!/bin/sh\nexit 1\n")
    machine.install("python3.12", PYTHON_THAT_INSTALLS)
    code, out, error = machine.run("nightly")
    assert (code, out) == (0, ""), error
    assert (machine.project / ".venv/bin/has-pip").exists()
    assert machine.run("nightly") == (0, "", "")


def test_a_virtual_environment_whose_python_was_removed_is_made_again(machine: Machine) -> None:
    """As when a system or Homebrew replaces its Python by a newer one."""
    machine.install("python3.12", PYTHON_THAT_INSTALLS)
    assert machine.run("nightly")[0] == 0
    (machine.bin / "python3.12").unlink()
    machine.install("python3.13", PYTHON_THAT_INSTALLS)
    code, out, error = machine.run("nightly")
    assert (code, out) == (0, ""), error
    assert error == "mqsieve: first use: installing Python packages into .venv (about a minute)\n"
    assert machine.run("nightly") == (0, "", "")


def test_the_help_of_bench_installs_nothing(machine: Machine) -> None:
    (machine.project / "benchmarks").mkdir()
    shutil.copy(PROJECT / "benchmarks" / "__main__.py", machine.project / "benchmarks")
    for option in ("--help", "-h"):
        code, out, error = machine.run("bench", option)
        assert (code, out.startswith("All measurements"), "Names: night," in out, error) == (0, True, True, "")
    for given in (("night", "--help"), ("night", "--rounds", "1", "-h"), ("compare", "-h")):
        shutil.copy(PROJECT / "benchmarks" / f"{given[0]}.py", machine.project / "benchmarks")
        code, out, error = machine.run("bench", *given)
        assert (code, f"python -m benchmarks.{given[0]}" in out, error) == (0, True, "")
    assert not (machine.project / ".venv").exists()


def test_a_python_that_only_its_owner_may_run_is_named(machine: Machine) -> None:
    """Not the modes of .venv: its Python is a link into a private home."""
    (machine.project / ".cache").write_text("a file, in which nobody can make the lock")
    assert "with umask 022" in machine.run("nightly")[2]
    (machine.project / ".venv").mkdir()
    (machine.project / ".venv" / "pyvenv.cfg").write_text("home = /home/alice/.pyenv/bin\nversion = 3.11.7\n")
    code, _, error = machine.run("nightly")
    assert (code, "uses the Python in /home/alice/.pyenv/bin, which you may not run" in error) == (2, True)
    assert ("umask" in error, error.count("\n")) == (False, 1)


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


@pytest.mark.parametrize("arguments", [["--help"], ["--version"]])
@pytest.mark.parametrize("ends_at_once", [False, True])
def test_a_reader_that_has_enough_of_the_help(machine: Machine, arguments: list[str], ends_at_once: bool) -> None:
    """As head does. A shell behind nohup or a Python program may go on when the reader has closed the output."""
    command = [str(machine.bin / "bash"), str(machine.project / "spark-submit.sh"), *arguments]
    started = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={"PATH": str(machine.bin)},
        restore_signals=ends_at_once,
    )  # fmt: skip
    assert started.stdout is not None
    started.stdout.close()
    _, error = started.communicate()
    assert (started.returncode, error) == (-signal.SIGPIPE if ends_at_once else 141, "")


def test_its_version(machine: Machine) -> None:
    assert machine.run("--version") == (0, f"mqsieve {mqsieve.__version__}\n", "")


def test_links_to_it_work(machine: Machine, tmp_path: Path) -> None:
    """A link in a folder of programs, to a relative link beside the project."""
    (tmp_path / "beside").symlink_to("my project/spark-submit.sh")
    (machine.bin / "mqsieve").symlink_to(tmp_path / "beside")
    command = [str(machine.bin / "bash"), str(machine.bin / "mqsieve"), "--help"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/", env={"PATH": machine.bin})
    assert (ended.returncode, ended.stdout, ended.stderr) == machine.run("--help")
    assert "nightly" in ended.stdout


def test_a_queue_of_yarn_is_not_swallowed_without_yarn() -> None:
    command = [str(PROJECT / "spark-submit.sh"), "lag", "--queue=3", "--warehouse", "w"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith("mqsieve: unrecognized arguments: --queue 3;")


@pytest.mark.parametrize("master", ["foo", "local[2", "spark:/m"])
def test_no_such_master(machine: Machine, master: str) -> None:
    message = f"mqsieve: --master is local[N], spark://HOST:PORT, yarn or k8s://…, not '{master}'.\n"
    assert machine.run("nightly", "--master", master) == (2, "", message)
    assert not (machine.project / ".venv").exists()


def test_a_topics_queue_is_no_queue_of_yarn_and_the_output_may_be_closed(tmp_path: Path) -> None:
    job = f"'{PROJECT}/spark-submit.sh' explain --topic T --queue 0 --offset=3 --warehouse '{tmp_path}' >&-"
    ended = subprocess.run(["bash", "-c", job], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1)
    assert "has no night yet" in ended.stderr


def test_bytecode_is_stored_even_if_none_may_be_beside_the_sources() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPYCACHEPREFIX"}
    ended = subprocess.run(
        [PROJECT / "spark-submit.sh", "python", "-c", "import sys; print(sys.dont_write_bytecode, sys.pycache_prefix)"],
        capture_output=True, text=True, check=True, env=environment | {"PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip
    assert ended.stdout == f"False {PROJECT}/.cache/bytecode\n"


PYTHON_OF_A_SUBMITTER = """
case "$*" in
  *"-m venv"*) mkdir -p "$3/bin"; cp "$0" "$3/bin/python" ;;
  *jobs.cli.session*) printf '%s\\n' file:/delta.jar 'file:/jobs.zip#jobs' ;;
esac"""
Submitted = Callable[..., tuple[list[str], dict[str, str]]]


@pytest.fixture
def submitted(machine: Machine) -> Submitted:
    """The arguments and the environment that spark-submit gets from spark-submit.sh."""
    machine.install("python3.12", PYTHON_OF_A_SUBMITTER)
    spark = machine.project.parent / "spark"
    (spark / "jars").mkdir(parents=True)
    (spark / "jars" / "spark-core_2.13-4.2.0.jar").touch()
    (spark / "bin").mkdir()
    program = machine.install("env-printer", "printf '%s\\0' \"$@\" && printf '\\1' && env -0")
    program.rename(spark / "bin" / "spark-submit")
    (machine.bin / "env").symlink_to(str(shutil.which("env")))

    def submitted(*arguments: str, **environment: str) -> tuple[list[str], dict[str, str]]:
        code, out, error = machine.run(*arguments, SPARK_HOME=str(spark), **environment)
        assert code == 0, error
        given, _, variables = out.partition("\1")
        return given.split("\0")[:-1], dict(line.split("=", 1) for line in variables.split("\0")[:-1])

    return submitted


def options_of(arguments: list[str]) -> list[tuple[str, str]]:
    """spark-submit's options and their values, without the application and its own."""
    application = next(at for at, text in enumerate(arguments) if text.endswith("/jobs/nightly.py"))
    options = [text for text in arguments[:application] if text != "--load-spark-defaults"]
    return list(zip(options[::2], options[1::2], strict=True))


def test_a_driver_on_the_cluster_finds_the_code_and_a_python(submitted: Submitted, machine: Machine) -> None:
    job = ("nightly", "--store", "s3://b/my store", "--master", "yarn")
    deployed = ("--deploy-mode", "cluster", "--archives", "e.tgz#environment", "--queue", "nights")
    arguments, environment = submitted(*job, *deployed, PYSPARK_PYTHON="./environment/bin/python")
    assert arguments[-3:] == [f"{machine.project}/jobs/nightly.py", "--store", "s3://b/my store"]
    assert options_of(arguments) == [
        ("--master", "yarn"),
        ("--properties-file", f"{machine.project}/conf/cluster.conf"),
        ("--jars", "file:/delta.jar"),
        ("--archives", "file:/jobs.zip#jobs,e.tgz#environment"),
        ("--conf", "spark.pyspark.python=./environment/bin/python"),
        ("--deploy-mode", "cluster"),
        ("--conf", "spark.yarn.appMasterEnv.PYTHONPATH=."),
        ("--conf", "spark.kubernetes.driverEnv.PYTHONPATH=."),
        ("--queue", "nights"),
    ]
    assert "PYSPARK_DRIVER_PYTHON" not in environment  # YARN would start the driver with it
    arguments, environment = submitted(*job, "--conf", "spark.submit.deployMode=cluster")
    assert ("--deploy-mode", "cluster") in options_of(arguments)
    assert "PYSPARK_PYTHON" not in environment


def test_a_driver_of_the_submitters(submitted: Submitted, machine: Machine) -> None:
    arguments, environment = submitted("nightly", "--master", "spark://m:7077", "--py-files", "mine.py")
    assert options_of(arguments)[2:] == [
        ("--jars", "file:/delta.jar"),
        ("--archives", "file:/jobs.zip#jobs"),
        ("--py-files", "mine.py"),
    ]
    assert environment["PYSPARK_DRIVER_PYTHON"] == f"{machine.project}/.venv/bin/python"
    assert environment["PYTHONPATH"] == str(machine.project)


@pytest.mark.parametrize(
    "options",
    [
        ("--master", "spark://m:7077", "--deploy-mode", "cluster"),
        ("--deploy-mode=cluster",),
        ("--master", "yarn", "--deploy-mode", "clustre"),
    ],
)
def test_no_such_deploy_mode(machine: Machine, options: tuple[str, ...]) -> None:
    code, out, error = machine.run("nightly", *options)
    assert (code, out) == (2, "")
    assert re.fullmatch(r"mqsieve: .*--deploy-mode .*\n", error)
