"""Jobs on a cluster do what they do on one machine."""

from __future__ import annotations

import io
import re
import shutil
import sys
import tarfile
from pathlib import Path

import pytest

from jobs import nightly, pulls
from tests.captures import capture
from tests.cluster.conftest import HERE, PROJECT, WORKERS, Submit
from tests.nights.commands import arguments, differing, rows_of, without_runs

FORCED = str(HERE / "forced")
KILLED = str(HERE / "killed")
TIMES = re.compile(r"\b\d+\.\d s\b")
PROGRESS = (
    r"(mqsieve compiles its loops .*\n)?\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC broker-a: 743 messages, [\d,]+/s "
    r"\(\d+\.\d s(, of which \d+\.\d s to compile)?\)\n"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory with a space in its path, and a capture's files in it."""
    folder = tmp_path_factory.mktemp("a cluster") / "my broker"
    shutil.copytree(capture("small"), folder)
    return folder


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The warehouse of the same night in this process."""
    warehouse = tmp_path_factory.mktemp("local")
    nightly.main(arguments("small", warehouse))
    return warehouse


def test_a_night_and_an_answer(
    submit: Submit, folder: Path, local: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From a relative store, and with a Python that the workers unpack. One of them is killed at work.

    Its task is repeated alone, and the data file that it had closed is in no table.
    """
    starts, closed = tmp_path / "starts", tmp_path / "closed"
    archive = python_archive(tmp_path / "python env.tar.gz", starts, closed)
    night = submit(
        "nightly", "--archives", f"{archive.as_uri()}#environment", "--store", "store", "--warehouse", "tables",
        "--subscriptions", "subscription_events.jsonl", "--broker-config", "broker.conf",
        cwd=folder, PYTHONPATH=FORCED, PYSPARK_PYTHON="./environment/bin/python",
    )  # fmt: skip
    assert night.code == 0, night.error
    assert re.fullmatch(PROGRESS, night.error), night.error
    assert len(starts.read_text().splitlines()) >= WORKERS
    assert differing(without_runs(folder / "tables"), without_runs(local)) == []
    lines = [line.split() for line in closed.read_text().splitlines()]
    assert [attempt for _, attempt, is_last in lines if is_last == "True"] == ["0"]
    killed = {task for task, _, is_last in lines if is_last == "True"}
    assert {task for task, attempt, _ in lines if attempt != "0"} == killed
    assert len({task for task, _, _ in lines} - killed) >= WORKERS

    question = ["--group", "cg_all_orders", "--topic", "OrderEvents", "--warehouse"]
    answer = submit("pulls", *question, "tables", cwd=folder, PYTHONPATH=FORCED)
    capsys.readouterr()
    pulls.main([*question, str(local)])
    assert (answer.code, answer.error) == (0, "")
    assert answer.out == capsys.readouterr().out


def python_archive(archive: Path, starts: Path, closed: Path) -> Path:
    """An environment with this Python in bin/python; each start of it is a line in the file ``starts``.

    tests/cluster/killed/sitecustomize.py writes the file ``closed``.
    """
    environment = f'PYTHONPATH="{KILLED}:$PYTHONPATH" MQSIEVE_TEST_CLOSED="{closed}"'
    script = f'#!/bin/sh\necho "$PWD" >>"{starts}"\n{environment} exec "{sys.executable}" "$@"\n'.encode()
    member = tarfile.TarInfo("bin/python")
    member.size, member.mode = len(script), 0o755
    with tarfile.open(archive, "w:gz") as file:
        file.addfile(member, io.BytesIO(script))
    return archive


HOOK = """
import zipfile

import pyarrow as pa
from pyspark import SparkFiles

def listed(entries):
    assert zipfile.is_zipfile(SparkFiles.get("my own.jar"))
    with open(SparkFiles.get("kept offsets.txt")) as file:
        kept = set(map(int, file))
    return pa.array([offset in kept for offset in entries["queue_offset"].to_pylist()])
"""


def test_files_of_the_caller(submit: Submit, folder: Path, local: Path, tmp_path: Path) -> None:
    """A filter hook in a module that travels by --py-files, with a list that travels by --files."""
    (tmp_path / "my_hooks.py").write_text(HOOK)
    (tmp_path / "kept offsets.txt").write_text("0\n2\n5\n")
    (tmp_path / "hooks.yaml").write_text("- {group: cg_all_orders, topic: OrderEvents, function: 'my_hooks:listed'}")
    jar = next((PROJECT / ".cache" / "jars").glob("delta-storage*.jar"))
    shutil.copy(jar, tmp_path / "my own.jar")
    given = ("--py-files", "my_hooks.py", "--files", "kept offsets.txt", "--jars", "my own.jar")
    night = submit("nightly", *given, *arguments("small", "tables", "--filter-hooks", "hooks.yaml"), cwd=tmp_path)
    assert night.code == 0, night.error
    assert re.fullmatch(PROGRESS, night.error), night.error
    expected = {
        (row["queue_id"], row["queue_offset"]): "DELIVERED" if row["queue_offset"] in (0, 2, 5) else "DROPPED_BY_HOOK"
        for row in rows_of(local, "deliveries")
        if row["consumer_group"] == "cg_all_orders" and row["topic"] == "OrderEvents"
    }
    outcomes = {
        (row["queue_id"], row["queue_offset"]): row["outcome"]
        for row in rows_of(tmp_path / "tables", "deliveries")
        if row["consumer_group"] == "cg_all_orders" and row["topic"] == "OrderEvents"
    }
    assert outcomes == expected
