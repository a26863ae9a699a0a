"""Everything that a report of a night shows, from the tables. The summary of ``nightly`` is a part of it.

The counts of each group on each topic (GroupCounts) stand beside those of another night, with what it popped
(GroupPops), and each night has totals (ReportedNight). :func:`night_summary` and :func:`report` put them together with
what needs attention (:mod:`answers.attention`); :mod:`jobs.report_page` makes the page.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from operator import itemgetter
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from answers.advise import FilterKinds
from answers.attention import (
    NAMED,
    Problem,
    Quarantined,
    attention,
    quarantined,
)
from answers.facts import BrokerFacts
from answers.lag import lag
from answers.lint import findings, findings_without_messages
from answers.proof import proof
from answers.pull_history import FirstStarts
from filtering.counted import counted, listed
from filtering.delivery import Outcome
from filtering.delivery.entries import has_entry
from filtering.delivery.pull_window import StartReason
from filtering.findings import INFO, Finding, own_findings
from filtering.frozen import frozen
from filtering.names import REVIVE_TOPIC_PREFIX, group_of_topic, subscribed_topic
from filtering.subscriptions.events import ConsumeFrom, GroupTopic, resets_and_first_starts
from schemas.commitlog import COMMITLOG
from schemas.deliveries import DELIVERY_BLOCKS, RECORDED
from schemas.delta.table_rows import filtered, group_numbers, one_of, sorted_by, sums, tuples, within
from schemas.errors import UsageError, time_text
from schemas.pull_windows import PULL_WINDOWS, stored_windows
from schemas.run_ledger import LedgerEntry, by_broker, read_ledger, runs_of, unreplaced_runs
from schemas.spark_tasks import Session
from schemas.tables import (
    CONSUMEQUEUE,
    COUNTS,
    DELIVERY_STATS,
    POPS,
    QUARANTINE,
    QUEUE_PROGRESS,
    client_drops,
)

# Counts.


Counts: TypeAlias = Mapping[str, int]
"""By name, the counts of delivery_stats, ``client_drops``, and of the deliveries how many are ``proven``."""
NOTHING: Counts = dict.fromkeys((*COUNTS, "client_drops", "proven"), 0)


@frozen
class GroupCounts:
    """The counts of one group on one topic in a night.

    ``expression`` is in force at the end of the last night; empty if the group left without one. ``before``: the
    counts of an earlier night, None if that night has no row of the group.
    """

    consumer_group: str
    topic: str
    expression: str
    counts: Counts
    before: Counts | None

    @property
    def key(self) -> GroupTopic:
        return self.consumer_group, self.topic

    @property
    def delivered_before(self) -> int | None:
        """The deliveries of the earlier night."""
        return None if self.before is None else self.before["delivered"]


def counts_by_run(facts: BrokerFacts, runs: Sequence[str]) -> dict[str, dict[GroupTopic, Counts]]:
    """By run, the counts of each group on each topic, summed over its queues."""
    by_run: dict[str, dict[GroupTopic, Counts]] = {run: {} for run in runs}
    summed = facts.sums(DELIVERY_STATS, ["run", "consumer_group", "topic"], COUNTS, runs)
    proven = _proven(facts, runs)
    for (run, group, topic), counts in summed.items():
        counts |= {"client_drops": client_drops(counts), "proven": proven[run, group, topic]}
        by_run[run][group, topic] = counts
    return by_run


def _proven(facts: BrokerFacts, runs: Sequence[str]) -> Counter[tuple[str, str, str]]:
    """By run, group and topic, the deliveries of which a client left a trace."""
    proven = proof(facts, min(runs)) if runs else None
    if proven is None:
        return Counter()
    rows = proven.deliveries.filter(proven.deliveries["is_proven"])
    names = ["run", "consumer_group", "topic"]
    keys, numbers = group_numbers(rows, names)
    return Counter(dict(zip(keys, np.bincount(numbers, minlength=len(keys)).tolist(), strict=True)))


@frozen
class GroupPops:
    """What became of the messages that a group popped from a topic in a night, as far as it is known now.

    ``popped``: how often a message was handed out, of which ``redelivered`` times again. ``attempts``: of the message
    that was tried most often. ``dropped_by_tags``: by the proxy or the client. ``dead``: tried too often, and given up.
    ``median_ms``, ``p99_ms``: how long after the pop the median and 99 % of those acknowledged were; None: none was.
    """

    popped: int
    redelivered: int
    attempts: int
    dropped_by_tags: int
    dead: int
    acknowledged: int
    median_ms: int | None
    p99_ms: int | None


def pops_of(facts: BrokerFacts, run: str) -> dict[GroupTopic, GroupPops]:
    """By group and topic, what groups popped in the night of a run. A retry topic is a topic of its own."""
    if POPS.name not in facts.last.tables:
        return {}
    names = ["consumer_group", "topic", "popped_at", "attempt", "acknowledged_at"]
    rows = facts.recorded_pops(names, [one_of("run", [run])])
    keys, numbers = group_numbers(rows, names[:2])
    outcomes = _recorded_outcomes(facts, run)
    attempt = rows["attempt"].fill_null(1).to_numpy()
    taken = pc.subtract(rows["acknowledged_at"], rows["popped_at"]).fill_null(-1).to_numpy()
    order = np.lexsort((taken, numbers))
    pops = {}
    bounds = np.searchsorted(numbers[order], np.arange(len(keys) + 1))
    for number, (group, topic) in enumerate(keys):
        own = order[bounds[number] : bounds[number + 1]]
        times = taken[own][taken[own] >= 0]
        median, p99 = np.quantile(times, (0.5, 0.99)).round().astype(int).tolist() if len(times) else (None, None)
        pops[group, topic] = GroupPops(
            popped=len(own),
            redelivered=int((attempt[own] > 1).sum()),
            attempts=int(attempt[own].max()),
            dropped_by_tags=outcomes.get((group, topic, Outcome.DROPPED_BY_CLIENT), 0),
            dead=outcomes.get((group, topic, Outcome.DEAD), 0),
            acknowledged=len(times),
            median_ms=median,
            p99_ms=p99,
        )
    return pops


def _recorded_outcomes(facts: BrokerFacts, run: str) -> Mapping[tuple[object, ...], int]:
    """By group, topic and outcome, the messages that the broker's own record says were handed out."""
    where = [one_of("run", [run]), one_of("source", [RECORDED])]
    blocks = facts.rows(DELIVERY_BLOCKS, ["topic", "matches", "run", "source"], where).combine_chunks()
    matches, block = pc.list_flatten(blocks["matches"]), pc.list_parent_indices(blocks["matches"])
    matches, topics = pa.chunked_array(matches).combine_chunks(), blocks["topic"].take(block)
    recipients = matches.field("recipients")
    match = pc.list_parent_indices(recipients)
    rows = pa.table(
        {
            "consumer_group": recipients.flatten().field("consumer_group"),
            "topic": topics.take(match),
            "outcome": matches.field("outcome").take(match),
            "messages": matches.field("messages").take(match),
        }
    )
    return {key: each["messages"] for key, each in sums(rows, rows.column_names[:3], ["messages"]).items()}


def group_counts(
    facts: BrokerFacts, now: Mapping[GroupTopic, Counts], before: Mapping[GroupTopic, Counts]
) -> list[GroupCounts]:
    """The counts of two nights, ``before`` and ``now``, side by side: by topic and name, all groups of either."""
    expressions = {row.key: row.expression or "*" for row in facts.in_force}
    return [
        GroupCounts(*key, expressions.get((key[0], subscribed_topic(*key)), ""), now.get(key, NOTHING), before.get(key))
        for key in sorted(now.keys() | before.keys(), key=itemgetter(1, 0))
    ]


def total(counts: Iterable[Counts]) -> Counts:
    """The sums of some counts."""
    sums = Counter(NOTHING)
    for each in counts:
        sums.update(each)
    return sums


# Groups and topics of the reported night.


@frozen
class GroupLag:
    """``behind``: entries after the group's offsets, as the broker's tools count them.

    ``would_get``: the messages that the group has yet to pull and would receive; ``oldest_ms``: the age of the
    oldest of them at the end of the night, None if there is none.
    """

    behind: int = 0
    would_get: int = 0
    oldest_ms: int | None = None


@frozen
class GroupReport(GroupCounts):
    """One group on one topic. ``before``: the counts of the compared night.

    ``delivered_in_all``: the deliveries in all nights of the report. ``last_pulled``: queue id and queue offset of an
    entry that the group pulled last, None if it never pulled. ``pops``: what it popped, None if it does not pop.
    """

    delivered_in_all: int
    lag: GroupLag
    last_pulled: tuple[int, int] | None
    pops: GroupPops | None

    @property
    def more_delivered(self) -> int:
        """How many more messages were delivered than in the compared night."""
        return self.counts["delivered"] - (self.delivered_before or 0)


@frozen
class TopicReport:
    """All groups of one topic together. ``stored``: the entries added to its queues in the night."""

    topic: str
    groups: int
    stored: int
    counts: Counts
    before: Counts | None


def group_reports(
    facts: BrokerFacts, run: str, nights: Sequence[Mapping[GroupTopic, Counts]], before: Mapping[GroupTopic, Counts]
) -> list[GroupReport]:
    """The reports of all groups, the greatest change first, then the most pending.

    ``run``: that of the reported night. ``nights``: the counts of the nights that are shown, of which the last is
    reported. ``before``: those of the compared night.
    """
    in_all: Counter[GroupTopic] = Counter()
    for night in nights:
        in_all.update({key: each["delivered"] for key, each in night.items()})
    lags, pulled, pops = _group_lags(facts), _last_pulled(facts), pops_of(facts, run)
    reports = [
        GroupReport(
            **vars(group),
            delivered_in_all=in_all[group.key],
            lag=lags.get(group.key, GroupLag()),
            last_pulled=pulled.get(group.key),
            pops=pops.get(group.key),
        )
        for group in group_counts(facts, nights[-1], before)
    ]
    return sorted(reports, key=lambda row: (-abs(row.more_delivered), -row.counts["pending"]))


def topic_reports(
    facts: BrokerFacts, run: str, now: Mapping[GroupTopic, Counts], before: Mapping[GroupTopic, Counts]
) -> list[TopicReport]:
    """The reports of all topics, by name. ``now``: the counts of ``run``; ``before``: those of the compared night."""
    progress = facts.sums(QUEUE_PROGRESS, ["topic"], ["entries"], [run])
    stored = {topic: added["entries"] for (topic,), added in progress.items()}
    counts_now, counts_before = _by_topic(now), _by_topic(before)
    return [
        TopicReport(
            topic,
            len(counts_now[topic]),
            stored.get(topic, 0),
            total(counts_now[topic]),
            total(counts_before[topic]) if topic in counts_before else None,
        )
        for topic in sorted(stored.keys() | counts_now.keys() | counts_before.keys())
    ]


def _by_topic(counts: Mapping[GroupTopic, Counts]) -> defaultdict[str, list[Counts]]:
    by_topic: defaultdict[str, list[Counts]] = defaultdict(list)
    for (_, topic), each in counts.items():
        by_topic[topic].append(each)
    return by_topic


def _last_pulled(facts: BrokerFacts) -> dict[GroupTopic, tuple[int, int]]:
    """The queue in which each group is farthest, and the offset of the last entry that it pulled there."""
    rows = facts.offsets.filter(pc.greater(facts.offsets["decided_to"], 0))
    farthest_first = rows.take(pc.sort_indices(rows, sort_keys=[("decided_to", "descending")]))
    last_pulled: dict[GroupTopic, tuple[int, int]] = {}
    for group, topic, queue_id, decided_to in tuples(
        farthest_first, "consumer_group", "topic", "queue_id", "decided_to"
    ):
        last_pulled.setdefault((group, topic), (queue_id, decided_to - 1))
    return last_pulled


def _group_lags(facts: BrokerFacts) -> dict[GroupTopic, GroupLag]:
    """By group and topic, the lag after the last night; without the groups that are not behind."""
    lags: dict[GroupTopic, GroupLag] = {}
    for row in lag(facts, only_behind=True):
        total = lags.get(row.key, GroupLag())
        ages = [age for age in (total.oldest_ms, row.oldest_ms) if age is not None]
        lags[row.key] = GroupLag(total.behind + row.behind, total.would_get + row.would_get, max(ages, default=None))
    return lags


# The summary of a night.


@frozen
class NightSummary:
    """A broker's last night.

    ``run`` is that of the counts. ``groups`` are in the order of topic and name. ``attention``: the conditions that
    hold, the worst first. ``notes``: what else looks wrong. ``started``: where new groups began. ``pops``: by group and
    topic, what groups popped.
    """

    run: str
    groups: Sequence[GroupCounts]
    pops: Mapping[GroupTopic, GroupPops]
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
        all_findings = findings(facts, session)
    else:
        all_findings = findings_without_messages(facts, chain.from_iterable(own.values()), session)
    run = runs[-1] if runs else facts.last.run
    return NightSummary(
        run,
        groups,
        pops_of(facts, run),
        attention(facts, now, all_findings, not_replayed(facts)),
        list(_notes(facts, own)),
        started_last_night(facts),
    )


def messages_without_entry(facts: BrokerFacts, run: str) -> int:
    """The messages of a run that get no consume queue entry: prepared and rolled-back transaction messages."""
    flags = facts.rows(COMMITLOG, ["sys_flag"], [one_of("run", [run])])["sys_flag"].fill_null(0).to_numpy()
    return int((~has_entry(flags)).sum())


def _notes(facts: BrokerFacts, own: Mapping[GroupTopic, Sequence[Finding]]) -> Iterator[str]:
    """``own``: the findings of each subscription in force alone."""
    wrong = sum(
        row.compile_error is None and any(finding.severity != INFO for finding in own[row.key])
        for row in facts.in_force
    )
    if wrong:
        yield f"lint: subscriptions that look wrong whatever the messages are: {wrong}"


def not_replayed(facts: BrokerFacts) -> Iterator[str]:
    """One line for each kind of consumption that is not replayed, or that is inferred though a broker may record it."""
    groups = facts.not_replayed
    revived = [topic for topic in facts.topics if topic.startswith(REVIVE_TOPIC_PREFIX)]
    if facts.pops.planned:
        consumers = [f"{group} on {topic}" for group, topic in sorted(facts.pops.planned)]
        yield f"not written down by the broker, and inferred: what groups pop, of {listed(consumers, NAMED)}"
    elif revived and not facts.writes_down_pops:
        yield f"not replayed: consumption by POP, of groups that are not known ({revived[0]} has messages)"
    yield from (f"not replayed: {text}" for text in groups.texts(facts.broadcasting))
    if each := [f"{group} on {topic}" for group, topic in sorted(facts.broadcasting)]:
        yield f"counted once for all clients: what is delivered to groups that broadcast, {listed(each, NAMED)}"
    if not facts.last.has_queue_ids:
        yield (
            "uncertain: the message log has no queue ids and offsets. Its messages are numbered in the order of its "
            "lines, in one queue for each topic: which of a group's clients would have received a message is not known"
        )


def started_last_night(facts: BrokerFacts) -> list[str]:
    """Lines on the groups that began in the last night, for each topic and each reason but ``consume_from`` first.

    A line says how many of the messages that were stored before they came they got, or missed. There is none if there
    were no such messages.
    """
    oldest = min((file.least["store_timestamp"] for file in facts.warehouse.files(COMMITLOG, facts.name)), default=None)
    if oldest is None or not facts.nights or not facts.last.has_windows:
        return []
    rows = facts.rows(PULL_WINDOWS, where=[one_of("run", [facts.nights[-1].run]), within("available_at", oldest + 1)])
    windows = [window for _, window in stored_windows(rows)]
    new: defaultdict[str, dict[str, int]] = defaultdict(dict)
    events = resets_and_first_starts(facts.events)[1]
    for window in windows:
        if window.available_at is None or not isinstance(window.reason, StartReason):
            continue
        topic, group = window.topic, window.consumer_group
        event = events.get((group, topic))
        asked_for_first = event is not None and event.consume_from is ConsumeFrom.FIRST
        if not asked_for_first and group_of_topic(topic) is None:
            new[topic][group] = window.available_at
    starts = FirstStarts(facts, windows)
    return [line for topic in sorted(new) for line in _started(facts, starts, topic, new[topic])]


def _started(facts: BrokerFacts, starts: FirstStarts, topic: str, groups: Mapping[str, int]) -> Iterator[str]:
    """``groups``: when each began on the topic (ms)."""
    in_log = within("commitlog_offset", facts.last.log_start or 0)
    before = [one_of("topic", [topic]), within("store_timestamp", below=max(groups.values())), in_log]
    columns = ["queue_id", "queue_offset", "store_timestamp", "commitlog_offset"]
    rows = sorted_by(facts.rows(CONSUMEQUEUE, columns, before), "commitlog_offset")
    messages: defaultdict[tuple[str, bool], Counter[str]] = defaultdict(Counter)
    for queue_id in pc.unique(rows["queue_id"]).to_pylist():
        in_queue_now = within("commitlog_offset", facts.begins.get((topic, queue_id), 0))
        queue_rows = filtered(rows, [one_of("queue_id", [queue_id]), in_queue_now])
        offsets, times = queue_rows["queue_offset"].to_numpy(), queue_rows["store_timestamp"].to_numpy()
        for group, at in groups.items():
            start = starts.start((group, topic, queue_id))
            if start is not None:
                stored = int(np.searchsorted(times, at))
                missed = min(int(np.searchsorted(offsets, start.queue_offset)), stored)
                messages[start.reason, False][group] += missed
                messages[start.reason, True][group] += stored - missed
    for (reason, gets), starting_groups in sorted(messages.items()):
        names = [group for group, number in starting_groups.items() if number]
        if names:
            has, most = "with" if gets else "without", max(starting_groups.values())
            began = f"began {time_text(groups[names[0]])}" if len(names) == 1 else "began"
            number = counted(most, "message") if len(names) == 1 else f"up to {counted(most, 'message')}"
            whom = "it" if len(names) == 1 else "they"
            yield f"{listed(names, NAMED)} on {topic} {began} {has} {number} stored before {whom} came: {reason}"


# The nights that a report shows, each with its totals over all groups.


NIGHTS = 30
"""Nights that a report shows without ``--since``."""
MOST_NIGHTS = 90
NIGHTS_NAMED = 5


@frozen
class ReportedNight:
    """One night of a report. ``ended_at`` is in ms. The log gained ``messages`` and ``log_bytes``; None: unknown.

    ``totals`` are the counts of all groups together. Of the entries that did not pass stage 1, ``stopped_by_either``
    counts those of groups that filtered by the tags code and by the filter bit map in the night.
    """

    run: str
    ended_at: int
    messages: int
    log_bytes: int | None
    quarantined: int
    totals: Counts
    stopped_by_tags_code: int
    stopped_by_bit_map: int
    stopped_by_either: int

    @property
    def false_positives(self) -> int:
        """Entries of messages that do not match that the filter bit map passed."""
        return self.totals["bit_map_false_positives"]

    @property
    def judged_by_bit_map(self) -> int:
        """Entries of messages that do not match. A perfect filter bit map would stop all of them."""
        return self.stopped_by_bit_map + self.false_positives


def nights_with_deliveries(facts: BrokerFacts) -> Sequence[LedgerEntry]:
    """The nights that have delivery statistics, in order. Raises UsageError if there are none."""
    nights = facts.counted_nights
    if not nights:
        why = "run nightly or deliver first"
        if facts.nights:
            why = "no group subscribes to a topic with messages; give nightly --subscriptions"
        raise UsageError(f"{facts.warehouse.location} has no deliveries of {facts.name}: {why}")
    return nights


def recent_nights(nights: Sequence[LedgerEntry], since: int | None) -> list[LedgerEntry]:
    """The nights that ended at or after an instant (ms), at most MOST_NIGHTS. None: the last NIGHTS.

    Raises UsageError if no night ended so late.
    """
    if since is None:
        return list(nights[-NIGHTS:])
    since_then = [entry for entry in nights if (entry.as_of or 0) >= since]
    if not since_then:
        raise UsageError(
            f"no night ended at {time_text(since)} or later; the last one ended at {time_text(nights[-1].as_of or 0)}"
        )
    return since_then[-MOST_NIGHTS:]


def compared_night(nights: Sequence[LedgerEntry], name: str | None) -> LedgerEntry | None:
    """The night that the last one is compared with. Without a name, the one before it; None if it is the first.

    ``name``: the beginning of a run's name, or of the time at which the night ended. Raises UsageError if it fits no
    earlier night, or several.
    """
    earlier = nights[:-1]
    if name is None:
        return earlier[-1] if earlier else None
    if not earlier:
        raise UsageError(f"there is no earlier night to compare with: {nights[-1].run} is the only one")
    text = name.replace("T", " ")
    matching = [
        entry for entry in earlier if entry.run.startswith(name) or time_text(entry.as_of or 0).startswith(text)
    ]
    if len(matching) == 1:
        return matching[0]
    named = ", ".join(entry.run for entry in (matching or earlier)[-NIGHTS_NAMED:])
    if matching:
        raise UsageError(f"--compare {name} is the beginning of {len(matching)} nights: give one of {named}")
    raise UsageError(f"--compare {name} is not an earlier night; the last ones are {named}")


def night_rows(
    facts: BrokerFacts, entries: Sequence[LedgerEntry], by_run: Mapping[str, Mapping[GroupTopic, Counts]]
) -> list[ReportedNight]:
    """The nights of ``entries``, with the counts of their groups."""
    counts = facts.rows(QUARANTINE, ["run"])["run"].value_counts().to_pylist()
    quarantined = _sum_by_night(facts, {count["values"]: count["counts"] for count in counts})
    messages = _sum_by_night(facts, {entry.run: entry.rows.get(COMMITLOG.name, 0) for entry in facts.entries})
    log_bytes = _log_bytes(facts)
    kinds = FilterKinds(facts)
    nights = []
    for entry in entries:
        run = entry.run
        stopped: Counter[bool | None] = Counter()
        for key, each in by_run[run].items():
            stopped[kinds.used_sql92(key, run)] += each["scanned"] - each["passed_stage1"]
        nights.append(
            ReportedNight(
                run, entry.as_of or 0, messages[run], log_bytes[run], quarantined[run], total(by_run[run].values()),
                stopped_by_tags_code=stopped[False], stopped_by_bit_map=stopped[True], stopped_by_either=stopped[None],
            )
        )  # fmt: skip
    return nights


def _sum_by_night(facts: BrokerFacts, by_run: Mapping[str, int]) -> Counter[str]:
    """By the run of a night, the sum of numbers of its own run and of its steps before deliver.

    Numbers of runs after the last night, and of replaced nights, are left out.
    """
    sums: Counter[str] = Counter()
    waiting = 0
    for entry in unreplaced_runs(facts.entries):
        waiting += by_run.get(entry.run, 0)
        if entry.delivers:
            sums[entry.run], waiting = waiting, 0
    return sums


def _log_bytes(facts: BrokerFacts) -> dict[str, int | None]:
    """By the run of a night, the bytes that it added to the log, from the cut if it found the log cut."""
    added: dict[str, int | None] = {}
    start: int | None = None
    for entry in unreplaced_runs(facts.entries):
        cut = entry.cut or 0
        start = cut or (entry.log_start if start is None else start)
        if entry.delivers:
            end = entry.ingested_to
            added[entry.run] = end - start if start is not None and end is not None and start <= end else None
            start = end
    return added


# The report.


@frozen
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


@frozen
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
    shown = recent_nights(with_deliveries, since)
    compared_entry = compared_night(with_deliveries, compare)
    entries = shown if compared_entry is None or compared_entry in shown else [compared_entry, *shown]
    by_run = counts_by_run(facts, [entry.run for entry in entries])
    nights = {night.run: night for night in night_rows(facts, entries, by_run)}
    last = shown[-1].run
    before = by_run[compared_entry.run] if compared_entry is not None else {}
    all_findings = [] if facts.is_replay else findings(facts, session)
    return Report(
        warehouse=facts.warehouse.location,
        broker_name=facts.name,
        broker_is_alone=len(by_broker(runs_of(read_ledger(facts.warehouse)))) == 1,
        version=shown[-1].version_text,
        nights=[nights[entry.run] for entry in shown],
        earlier_nights=len(with_deliveries) - len(shown),
        compared=nights[compared_entry.run] if compared_entry is not None else None,
        groups=group_reports(facts, last, [by_run[entry.run] for entry in shown], before),
        topics=topic_reports(facts, last, by_run[last], before),
        attention=attention(facts, by_run[last], all_findings, not_replayed(facts)),
        findings=all_findings,
        quarantined=quarantined(facts, last),
    )
