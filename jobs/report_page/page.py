"""Renders the reports of brokers as one HTML file that loads nothing and is small enough for a mail."""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from filtering.counted import counted
from filtering.findings import SEVERITIES
from filtering.findings.finding import ERROR, WARN
from jobs.report_page import numbers, plots
from jobs.report_page.columns import columns
from jobs.report_page.commands import Commands, is_plain
from schemas.answers.report.groups import GroupReport
from schemas.answers.report.nights import MOST_NIGHTS, ReportedNight
from schemas.answers.report.report import NoReport, Report

MOST_BYTES = 300_000
MARGIN = 200
"""Bytes reserved for the notes about rows that were left out."""
_ROW_BYTES = 500
"""By how many bytes the links to a broker's part, and what is around the part, can make a page larger."""
_ENVIRONMENT = Environment(
    loader=PackageLoader("jobs.report_page"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_FUNCTIONS = {
    function.__name__: function
    for function in (
        numbers.whole, numbers.difference, numbers.share, numbers.name, numbers.sentence, numbers.cut, counted,
    )
}  # fmt: skip


@dataclass(frozen=True)
class Limits:
    """Limits of each broker's part: rows of groups, characters of an expression, rows in other tables, and nights."""

    groups: int
    expression: int
    others: int
    nights: int = MOST_NIGHTS


LIMITS = Limits(1000, 24, 100)
SMALLER = (*(Limits(groups, 24, 40) for groups in (700, 500, 350, 250, 150, 100, 50)), Limits(20, 24, 5))
SMALLER_OF_SEVERAL = (Limits(1000, 24, 40, 7), *(replace(each, nights=7) for each in SMALLER), Limits(20, 24, 5, 2))
"""A page of several brokers first shows fewer nights."""
EXPRESSIONS = (400, 200, 120, 100, 80, 60, 50, 40, 32)


@dataclass(frozen=True)
class BrokerPart:
    """A broker's part of a page. ``at`` begins the ids in it; empty if the page is about this broker only.

    ``where``: the options of the commands about it. ``runs``: what the footer says about its nights.
    """

    broker_name: str
    at: str
    where: str
    runs: str
    header: Markup
    sections: Markup

    @property
    def size(self) -> int:
        """In bytes of UTF-8."""
        return len(_encoded(self.header)) + len(_encoded(self.sections))


@dataclass(frozen=True)
class OverviewRow:
    """A broker in the overview. ``at``: the ids of its part begin with it; empty if it has none on the page.

    ``report``: None, for the reason ``why_not``. ``attention``: by severity, how many things need attention.
    ``command`` makes a page about this broker.
    """

    broker_name: str
    at: str = ""
    report: Report | None = None
    ended: str = ""
    attention: Mapping[str, int] = field(default_factory=dict)
    command: str = ""
    why_not: str = ""


def render_page(reports: Sequence[Report | NoReport]) -> bytes:
    """The page in UTF-8, with as many rows as fit into MOST_BYTES. It says how many were left out.

    A page about several brokers begins with an overview. If their parts do not fit, those of the brokers with the
    fewest errors are left out.
    """
    found = [each for each in reports if isinstance(each, Report)]
    if len(reports) > 1:
        return _several(reports, found)
    page = _render(reports, [_part(found[0], LIMITS)])
    if len(page) <= MOST_BYTES:
        limits = _longer_expressions(found, MOST_BYTES - len(page))
        return page if limits == LIMITS else _render(reports, [_part(found[0], limits)])
    for limits in SMALLER:
        page = _render(reports, [_part(found[0], limits)])
        if len(page) <= MOST_BYTES:
            break
    return page


def _several(reports: Sequence[Report | NoReport], found: Sequence[Report]) -> bytes:
    """A page about several brokers, of which ``found`` have a report."""
    prefixes = {report.broker_name: f"broker-{number}-" for number, report in enumerate(found, 1)}

    def parts(limits: Limits) -> list[BrokerPart]:
        return [_part(report, limits, prefixes[report.broker_name]) for report in found]

    shown = parts(LIMITS)
    page = _render(reports, shown)
    if len(page) <= MOST_BYTES:
        limits = _longer_expressions(found, MOST_BYTES - len(page))
        return page if limits == LIMITS else _render(reports, parts(limits))
    for limits in SMALLER_OF_SEVERAL:
        shown = parts(limits)
        page = _render(reports, shown)
        if len(page) <= MOST_BYTES:
            return page
    by_errors = sorted(found, key=lambda report: (-_attention(report)[ERROR], -_attention(report)[WARN]))
    sizes = {part.broker_name: part.size for part in shown}
    free = MOST_BYTES - MARGIN - len(_render(reports, []))
    kept = set()
    for report in by_errors:
        if sizes[report.broker_name] + _ROW_BYTES <= free:
            kept.add(report.broker_name)
            free -= sizes[report.broker_name] + _ROW_BYTES
    return _render(reports, [part for part in shown if part.broker_name in kept])


def _longer_expressions(reports: Sequence[Report], free: int) -> Limits:
    """The limits with the longest expressions that need at most ``free`` bytes more than LIMITS."""
    texts = [group.expression for report in reports for group in report.groups[: LIMITS.groups]]

    def needed(longest: int) -> int:
        return sum(len(escape(numbers.cut(text, longest)).encode()) for text in texts)

    shortest = needed(LIMITS.expression)
    for longest in EXPRESSIONS:
        if needed(longest) - shortest <= free - MARGIN * len(reports):
            return replace(LIMITS, expression=longest)
    return LIMITS


def _attention(report: Report) -> Counter[str]:
    """How many things need attention, by severity."""
    return Counter(problem.severity for problem in report.attention)


def _render(reports: Sequence[Report | NoReport], parts: Sequence[BrokerPart]) -> bytes:
    """The page with the parts of some of the brokers."""
    style, script = _source("style.css"), _source("script.js")
    found = [each for each in reports if isinstance(each, Report)]
    only = found[0] if len(reports) == 1 else None
    of_only = f"{numbers.name(only.broker_name)}, night ending {_ended(only)} UTC" if only is not None else ""
    text = _ENVIRONMENT.get_template("page.html").render(
        title=of_only or f"{len(reports):,} brokers",
        overview=[] if only is not None else _overview(reports, parts),
        left_out=len(found) - len(parts),
        severities=SEVERITIES,
        brokers=parts,
        warehouse=found[0].warehouse,
        style=style,
        script=script,
        style_hash=_hash(style),
        script_hash=_hash(script),
        **_FUNCTIONS,
    )
    return _encoded(text)


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")


def _overview(reports: Sequence[Report | NoReport], parts: Sequence[BrokerPart]) -> list[OverviewRow]:
    """A row for each broker. Only those of ``parts`` have links."""
    prefixes = {part.broker_name: part.at for part in parts}
    return [
        OverviewRow(
            each.broker_name,
            prefixes.get(each.broker_name, ""),
            each,
            _ended(each),
            _attention(each),
            Commands(each).command("report", "--output night.html"),
        )
        if isinstance(each, Report)
        else OverviewRow(each.broker_name, why_not=each.reason)
        for each in reports
    ]


def _ended(report: Report) -> str:
    """The name of the reported night."""
    return _night_names(report, report.nights)[-2]


def _night_names(report: Report, nights: Sequence[ReportedNight]) -> list[str]:
    """The names of some nights of the report, the last of which is reported, and then of the one compared with."""
    beside = report.compared if report.compared is not None else report.night
    return numbers.night_names([*(night.ended_at for night in nights), beside.ended_at])


def _part(report: Report, limits: Limits, at: str = "") -> BrokerPart:
    """The part of one broker."""
    shown = report.groups[: limits.groups]
    nights = report.nights[-limits.nights :]
    night, compared = report.night, report.compared
    *names, beside = _night_names(report, nights)
    bytes_each = night.log_bytes / night.messages if night.log_bytes and night.messages else None
    stages = plots.stages(night.stages, bytes_each)
    commands = Commands(report)
    variables = dict(
        report=report,
        at=at,
        level=2 if at else 1,
        limits=limits,
        commands=commands,
        ended=names[-1],
        compared=beside,
        nights=list(zip(names, nights, strict=True)),
        earlier_nights=report.earlier_nights + len(report.nights) - len(nights),
        plots=plots.nights_plots(nights, compared, names),
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
        **_FUNCTIONS,
    )  # fmt: skip
    header, sections = (
        Markup(_ENVIRONMENT.get_template(name).render(variables))  # noqa: S704 (both templates escape)
        for name in ("header.html", "sections.html")
    )
    runs = f"Run {night.run}" + (f", compared with {compared.run}." if compared is not None else ".")
    return BrokerPart(report.broker_name, at, commands.where, runs, header, sections)


def _source(name: str) -> str:
    """The text of a style or script, without indentation and lines of comments."""
    loader = _ENVIRONMENT.loader
    assert loader is not None
    lines = (line.strip() for line in loader.get_source(_ENVIRONMENT, name)[0].splitlines())
    return "\n".join(line for line in lines if line and not line.startswith(("//", "/*")))


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
