"""Summarises a night: the counts of each group beside those of the night before, and problems to act on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from filtering.delivery.entries import has_entry
from filtering.findings import own_findings
from filtering.findings.finding import FAILING_SHARE
from schemas.answers.facts import BrokerFacts
from schemas.answers.report.attention import attention
from schemas.answers.report.group_counts import GroupCounts, counts_by_run, group_counts
from schemas.answers.report.not_replayed import not_replayed
from schemas.commitlog import COMMITLOG
from schemas.delta.table_rows import one_of

NAMED = 3


@dataclass(frozen=True)
class NightSummary:
    """A broker's last night.

    ``run`` is that of the counts. ``groups`` are in the order of topic and name. ``attention`` lists problems to act
    on, ``notes`` what else looks wrong, and ``not_replayed`` the consumption that the counts do not include.
    """

    run: str
    groups: Sequence[GroupCounts]
    attention: Sequence[str]
    notes: Sequence[str]
    not_replayed: Sequence[str]


def night_summary(facts: BrokerFacts) -> NightSummary:
    """The summary of the broker's last night."""
    runs = [entry.run for entry in facts.counted_nights[-2:]]
    by_run = counts_by_run(facts, runs)
    now, before = by_run[runs[-1]] if runs else {}, by_run[runs[0]] if len(runs) > 1 else {}
    groups = group_counts(facts, now, {key: counts for key, counts in before.items() if key in now})
    return NightSummary(
        runs[-1] if runs else facts.last.run,
        groups,
        list(attention(facts, now)),
        list(_notes(facts, groups)),
        list(not_replayed(facts, facts.last.run)),
    )


def messages_without_entry(facts: BrokerFacts, run: str) -> int:
    """The messages of a run that get no consume queue entry: prepared and rolled-back transaction messages."""
    flags = facts.rows(COMMITLOG, ["sys_flag"], [one_of("run", [run])])["sys_flag"].fill_null(0).to_numpy()
    return int((~has_entry(flags)).sum())


def _notes(facts: BrokerFacts, groups: Sequence[GroupCounts]) -> Iterator[str]:
    shares = [
        (group.counts["evaluation_errors"] / group.counts["scanned"], f"{group.consumer_group} on {group.topic}")
        for group in groups
        if group.counts["evaluation_errors"] > group.counts["scanned"] * FAILING_SHARE
    ]
    if shares:
        worst = sorted(shares, key=lambda each: -each[0])[:NAMED]
        named = ", ".join(f"{whose} ({share:.0%})" for share, whose in worst)
        yield (
            f"errors: subscriptions whose expression fails on more than {FAILING_SHARE:.0%} of the messages: "
            f"{len(shares)}, such as {named}"
        )
    findings = sum(row.compile_error is None and any(own_findings(row)) for row in facts.in_force)
    if findings:
        yield f"lint: subscriptions that look wrong whatever the messages are: {findings}"
