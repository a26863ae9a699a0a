"""Renders the reports of brokers as one HTML file that loads nothing and is small enough for a mail."""

from __future__ import annotations

import base64
import hashlib
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from answers.rendering import one_line, short
from answers.report import MOST_NIGHTS, GroupPops, GroupReport, NoReport, Report, ReportedNight
from filtering.counted import counted, shortened
from filtering.findings import ERROR, SEVERITIES, WARN
from filtering.frozen import frozen
from jobs.cli.output import age as duration
from schemas.errors import PROGRAM, option, time_text
from schemas.tables import MEANINGS

# Formats the numbers and names of a report.


LONGEST_NAME = 80
LONGEST_TEXT = 300
_SIZES = ("bytes", "kB", "MB", "GB", "TB", "PB")


def whole(number: int | None) -> str:
    """``12,345``; a dash for None."""
    return "–" if number is None else f"{number:,}"


def difference(now: int, before: int | None) -> str:
    """``+12``, ``−3``, ``0``; ``new`` without an earlier number."""
    if before is None:
        return "new"
    return f"{now - before:+,}".replace("-", "−") if now != before else "0"


def share(part: int, total: int) -> str:
    """``12.3 %``. A part above 0 is never shown as 0 %, and a part below the total never as 100 %."""
    if not total:
        return "–"
    percent = 100 * part / total
    if part and percent < 0.1:
        return "< 0.1 %"
    if part < total and percent > 99.9:
        return "> 99.9 %"
    return f"{percent:.1f} %"


def age(milliseconds: int | None) -> str:
    """``2 h 14 min``, from milliseconds; a dash for None."""
    return "–" if milliseconds is None else duration(milliseconds)


def size(number: float) -> str:
    """``1.2 GB``, from bytes."""
    for unit in _SIZES:
        if number < 1000 or unit == _SIZES[-1]:
            return f"{number:,.0f} {unit}" if unit == "bytes" or number >= 100 else f"{number:.1f} {unit}"
        number /= 1000
    raise AssertionError


def name(text: str) -> str:
    """The printable name of a group, topic or file. Long names are cut in the middle."""
    return short(text, LONGEST_NAME)


def sentence(text: str) -> str:
    """One printable line, cut at LONGEST_TEXT characters."""
    return cut(text, LONGEST_TEXT)


def cut(text: str, longest: int) -> str:
    """One printable line, cut at ``longest`` characters."""
    return shortened(one_line(text[: 4 * longest]), longest)


def night_names(instants: Sequence[int]) -> list[str]:
    """The end times of nights (ms) as text: to the minute, or finer if two would be equal."""
    full = [time_text(instant) for instant in instants]
    for length in (16, 19, 23):
        names = [text[:length] for text in full]
        if len(set(names)) == len(set(full)):
            break
    return names


# The columns of a report's table of groups. Columns of zeros are left out.


Value = Callable[[GroupReport], int | None]


@frozen
class Column:
    """The ``value`` of each row, formatted by ``text``. The column is left out if all are 0 and it ``is_optional``."""

    title: str
    explanation: str
    value: Value
    text: Callable[[int | None], str] = whole
    is_optional: bool = True

    def cell(self, row: GroupReport) -> str:
        return self.text(self.value(row))


class _Change(Column):
    def cell(self, row: GroupReport) -> str:
        return difference(row.counts["delivered"], row.delivered_before)


def _count_column(title: str, name: str, is_optional: bool = True) -> Column:
    return Column(title, MEANINGS[name], lambda row: row.counts[name], is_optional=is_optional)


def _pops_column(title: str, explanation: str, value: Callable[[GroupPops], int | None]) -> Column:
    return Column(title, explanation, lambda row: None if row.pops is None else value(row.pops))


def _less(name: str, other: str) -> Value:
    return lambda row: row.counts[name] - row.counts[other]


def columns(groups: Sequence[GroupReport], nights: int, is_compared: bool) -> list[Column]:
    """The columns between the topic and the filter. A small screen shows only the first."""
    every = [
        _count_column("Delivered", "delivered", is_optional=False),
        _Change(
            "Change", "change of delivered since the earlier night", lambda row: row.more_delivered, is_optional=False
        ),
        _count_column("Pending", "pending", is_optional=False),
        Column("Before", "delivered in the earlier night", lambda row: row.delivered_before, is_optional=False),
        _count_column("Scanned", "scanned", is_optional=False),
        Column("Stopped on entry", "by tags code or filter bit map: the message was not read",
               _less("scanned", "passed_stage1"), is_optional=False),
        Column("Stopped on message", "by the expression: read, and not sent",
               _less("passed_stage1", "passed_stage2"), is_optional=False),
        _count_column("Proven", "proven"),
        _pops_column("Popped", "how often a message was handed out by a pop", lambda pops: pops.popped),
        _pops_column("Redelivered", "popped again", lambda pops: pops.redelivered),
        _pops_column("Attempts", "of the message that was tried most often", lambda pops: pops.attempts),
        _pops_column("Dropped by tags", "popped, and dropped after the broker", lambda pops: pops.dropped_by_tags),
        _pops_column("Dead", "popped once too often, and given up", lambda pops: pops.dead),
        _pops_column("Acknowledged", "pops that were acknowledged up to now", lambda pops: pops.acknowledged),
        _pops_column("Median ms", "from the pop to the acknowledgement", lambda pops: pops.median_ms),
        _pops_column("99 % ms", "from the pop to the acknowledgement", lambda pops: pops.p99_ms),
        _count_column("Client drops", "client_drops"),
        _count_column("Hook drops", "dropped_by_hook"),
        _count_column("Errors", "evaluation_errors"),
        _count_column("False pos.", "bit_map_false_positives"),
        _count_column("Lost", "lost"),
        _count_column("Skipped", "skipped"),
        _count_column("Repeated", "repeated"),
        _count_column("Uncertain", "uncertain"),
        Column("Behind", "entries after the committed offset, as the broker's tools count",
               lambda row: row.lag.behind),
        Column("Would get", "messages among those behind that pass the group's filters", lambda row: row.lag.would_get),
        Column("Oldest", "age of the oldest of these messages", lambda row: row.lag.oldest_ms, age),
    ]  # fmt: skip
    if nights > 1:
        in_all = f"delivered in the {nights} nights of this report"
        every.append(Column(f"In {nights} nights", in_all, lambda row: row.delivered_in_all))
    comparisons = ("Change", "Before")
    return [
        column
        for column in every
        if (is_compared or column.title not in comparisons)
        and (not column.is_optional or any(column.value(row) for row in groups))
    ]


# The command lines in a report.


LONGEST = 600
"""Characters. Longer commands, with names that no broker accepts, are not shown."""
_PLAIN = re.compile(r"[\w%@.,:+/|-]+", re.ASCII)


def is_plain(text: str) -> bool:
    """Whether a shell and a job's command line take the text without quotes."""
    return _PLAIN.fullmatch(text) is not None and "|" not in text and not text.startswith("-")


class Commands:
    """The command lines about one broker of one warehouse."""

    def __init__(self, report: Report) -> None:
        self.where = option("warehouse", report.warehouse)
        if not report.broker_is_alone:
            self.where += f" {option('broker', report.broker_name)}"

    def command(self, job: str, *options: str) -> str:
        """``./spark-submit.sh JOB --warehouse … OPTIONS``, without the options if they are too long to show."""
        command = " ".join([PROGRAM, job, self.where, *options])
        return command if len(command) <= LONGEST + len(self.where) else f"{PROGRAM} {job} {self.where} …"

    def compare(self, run: str) -> str:
        return self.command("report", option("compare", run), "--output night.html")

    def export(self, table: str, *options: str) -> str:
        return self.command(f"export {table}", *options, "--output -")

    def export_topic(self, topic: str) -> str:
        return self.export("delivery_stats", option("topic", topic))

    def explain_group(self, consumer_group: str, topic: str, last_pulled: tuple[int, int] | None) -> str:
        """The command that explains an entry of a group, or simulates its pulls if it has not pulled yet."""
        whose = f"{option('group', consumer_group)} {option('topic', topic)}"
        if last_pulled is None:
            return self.command("pulls", whose)
        return self.command("explain", whose, f"--queue {last_pulled[0]} --offset {last_pulled[1]}")


# Computes the bars of a report's plots, in coordinates of the SVG's view box.


WIDTH, HEIGHT = 300, 60
MOST_CHANGES = 10
_LEAST = 1.5


@frozen
class Bar:
    x: float
    y: float
    width: float
    height: float
    kind: str
    label: str


@frozen
class NightsPlot:
    """One measure over several nights.

    ``now`` and ``change``: of the last night. ``peak``: the greatest value. ``rows``: name and value of each night.
    """

    title: str
    explanation: str
    now: str
    change: str
    peak: str
    bars: Sequence[Bar]
    rows: Sequence[tuple[str, str]]


def nights_plots(
    nights: Sequence[ReportedNight], compared: ReportedNight | None, names: Sequence[str]
) -> list[NightsPlot]:
    """One plot for each measure. ``compared``: the night compared with. ``names``: those of the nights, in order."""

    def plot(title: str, explanation: str, values: Sequence[int], before: int | None) -> NightsPlot:
        texts = [whole(value) for value in values]
        change = "" if compared is None else difference(values[-1], before)
        return _plot(title, explanation, values, texts, names, change)

    measures: list[tuple[str, str, Callable[[ReportedNight], int]]] = [
        ("Stored", "messages added to the log", lambda night: night.messages),
        ("Delivered", "messages that groups received", lambda night: night.totals["delivered"]),
        ("Stopped on the entry", "by tags code or filter bit map, without reading the message",
         lambda night: night.totals["scanned"] - night.totals["passed_stage1"]),
        ("Stopped on the message", "by the expression, after reading the message",
         lambda night: night.totals["passed_stage1"] - night.totals["passed_stage2"]),
        ("Dropped by clients", "by the tag check or a hook, after the network",
         lambda night: night.totals["passed_stage2"] - night.totals["delivered"]),
        ("Pending", "entries that groups have not pulled yet", lambda night: night.totals["pending"]),
        ("Expression errors", "entries on whose message the expression fails",
         lambda night: night.totals["evaluation_errors"]),
    ]  # fmt: skip
    plots = [
        plot(title, explanation, [value(night) for night in nights], value(compared) if compared else None)
        for title, explanation, value in measures
    ]
    return [*plots, _false_positives(nights, names)]


def _false_positives(nights: Sequence[ReportedNight], names: Sequence[str]) -> NightsPlot:
    shares = [night.false_positives / (night.judged_by_bit_map or 1) for night in nights]
    texts = [
        f"{share(night.false_positives, night.judged_by_bit_map)} "
        f"({night.false_positives:,} of {night.judged_by_bit_map:,})"
        for night in nights
    ]
    explanation = "entries that passed the filter bit map, as a share of those that it should have stopped"
    plot = _plot("Bit map false positives", explanation, shares, texts, names, "")
    last = nights[-1]
    return replace(plot, now=share(last.false_positives, last.judged_by_bit_map), peak="")


def _plot(
    title: str, explanation: str, values: Sequence[float], texts: Sequence[str], names: Sequence[str], change: str
) -> NightsPlot:
    peak = max(values)
    slot = WIDTH / len(values)
    bars = []
    for number, (value, text, night) in enumerate(zip(values, texts, names, strict=True)):
        height = max(_LEAST, HEIGHT * value / peak) if value else 0
        kind = "now" if number == len(values) - 1 else "earlier"
        x, y = round((number + 0.1) * slot, 1), round(HEIGHT - height, 1)
        bars.append(Bar(x, y, round(0.8 * slot, 1), round(height, 1), kind, f"{night}: {text}"))
    return NightsPlot(
        title,
        explanation,
        texts[-1],
        change,
        texts[list(values).index(peak)],
        bars,
        list(zip(names, texts, strict=True)),
    )


@frozen
class Stage:
    """The number of pulled entries that ended at one stage, and the bytes that this saved or cost."""

    title: str
    kind: str
    entries: int
    share: str
    effect: str


def stages_passed(night: ReportedNight, bytes_each: float | None = None) -> list[Stage]:
    """The stages of a night. ``bytes_each``: the average size of a message in the log; None if unknown."""

    def about(entries: int) -> str:
        return f", about {size(entries * bytes_each)}" if bytes_each and entries else ""

    counts = night.totals
    by_expression = counts["passed_stage1"] - counts["passed_stage2"]
    rows = [
        ("Stopped by the tags code", "tags", night.stopped_by_tags_code, "not read from the log"),
        ("Stopped by the filter bit map", "bit-map", night.stopped_by_bit_map, "not read from the log"),
        ("Stopped by the expression", "expression", by_expression, "read, and not sent"),
        ("Dropped by the client's tag check", "client", counts["client_drops"], "read and sent for nothing"),
        ("Dropped by the client's hooks", "hook", counts["dropped_by_hook"], "read and sent for nothing"),
        ("Delivered", "delivered", counts["delivered"], "read and sent"),
    ]  # fmt: skip
    if night.stopped_by_either:
        both = "Stopped by the tags code or the filter bit map: the groups changed from one to the other"
        rows.insert(2, (both, "tags", night.stopped_by_either, "not read from the log"))
    return [
        Stage(title, kind, entries, share(entries, counts["scanned"]), effect + about(entries))
        for title, kind, entries, effect in rows
    ]


def stages_bar(stages: Sequence[Stage]) -> list[Bar]:
    """One bar over the whole width, in which every stage with entries is visible."""
    total = sum(stage.entries for stage in stages) or 1
    widths = [max(_LEAST, WIDTH * 2 * stage.entries / total) if stage.entries else 0 for stage in stages]
    scale = WIDTH * 2 / (sum(widths) or 1)
    bars, x = [], 0.0
    for stage, width in zip(stages, widths, strict=True):
        label = f"{stage.title}: {stage.entries:,} ({stage.share})"
        bars.append(Bar(round(x, 2), 0, round(width * scale, 2), 20, stage.kind, label))
        x += width * scale
    return bars


def changes(groups: Sequence[GroupReport]) -> list[tuple[GroupReport, Bar]]:
    """The groups that received more or less than in the earlier night, the greatest change first."""
    changed = [group for group in groups if group.more_delivered][:MOST_CHANGES]
    half = WIDTH / 2
    greatest = max((abs(group.more_delivered) for group in changed), default=1)
    rows = []
    for group in changed:
        width = max(_LEAST, half * abs(group.more_delivered) / greatest)
        kind = "more" if group.more_delivered > 0 else "less"
        x = half if group.more_delivered > 0 else half - width
        rows.append((group, Bar(round(x, 1), 2, round(width, 1), 10, kind, f"{group.more_delivered:+,}")))
    return rows


MOST_BYTES = 300_000
MARGIN = 200
"""Bytes reserved for the notes about rows that were left out."""
_ROW_BYTES = 500
"""By how many bytes the links to a broker's part, and what is around the part, can make a page larger."""
_ENVIRONMENT = Environment(
    loader=FileSystemLoader(Path(__file__).with_name("templates")),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_FUNCTIONS = {
    function.__name__: function
    for function in (
        whole, difference, share, name, sentence, cut, counted,
    )
}  # fmt: skip


@frozen
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


@frozen
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


@frozen
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
    complete = [each for each in reports if isinstance(each, Report)]
    is_alone = len(reports) == 1
    prefixes = {report.broker_name: f"broker-{number}-" for number, report in enumerate(complete, 1)}

    def parts(limits: Limits) -> list[BrokerPart]:
        return [_part(report, limits, "" if is_alone else prefixes[report.broker_name]) for report in complete]

    shown = parts(LIMITS)
    page = _render(reports, shown)
    if len(page) <= MOST_BYTES:
        limits = _longer_expressions(complete, MOST_BYTES - len(page))
        return page if limits == LIMITS else _render(reports, parts(limits))
    for limits in SMALLER if is_alone else SMALLER_OF_SEVERAL:
        shown = parts(limits)
        page = _render(reports, shown)
        if len(page) <= MOST_BYTES:
            return page
    return page if is_alone else _render(reports, _that_fit(reports, complete, shown))


def _that_fit(
    reports: Sequence[Report | NoReport], complete: Sequence[Report], parts: Sequence[BrokerPart]
) -> list[BrokerPart]:
    """The parts that fit on a page, of the brokers with the most errors. ``parts``: of the ``complete`` reports."""
    by_errors = sorted(complete, key=lambda report: (-_attention(report)[ERROR], -_attention(report)[WARN]))
    sizes = {part.broker_name: part.size for part in parts}
    free = MOST_BYTES - MARGIN - len(_render(reports, []))
    kept = set()
    for report in by_errors:
        if sizes[report.broker_name] + _ROW_BYTES <= free:
            kept.add(report.broker_name)
            free -= sizes[report.broker_name] + _ROW_BYTES
    return [part for part in parts if part.broker_name in kept]


def _longer_expressions(reports: Sequence[Report], free: int) -> Limits:
    """The limits with the longest expressions that need at most ``free`` bytes more than LIMITS."""
    texts = [group.expression for report in reports for group in report.groups[: LIMITS.groups]]

    def needed(longest: int) -> int:
        return sum(len(escape(cut(text, longest)).encode()) for text in texts)

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
    complete = [each for each in reports if isinstance(each, Report)]
    only = complete[0] if len(reports) == 1 else None
    subtitle = f"{name(only.broker_name)}, night ending {_ended(only)} UTC" if only is not None else ""
    text = _ENVIRONMENT.get_template("page.html").render(
        title=subtitle or f"{len(reports):,} brokers",
        overview=[] if only is not None else _overview(reports, parts),
        left_out=len(complete) - len(parts),
        severities=SEVERITIES,
        brokers=parts,
        warehouse=complete[0].warehouse,
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
    return night_names([*(night.ended_at for night in nights), beside.ended_at])


def _part(report: Report, limits: Limits, at: str = "") -> BrokerPart:
    shown = report.groups[: limits.groups]
    nights = report.nights[-limits.nights :]
    night, compared = report.night, report.compared
    *names, beside = _night_names(report, nights)
    bytes_each = night.log_bytes / night.messages if night.log_bytes and night.messages else None
    stages = stages_passed(night, bytes_each)
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
        plots=nights_plots(nights, compared, names),
        width=WIDTH,
        height=HEIGHT,
        stages=stages,
        stages_bar=stages_bar(stages),
        changes=changes(report.groups),
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
    return all(is_plain(text) and text == name(text) for text in (group.consumer_group, group.topic))


def _side_by_side(now: ReportedNight, before: ReportedNight) -> list[tuple[str, str, str, str]]:
    """Rows of title, earlier night, this night, and change."""
    in_now, in_before = ({stage.title: stage.entries for stage in stages_passed(night)} for night in (now, before))
    measures = [
        ("Messages stored", now.messages, before.messages),
        ("Entries scanned", now.totals["scanned"], before.totals["scanned"]),
        *((title, in_now.get(title, 0), in_before.get(title, 0)) for title in max(in_now, in_before, key=len)),
        ("Pending at its end", now.totals["pending"], before.totals["pending"]),
        ("Lost", now.totals["lost"], before.totals["lost"]),
        ("Expression errors", now.totals["evaluation_errors"], before.totals["evaluation_errors"]),
        ("Bit map false positives", now.false_positives, before.false_positives),
        ("Pieces quarantined", now.quarantined, before.quarantined),
    ]
    return [(title, whole(then), whole(this), difference(this, then)) for title, this, then in measures]
