"""A wheel of the project has what its code reads."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

PROJECT = Path(__file__).parents[2]
READS = """
from answers.audits.audit import parse_audits
from jobs import audit
from jobs.cli.session import PROJECT
from jobs.report_page.page import render_page
from tests.report_example import report

conf = PROJECT / "conf"
assert len(parse_audits(audit.AUDITS.read_text("utf-8"), "audits.yaml").audits) > 20
for name in ("delta_jars.txt", "local.conf", "cluster.conf", "log4j2.properties", "subscriptions.example.yaml"):
    assert (conf / name).is_file(), name
assert b"</html>" in render_page([report()])
print(conf)
"""
TRANSPILES = """
import sqlglot

(sql,) = sqlglot.transpile("region IN ('hangzhou')", read="rocketmq", write="datafusion")
print(sql)
"""


def test_what_is_read_from_conf_and_templates_is_in_the_wheel(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name in ("filtering", "schemas", "answers", "jobs", "conf"):
        shutil.copytree(PROJECT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.cfg", "pyproject.toml", "README.md"):
        shutil.copy(PROJECT / name, source)
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check"]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, ".", "-w", tmp_path], cwd=source, check=True)
    (wheel,) = tmp_path.glob("mqsieve-*.whl")
    site = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(site)
    shutil.copytree(
        PROJECT / "tests",
        site / "tests",
        ignore=lambda folder, names: set(names) - {"__init__.py", "report_example.py"},
    )
    # sqlglot finds the dialects by the wheel's entry points.
    outputs = {READS: str(site / "conf"), TRANSPILES: "(properties['region'] IS NOT DISTINCT FROM 'hangzhou')"}
    for code, output in outputs.items():
        ended = subprocess.run(
            [sys.executable, "-P", "-c", code],
            cwd=tmp_path,
            env={"PYTHONPATH": str(site)},
            capture_output=True,
            check=False,
        )
        assert (ended.returncode, ended.stderr) == (0, b"")
        assert ended.stdout.decode().strip() == output
