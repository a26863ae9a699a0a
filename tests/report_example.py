"""Reports of any size, without a warehouse."""

from __future__ import annotations

from answers.attention import Problem, Quarantined
from answers.report import (
    NOTHING,
    GroupLag,
    GroupReport,
    Report,
    ReportedNight,
    TopicReport,
)
from filtering.findings import Finding
from filtering.time_spans import DAY

FIRST = 1_795_000_000_000


def counts(**night_counts: int) -> dict[str, int]:
    return {**NOTHING, **night_counts}


def night(number: int, delivered: int = 1_000) -> ReportedNight:
    totals = counts(
        scanned=90_000 + delivered, passed_stage1=20_000 + delivered, passed_stage2=delivered, delivered=delivered,
        pending=17, bit_map_false_positives=300,
    )  # fmt: skip
    return ReportedNight(
        f"2026-11-{number:03}T02:00:00.000Z", FIRST + number * DAY, 50_000, 40_000_000, 0, totals, 40_000, 30_000, 0
    )


def group(name: str, topic: str = "Orders", expression: str = "qty > 5", delivered: int = 7) -> GroupReport:
    now = counts(scanned=12_345, passed_stage1=4_000, passed_stage2=delivered, delivered=delivered, pending=3)
    before = counts(scanned=11_000, passed_stage1=3_500, passed_stage2=5, delivered=5)
    return GroupReport(
        name, topic, expression, now, before, 30 * delivered, GroupLag(1_234, 56, 8_040_000), (3, 41), None
    )


def report(groups: int = 20, nights: int = 30, name: str = "cg_{:04}", expression: str = "qty > 5") -> Report:
    """A report. ``name`` is formatted with the number of each group."""
    names = [name.format(number) for number in range(groups)]
    topics = sorted({"Orders", name.format(0)})
    return Report(
        "/data/mqsieve",
        "broker-a",
        True,
        "5.5.0",
        [night(number, 1_000 + number) for number in range(nights)],
        0,
        night(nights - 2) if nights > 1 else None,
        [group(each, topics[0], expression, 7 + at) for at, each in enumerate(names)],
        [TopicReport(topic, groups, 50_000, counts(scanned=91_000, delivered=1_000), None) for topic in topics],
        [Problem("lost-messages", f"{each} lost 5 entries") for each in names],
        [Finding("warn", each, topics[0], "fails", f"{each} fails", 5, 50) for each in names],
        [Quarantined(each, f"{each} is no JSON", 2, 1, 17) for each in names],
    )
