"""Pictures of a report, in light and dark, and of explain for docs/: .venv/bin/python -m tests.browser.screenshots

The report is of four nights of the living broker in tests/cases/captures/nights_dev; the answer is that in README.
"""

from __future__ import annotations

import html
import re
import sys
import tempfile
from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser, ViewportSize

from jobs import nightly, report
from tests.browser.chromium import chromium, opened
from tests.nights.commands import living

DOCS = Path(__file__).parents[2] / "docs" / "images"
SIZE: ViewportSize = {"width": 1120, "height": 860}
TERMINAL: ViewportSize = {"width": 1000, "height": 230}
PHONE: ViewportSize = {"width": 390, "height": 860}
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")


def main() -> None:
    program = chromium()
    if program is None:
        sys.exit("no Chromium: tests/browser/install_chromium.sh installs it")
    DOCS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        warehouse = Path(folder, "mqsieve")
        for number in (1, 2, 3, 4):
            nightly.main(living(number, warehouse))
        page = Path(folder, "night.html")
        report.main(["--warehouse", str(warehouse), "--output", str(page)])
        # The name of the folder is random, and is in every command.
        page.write_text(page.read_text("utf-8").replace(str(warehouse), "/data/mqsieve"), "utf-8")
        with opened(program) as browser:
            for scheme in SCHEMES:
                _take(browser, page, scheme)
            _take_answer(browser)


def _take(browser: Browser, page: Path, scheme: Literal["light", "dark"]) -> None:
    shown = browser.new_page(viewport=SIZE, color_scheme=scheme)
    shown.goto(page.as_uri())
    shown.screenshot(path=DOCS / f"report-{scheme}.png")
    if scheme == "dark":
        shown.locator("#groups-table tbody th button").nth(1).click()
        shown.locator("#groups").evaluate("(section) => section.scrollIntoView()")
        shown.screenshot(path=DOCS / "report-groups.png")
    else:
        shown.set_viewport_size(PHONE)
        shown.screenshot(path=DOCS / "report-phone.png")
    shown.close()


def _take_answer(browser: Browser) -> None:
    """The first answer in README, as a terminal shows it."""
    readme = (DOCS.parents[1] / "README.md").read_text("utf-8")
    command, answer = re.findall(r"```sh\n(\./spark-submit\.sh explain .+?)\n```\n\n```\n(.+?)```", readme, re.DOTALL)[
        0
    ]
    text = html.escape(f"$ {command}\n\n{answer}")
    shown = browser.new_page(viewport=TERMINAL, device_scale_factor=2)
    shown.set_content(
        "<body style='margin:0;background:#14171c;color:#dfe4ea'>"
        f"<pre style='margin:24px;font:14px/1.6 DejaVu Sans Mono,monospace'>{text}</pre>"
    )
    shown.screenshot(path=DOCS / "explain.png")
    shown.close()


if __name__ == "__main__":
    main()
