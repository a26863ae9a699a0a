"""Prints the summary at the end of a night."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from filtering.broker_config import BrokerConfig
from filtering.counted import counted
from filtering.subscriptions.events import Operation
from jobs.cli.summarized_night import SummarizedNight
from jobs.cli.text import count, expression_line, print_table, short
from jobs.night.run import NightReport, Run
from schemas.answers.export import DELIVERIES
from schemas.answers.report.group_counts import GroupCounts
from schemas.commitlog import COMMITLOG
from schemas.consumequeue import CONSUMEQUEUE
from schemas.delivery_stats import MEANINGS
from schemas.printable import printable
from schemas.shell_command import option
from schemas.subscriptions import SUBSCRIPTIONS

COLUMNS = (
    ("scanned", "scanned"),
    ("passed_stage1", "stage 1"),
    ("passed_stage2", "stage 2"),
    ("delivered", "delivered"),
    ("client_drops", "client drops"),
    ("dropped_by_hook", "hook drops"),
    ("bit_map_false_positives", "false pos."),
    ("evaluation_errors", "errors"),
    ("uncertain", "uncertain"),
    ("repeated", "repeated"),
    ("lost", "lost"),
    ("pending", "pending"),
)
ALWAYS_SHOWN = frozenset({"scanned", "passed_stage1", "passed_stage2", "delivered", "pending"})
WIDTH = 118
LONGEST_FILTER = 400
WRITTEN_BY_JOB = {"ingest": COMMITLOG.name, "register": SUBSCRIPTIONS.name, "dispatch": CONSUMEQUEUE.name}
"""The table that a step before deliver writes."""

READS_SUBSCRIPTIONS = ("nightly", "register")


def print_summary(run: Run, night: SummarizedNight) -> None:
    """Prints the counts of each group, what needs attention, and where the tables are."""
    report, summary = night.report, night.summary
    if report.entry is None and summary.groups:
        print(f"Nothing was new: the counts are those of run {summary.run}.\n")
    _print_groups(summary.groups)
    for line in night.lines:
        print(printable(line))
    if summary.notes:
        print_lint(run, [report.broker.name], len(run.last) > 1)
    if night.lines:
        print()
    print_steps(run, report, night.remark)


def print_lint(run: Run, brokers: Iterable[str], one_of_several: bool) -> None:
    """Prints the command that says more about the subscriptions of each broker."""
    print("lint says why, and what real messages show:")
    for broker in brokers:
        which = f" {option('broker', broker)}" if one_of_several else ""
        print(f"  {run.warehouse.command('lint')}{which}")


def print_steps(run: Run, report: NightReport, remark: str = "") -> None:
    """Prints the broker's switches, the number of rows written with a remark on it, and where the tables are."""
    config = report.broker.config
    print(f"broker {short(report.broker.name)}: {switches(config)}")
    print(f"  ({printable(report.broker.source)})")
    print(f"  RocketMQ {printable(report.broker.version_text)}")
    # The summary of a whole night has those of broker.misread, which are remarks, among what needs attention.
    misread = () if run.job == "nightly" else report.broker.misread
    for line in (*misread, *report.broker.ignored):
        print(f"  {printable(line)}")
    if run.job in READS_SUBSCRIPTIONS:
        print(f"  subscriptions: {printable(_subscriptions(report))}")
    if report.entry is None:
        print(f"There was nothing new: no table changed ({report.seconds:.1f} s).")
    else:
        added = ", ".join(f"{rows:,} in {table}" for table, rows in report.rows.items()) or "none"
        print(f"  {report.seconds:.1f} s; rows added: {added}{remark}")
    location, table = printable(run.warehouse.location), WRITTEN_BY_JOB.get(run.job, DELIVERIES)
    print(f"The tables are in {location}; to write one as JSON lines:")
    print(f"  {run.warehouse.command(f'export {table}')} --output {table}.jsonl")


def switches(config: BrokerConfig) -> str:
    """The switches that decide how a broker filters."""
    bit_map = "on" if config.calculates_bit_maps else "off"
    sql92 = "on" if config.enable_property_filter else "off"
    return f"property filter {sql92}, filter bit map {bit_map}"


def _subscriptions(report: NightReport) -> str:
    """Where the subscriptions came from, and what changed."""
    file, events = report.inputs.subscriptions, report.events
    if file is None:
        return "no --subscriptions: those of earlier runs" if events.events else "none: no run had --subscriptions"
    source = "the store's own list of SQL92 subscriptions" if file.is_in_store else ", ".join(file.rejected)
    if not file.events.entries:
        return f"{source}, from which nothing could be read" if file.rejected_lines else f"{source}, without an entry"
    if file.events.is_snapshot and events.new:
        ended = sum(event.operation is Operation.UNREGISTER for event in events.new)
        return f"{source}, {len(events.new) - ended:,} began or changed, {ended:,} ended"
    counts = {"new": len(events.new), "withdrawn": events.withdrawn}
    changes = [counted(count, f"{kind} event") for kind, count in counts.items() if count]
    return f"{source}, {' and '.join(changes) or 'without changes'}"


def _print_groups(groups: Sequence[GroupCounts]) -> None:
    if not groups:
        return
    columns = shown_columns([group.counts for group in groups])
    print_legend(columns)
    for topic, topic_groups in groupby(groups, key=lambda group: group.topic):
        print(f"\n{short(topic)}")
        rows = [
            [
                short(group.consumer_group),
                *(count_cell(name, group.counts[name], group.delivered_before) for name in columns),
                short(expression_line(group.expression), LONGEST_FILTER),
            ]
            for group in topic_groups
        ]
        titles = ["group", *columns.values(), "filter"]
        print_table(titles, rows, indent="  ", last_is_text=True)
    print()


def shown_columns(counts: Sequence[Mapping[str, int]]) -> dict[str, str]:
    """The columns to show, and their titles: some of them only if a row of counts has more than 0."""
    return {name: title for name, title in COLUMNS if name in ALWAYS_SHOWN or any(each.get(name) for each in counts)}


def count_cell(name: str, now: int, delivered_before: int | None) -> str:
    """A cell of the column ``name``. ``delivered_before``: the deliveries of the night before; None: there was none."""
    if name == "delivered" and delivered_before is not None and delivered_before != now:
        return f"{delivered_before:,} → {now:,}"
    return count(now)


def print_legend(columns: Mapping[str, str]) -> None:
    """Prints what the columns mean. ``columns``: their titles, by name."""
    line = ""
    for name, title in columns.items():
        part = f"{title}: {MEANINGS[name]}{' (before → now)' if name == 'delivered' else ''}"
        if line and len(line) + len(part) + 3 > WIDTH:
            print(line)
            line = ""
        line = f"{line} · {part}" if line else part
    print(line)
