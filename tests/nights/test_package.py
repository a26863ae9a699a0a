"""The package in an environment of its own, beside a project that has packages named schemas and jobs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from schemas import VERSION
from tests.captures import capture
from tests.depth import DEEP
from tests.nights.commands import arguments, rows_of
from tests.replayed import Replayed

PROJECT = Path(__file__).parents[2]
BESIDE_OTHERS = """
import importlib.util, sys

import jobs
import schemas
import sqlglot

import mqsieve

assert (schemas.OWNER, jobs.OWNER) == ("shop", "shop")
assert [name for name in ("filtering", "answers", "conf") if importlib.util.find_spec(name)] == []
print(mqsieve.compile("price > 50.0").evaluate({"price": "60"}))
assert "numba" not in sys.modules, "the filter language alone needs no compiler"
print(sqlglot.transpile("region IN ('hangzhou')", read="rocketmq", write="datafusion")[0])
print([each.outcome.name for each in mqsieve.open(sys.argv[1]).why("ord-370", "cg_sql_region_price")])
try:
    mqsieve.compile("price >")
except mqsieve.InvalidExpression as error:
    print(error.position)
"""
FILES_AND_LOOPS = """
import mqsieve
import mqsieve.spark
import numpy as np

from mqsieve.answers.audits.audit import parse_audits
from mqsieve.filtering.kernels import registers
from mqsieve.jobs.audit import AUDITS, SPARK_AUDITS
from mqsieve.jobs.cli.session import CACHE, PROJECT
from mqsieve.jobs.report_page import render_page

for module in (mqsieve, mqsieve.spark):
    assert None not in [getattr(module, name) for name in module.__all__]
for file in (AUDITS, SPARK_AUDITS):
    assert parse_audits(file.read_text("utf-8"), file.name).audits
names = ("delta_jars.txt", "local.conf", "cluster.conf", "log4j2.properties", "subscriptions.example.yaml")
assert [name for name in (*names, "examples/mqsieve.service") if not (PROJECT / "conf" / name).is_file()] == []
print(CACHE)
print(registers.count_ones(np.uint64(7)), registers.count_ones.stats.cache_path)
"""


class Environment:
    """A virtual environment with the package, whose other packages are those of the tests."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "environment"
        self.home = folder / "home"
        self.home.mkdir()
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", self.folder], check=True)
        (self.site,) = self.folder.glob("lib/python3*/site-packages")
        (self.site / "beside.pth").write_text(sysconfig.get_path("purelib"))
        self._copy_what_the_image_is_built_from(folder / "source")
        pip = [sys.executable, "-m", "pip", "--python", str(self.folder), "--disable-pip-version-check", "--quiet"]
        options = ["--no-deps", "--no-index", "--no-build-isolation", "--no-compile"]
        subprocess.run([*pip, "install", *options, str(folder / "source")], cwd=folder, check=True)

    @staticmethod
    def _copy_what_the_image_is_built_from(source: Path) -> None:
        """Does the steps COPY of the image's first part."""
        text = (PROJECT / "conf" / "Dockerfile").read_text()
        for names, target in re.findall(r"^COPY (?!--)(.*) (\S+)$", text, re.MULTILINE):
            for name in names.split():
                place = source / target / Path(name).name if target.endswith("/") else source / target
                if (PROJECT / name).is_dir():
                    ignored = shutil.ignore_patterns("__pycache__")
                    shutil.copytree(PROJECT / name, place, ignore=ignored, dirs_exist_ok=True)
                else:
                    place.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(PROJECT / name, place)

    def run(self, program: str, *given: str | Path, **environment: str) -> tuple[int, str, str]:
        """A program of the environment, in a folder with other packages named schemas and jobs."""
        shop = self.home / "shop"
        for name in ("schemas", "jobs"):
            (shop / name).mkdir(parents=True, exist_ok=True)
            (shop / name / "__init__.py").write_text('OWNER = "shop"\n')
        known = {name: value for name, value in os.environ.items() if name in ("PATH", "JAVA_HOME", "LANG")}
        ended = subprocess.run(
            [self.folder / "bin" / program, *given],
            cwd=shop, env=known | {"HOME": str(self.home)} | environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        return ended.returncode, ended.stdout, ended.stderr


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return Environment(tmp_path_factory.mktemp("package"))


def test_it_has_no_other_top_level_name(environment: Environment) -> None:
    assert {path.name for path in environment.site.iterdir()} == {
        "beside.pth", "mqsieve", f"mqsieve-{VERSION}.dist-info",
    }  # fmt: skip
    (required,) = environment.site.glob("mqsieve-*.dist-info/METADATA")
    lines = re.findall(r"^Requires-Dist: (.*)$", required.read_text(), re.MULTILINE)
    assert "pyspark~=4.2.0" in lines
    assert not [line for line in lines if "==" in line.partition(";")[0]]
    assert {path.name for path in required.with_name("licenses").iterdir()} == {"LICENSE", "NOTICE"}


def test_imports_beside_a_project_with_the_same_names(environment: Environment, replayed: Replayed) -> None:
    ended = environment.run("python", "-c", BESIDE_OTHERS, replayed("small").location)
    expected = "True\n(properties['region'] IS NOT DISTINCT FROM 'hangzhou')\n['STOPPED_BY_BIT_MAP']\n7\n"
    assert ended == (0, expected, "")


def test_the_files_that_jobs_read_and_the_cache_of_compiled_loops(environment: Environment) -> None:
    code, out, error = environment.run("python", "-c", FILES_AND_LOOPS)
    assert (code, error) == (0, "")
    cache = environment.site / "mqsieve" / "filtering" / "kernels" / "__pycache__"
    assert out == f"{environment.home}/.cache/mqsieve\n3 {cache}\n"
    assert list(cache.glob("registers.count_ones-*.nbi"))


def test_the_command(environment: Environment, replayed: Replayed, tmp_path: Path) -> None:
    assert environment.run("mqsieve", "--version") == (0, f"mqsieve {VERSION}\n", "")
    code, out, error = environment.run("mqsieve", "--help")
    assert (code, error) == (0, "")
    assert "\n  nightly       replays a broker's store" in out
    assert "spark-submit.sh" not in out
    unknown = (2, "", "mqsieve: there is no job 'nigthly'; did you mean nightly? mqsieve --help lists them.\n")
    assert environment.run("mqsieve", "nigthly") == unknown
    assert environment.run("mqsieve", "bench")[0] == 2
    asked = ("--warehouse", replayed("small").location, "--message", "ord-370", "--group", "cg_sql_region_price")
    code, out, error = environment.run("mqsieve", "explain", *asked)
    assert (code, error) == (0, "")
    assert "stopped at  stage 1, filter bit map" in out
    subscriptions = capture("small") / "subscription_events.jsonl"
    code, out, error = environment.run(
        "mqsieve", "register", "--subscriptions", subscriptions, "--warehouse", tmp_path / "w",
        "--broker-config", capture("small") / "broker.conf",
    )  # fmt: skip
    assert code == 0, error
    assert "  mqsieve export " in out


@pytest.mark.skipif(not DEEP, reason="Numba compiles all loops once more: before a release")
@pytest.mark.parametrize("master", [(), ("--master", "local[1]")], ids=["in this process", "on Spark's workers"])
def test_a_night(environment: Environment, replayed: Replayed, tmp_path: Path, master: tuple[str, ...]) -> None:
    """The jars of Delta are those of the repository."""
    jars = tmp_path / "mqsieve"
    jars.mkdir()
    (jars / "jars").symlink_to(PROJECT / ".cache" / "jars")
    given = arguments("small", tmp_path / "w")
    code, out, error = environment.run("mqsieve", "nightly", *given, *master, XDG_CACHE_HOME=str(tmp_path))
    assert code == 0, error
    assert ("on Spark's workers" in out) == bool(master)
    columns = ("consumer_group", "topic", "queue_id", "queue_offset", "outcome")
    by_package, by_repository = (
        sorted(tuple(row.values()) for row in rows_of(warehouse, "deliveries", *columns))
        for warehouse in (tmp_path / "w", replayed("small"))
    )
    assert by_package == by_repository


def test_the_version_and_the_changelog_agree() -> None:
    """While changes are unreleased, the version is a .dev0 of the next one; a release has a heading of its own."""
    titles = re.findall(r"^## (.+)$", (PROJECT / "CHANGELOG.md").read_text(), re.MULTILINE)
    if titles[0] == "Unreleased":
        assert VERSION.endswith(".dev0")
        assert VERSION.removesuffix(".dev0") not in titles
    else:
        assert titles[0] == VERSION
