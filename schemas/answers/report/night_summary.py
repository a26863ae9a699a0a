"""Summarises a night: counts beside those of the night before, problems to act on, and what is not replayed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from filtering.counted import listed
from filtering.delivery.entries import MULTI_DISPATCH, has_entry
from filtering.findings import Finding, own_findings
from filtering.subscriptions.events import GroupTopic
from filtering.subscriptions.namespace import LMQ_PREFIX, REVIVE_TOPIC_PREFIX, is_lmq
from schemas.answers.facts import BrokerFacts
from schemas.answers.findings import findings, findings_without_messages
from schemas.answers.first_starts import started_last_night
from schemas.answers.report.attention import Problem, attention
from schemas.answers.report.group_counts import GroupCounts, counts_by_run, group_counts
from schemas.commitlog import COMMITLOG
from schemas.delta.table_rows import files_that_may_hold, one_of
from schemas.messages.stored_messages import has_property
from schemas.spark_tasks import Session

NAMED = 3


@dataclass(frozen=True)
class NightSummary:
    """A broker's last night.

    ``run`` is that of the counts. ``groups`` are in the order of topic and name. ``attention``: the conditions that
    hold, the worst first. ``notes``: what else looks wrong. ``started``: where new groups began.
    """

    run: str
    groups: Sequence[GroupCounts]
    attention: Sequence[Problem]
    notes: Sequence[str]
    started: Sequence[str]


def night_summary(facts: BrokerFacts, session: Session | None = None, checks_messages: bool = False) -> NightSummary:
    """The summary of the broker's last night.

    ``checks_messages``: it has all errors that lint finds, also those that show on messages only, as a report has.
    ``session`` starts Spark, which searches a large log for them.
    """
    runs = [entry.run for entry in facts.counted_nights[-2:]]
    by_run = counts_by_run(facts, runs)
    now, before = by_run[runs[-1]] if runs else {}, by_run[runs[0]] if len(runs) > 1 else {}
    groups = group_counts(facts, now, {key: counts for key, counts in before.items() if key in now})
    own = {row.key: list(own_findings(row)) for row in facts.in_force}
    if checks_messages and not facts.is_replay:
        found = findings(facts, session)
    else:
        found = findings_without_messages(facts, chain.from_iterable(own.values()), session)
    return NightSummary(
        runs[-1] if runs else facts.last.run,
        groups,
        attention(facts, now, found, not_replayed(facts, facts.last.run)),
        list(_notes(facts, own)),
        started_last_night(facts),
    )


def messages_without_entry(facts: BrokerFacts, run: str) -> int:
    """The messages of a run that get no consume queue entry: prepared and rolled-back transaction messages."""
    flags = facts.rows(COMMITLOG, ["sys_flag"], [one_of("run", [run])])["sys_flag"].fill_null(0).to_numpy()
    return int((~has_entry(flags)).sum())


def _notes(facts: BrokerFacts, own: Mapping[GroupTopic, Sequence[Finding]]) -> Iterator[str]:
    """``own``: the findings of each subscription in force alone."""
    wrong = sum(row.compile_error is None and bool(own[row.key]) for row in facts.in_force)
    if wrong:
        yield f"lint: subscriptions that look wrong whatever the messages are: {wrong}"


def not_replayed(facts: BrokerFacts, run: str) -> Iterator[str]:
    """One line for each kind of consumption that is not replayed. ``run``: whose messages are looked at."""
    found = facts.not_replayed
    revived = [topic for topic in facts.topics if topic.startswith(REVIVE_TOPIC_PREFIX)]
    if found.pop:
        consumers = [f"{group} on {topic}" for group, topic in found.pop]
        yield f"not replayed: consumption by POP, of {listed(consumers, NAMED)}"
    elif revived:
        yield f"not replayed: consumption by POP, of groups that are not known ({revived[0]} has messages)"
    lmq_groups = [f"{row.consumer_group} on {row.topic}" for row in facts.in_force if is_lmq(row.topic)]
    if lmq_groups or found.has_lmq or _has_multi_dispatch(facts, run):
        whose = f", of {listed(lmq_groups, NAMED)}" if lmq_groups else ""
        yield f"not replayed: {LMQ_PREFIX} queues, which get the messages of other topics ({MULTI_DISPATCH}){whose}"
    yield from (f"not replayed: {text}" for text in found.texts)
    if not facts.last.has_queue_ids:
        yield (
            "uncertain: the message log has no queue ids and offsets. Its messages are numbered in the order of its "
            "lines, in one queue for each topic: which of a group's clients would have received a message is not known"
        )


def _has_multi_dispatch(facts: BrokerFacts, run: str) -> bool:
    """Whether a message that the run read has the property."""
    storage = facts.warehouse.log(COMMITLOG).storage
    files = files_that_may_hold(facts.warehouse.files(COMMITLOG, facts.name), [one_of("run", [run])])
    return any(has_property(storage, stored.path, MULTI_DISPATCH) for stored in files)
