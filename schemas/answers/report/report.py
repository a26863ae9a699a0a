"""Everything that a report of a night shows, from the tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from filtering.findings import Finding
from schemas.answers.facts import BrokerFacts
from schemas.answers.findings import findings
from schemas.answers.report.attention import Problem, Quarantined, attention, quarantined
from schemas.answers.report.group_counts import counts_by_run
from schemas.answers.report.groups import GroupReport, TopicReport, group_reports, topic_reports
from schemas.answers.report.night_summary import not_replayed
from schemas.answers.report.nights import (
    ReportedNight,
    chosen_nights,
    compared_night,
    night_rows,
    nights_with_deliveries,
)
from schemas.errors import UsageError
from schemas.run_ledger import by_broker, read_ledger, runs_of
from schemas.spark_tasks import Session


@dataclass(frozen=True)
class Report:
    """A report of one broker. The last of ``nights`` is the one reported; ``compared`` is the one it is compared with.

    ``earlier_nights`` counts the nights of the warehouse that are not in ``nights``. ``attention``: the conditions
    that hold, the worst first. ``version``: RocketMQ's in the reported night. ``broker_is_alone``: the warehouse has no
    other broker.
    """

    warehouse: str
    broker_name: str
    broker_is_alone: bool
    version: str
    nights: Sequence[ReportedNight]
    earlier_nights: int
    compared: ReportedNight | None
    groups: Sequence[GroupReport]
    topics: Sequence[TopicReport]
    attention: Sequence[Problem]
    findings: Sequence[Finding]
    quarantined: Sequence[Quarantined]

    @property
    def night(self) -> ReportedNight:
        return self.nights[-1]


@dataclass(frozen=True)
class NoReport:
    """A broker that has no report, and the reason, in one line."""

    broker_name: str
    reason: str


def reports_of_brokers(
    brokers: Sequence[BrokerFacts], session: Session, since: int | None = None, compare: str | None = None
) -> list[Report | NoReport]:
    """The :func:`report` of each broker. Raises UsageError if none of them has one."""
    reports: list[Report | NoReport] = []
    for facts in brokers:
        try:
            reports.append(report(facts, session, since, compare))
        except UsageError as error:
            if len(brokers) == 1:
                raise
            reports.append(NoReport(facts.name, str(error)))
    if not any(isinstance(each, Report) for each in reports):
        raise UsageError("; ".join(each.reason for each in reports if isinstance(each, NoReport)))
    return reports


def report(facts: BrokerFacts, session: Session, since: int | None = None, compare: str | None = None) -> Report:
    """The report of the last night of a broker. Raises UsageError if no night fits the arguments.

    ``session`` starts Spark, which searches a large log for findings. ``since``: show the nights that ended at this
    instant (ms) or later; None: the last 30. ``compare``: the night to compare with (see compared_night); None: the
    night before.
    """
    with_deliveries = nights_with_deliveries(facts)
    shown = chosen_nights(with_deliveries, since)
    compared_entry = compared_night(with_deliveries, compare)
    entries = shown if compared_entry is None or compared_entry in shown else [compared_entry, *shown]
    by_run = counts_by_run(facts, [entry.run for entry in entries])
    nights = {night.run: night for night in night_rows(facts, entries, by_run)}
    last = shown[-1].run
    before = by_run[compared_entry.run] if compared_entry is not None else {}
    found = [] if facts.is_replay else findings(facts, session)
    return Report(
        warehouse=facts.warehouse.location,
        broker_name=facts.name,
        broker_is_alone=len(by_broker(runs_of(read_ledger(facts.warehouse)))) == 1,
        version=shown[-1].version_text,
        nights=[nights[entry.run] for entry in shown],
        earlier_nights=len(with_deliveries) - len(shown),
        compared=nights[compared_entry.run] if compared_entry is not None else None,
        groups=group_reports(facts, [by_run[entry.run] for entry in shown], before),
        topics=topic_reports(facts, last, by_run[last], before),
        attention=attention(facts, by_run[last], found, not_replayed(facts, facts.last.run)),
        findings=found,
        quarantined=quarantined(facts, last),
    )
