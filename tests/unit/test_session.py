"""What Java says while a Spark session starts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jobs.cli import session
from schemas.errors import UsageError


def test_jars_that_no_folder_can_take(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a package, for a user without a home."""
    (tmp_path / "file").touch()
    monkeypatch.setattr(session, "JARS", tmp_path / "file" / "jars")
    monkeypatch.setattr(session, "IS_PACKAGE", True)
    with pytest.raises(UsageError, match=r"no folder for Delta's jars, .*file/jars .*: set XDG_CACHE_HOME to"):
        session.delta_jars()


def test_spark_starts_where_its_log_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """As in an installation that belongs to somebody else."""
    monkeypatch.setattr(session, "PROJECT", tmp_path / "installed")
    monkeypatch.delenv("MQSIEVE_LOG_LEVEL", raising=False)
    with session._stderr_of_java():
        os.write(2, b"WARNING: Using incubator modules\n")
    assert capfd.readouterr().err == ""
