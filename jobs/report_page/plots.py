"""Computes the bars of a report's plots, in coordinates of the SVG's view box."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from jobs.report_page.numbers import difference, share, size, whole
from schemas.answers.report.groups import GroupReport
from schemas.answers.report.nights import ReportedNight, StageCounts

WIDTH, HEIGHT = 300, 60
MOST_CHANGES = 10
_LEAST = 1.5


@dataclass(frozen=True)
class Bar:
    x: float
    y: float
    width: float
    height: float
    kind: str
    label: str


@dataclass(frozen=True)
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
        ("Delivered", "messages that groups received", lambda night: night.stages.delivered),
        ("Stopped on the entry", "by tags code or filter bit map, without reading the message",
         lambda night: night.stages.stopped_on_entry),
        ("Stopped on the message", "by the expression, after reading the message",
         lambda night: night.stages.stopped_by_expression),
        ("Dropped by clients", "by the tag check or a hook, after the network",
         lambda night: night.stages.dropped_by_client + night.stages.dropped_by_hook),
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


@dataclass(frozen=True)
class Stage:
    """The number of pulled entries that ended at one stage, and the bytes that this saved or cost."""

    title: str
    kind: str
    entries: int
    share: str
    effect: str


def stages(counts: StageCounts, bytes_each: float | None = None) -> list[Stage]:
    """The stages of a night. ``bytes_each``: the average size of a message in the log; None if unknown."""

    def about(entries: int) -> str:
        return f", about {size(entries * bytes_each)}" if bytes_each and entries else ""

    rows = [
        ("Stopped by the tags code", "tags", counts.stopped_by_tags_code, "not read from the log"),
        ("Stopped by the filter bit map", "bit-map", counts.stopped_by_bit_map, "not read from the log"),
        ("Stopped by the expression", "expression", counts.stopped_by_expression, "read, and not sent"),
        ("Dropped by the client's tag check", "client", counts.dropped_by_client, "read and sent for nothing"),
        ("Dropped by the client's hooks", "hook", counts.dropped_by_hook, "read and sent for nothing"),
        ("Delivered", "delivered", counts.delivered, "read and sent"),
    ]  # fmt: skip
    if counts.stopped_by_either:
        both = "Stopped by the tags code or the filter bit map: the groups changed from one to the other"
        rows.insert(2, (both, "tags", counts.stopped_by_either, "not read from the log"))
    return [
        Stage(title, kind, entries, share(entries, counts.scanned), effect + about(entries))
        for title, kind, entries, effect in rows
    ]


def stages_bar(found: Sequence[Stage]) -> list[Bar]:
    """One bar over the whole width, in which every stage with entries is visible."""
    total = sum(stage.entries for stage in found) or 1
    widths = [max(_LEAST, WIDTH * 2 * stage.entries / total) if stage.entries else 0 for stage in found]
    scale = WIDTH * 2 / (sum(widths) or 1)
    bars, x = [], 0.0
    for stage, width in zip(found, widths, strict=True):
        label = f"{stage.title}: {stage.entries:,} ({stage.share})"
        bars.append(Bar(round(x, 2), 0, round(width * scale, 2), 20, stage.kind, label))
        x += width * scale
    return bars


def changes(groups: Sequence[GroupReport]) -> list[tuple[GroupReport, Bar]]:
    """The groups that received more or less than in the earlier night, the greatest change first."""
    changed = [group for group in groups if group.change][:MOST_CHANGES]
    half = WIDTH / 2
    greatest = max((abs(group.change) for group in changed), default=1)
    found = []
    for group in changed:
        width = max(_LEAST, half * abs(group.change) / greatest)
        kind = "more" if group.change > 0 else "less"
        x = half if group.change > 0 else half - width
        found.append((group, Bar(round(x, 1), 2, round(width, 1), 10, kind, f"{group.change:+,}")))
    return found
