"""A job on Kubernetes, up to what the API server is asked for; and the driver of that pod, run here."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from jobs import nightly
from tests.cluster.conftest import PROJECT
from tests.cluster.processes import LOCALHOST, SPARK_HOME
from tests.nights.commands import arguments, differing, without_runs

PROPERTIES = "/opt/spark/conf/spark.properties"


class ApiServer(ThreadingHTTPServer):
    """Accepts every object, and keeps it in ``objects`` by its kind."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Request)
        self.objects: dict[str, dict[str, Any]] = {}


class Request(BaseHTTPRequestHandler):
    server: ApiServer

    def accept(self) -> None:
        made = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        made["metadata"]["uid"] = "1"
        self.server.objects[made["kind"]] = made
        answer = json.dumps(made).encode()
        self.send_response(201)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_POST = do_PATCH = accept

    def log_message(self, *_: object) -> None:
        """Writes nothing."""


@pytest.fixture
def api_server() -> Iterator[ApiServer]:
    with ApiServer() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def test_the_driver_of_the_pod(api_server: ApiServer, tmp_path: Path) -> None:
    """It gets the job's arguments, finds the code and the settings, and writes the tables of a local run.

    The server of this test starts no pods for executors: their work is done in the driver, with a local master. Then
    Spark does not unpack the code where the driver starts, as it does on Kubernetes.
    """
    python, uploads, work = tmp_path / "bin" / "python", tmp_path / "uploads", tmp_path / "work-dir"
    uploads.mkdir()
    work.mkdir()
    python_without_mqsieve(python)
    job = arguments("small", tmp_path / "tables")
    submitted = subprocess.run(
        [
            PROJECT / "spark-submit.sh", "nightly", *job, "--deploy-mode", "cluster",
            "--master", f"k8s://http://127.0.0.1:{api_server.server_port}",
            "--conf", "spark.kubernetes.container.image=spark:4.2.0", "--driver-memory", "2g",
            "--conf", f"spark.kubernetes.file.upload.path={uploads.as_uri()}",
            "--conf", "spark.kubernetes.submission.waitAppCompletion=false",
        ],
        capture_output=True, text=True, check=False, cwd=tmp_path,
        env={**os.environ, **LOCALHOST, "PYSPARK_PYTHON": str(python)},
    )  # fmt: skip
    assert submitted.returncode == 0, submitted.stderr
    assert re.search("Deployed Spark application .* into Kubernetes", submitted.stderr)

    [container] = api_server.objects["Pod"]["spec"]["containers"]
    assert container["args"][-len(job) :] == job
    environment = {variable["name"]: variable["value"] for variable in container["env"] if "value" in variable}
    settings = tmp_path / "spark.properties"
    settings.write_text(api_server.objects["ConfigMap"]["data"]["spark.properties"])
    command = [str(settings) if text == PROPERTIES else text for text in container["args"]]
    assert command.pop(0) == "driver"
    for code in uploads.rglob("*.zip"):
        shutil.unpack_archive(code, work / code.stem)
    driver = subprocess.run(
        [
            SPARK_HOME / "bin" / "spark-submit", "--master", "local[2]", "--conf", "spark.driver.host=127.0.0.1",
            "--deploy-mode", "client", *command,
        ],
        capture_output=True, text=True, check=False, cwd=work,
        env={
            "PATH": os.environ["PATH"], **LOCALHOST, "PYTHONPATH": environment["PYTHONPATH"],
            "SPARK_CONF_DIR": os.environ["SPARK_CONF_DIR"],
        },
    )  # fmt: skip
    assert driver.returncode == 0, driver.stderr + driver.stdout
    local = tmp_path / "local"
    nightly.main(arguments("small", local))
    assert differing(without_runs(tmp_path / "tables"), without_runs(local)) == []

    audit = tmp_path / "audit.py"
    audit.write_bytes((PROJECT / "jobs" / "audit.py").read_bytes())
    audited = subprocess.run(
        [python, audit, "--warehouse", tmp_path / "tables"],
        capture_output=True, text=True, check=False, cwd=work, env={"PYTHONPATH": "."},
    )  # fmt: skip
    assert audited.returncode == 0, audited.stderr


def python_without_mqsieve(path: Path) -> None:
    """This Python as an image has it: with the packages, but without the project that is installed here."""
    packages = path.parent / "packages"
    packages.mkdir(parents=True)
    for package in Path(sysconfig.get_path("purelib")).iterdir():
        if "mqsieve" not in package.name:
            (packages / package.name).symlink_to(package)
    path.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{packages}" exec "{sys.executable}" -S "$@"\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
