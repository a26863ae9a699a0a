"""The page of a report as a reader has it in a browser."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from playwright.sync_api import Locator, Page, expect

from answers.attention import Problem
from answers.report import GroupLag, GroupReport
from tests.report_example import group, report

Show = Callable[..., Page]
HOSTILE = (
    "<img src=x onerror=alert(1)>",
    '"><script>alert(2)</script>',
    "</script><script>alert(3)</script>",
    "{{ 7 * 7 }}{% raw %}",
    "&lt;b&gt; 'quoted' \"twice\"",
    "javascript:alert(4)",
    "$(touch x); `touch y`",
)


def column(page: Page, title: str, shown_only: bool = True) -> list[str]:
    """The texts of a column of the table of groups, from the top down."""
    texts: list[str] = page.evaluate(
        """([title, shownOnly]) => {
          const table = document.getElementById("groups-table");
          const at = [...table.tHead.rows[0].cells].findIndex((cell) => cell.textContent === title);
          const rows = [...table.tBodies[0].rows].filter((row) => !(shownOnly && row.hidden));
          return rows.map((row) => row.cells[at].textContent.trim());
        }""",
        [title, shown_only],
    )
    return texts


def title(page: Page, name: str) -> Locator:
    return page.locator("#groups-table thead th", has=page.get_by_role("button", name=name, exact=True))


def with_deliveries(*delivered: int) -> list[GroupReport]:
    return [group(f"cg_{at}", delivered=count) for at, count in enumerate(delivered)]


def test_a_title_sorts_numbers_and_texts(show: Show) -> None:
    page = show(replace(report(4), groups=with_deliveries(900, 10_000, 0, 77)))
    button = page.locator("#groups-table").get_by_role("button", name="Delivered", exact=True)
    button.click()
    assert column(page, "Delivered") == ["10,000", "900", "77", "0"]
    expect(title(page, "Delivered")).to_have_attribute("aria-sort", "descending")
    button.click()
    assert column(page, "Delivered") == ["0", "77", "900", "10,000"]
    expect(title(page, "Delivered")).to_have_attribute("aria-sort", "ascending")
    page.locator("#groups-table").get_by_role("button", name="Group", exact=True).click()
    assert column(page, "Group") == ["cg_0", "cg_1", "cg_2", "cg_3"]
    expect(page.locator("#groups-table [aria-sort]")).to_have_count(1)


def test_changes_and_ages_sort_by_what_they_mean(show: Show) -> None:
    ages = (59_000, 8_040_000, None, 90_000_000, 700)
    rows = [
        replace(each, lag=GroupLag(1, 1, age)) for each, age in zip(with_deliveries(2, 40, 5, 3, 9), ages, strict=True)
    ]
    page = show(replace(report(5), groups=[*rows, replace(group("cg_new"), before=None)]))
    for name, first in {
        "Oldest": ["1 d 1 h", "2 h 14 min", "2 h 14 min", "59 s", "700 ms", "–"],
        "Change": ["+35", "+4", "0", "−2", "−3"],
    }.items():
        page.locator("#groups-table").get_by_role("button", name=name, exact=True).click()
        assert column(page, name)[: len(first)] == first
    assert column(page, "Change")[-1] == "new"


def test_search_finds_groups_topics_and_filters(show: Show) -> None:
    rows = [
        group("cg_paid", "Orders", "TAGS = 'paid'"),
        group("cg_cheap", "Orders", "price < 5"),
        group("cg_2", "Paid"),
    ]
    page = show(replace(report(3), groups=rows))
    search = page.get_by_label("Search groups, topics and filters")
    search.fill("PAID")
    assert column(page, "Group") == ["cg_paid", "cg_2"]
    expect(page.locator("#found")).to_have_text("2 of 3 rows")
    search.fill("price orders")
    assert column(page, "Group") == ["cg_cheap"]
    search.fill("")
    assert len(column(page, "Group")) == 3


def test_a_group_opens_by_keyboard_and_shows_its_command(show: Show) -> None:
    page = show(report(3))
    button = page.get_by_role("button", name="cg_0001", exact=True)
    button.focus()
    page.keyboard.press("Enter")
    expect(button).to_have_attribute("aria-expanded", "true")
    panel = page.locator("tr.detail")
    expect(panel).to_contain_text(
        "./spark-submit.sh explain --warehouse /data/mqsieve --group cg_0001 --topic Orders --queue 3 --offset 41"
    )
    expect(panel).to_contain_text("qty > 5")
    page.keyboard.press("Enter")
    expect(panel).to_have_count(0)


def test_a_command_is_copied(show: Show) -> None:
    page = show(report(3), permissions=["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="cg_0002", exact=True).click()
    page.locator("tr.detail .copy").first.click()
    expect(page.locator("tr.detail .copy").first).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == (
        "./spark-submit.sh explain --warehouse /data/mqsieve --group cg_0002 --topic Orders --queue 3 --offset 41"
    )


def test_hostile_names_stay_text(show: Show) -> None:
    names = [*HOSTILE, *(f"{name} again" for name in HOSTILE)]
    example = report(len(names))
    rows = [group(name, name, expression=name) for name in names]
    findings = [replace(example.findings[0], consumer_group=name, text=name) for name in names]
    pieces = [replace(example.quarantined[0], source_file=name, reason=name) for name in names]
    page = show(
        replace(
            example, broker_name=HOSTILE[1], warehouse=HOSTILE[1], groups=rows, findings=findings, quarantined=pieces,
            attention=[Problem("quarantined", name) for name in names],
            topics=[replace(example.topics[0], topic=name) for name in names],
        )
    )  # fmt: skip
    assert sorted(column(page, "Group")) == sorted(names)
    assert sorted(column(page, "Filter")) == sorted(names)
    for name in names:
        button = page.locator("#groups-table tbody th").get_by_role("button", name=name, exact=True)
        button.click()
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 1
    assert page.locator("#quarantine tbody th").all_text_contents() == names


def test_a_style_that_somebody_adds_has_no_effect(show: Show, complaints: list[str]) -> None:
    page = show(report(1))
    position = page.evaluate(
        """() => {
          document.body.insertAdjacentHTML("beforeend", '<p id="probe" style="position: fixed">x</p>');
          return getComputedStyle(document.getElementById("probe")).position;
        }"""
    )
    assert position == "static"
    (complaint,) = complaints
    assert "Content Security Policy" in complaint
    complaints.clear()


@pytest.mark.parametrize("width", [320, 390, 768, 1280])
def test_it_fits_the_screen(show: Show, width: int) -> None:
    page = show(report(30, name="cg_with_a_rather_long_name_{}"), viewport={"width": width, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for name in ("cg_with_a_rather_long_name_3", "cg_with_a_rather_long_name_29"):
        page.get_by_role("button", name=name, exact=True).click()
    assert page.evaluate("document.documentElement.scrollWidth") <= width


LONG = "price BETWEEN 100.5 AND 207.25 AND region IN ('hangzhou', 'shanghai', 'shenzhen') AND color <> 'blue' "
UNBROKEN = "com.example.shop.orders.consumer.group_{:04}"


@pytest.mark.parametrize("width", [1300, 390])
@pytest.mark.parametrize("expression", [LONG * 4, f"region='{'x' * 380}'"])
def test_a_thousand_groups_with_long_filters_fit_the_screen(show: Show, width: int, expression: str) -> None:
    """Names, texts and filters of any length are wrapped, cut, or scrolled in their own box."""
    every = report(1_000, name=UNBROKEN, expression=expression)
    first = replace(every.groups[0], consumer_group="g" * 250, topic="t" * 250, expression=expression)
    page = show(replace(every, groups=[first, *every.groups[1:]]), viewport={"width": width, "height": 1000})
    page.evaluate("document.querySelectorAll('details').forEach((part) => (part.open = true))")
    page.locator("#groups-table tbody th button").nth(0).click()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    beyond = page.evaluate(
        """(width) => [...document.querySelectorAll("body *")]
          .filter((node) => !node.closest(".scroll, .skip, figure table") && node.getBoundingClientRect().right > width)
          .map((node) => node.outerHTML.slice(0, 100))""",
        width,
    )
    assert beyond == []


def test_the_tables_fit_1300_pixels_without_scrolling(show: Show) -> None:
    every = report(30, name=UNBROKEN, expression=LONG * 4)
    page = show(every, viewport={"width": 1300, "height": 1000})
    wider = page.locator(".scroll").evaluate_all(
        "(boxes) => boxes.filter((box) => box.scrollWidth > box.clientWidth).map((box) => box.parentElement.id)"
    )
    assert wider == []
    filter_cell = page.locator("#groups-table tbody tr").first.locator("td").last
    filter_cell.hover()
    expect(filter_cell).to_have_attribute("title", (LONG * 4).strip()[:399] + "…")


@pytest.mark.parametrize("width", [1300, 390])
def test_several_brokers_are_on_one_page(show: Show, width: int) -> None:
    """Each part has its own search and panels, with the commands of its broker."""
    brokers = [
        replace(report(40, 7, f"cg_{name[0]}_{{:02}}", LONG * 4), broker_name=name, broker_is_alone=False)
        for name in ("broker-a", "z" * 200)
    ]
    page = show(*brokers, viewport={"width": width, "height": 1000})
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    overview = page.locator("#overview")
    expect(overview.get_by_role("row")).to_have_count(3)
    overview.get_by_role("link", name="Groups").nth(1).click()
    second = page.locator("article").nth(1)
    expect(second.get_by_role("heading", name="Groups", exact=True)).to_be_in_viewport()
    second.get_by_label("Search groups, topics and filters").fill("cg_z_07")
    expect(second.locator("output")).to_have_text("1 of 40 rows")
    expect(page.locator("article").first.locator("output")).to_have_text("40 of 40 rows")
    second.locator("table.main tbody tr:not([hidden]) th button").click()
    expect(second.locator("tr.detail")).to_contain_text(f"--broker {'z' * 200} ")
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_table_wider_than_the_screen_is_scrolled_on_it(show: Show) -> None:
    """Its titles stay in sight, and its scroll bar is not below a thousand rows."""
    rows = [group(f"cg_{at}", expression="price > 5 AND region = 'hangzhou'" * 3) for at in range(200)]
    page = show(replace(report(4), groups=rows), viewport={"width": 900, "height": 700})
    region = page.locator("#groups .scroll")
    region.scroll_into_view_if_needed()
    assert region.evaluate("(node) => node.scrollWidth > node.clientWidth && node.clientHeight <= innerHeight")
    to_the_end = "(node) => node.scrollTo(node.scrollWidth, node.scrollHeight)"
    region.evaluate(to_the_end)
    for shown in (title(page, "Filter"), page.get_by_role("button", name="cg_199", exact=True)):
        expect(shown).to_be_in_viewport()
    page.get_by_role("button", name="cg_199", exact=True).click()
    region.evaluate(to_the_end)
    expect(page.locator("tr.detail pre").last).to_be_in_viewport(ratio=1)
    page.emulate_media(media="print")
    assert region.evaluate("(node) => node.scrollHeight <= node.clientHeight + 1")


def test_without_script_everything_is_there(show: Show) -> None:
    page = show(report(5), java_script_enabled=False)
    expect(page.locator("#groups-table tbody tr")).to_have_count(5)
    expect(page.locator("#search")).to_be_hidden()
    expect(page.get_by_text("--group GROUP --topic TOPIC")).to_be_visible()


def test_print_shows_the_numbers_behind_the_plots(show: Show) -> None:
    page = show(report(3))
    expect(page.locator("figure details table").first).to_be_hidden()
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    expect(page.locator("figure details table").first).to_be_visible()
    expect(page.locator("#search")).to_be_hidden()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_is_readable_on_its_background(show: Show, scheme: str) -> None:
    page = show(report(3), color_scheme=scheme)
    weakest = page.evaluate(
        """() => {
          const parse = (color) => color.match(/[\\d.]+/g).map(Number);
          const light = (color) => parse(color).slice(0, 3).map((c) => c / 255)
            .map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
            .reduce((sum, c, at) => sum + c * [0.2126, 0.7152, 0.0722][at], 0);
          const behind = (node) => {
            for (let each = node; each; each = each.parentElement) {
              const color = getComputedStyle(each).backgroundColor;
              if (parse(color)[3] !== 0) return color;
            }
          };
          const texts = [...document.querySelectorAll("body *")].filter((node) =>
            node.checkVisibility() && [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim()));
          return Math.min(...texts.map((node) => {
            const [a, b] = [light(getComputedStyle(node).color), light(behind(node))].sort((x, y) => y - x);
            return (a + 0.05) / (b + 0.05);
          }));
        }"""
    )
    assert weakest >= 4.5


def test_every_control_and_table_has_a_name(show: Show) -> None:
    page = show(report(3))
    assert page.get_by_role("heading", level=1).count() == 1
    for role in ("button", "searchbox", "region", "img", "link"):
        for each in page.get_by_role(role).all():
            assert each.evaluate(
                "(node) => node.ariaLabel || node.textContent || node.labels || node.getAttribute('aria-labelledby')"
            )
    headers = page.get_by_role("rowheader", name="cg_0000")
    assert headers.count() >= 1
