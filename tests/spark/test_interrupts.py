"""Ctrl-C while Spark starts or works: one line, exit code 130, and no process stays behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from jobs.cli.session import delta_jars

PROJECT = Path(__file__).parents[2]
MESSAGE = "mqsieve: interrupted: no table is half written; run the same command again to continue\n"
WORKING = """
import os, signal, threading
from jobs.cli import application
from jobs.cli.session import spark_session
from schemas.spark_tasks import run_tasks

def main(arguments):
    driver = os.getpid()

    def interrupt(task):
        os.kill(driver, signal.SIGINT)
        threading.Event().wait()

    list(run_tasks([0], interrupt, 0, lambda: spark_session("interrupted")))

application.run(main)
"""
STARTING = """
from jobs.cli import application
from jobs.cli.session import spark_session

application.run(lambda arguments: spark_session("interrupted"))
"""


def ended(program: str, **environment: str) -> tuple[int, str, str]:
    """The exit code and the output of a program, after every process that could write there has ended."""
    delta_jars()
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=PROJECT, capture_output=True, text=True, check=False, timeout=120,
        env=os.environ | environment,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def test_while_spark_works() -> None:
    assert ended(WORKING, MQSIEVE_SPARK_OPTIONS="--master\nlocal[1]") == (130, "", MESSAGE)


def test_while_spark_starts(tmp_path: Path) -> None:
    submit = tmp_path / "bin" / "spark-submit"
    submit.parent.mkdir()
    # A shell's own kill may come before Python knows the number of the process that it has just forked.
    kill = f"{sys.executable} -c 'import os, signal, sys; os.kill(int(sys.argv[1]), signal.SIGINT)' $PPID"
    submit.write_text(f"#!/bin/sh\n{kill}\nexec tail -f /dev/null\n")
    submit.chmod(0o755)
    assert ended(STARTING, SPARK_HOME=str(tmp_path)) == (130, "", MESSAGE)
