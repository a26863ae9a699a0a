"""What the summary at the end of a night says besides the counts of its groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from filtering.counted import counted
from jobs.night.run import NightReport, Run
from schemas.answers.brokers import open_facts
from schemas.answers.facts import BrokerFacts
from schemas.answers.report.night_summary import NightSummary, messages_without_entry, night_summary
from schemas.commitlog import COMMITLOG
from schemas.consumequeue import CONSUMEQUEUE
from schemas.delta.table_rows import one_of
from schemas.quarantine import QUARANTINE
from schemas.rocketmq_store.commitlog.recovery import recovery
from schemas.rocketmq_store.commitlog.segments import is_mapped_file


@dataclass(frozen=True)
class SummarizedNight:
    """A night that has ended (without its outcome), how a broker would recover, and a ``remark`` on its rows."""

    report: NightReport
    summary: NightSummary
    recovery: Sequence[str]
    remark: str

    @property
    def broker(self) -> str:
        return self.report.broker.name

    @property
    def lines(self) -> list[str]:
        """What needs attention, the worst first, where new groups began, and what else looks wrong."""
        summary = self.summary
        attention = (problem.text for problem in summary.attention)
        return [*attention, *summary.started, *self.recovery, *summary.notes]


def summarize(run: Run, report: NightReport, checks_messages: bool) -> SummarizedNight:
    """``checks_messages``: as in :func:`night_summary`."""
    facts = open_facts(run.warehouse, report.broker.name, run.expressions)
    summary = night_summary(facts, run.session, checks_messages)
    recovered = _recovery_lines(facts, report) if report.outcome is not None else []
    remark = _without_entry(facts, report)
    # The outcome has all pull windows and rows: too much to keep for each of many brokers.
    return SummarizedNight(replace(report, outcome=None), summary, recovered, remark)


def _without_entry(facts: BrokerFacts, report: NightReport) -> str:
    """Why the night added fewer rows to consumequeue than to commitlog; empty if it did not."""
    if report.entry is None or report.rows.get(COMMITLOG.name, 0) <= report.rows.get(CONSUMEQUEUE.name, 0):
        return ""
    without = messages_without_entry(facts, report.entry.run)
    messages = counted(
        without, "prepared or rolled-back transaction message has", "prepared or rolled-back transaction messages have"
    )
    return f"\n  {messages} no entry in consumequeue" if without else ""


def _recovery_lines(facts: BrokerFacts, report: NightReport) -> list[str]:
    """How the broker itself would recover the store, if it is damaged."""
    damaged = report.outcome.result.damaged_bodies if report.outcome else 0
    snapshot = report.inputs.snapshot
    if snapshot is None or not (damaged or (report.entry is not None and _is_log_damaged(facts, report.entry.run))):
        return []
    config = report.broker.config
    size = config.mapped_file_size_commit_log if report.broker.is_given else None
    recovered = recovery(snapshot.storage, size)
    if recovered.refused is not None:
        return [f"the broker itself would not start on this store: {recovered.refused}"]
    ends = {"a clean shutdown": recovered.end_after_clean_shutdown or 0, "a crash": recovered.end_after_crash or 0}
    return [
        f"the broker itself, restarted after {after}, would end its log at offset {end:,}"
        for after, end in ends.items()
    ]


def _is_log_damaged(facts: BrokerFacts, run: str) -> bool:
    """Whether a run quarantined bytes of the log; others are lines of text files."""
    names = facts.rows(QUARANTINE, ["source_file"], [one_of("run", [run])])["source_file"].to_pylist()
    return any(map(is_mapped_file, names))
