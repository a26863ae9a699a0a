"""A report stays small enough for a mail, whatever it is about."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from answers.attention import Problem
from answers.report import NoReport, Report
from jobs.report_page import MOST_BYTES, render_page
from tests.report_example import report

LONG = "price BETWEEN 100.5 AND 207.25 AND region IN ('hangzhou', 'shanghai', 'shenzhen') AND color <> 'blue' "


def rows(page: str) -> int:
    body = page.partition('id="groups-table"')[2].partition("</table>")[0]
    return body.count("<tr") - 1


def test_a_thousand_groups_and_thirty_nights_are_all_there() -> None:
    page = render_page([report(1_000, 30, "cg_orders_{:04}", LONG)]).decode()
    assert len(page.encode()) <= MOST_BYTES
    assert rows(page) == 1_000
    assert "rows are shown" not in page
    assert re.search(r"Filters are cut after \d+ characters", page)


def test_more_groups_are_cut_and_said_so() -> None:
    page = render_page([report(3_000, 30)]).decode()
    assert len(page.encode()) <= MOST_BYTES
    assert rows(page) == 1_000
    assert "1,000 of 3,000 rows are shown" in page
    assert "./spark-submit.sh export delivery_stats --warehouse /data/mqsieve --output -" in page


@pytest.mark.parametrize("name", ["{:04}" + "'" * 251, "{:04}" + "\u202e<&\0" * 40])
def test_long_and_strange_names_do_not_make_it_larger(name: str) -> None:
    page = render_page([report(150, 90, name, name)])
    assert len(page) <= MOST_BYTES
    assert 20 <= rows(page.decode()) < 150


def test_a_short_filter_is_not_cut() -> None:
    page = render_page([report(3, 1, expression=LONG)]).decode()
    assert "color &lt;&gt; &#39;blue&#39;" in page
    assert "Filters are cut" not in page


def test_the_same_report_is_the_same_bytes() -> None:
    assert render_page([report(50)]) == render_page([report(50)])


def broker_reports(count: int, groups: int, nights: int = 30) -> list[Report]:
    return [
        replace(report(groups, nights, expression=LONG), broker_name=f"broker-{number}", broker_is_alone=False)
        for number in range(count)
    ]


@pytest.mark.parametrize(("brokers", "groups", "parts"), [(2, 10, 2), (3, 1_000, 3), (8, 300, 8)])
def test_several_brokers_have_an_overview_and_a_part_each(brokers: int, groups: int, parts: int) -> None:
    page = render_page(broker_reports(brokers, groups)).decode()
    assert len(page.encode()) <= MOST_BYTES
    assert page.count('<article class="broker"') == parts
    ids = re.findall(r'id="([^"]*)"', page)
    assert len(set(ids)) == len(ids)
    assert set(re.findall(r'href="#([^"]*)"', page)) <= set(ids)


def test_brokers_whose_part_does_not_fit_have_a_row_and_their_command() -> None:
    """Those with the fewest errors: all have the same, but the last one, which has more."""
    brokers = broker_reports(60, 40)
    worst = replace(brokers[-1], attention=[*brokers[-1].attention, Problem("cut-log", "cut")])
    page = render_page([*brokers[:-1], worst, NoReport("broker-x", "no night <ended>")]).decode()
    assert len(page.encode()) <= MOST_BYTES
    parts = re.findall(r'<article class="broker" id="broker-(\d+)-broker"', page)
    assert 5 <= len(parts) < 60
    assert "60" in parts
    assert f"the page stays small, {60 - len(parts)} reports are not on it" in page
    commands = re.findall(r"report --warehouse /data/mqsieve --broker (broker-\d+) --output night.html", page)
    assert {f"broker-{number}" for number in range(60)} - {f"broker-{int(part) - 1}" for part in parts} <= set(commands)
    assert "no night &lt;ended&gt;" in page
