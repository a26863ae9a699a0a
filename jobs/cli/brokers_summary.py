"""Prints the summary of the nights of several brokers: a line for each, and what needs attention."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from filtering.counted import counted
from jobs.cli.summarized_night import SummarizedNight
from jobs.cli.summary import count_cell, print_legend, print_lint, shown_columns, switches
from jobs.cli.text import BROKERS_NAMED, count, print_by_line, print_table, short
from jobs.night.run import Run
from schemas.answers.report.group_counts import Counts, total
from schemas.commitlog import COMMITLOG
from schemas.printable import printable


def print_brokers(run: Run, nights: Sequence[SummarizedNight]) -> None:
    """Prints the counts of each broker, what needs attention, and where the tables are."""
    _print_counts(nights)
    lines = [line for night in nights for line in _lines(night)]
    print_by_line(lines)
    if noted := list(dict.fromkeys(night.broker for night in nights if night.summary.notes)):
        print_lint(run, noted[:BROKERS_NAMED], one_of_several=True)
        if len(noted) > BROKERS_NAMED:
            print(f"  and {counted(len(noted) - BROKERS_NAMED, 'more broker')}")
    if lines or noted:
        print()
    print(f"The tables are in {printable(run.warehouse.location)}; the groups of each broker are in the report:")
    print(f"  {run.warehouse.command('report')} --output night.html")


def _print_counts(nights: Sequence[SummarizedNight]) -> None:
    """A line for each night: the messages that it added, and the sums of the counts of its groups."""
    sums = [_sums(night) for night in nights]
    columns = shown_columns(sums)
    rows = [
        [
            short(night.broker),
            count(night.report.rows.get(COMMITLOG.name, 0)),
            *(count_cell(name, counts[name], _delivered_before(night)) for name in columns),
        ]
        for night, counts in zip(nights, sums, strict=True)
    ]
    print_legend(columns)
    print()
    print_table(("broker", "messages", *columns.values()), rows)
    print()


def _sums(night: SummarizedNight) -> Counts:
    """The sums of the counts of all groups; zeros if nothing was new."""
    return total(group.counts for group in night.summary.groups if night.report.entry is not None)


def _delivered_before(night: SummarizedNight) -> int | None:
    """The deliveries of the night before, None if there was none."""
    before = [group.delivered_before for group in night.summary.groups if group.delivered_before is not None]
    return sum(before) if before and night.report.entry is not None else None


def _lines(night: SummarizedNight) -> Iterable[tuple[str, str]]:
    """The name of the broker, and a line about its night."""
    broker, lines = night.report.broker, list(night.lines)
    if not broker.is_given:
        lines.append(f"{switches(broker.config)} ({broker.source})")
    lines.append(f"RocketMQ {broker.version_text}")
    return [(broker.name, line) for line in lines]
