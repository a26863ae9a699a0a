"""The permissions of files that a night writes, and inputs that run code."""

from __future__ import annotations

import configparser
import os
import re
import stat
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from jobs import export, nightly
from tests.faults.stores import FaultyBroker
from tests.nights.commands import Run

PROJECT = Path(__file__).parents[2]


def test_no_file_of_a_warehouse_is_for_everybody_to_write(run: Run, broker: FaultyBroker) -> None:
    before = os.umask(0)
    try:
        assert run(nightly, *broker.arguments(1)).code == 0
        output = broker.warehouse / "deliveries.jsonl"
        assert run(export, "deliveries", "--output", output, "--warehouse", broker.warehouse).code == 0
    finally:
        os.umask(before)
    made = [broker.warehouse, *broker.warehouse.rglob("*")]
    assert len(made) > 40
    assert not [path for path in made if path.stat().st_mode & stat.S_IWOTH]


def test_help_says_that_filter_hooks_run_code(run: Run) -> None:
    help_text = " ".join(run(nightly, "--help").out.split())
    assert "the module is imported, and its code runs" in help_text


@pytest.mark.parametrize("group", ["", "test", "bench"])
def test_every_package_is_locked_with_its_version_and_hashes(group: str) -> None:
    """conf/lock.sh regenerates the files. The versions are in the ranges that the package of a user has."""
    settings = configparser.ConfigParser()
    settings.read(PROJECT / "setup.cfg")
    wanted = settings["options"]["install_requires"].split()
    if group:
        wanted += tomllib.loads((PROJECT / "pyproject.toml").read_text())["dependency-groups"][group]
    lock = (PROJECT / "conf" / f"requirements{group and '-'}{group}.txt").read_text()
    entries = re.split(r"\n(?=[a-z])", lock)[1:]
    versions = dict(re.findall(r"^([\w.-]+)==([\w.]+)", lock, re.MULTILINE))
    outside = [each for each in map(Requirement, wanted) if versions[each.name.lower()] not in each.specifier]
    assert not outside
    assert all("--hash=sha256:" in entry for entry in entries)
