"""A full disk gives one line and no half-written table. With space, the same command gives the right tables."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from jobs import export, nightly
from tests.faults.kill import PROJECT, Nights, Order
from tests.faults.stores import FaultyBroker
from tests.nights.commands import Run, one_line, without_runs

FULL = "no space left on device"


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[None]:
    """Mounts a small file system at ``folder``."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def assert_goes_on(run: Run, broker: FaultyBroker, undisturbed: FaultyBroker) -> None:
    """With space, the same command gives the tables of an undisturbed night."""
    ended = run(nightly, *broker.arguments(2))
    assert ended.code == 0, ended.error
    broker.assert_same(without_runs(undisturbed.kept(2)))


@pytest.mark.parametrize("free", [0, 16_384, 49_152, 65_536])
def test_a_night_on_a_disk_that_becomes_full(
    run: Run, broker: FaultyBroker, undisturbed: FaultyBroker, free: int
) -> None:
    with small_disk(broker.folder / "disk", 1 << 20):
        disk = broker.folder / "disk" / "w"
        shutil.copytree(undisturbed.kept(1), disk)
        there = os.statvfs(disk)
        (broker.folder / "disk" / "rest").write_bytes(bytes(there.f_bavail * there.f_bsize - free))
        ended = run(nightly, *broker.arguments(2, warehouse=disk))
        assert (ended.code, ended.out, one_line(ended.error)) == (1, "", True), ended
        assert FULL in ended.error.lower()
        shutil.copytree(disk, broker.warehouse)
    assert_goes_on(run, broker, undisturbed)


@pytest.mark.parametrize("largest", [0, 700, 2_500])
def test_files_that_cannot_grow(
    nights: Nights, run: Run, broker: FaultyBroker, undisturbed: FaultyBroker, largest: int
) -> None:
    """A limit on the size of files, which acts like a full disk and needs no mount."""
    broker.start_from(undisturbed, 1)
    ended = nights.run(Order(broker.arguments(2), largest_file=largest))
    assert (ended.code, one_line(ended.error)) == (1, True), ended
    assert "file too large" in ended.error.lower()
    assert_goes_on(run, broker, undisturbed)


def test_an_export_onto_a_full_disk_leaves_the_old_one(
    run: Run, broker: FaultyBroker, undisturbed: FaultyBroker
) -> None:
    with small_disk(broker.folder / "disk", 8192):
        output = broker.folder / "disk" / "commitlog.jsonl"
        output.write_text("the old export\n")
        ended = run(export, "commitlog", "--output", output, "--warehouse", undisturbed.kept(2))
        assert (ended.code, ended.out, one_line(ended.error)) == (1, "", True), ended
        assert ended.error.startswith(f"mqsieve: failed: {FULL}; free some space (temporary files are in /")
        assert [file.name for file in output.parent.iterdir()] == [output.name]
        assert output.read_text() == "the old export\n"


def test_sql_without_space_for_temporary_files(undisturbed: FaultyBroker) -> None:
    """In a process of its own, as its whole stderr counts, also what native code writes."""
    with small_disk(undisturbed.folder / "temporary", 8192):
        disk = undisturbed.folder / "temporary"
        warehouse = str(undisturbed.kept(2))
        command = [sys.executable, "-m", "jobs.sql", "SELECT * FROM deliveries", "--warehouse", warehouse]
        (disk / "rest").write_bytes(bytes(4096))
        ended = subprocess.run(
            command, cwd=PROJECT, env=os.environ | {"TMPDIR": str(disk)}, capture_output=True, text=True, check=False
        )
        assert (ended.returncode, ended.stdout, one_line(ended.stderr)) == (1, "", True), ended
        assert ended.stderr.startswith(f"mqsieve: failed: {FULL}; free some space (temporary files are in {disk}")
