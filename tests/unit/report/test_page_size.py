"""A report stays small enough for a mail, whatever it is about."""

from __future__ import annotations

import re

import pytest

from jobs.report_page.page import MOST_BYTES, render_page
from tests.report_example import report

LONG = "price BETWEEN 100.5 AND 207.25 AND region IN ('hangzhou', 'shanghai', 'shenzhen') AND color <> 'blue' "


def rows(page: str) -> int:
    body = page.partition('id="groups-table"')[2].partition("</table>")[0]
    return body.count("<tr") - 1


def test_a_thousand_groups_and_thirty_nights_are_all_there() -> None:
    page = render_page(report(1_000, 30, "cg_orders_{:04}", LONG)).decode()
    assert len(page.encode()) <= MOST_BYTES
    assert rows(page) == 1_000
    assert "rows are shown" not in page
    assert re.search(r"Filters are cut after \d+ characters", page)


def test_more_groups_are_cut_and_said_so() -> None:
    page = render_page(report(3_000, 30)).decode()
    assert len(page.encode()) <= MOST_BYTES
    assert rows(page) == 1_000
    assert "1,000 of 3,000 rows are shown" in page
    assert "./spark-submit.sh export delivery_stats --warehouse /data/mqsieve --output -" in page


@pytest.mark.parametrize("name", ["{:04}" + "'" * 251, "{:04}" + "\u202e<&\0" * 40])
def test_long_and_strange_names_do_not_make_it_larger(name: str) -> None:
    page = render_page(report(150, 90, name, name))
    assert len(page) <= MOST_BYTES
    assert 20 <= rows(page.decode()) < 150


def test_a_short_filter_is_not_cut() -> None:
    page = render_page(report(3, 1, expression=LONG)).decode()
    assert "color &lt;&gt; &#39;blue&#39;" in page
    assert "Filters are cut" not in page


def test_the_same_report_is_the_same_bytes() -> None:
    assert render_page(report(50)) == render_page(report(50))
