"""Prints the summary at the end of a night."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from filtering.broker_config import BrokerConfig
from filtering.counted import counted
from filtering.subscriptions.events import Operation
from jobs.cli.text import count, expression_line, print_table, short
from jobs.night.run import NightReport, Run
from schemas.answers.brokers import open_facts
from schemas.answers.export import DELIVERIES
from schemas.answers.facts import BrokerFacts
from schemas.answers.inconsistency import inconsistent_groups
from schemas.answers.report.group_counts import GroupCounts
from schemas.answers.report.night_summary import NightSummary, messages_without_entry, night_summary
from schemas.commitlog import COMMITLOG
from schemas.consumequeue import CONSUMEQUEUE
from schemas.delivery_stats import MEANINGS
from schemas.delta.table_rows import one_of
from schemas.printable import printable
from schemas.quarantine import QUARANTINE
from schemas.rocketmq_store.commitlog.recovery import Recovery, recovery
from schemas.rocketmq_store.commitlog.segments import is_mapped_file
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


@dataclass(frozen=True)
class SummarizedNight:
    """A night that has ended: its lines about what needs attention, and a remark on the number of its rows.

    ``report`` is without the outcome.
    """

    report: NightReport
    summary: NightSummary
    attention: Sequence[str]
    remark: str

    @property
    def broker(self) -> str:
        return self.report.broker.name


def summarize(run: Run, report: NightReport) -> SummarizedNight:
    """The summary of a night that has ended."""
    facts = open_facts(run.warehouse, report.broker.name, run.expressions)
    summary = night_summary(facts)
    attention = [*summary.attention, *_inconsistent(facts, run)]
    if report.outcome is not None:
        attention += _damage(facts, report)
    remark = _without_entry(facts, report)
    # The outcome has all pull windows and rows: too much to keep for each of many brokers.
    return SummarizedNight(replace(report, outcome=None), summary, attention, remark)


def print_summary(run: Run, night: SummarizedNight) -> None:
    """Prints the counts of each group, what needs attention, and where the tables are."""
    report, summary = night.report, night.summary
    if report.entry is None and summary.groups:
        print(f"Nothing was new: the counts are those of run {summary.run}.\n")
    _print_groups(summary.groups)
    for line in [*night.attention, *summary.not_replayed, *summary.notes]:
        print(printable(line))
    if summary.notes:
        print_lint(run, [report.broker.name], len(run.last) > 1)
    if night.attention or summary.not_replayed or summary.notes:
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


def _without_entry(facts: BrokerFacts, report: NightReport) -> str:
    """Why the night added fewer rows to consumequeue than to commitlog; empty if it did not."""
    if report.entry is None or report.rows.get(COMMITLOG.name, 0) <= report.rows.get(CONSUMEQUEUE.name, 0):
        return ""
    without = messages_without_entry(facts, report.entry.run)
    messages = counted(
        without, "prepared or rolled-back transaction message has", "prepared or rolled-back transaction messages have"
    )
    return f"\n  {messages} no entry in consumequeue" if without else ""


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


def _inconsistent(facts: BrokerFacts, run: Run) -> list[str]:
    """A line for each group and topic whose clients have different subscriptions, with their last state."""
    return [
        f"inconsistent: {group.consumer_group} on {group.topic}: {group.text}"
        for group in inconsistent_groups(facts, run.session)
    ]


def _damage(facts: BrokerFacts, report: NightReport) -> list[str]:
    """Lines about damaged messages, and how the broker itself would recover the store."""
    lines = []
    damaged = report.outcome.result.damaged_bodies if report.outcome else 0
    if damaged:
        bodies = counted(damaged, "message whose body does", "messages whose bodies do")
        lines.append(f"damaged, but kept: {bodies} not match the crc32")
    snapshot = report.inputs.snapshot
    if snapshot is not None and (damaged or (report.entry is not None and _is_log_damaged(facts, report.entry.run))):
        config = report.broker.config
        size = config.mapped_file_size_commit_log if report.broker.is_given else None
        lines += _recovery_lines(recovery(snapshot.storage, size))
    return lines


def _is_log_damaged(facts: BrokerFacts, run: str) -> bool:
    """Whether a run quarantined bytes of the log; others are lines of text files."""
    names = facts.rows(QUARANTINE, ["source_file"], [one_of("run", [run])])["source_file"].to_pylist()
    return any(map(is_mapped_file, names))


def _recovery_lines(recovered: Recovery) -> list[str]:
    if recovered.refused is not None:
        return [f"the broker itself would not start on this store: {recovered.refused}"]
    ends = {"a clean shutdown": recovered.end_after_clean_shutdown or 0, "a crash": recovered.end_after_crash or 0}
    return [
        f"the broker itself, restarted after {after}, would end its log at offset {end:,}"
        for after, end in ends.items()
    ]
