"""Everything that a report of a night shows, from the tables. The summary of ``nightly`` is a part of it.

The counts of each group on each topic (GroupCounts) stand beside those of another night, with what it popped
(GroupPops), and each night has totals (ReportedNight). :func:`attention` lists the conditions that hold and need
attention, with severities: this list is the same in the summary, the report, ``nightly --strict`` and the documentation
(CONDITIONS). :func:`night_summary` and :func:`report` put it together; :mod:`jobs.report_page` makes the page.
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
from answers.facts import BrokerFacts
from answers.lag import away_beyond_end, lag
from answers.lint import findings, findings_without_messages
from answers.proof import proof
from answers.pull_history import started_last_night
from filtering.counted import counted, listed
from filtering.delivery import Outcome
from filtering.delivery.entries import has_entry
from filtering.findings import ERROR, FAILING_SHARE, INFO, SEVERITIES, WARN, Finding, own_findings
from filtering.frozen import frozen
from filtering.names import REVIVE_TOPIC_PREFIX, subscribed_topic
from filtering.pulls import ResponseCode, refused
from filtering.sql92 import on_one_line
from filtering.subscriptions.events import GroupTopic
from filtering.subscriptions.subscription_row import SubscriptionRow
from schemas.commitlog import COMMITLOG
from schemas.deliveries import DELIVERY_BLOCKS, RECORDED
from schemas.delta.table_rows import group_numbers, one_of, positions_by, sums, tuples, within
from schemas.errors import UsageError, time_text
from schemas.run_ledger import LedgerEntry, Remark, RemarkCode, by_broker, read_ledger, runs_of, unreplaced_runs
from schemas.spark_tasks import Session
from schemas.tables import (
    COUNTS,
    DELIVERY_STATS,
    MEANINGS,
    POPS,
    QUARANTINE,
    QUEUE_PROGRESS,
    client_drops,
    client_name,
    is_of_log,
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


# Attention: all conditions, and those that hold after the last night.


SHOWN = 20
NAMED = 3
CONDITIONS: Mapping[str, tuple[str, str]] = {
    RemarkCode.NO_MESSAGE: (ERROR, "nothing in the log, or in the message log, could be decoded"),
    "no-subscription": (ERROR, "no subscription is in force: nothing can be delivered"),
    "does-not-compile": (ERROR, "the broker refuses the expression of a subscription"),
    "refused-pulls": (
        ERROR,
        "the broker refuses every pull of a group, such as of SQL92 if enablePropertyFilter is off",
    ),
    "topic-without-messages": (ERROR, "a group subscribes to a topic of which no message is in the log"),
    "failing-expression": (ERROR, "an expression failed on more than a tenth of the messages of the last night"),
    "wrong-subscription": (ERROR, "`lint` finds another error, such as a filter that can match no message"),
    "contradicted": (ERROR, "a client wrote that it consumed a message that was not delivered to its group"),
    "lost-clients": (ERROR, "clients of a group subscribe differently, and messages were lost"),
    "lost-messages": (ERROR, "the broker deleted messages before a group pulled them"),
    "quarantined": (ERROR, "input of the last night could not be decoded"),
    RemarkCode.DAMAGED_BODY: (ERROR, "the body of a message that the last night read does not match its checksum"),
    RemarkCode.MISSED_LOG: (ERROR, "the broker deleted a part of its log that no night had read"),
    RemarkCode.CUT_LOG: (ERROR, "the log differs from what earlier nights read, from some offset on"),
    RemarkCode.OTHER_BROKER: (ERROR, "topics.json is of another broker than broker.conf"),
    RemarkCode.UNKNOWN_SUBSCRIPTION: (ERROR, "a group has committed offsets, and no subscription that is known"),
    RemarkCode.MISREAD_SETTING: (ERROR, "broker.conf has a value that the broker reads in another way than it seems"),
    RemarkCode.NO_FILTER_HOOKS: (ERROR, "the night before had --filter-hooks, and this one has none"),
    RemarkCode.OLDER: (ERROR, "a remark of a night of an older mqsieve"),
    "differing-clients": (WARN, "clients of a group subscribe differently, or seem to, and no loss is certain"),
    "denied": (WARN, "a delivery is missing among the traces of a client that traced the messages around it"),
    RemarkCode.ASSUMED_QUEUES: (WARN, "the queues of a topic are not known, so which client reads which is assumed"),
    RemarkCode.BEHIND: (WARN, "an online group does not keep up"),
    "began-again": (
        WARN,
        "queues of a topic began again: the topic was deleted and created again, or they had expired",
    ),
    "offset-beyond-end": (WARN, "a group that is away has a committed offset beyond the end of the queue"),
    RemarkCode.OTHER_VERSION: (
        WARN,
        "the store looks like that of another RocketMQ version than the one that was given",
    ),
    RemarkCode.EMPTY_BODY: (WARN, "clients up to 5.2.0 may have lost pulls with messages that have no body"),
    RemarkCode.NOT_WATCHED: (
        WARN,
        "nobody watched the broker for a time, so not all changes of subscriptions are known",
    ),
    RemarkCode.EARLIER_LOG: (
        WARN,
        "the log begins earlier than in the first night, and no night reads what is before it",
    ),
    "traces-decided": (INFO, "traces of clients decided whether a group received a message that was uncertain"),
    "quarantined-before": (INFO, "input of earlier nights could not be decoded"),
    RemarkCode.REPAIRED: (INFO, "damage of the log is repaired"),
    RemarkCode.NEW_VERSION: (INFO, "the broker has another RocketMQ version than in the night before"),
    RemarkCode.NEW_EPOCH: (INFO, "--new-epoch replaced all earlier rows of the broker"),
    "not-replayed": (INFO, "consumption that mqsieve does not replay, such as POP"),
}
"""By its code, the severity and the meaning of each condition. ``nightly --strict`` exits 3 if one is an error."""
OWN_CONDITIONS = frozenset({"does-not-compile", "topic-without-messages", "refused-pulls"})
"""Findings that are the conditions of the same name."""


@frozen
class Problem:
    """A condition of CONDITIONS that holds now. ``text`` says of what, in one line."""

    code: str
    text: str

    @property
    def severity(self) -> str:
        return CONDITIONS[self.code][0]


@frozen
class Quarantined:
    """Pieces of one file that could not be decoded for one reason; ``new`` of them were read in the last night.

    ``first``: the offset in a commitlog, or the line of a text file, of the first piece.
    """

    source_file: str
    reason: str
    pieces: int
    new: int
    first: int


def attention(
    facts: BrokerFacts, counts: Mapping[GroupTopic, Counts], findings: Iterable[Finding], not_replayed: Iterable[str]
) -> list[Problem]:
    """What needs attention, the worst first. ``counts``: those of the night, by group and topic.

    ``findings``: those of the subscriptions in force. ``not_replayed``: a line for each kind of consumption.
    """
    problems = [*_problems(facts, counts, findings), *(Problem("not-replayed", line) for line in not_replayed)]
    return sorted(problems, key=lambda problem: SEVERITIES.index(problem.severity))


def errors(problems: Iterable[Problem]) -> list[Problem]:
    return [problem for problem in problems if problem.severity == ERROR]


def _problems(
    facts: BrokerFacts, counts: Mapping[GroupTopic, Counts], findings: Iterable[Finding]
) -> Iterator[Problem]:
    yield from (Problem(remark.code, remark.text) for remark in facts.last.remarks)
    for text in facts.last.misread_settings:
        if Remark(RemarkCode.MISREAD_SETTING, text) not in facts.last.remarks:
            yield Problem(RemarkCode.MISREAD_SETTING, text)
    in_force = facts.in_force
    in_quarantine = list(_in_quarantine(facts))
    if not facts.topics:
        first = f", the first in quarantine: {in_quarantine[0].text}" if in_quarantine else ""
        yield Problem(RemarkCode.NO_MESSAGE, f"no message: nothing could be decoded{first}")
    if not in_force:
        yield Problem("no-subscription", "no subscription: nothing can be delivered")
    for row in in_force:
        if row.compile_error is not None:
            whose = f"{row.consumer_group} on {row.topic}"
            yield Problem("does-not-compile", f"{whose} does not compile: {on_one_line(row.compile_error)}")
    by_code: defaultdict[ResponseCode, list[str]] = defaultdict(list)
    for row, code in refused(map(facts.as_consumed, in_force), facts.broker):
        by_code[code].append(f"{row.consumer_group} on {row.topic}")
    for code, subscriptions in by_code.items():
        text = f"the broker refuses every pull of {listed(subscriptions, NAMED)} with {code.text}"
        yield Problem("refused-pulls", text)
    yield from _without_messages(facts, in_force)
    yield from _finding_problems(counts, findings)
    for group, topic in sorted(counts, key=itemgetter(1, 0)):
        if lost := counts[group, topic]["lost"]:
            text = f"{group} on {topic} lost {counted(lost, 'entry', 'entries')}, {MEANINGS['lost']}"
            yield Problem("lost-messages", text)
    yield from _queues_that_began_again(facts)
    yield from _trace_problems(facts)
    for ahead in away_beyond_end(facts):
        yield Problem("offset-beyond-end", f"{ahead.consumer_group} on {ahead.topic}: {ahead.text}")
    yield from (Problem(problem.code, f"quarantined: {problem.text}") for problem in in_quarantine)


def _queues_that_began_again(facts: BrokerFacts) -> Iterator[Problem]:
    """Topics that groups subscribe to, whose queues began again in the last night."""
    where = [one_of("run", [facts.last.run]), within("began_at")]
    rows = facts.rows(QUEUE_PROGRESS, ["topic", "began_at", "ended_at"], where)
    subscribed = {row.topic for row in facts.in_force}
    for (topic,), at in sorted(positions_by(rows, ["topic"]), key=itemgetter(0)):
        if topic in subscribed:
            began_at, ended_at = (rows[name].to_numpy()[at] for name in ("began_at", "ended_at"))
            yield Problem(
                "began-again",
                f"{topic} began again at {time_text(int(began_at.min()))}, with {counted(len(at), 'queue')} that had "
                f"{counted(int(ended_at.sum()), 'message')}: its groups lost what they had not pulled of these, and "
                "may have skipped the first of the new ones, which are uncertain",
            )


def _finding_problems(counts: Mapping[GroupTopic, Counts], findings: Iterable[Finding]) -> Iterator[Problem]:
    """Expressions that fail in the night, other errors of subscriptions, and clients that disagree."""
    failing = {
        key: each["evaluation_errors"] / each["scanned"]
        for key, each in counts.items()
        if each["evaluation_errors"] > each["scanned"] * FAILING_SHARE
    }
    if failing:
        worst = sorted(failing, key=lambda key: -failing[key])[:NAMED]
        named = ", ".join(f"{group} on {topic} ({failing[group, topic]:.0%})" for group, topic in worst)
        yield Problem(
            "failing-expression",
            f"errors: subscriptions whose expression fails on more than {FAILING_SHARE:.0%} of the messages: "
            f"{len(failing)}, such as {named}",
        )
    wrong: dict[GroupTopic, str] = {}
    for finding in findings:
        if finding.code in ("inconsistent-clients", "seemingly-inconsistent"):
            code = "lost-clients" if finding.severity == ERROR else "differing-clients"
            how = "inconsistent" if finding.code == "inconsistent-clients" else "seemingly inconsistent"
            yield Problem(code, f"{how}: {finding.consumer_group} on {finding.topic}: {finding.text}")
        elif (
            finding.severity == ERROR
            and finding.code not in OWN_CONDITIONS
            and not (finding.code == "fails" and finding.key in failing)
        ):
            wrong.setdefault(finding.key, finding.text)
    for (group, topic), text in [*wrong.items()][:SHOWN]:
        yield Problem("wrong-subscription", f"{group} on {topic}: {text}")
    if len(wrong) > SHOWN:
        rest = counted(len(wrong) - SHOWN, "more subscription has an error", "more subscriptions have errors")
        yield Problem("wrong-subscription", f"{rest}; lint lists all")


def _trace_problems(facts: BrokerFacts) -> Iterator[Problem]:
    """What clients wrote in the last night that contradicts deliveries, and what it decided."""
    proof_of_night = proof(facts, facts.last.run)
    if proof_of_night is None:
        return
    is_denied = pc.equal(proof_of_night.decided["outcome"], Outcome.DENIED)
    for code, rows, said in (
        (
            "contradicted",
            proof_of_night.contradicted,
            "{client} consumed {place} at {time}, which was not delivered",
        ),
        (
            "denied",
            proof_of_night.denied,
            "{place}, available at {time}, was delivered, and its client traced only those around it",
        ),
        (
            "traces-decided",
            proof_of_night.decided.filter(is_denied),
            "{place}, available at {time}, was uncertain and not delivered: its client traced only those around it",
        ),
        (
            "traces-decided",
            proof_of_night.decided.filter(pc.invert(is_denied)),
            "{place} was uncertain, or comes once more, and was delivered: its client consumed it at {time}",
        ),
    ):
        does = "traces decide" if code == "traces-decided" else "traces contradict"
        lists = "deliveries have" if code == "traces-decided" else "audit lists"
        for (group, topic), at_rows in sorted(positions_by(rows, ["consumer_group", "topic"]), key=itemgetter(0)):
            (first,) = rows.slice(int(at_rows[0]), 1).to_pylist()
            at = first.get("consumed_at") or first.get("available_at") or 0
            place, client = f"{first['queue_id']}/{first['queue_offset']}", client_name(first.get("client_process"))
            more = f", and {len(at_rows) - 1:,} more" if len(at_rows) > 1 else ""
            text = said.format(place=place, time=time_text(at), client=client)
            yield Problem(code, f"{does}: {group} on {topic}: {text}{more}; {lists} all")


def _without_messages(facts: BrokerFacts, in_force: Iterable[SubscriptionRow]) -> Iterator[Problem]:
    """Topics that groups subscribe to but that have no message, mostly misspelt."""
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for row in facts.without_messages(in_force):
        groups[row.topic].append(row.consumer_group)
    for topic, names in groups.items():
        text = f"{topic} has no message; groups that subscribe to it: {len(names)}, such as {names[0]}"
        yield Problem("topic-without-messages", text)


def _in_quarantine(facts: BrokerFacts) -> Iterator[Problem]:
    """What was quarantined in the last night, and then what was before, each at most SHOWN lines."""
    every = quarantined(facts, facts.last.run)
    for code, count in (
        ("quarantined", [each for each in every if each.new]),
        ("quarantined-before", [each for each in every if not each.new]),
    ):
        for each in count[:SHOWN]:
            place = f"{'offset' if is_of_log(each.source_file) else 'line'} {each.first:,}"
            place = place if each.pieces == 1 else f"{each.pieces:,} times from {place} on"
            yield Problem(code, f"{each.source_file}, {place}: {each.reason}")
        if len(count) > SHOWN:
            yield Problem(code, f"{counted(len(count) - SHOWN, 'more reason')}; export quarantine lists all")


def quarantined(facts: BrokerFacts, run: str) -> list[Quarantined]:
    """All of it, by file and reason. ``run``: that of the last night."""
    columns = ("source_file", "reason", "offset", "run")
    pieces: defaultdict[tuple[str, str], list[tuple[int, str]]] = defaultdict(list)
    for file, reason, offset, met_in in tuples(facts.rows(QUARANTINE, columns), *columns):
        pieces[file, reason].append((offset, met_in))
    before = max((night.run for night in facts.nights if night.run < run), default="")
    return [
        Quarantined(file, reason, len(offsets), sum(before < met_in <= run for _, met_in in offsets), min(offsets)[0])
        for (file, reason), offsets in sorted(pieces.items())
    ]


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
    def change(self) -> int:
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
    return sorted(reports, key=lambda row: (-abs(row.change), -row.counts["pending"]))


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
