"""Renders a report as one HTML file that loads nothing and is small enough for a mail."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass, replace

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import escape

from filtering.counted import counted
from jobs.report_page import numbers, plots
from jobs.report_page.columns import columns
from jobs.report_page.commands import Commands, is_plain
from schemas.answers.report.groups import GroupReport
from schemas.answers.report.nights import ReportedNight
from schemas.answers.report.report import Report

MOST_BYTES = 300_000
MARGIN = 200
"""Bytes reserved for the notes about rows that were left out."""
_ENVIRONMENT = Environment(
    loader=PackageLoader("jobs.report_page"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


@dataclass(frozen=True)
class Limits:
    """Limits of a page: rows in the table of groups, characters of an expression, and rows in other tables."""

    groups: int
    expression: int
    others: int


LIMITS = Limits(1000, 24, 100)
SMALLER = (*(Limits(groups, 24, 40) for groups in (700, 500, 350, 250, 150, 100, 50)), Limits(20, 24, 5))
EXPRESSIONS = (400, 200, 120, 100, 80, 60, 50, 40, 32)


def render_page(report: Report) -> bytes:
    """The page in UTF-8, with as many rows as fit into MOST_BYTES. It says how many were left out."""
    page = _render(report, LIMITS)
    if len(page) <= MOST_BYTES:
        return _render(report, _longer_expressions(report, MOST_BYTES - len(page)))
    for limits in SMALLER:
        page = _render(report, limits)
        if len(page) <= MOST_BYTES:
            break
    return page


def _longer_expressions(report: Report, free: int) -> Limits:
    """The limits with the longest expressions that need at most ``free`` bytes more than LIMITS."""
    texts = [group.expression for group in report.groups[: LIMITS.groups]]

    def needed(longest: int) -> int:
        return sum(len(escape(numbers.cut(text, longest)).encode()) for text in texts)

    shortest = needed(LIMITS.expression)
    for longest in EXPRESSIONS:
        if needed(longest) - shortest <= free - MARGIN:
            return replace(LIMITS, expression=longest)
    return LIMITS


def _render(report: Report, limits: Limits) -> bytes:
    shown = report.groups[: limits.groups]
    night, compared = report.night, report.compared
    instants = [shown_night.ended_at for shown_night in report.nights]
    *names, beside = numbers.night_names([*instants, compared.ended_at if compared is not None else night.ended_at])
    bytes_each = night.log_bytes / night.messages if night.log_bytes and night.messages else None
    stages = plots.stages(night.stages, bytes_each)
    style, script = _source("style.css"), _source("script.js")
    text = _ENVIRONMENT.get_template("page.html").render(
        report=report,
        limits=limits,
        commands=Commands(report),
        ended=names[-1],
        compared=beside,
        nights=list(zip(names, report.nights, strict=True)),
        plots=plots.nights_plots(report, names),
        width=plots.WIDTH,
        height=plots.HEIGHT,
        stages=stages,
        stages_bar=plots.stages_bar(stages),
        changes=plots.changes(report.groups),
        side_by_side=_side_by_side(night, compared) if compared is not None else (),
        columns=columns(report.groups, len(report.nights), compared is not None),
        groups=shown,
        filters_are_cut=any(len(group.expression) > limits.expression for group in shown),
        last_pulled={(group.consumer_group, group.topic): group.last_pulled for group in report.groups},
        is_plain=_is_plain,
        style=style,
        script=script,
        style_hash=_hash(style),
        script_hash=_hash(script),
        **{
            function.__name__: function
            for function in (
                numbers.whole, numbers.difference, numbers.share, numbers.name, numbers.sentence, numbers.cut,
                counted,
            )
        },
    )  # fmt: skip
    return text.encode("utf-8", "backslashreplace")


def _source(name: str) -> str:
    loader = _ENVIRONMENT.loader
    assert loader is not None
    return loader.get_source(_ENVIRONMENT, name)[0]


def _hash(text: str) -> str:
    """The hash by which a Content-Security-Policy allows an inline style or script."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _is_plain(group: GroupReport) -> bool:
    """Whether the script can make the command of a row from its visible names."""
    return all(is_plain(text) and text == numbers.name(text) for text in (group.consumer_group, group.topic))


def _side_by_side(now: ReportedNight, before: ReportedNight) -> list[tuple[str, str, str, str]]:
    """Rows of title, earlier night, this night, and change."""
    in_now, in_before = (
        {stage.title: stage.entries for stage in plots.stages(night.stages)} for night in (now, before)
    )
    measures = [
        ("Messages stored", now.messages, before.messages),
        ("Entries scanned", now.stages.scanned, before.stages.scanned),
        *((title, in_now.get(title, 0), in_before.get(title, 0)) for title in max(in_now, in_before, key=len)),
        ("Pending at its end", now.totals["pending"], before.totals["pending"]),
        ("Lost", now.totals["lost"], before.totals["lost"]),
        ("Expression errors", now.totals["evaluation_errors"], before.totals["evaluation_errors"]),
        ("Bit map false positives", now.false_positives, before.false_positives),
        ("Pieces quarantined", now.quarantined, before.quarantined),
    ]
    return [
        (title, numbers.whole(then), numbers.whole(this), numbers.difference(this, then))
        for title, this, then in measures
    ]
