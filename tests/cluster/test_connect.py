"""Spark Connect: a client without a JVM, and a server in a process of its own."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs import nightly, pulls
from jobs.cli.session import delta_jars
from tests.captures import capture
from tests.cluster.conftest import HERE, PROJECT
from tests.cluster.processes import LOCALHOST, SPARK_HOME, Server
from tests.nights.commands import arguments, rows_of

GROUP, EXPRESSION = "cg_sql_region_price", "region = 'hangzhou' AND price > 50.0"


@pytest.fixture(scope="module")
def connect() -> Iterator[str]:
    """The address of a Connect server on one machine."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [
        SPARK_HOME / "bin" / "spark-submit", "--class", "org.apache.spark.sql.connect.service.SparkConnectServer",
        "--properties-file", PROJECT / "conf" / "local.conf", "--conf", "spark.driver.memory=1g",
        "--conf", f"spark.connect.grpc.binding.port={port}", "--jars", ",".join(map(str, delta_jars())),
        "spark-internal",
    ]  # fmt: skip
    python = {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(PROJECT)}
    with Server(list(map(str, command)), {**LOCALHOST, **python}) as server:
        server.wait_for("Spark Connect server started")
        yield f"sc://127.0.0.1:{port}"


def test_reading_predicates_and_answers(connect: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nightly.main(arguments("small", tmp_path))
    environment = {**os.environ, "SPARK_REMOTE": connect, "PYTHONPATH": str(PROJECT)}
    client = subprocess.run(
        [sys.executable, HERE / "connect_client.py", capture("small") / "store", tmp_path, EXPRESSION],
        capture_output=True, text=True, check=False, env=environment,
    )  # fmt: skip
    assert client.returncode == 0, client.stderr
    first, _, answer = client.stdout.partition("\n")
    answers = json.loads(first)
    delivered = sorted(
        row["commitlog_offset"]
        for row in rows_of(tmp_path, "deliveries")
        if row["consumer_group"] == GROUP and row["outcome"] == "DELIVERED"
    )
    assert answers == {
        "kind": "pyspark.sql.connect.session",
        "delivered": delivered,
        "matching": delivered,
        "in the log": delivered,
    }
    capsys.readouterr()
    pulls.main(["--group", GROUP, "--topic", "OrderEvents", "--warehouse", str(tmp_path)])
    assert answer == capsys.readouterr().out
