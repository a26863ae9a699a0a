"""A browser for the tests that need one. MQSIEVE_BROWSER=required, as .ci/run sets it: without one they fail."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from answers.report import Report
from jobs.report_page import render_page
from tests.browser.chromium import chromium, opened

NO_BROWSER = "no Chromium: as root on Debian, tests/browser/install_chromium.sh installs it"


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    program = chromium()
    if program is None:
        if os.environ.get("MQSIEVE_BROWSER") == "required":
            pytest.fail(NO_BROWSER)
        pytest.skip(NO_BROWSER)
    with opened(program) as browser:
        yield browser


@pytest.fixture
def complaints() -> list[str]:
    """What the browser complained about, and what it asked the network for."""
    return []


@pytest.fixture
def show(browser: Browser, tmp_path: Path, complaints: list[str]) -> Iterator[Callable[..., Page]]:
    """Opens the page of a report in a new context with some options. A complaint that is left fails the test."""
    contexts = []

    def show(*reports: Report, **context: Any) -> Page:
        file = tmp_path / "night.html"
        file.write_bytes(render_page(reports))
        contexts.append(browser.new_context(**context))
        page = contexts[-1].new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: complaints.append(dialog.message))
        page.on("request", lambda request: complaints.append(request.url) if request.url != file.as_uri() else None)
        page.goto(file.as_uri())
        return page

    yield show
    for context in contexts:
        context.close()
    assert complaints == []
