"""Summarises a night: the counts of each group beside those of the night before, and problems to act on."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

from filtering.counted import counted, listed
from filtering.delivery.entries import has_entry
from filtering.findings.finding import FAILING_SHARE
from filtering.pulls.pull import ResponseCode, refusal
from filtering.sql92 import on_one_line
from filtering.subscriptions.events import GroupTopic
from filtering.subscriptions.subscription_row import SubscriptionRow
from schemas.answers.facts import BrokerFacts
from schemas.answers.report.not_replayed import not_replayed
from schemas.commitlog import COMMITLOG
from schemas.delivery_stats import COUNTS, DELIVERY_STATS, client_drops
from schemas.delta.aggregates import Key
from schemas.delta.table_rows import sorted_by
from schemas.quarantine import QUARANTINE
from schemas.rocketmq_store.commitlog.segments import is_mapped_file

SHOWN = 20
NAMED = 3


@dataclass(frozen=True)
class GroupCounts:
    """The counts of one group on one topic in a night: those of delivery_stats, summed over its queues.

    ``counts`` also has ``client_drops``. ``expression`` is in force at the end of the night; empty if the group left
    without one. ``delivered_before``: the deliveries of the night before, None if that night has no row of the group.
    """

    consumer_group: str
    topic: str
    expression: str
    counts: Mapping[str, int]
    delivered_before: int | None = None


@dataclass(frozen=True)
class NightSummary:
    """A broker's last night.

    ``groups`` are in the order of topic and name. ``attention`` lists problems to act on, ``notes`` what else looks
    wrong, and ``not_replayed`` the consumption that the counts do not include.
    """

    run: str
    groups: Sequence[GroupCounts]
    attention: Sequence[str]
    notes: Sequence[str]
    not_replayed: Sequence[str]


def night_summary(facts: BrokerFacts) -> NightSummary:
    """The summary of the broker's last night."""
    runs = [entry.run for entry in facts.counted_nights]
    run, before = (runs[-1] if runs else facts.last.run), (runs[-2] if len(runs) > 1 else None)
    counted_runs = [run] if before is None else [run, before]
    counted = facts.sums(DELIVERY_STATS, ["run", "consumer_group", "topic"], COUNTS, counted_runs)
    groups = _group_counts(counted, facts.in_force, before)
    attention, notes = list(_attention(facts, groups)), list(_notes(facts, groups))
    return NightSummary(run, groups, attention, notes, list(not_replayed(facts, facts.last.run)))


def messages_without_entry(facts: BrokerFacts, run: str) -> int:
    """The messages of a run that get no consume queue entry: prepared and rolled-back transaction messages."""
    flags = facts.rows_of_runs(COMMITLOG, [run], ["sys_flag"])["sys_flag"].fill_null(0).to_numpy()
    return int((~has_entry(flags)).sum())


def _group_counts(
    counted: Mapping[Key, Mapping[str, int]], in_force: Iterable[SubscriptionRow], before: str | None
) -> list[GroupCounts]:
    """The counts of the groups in a run. ``counted``: by run, group and topic, of this run and of ``before``."""
    expressions = {row.key: row.expression or "*" for row in in_force}
    now: dict[GroupTopic, Mapping[str, int]] = {}
    earlier: dict[GroupTopic, int] = {}
    for (counted_run, group, topic), counts in counted.items():
        if counted_run == before:
            earlier[group, topic] = counts["delivered"]
        else:
            now[group, topic] = {**counts, "client_drops": client_drops(counts)}
    return [
        GroupCounts(*key, expressions.get(key, ""), now[key], earlier.get(key))
        for key in sorted(now, key=itemgetter(1, 0))
    ]


def _attention(facts: BrokerFacts, groups: Sequence[GroupCounts]) -> Iterator[str]:
    yield from facts.last.remarks
    in_force = facts.in_force
    quarantined = list(_quarantined(facts))
    if not facts.topics:
        first = f", the first in quarantine: {quarantined[0]}" if quarantined else ""
        yield f"no message: nothing could be decoded{first}"
    if not in_force:
        yield "no subscription: nothing can be delivered"
    refused: defaultdict[ResponseCode, list[str]] = defaultdict(list)
    for row in in_force:
        whose = f"{row.consumer_group} on {row.topic}"
        code = refusal(row, facts.broker)
        if row.compile_error is not None:
            yield f"{whose} does not compile: {on_one_line(row.compile_error)}"
        if code is not None and (row.is_consuming or code is ResponseCode.SYSTEM_ERROR):
            refused[code].append(whose)
    for code, subscriptions in refused.items():
        yield f"the broker refuses every pull of {listed(subscriptions, NAMED)} with {code.text}"
    yield from _without_messages(facts, in_force)
    for group in groups:
        if group.counts["lost"]:
            yield (
                f"{group.consumer_group} on {group.topic} lost {counted(group.counts['lost'], 'entry', 'entries')}, "
                "deleted by the broker before the group pulled"
            )
    yield from (f"quarantined: {line}" for line in quarantined)


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
    findings = sum(
        bool(row.compiled.expression.findings) for row in facts.in_force if row.compiled.expression is not None
    )
    if findings:
        yield f"lint: subscriptions that look wrong whatever the messages are: {findings}"


def _without_messages(facts: BrokerFacts, in_force: Iterable[SubscriptionRow]) -> Iterator[str]:
    """Topics that groups subscribe to but that have no message, mostly misspelt."""
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for row in facts.without_messages(in_force):
        groups[row.topic].append(row.consumer_group)
    for topic, names in groups.items():
        yield f"{topic} has no message; groups that subscribe to it: {len(names)}, such as {names[0]}"


def _quarantined(facts: BrokerFacts) -> Iterator[str]:
    rows = sorted_by(facts.rows(QUARANTINE, ["source_file", "offset", "reason"]), "offset").to_pylist()
    pieces = Counter((row["source_file"], row["reason"]) for row in rows)
    first = {(row["source_file"], row["reason"]): row["offset"] for row in reversed(rows)}
    for (file, reason), count in sorted(pieces.items())[:SHOWN]:
        place = f"{'offset' if is_mapped_file(file) else 'line'} {first[file, reason]:,}"
        place = place if count == 1 else f"{count:,} times from {place} on"
        yield f"{file}, {place}: {reason}"
    if len(pieces) > SHOWN:
        yield f"{counted(len(pieces) - SHOWN, 'more reason')}; export quarantine lists all"
