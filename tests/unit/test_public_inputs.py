"""Files that people wrote, of public bug reports and guides: what they are told about them."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs import lint
from tests.captures import PUBLIC


def linted(path: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The lines of ``lint --subscriptions``."""
    lint.main(["--subscriptions", str(path)])
    return capsys.readouterr().out.splitlines()


def test_a_hyphen_in_a_name_is_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    lines = linted(PUBLIC / "hyphen-in-name" / "subscriptions.yaml", capsys)
    for name, line in zip(["e-env", "x-tenant"], lines, strict=False):
        assert f"Property names have no hyphens. SQL92 cannot name a property {name} at all" in line


def test_text_without_quotes_is_told_without_messages(capsys: pytest.CaptureFixture[str]) -> None:
    first = linted(PUBLIC / "unquoted-text" / "subscriptions.yaml", capsys)[0]
    assert "beijing is a property here, which is compared with the property region." in first
    assert "If it is a text, write 'beijing'." in first
