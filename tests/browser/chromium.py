"""Debian's Chromium, without a window, driven by Playwright."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
OPTIONS = (
    "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip


def chromium() -> str | None:
    """The path of the browser, None where there is none."""
    return next((path for name in PROGRAMS if (path := shutil.which(name))), None)


@contextmanager
def opened(program: str) -> Iterator[Browser]:
    """A browser with a new, empty profile. It has no sandbox: root, as in a container, may not have one."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(OPTIONS), chromium_sandbox=False)
        try:
            yield browser
        finally:
            browser.close()
