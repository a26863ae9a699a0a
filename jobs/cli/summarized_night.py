"""What the summary at the end of a night says besides the counts of its groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from filtering.counted import counted
from jobs.night.run import NightReport, Run
from schemas.answers.brokers import open_facts
from schemas.answers.facts import BrokerFacts
from schemas.answers.inconsistency import inconsistent_groups
from schemas.answers.report.night_summary import NightSummary, messages_without_entry, night_summary
from schemas.commitlog import COMMITLOG
from schemas.consumequeue import CONSUMEQUEUE
from schemas.delta.table_rows import one_of
from schemas.quarantine import QUARANTINE
from schemas.rocketmq_store.commitlog.recovery import Recovery, recovery
from schemas.rocketmq_store.commitlog.segments import is_mapped_file


@dataclass(frozen=True)
class SummarizedNight:
    """A night that has ended (without its outcome), what needs attention, and a ``remark`` on its rows."""

    report: NightReport
    summary: NightSummary
    attention: Sequence[str]
    remark: str

    @property
    def broker(self) -> str:
        return self.report.broker.name


def summarize(run: Run, report: NightReport) -> SummarizedNight:
    facts = open_facts(run.warehouse, report.broker.name, run.expressions)
    summary = night_summary(facts)
    attention = [*summary.attention, *_inconsistent(facts, run)]
    if report.outcome is not None:
        attention += _damage(facts, report)
    remark = _without_entry(facts, report)
    # The outcome has all pull windows and rows: too much to keep for each of many brokers.
    return SummarizedNight(replace(report, outcome=None), summary, attention, remark)


def _without_entry(facts: BrokerFacts, report: NightReport) -> str:
    """Why the night added fewer rows to consumequeue than to commitlog; empty if it did not."""
    if report.entry is None or report.rows.get(COMMITLOG.name, 0) <= report.rows.get(CONSUMEQUEUE.name, 0):
        return ""
    without = messages_without_entry(facts, report.entry.run)
    messages = counted(
        without, "prepared or rolled-back transaction message has", "prepared or rolled-back transaction messages have"
    )
    return f"\n  {messages} no entry in consumequeue" if without else ""


def _inconsistent(facts: BrokerFacts, run: Run) -> list[str]:
    """A line for each group and topic whose clients have different subscriptions, with their last state."""
    return [
        f"{'seemingly ' * group.seems}inconsistent: {group.consumer_group} on {group.topic}: {group.text}"
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
