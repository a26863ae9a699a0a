"""What needs attention after the last night of a broker.

CONDITIONS are all conditions, each with its severity and what it means: the same in the summary of ``nightly``, in its
metrics, in ``nightly --strict``, in the report and in the documentation. :func:`attention` returns a Problem for each
condition that holds. It looks at the ledger, the counts of the night, the findings of lint, traces and the quarantine.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from operator import itemgetter

import pyarrow.compute as pc

from answers.facts import BrokerFacts
from answers.lag import away_beyond_end
from answers.proof import proof
from filtering.counted import counted, listed
from filtering.delivery import Outcome
from filtering.findings import ERROR, FAILING_SHARE, INFO, SEVERITIES, WARN, Finding
from filtering.frozen import frozen
from filtering.pulls import ResponseCode, refused
from filtering.sql92 import on_one_line
from filtering.subscriptions.events import GroupTopic
from filtering.subscriptions.subscription_row import SubscriptionRow
from schemas.delta.table_rows import one_of, positions_by, present, tuples
from schemas.errors import time_text
from schemas.run_ledger import Remark, RemarkCode
from schemas.tables import (
    MEANINGS,
    QUARANTINE,
    QUEUE_PROGRESS,
    client_name,
    is_of_log,
)

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
    "not-replayed": (INFO, "consumption that mqsieve does not replay, or knows only in part"),
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

    ``first``: the offset in a commitlog, or the line of a text file, of the first new piece, or of the first one.
    """

    source_file: str
    reason: str
    pieces: int
    new: int
    first: int


def attention(
    facts: BrokerFacts,
    counts: Mapping[GroupTopic, Mapping[str, int]],
    findings: Iterable[Finding],
    not_replayed: Iterable[str],
) -> list[Problem]:
    """What needs attention, the worst first. ``counts``: those of the night, by group and topic.

    ``findings``: those of the subscriptions in force. ``not_replayed``: a line for each kind of consumption.
    """
    problems = [*_problems(facts, counts, findings), *(Problem("not-replayed", line) for line in not_replayed)]
    return sorted(problems, key=lambda problem: SEVERITIES.index(problem.severity))


def errors(problems: Iterable[Problem]) -> list[Problem]:
    return [problem for problem in problems if problem.severity == ERROR]


def _problems(
    facts: BrokerFacts, counts: Mapping[GroupTopic, Mapping[str, int]], findings: Iterable[Finding]
) -> Iterator[Problem]:
    """All problems but what is not replayed: first those of the whole night, then those of its groups."""
    begin = _night_before(facts, facts.last.run)
    misread = [Remark(RemarkCode.MISREAD_SETTING, text) for text in facts.last.misread_settings]
    step_remarks = [remark for entry in facts.entries if entry.run > begin for remark in entry.remarks]
    for remark in dict.fromkeys([*step_remarks, *misread]):
        yield Problem(remark.code, remark.text)
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
    where = [one_of("run", [facts.last.run]), present("began_at")]
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


def _finding_problems(counts: Mapping[GroupTopic, Mapping[str, int]], findings: Iterable[Finding]) -> Iterator[Problem]:
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
    for code, reasons in (
        ("quarantined", [each for each in every if each.new]),
        ("quarantined-before", [each for each in every if not each.new]),
    ):
        for each in reasons[:SHOWN]:
            place = f"{'offset' if is_of_log(each.source_file) else 'line'} {each.first:,}"
            pieces = each.new or each.pieces
            place = place if pieces == 1 else f"{pieces:,} times from {place} on"
            yield Problem(code, f"{each.source_file}, {place}: {each.reason}")
        if len(reasons) > SHOWN:
            yield Problem(code, f"{counted(len(reasons) - SHOWN, 'more reason')}; export quarantine lists all")


def quarantined(facts: BrokerFacts, run: str) -> list[Quarantined]:
    """All of it, by file and reason. ``run``: that of the last night."""
    columns = ("source_file", "reason", "offset", "run")
    pieces: defaultdict[tuple[str, str], list[tuple[int, str]]] = defaultdict(list)
    for file, reason, offset, met_in in tuples(facts.rows(QUARANTINE, columns), *columns):
        pieces[file, reason].append((offset, met_in))
    before = _night_before(facts, run)
    result = []
    for (file, reason), met in sorted(pieces.items()):
        new = [offset for offset, met_in in met if before < met_in <= run]
        result.append(Quarantined(file, reason, len(met), len(new), min(new or [offset for offset, _ in met])))
    return result


def _night_before(facts: BrokerFacts, run: str) -> str:
    """The run of the night before ``run``; empty without one. The runs after it are the steps of the same night."""
    return max((night.run for night in facts.nights if night.run < run), default="")
