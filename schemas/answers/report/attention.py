"""What needs attention after a broker's last night: the list of conditions, and those that hold now."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import itemgetter

from filtering.counted import counted, listed
from filtering.findings import SEVERITIES, Finding
from filtering.findings.finding import ERROR, FAILING_SHARE, INFO, WARN
from filtering.pulls.pull import ResponseCode, refused
from filtering.sql92 import on_one_line
from filtering.subscriptions.events import GroupTopic
from filtering.subscriptions.subscription_row import SubscriptionRow
from schemas.answers.facts import BrokerFacts
from schemas.answers.lag.standings import away_beyond_end
from schemas.answers.report.group_counts import Counts
from schemas.delivery_stats import MEANINGS
from schemas.delta.table_rows import tuples
from schemas.quarantine import QUARANTINE
from schemas.rocketmq_store.commitlog.segments import is_mapped_file

SHOWN = 20
NAMED = 3
CONDITIONS: Mapping[str, tuple[str, str]] = {
    "no-message": (ERROR, "nothing in the log, or in the message log, could be decoded"),
    "no-subscription": (ERROR, "no subscription is in force: nothing can be delivered"),
    "does-not-compile": (ERROR, "the broker refuses the expression of a subscription"),
    "refused-pulls": (
        ERROR,
        "the broker refuses every pull of a group, such as of SQL92 if enablePropertyFilter is off",
    ),
    "topic-without-messages": (ERROR, "a group subscribes to a topic of which no message is in the log"),
    "failing-expression": (ERROR, "an expression failed on more than a tenth of the messages of the last night"),
    "wrong-subscription": (ERROR, "`lint` finds another error, such as a filter that can match no message"),
    "lost-clients": (ERROR, "clients of a group subscribe differently, and messages were lost"),
    "lost-messages": (ERROR, "the broker deleted messages before a group pulled them"),
    "quarantined": (ERROR, "input of the last night could not be decoded"),
    "damaged-body": (ERROR, "the body of a message that the last night read does not match its checksum"),
    "missed-log": (ERROR, "the broker deleted a part of its log that no night had read"),
    "cut-log": (ERROR, "the log differs from what earlier nights read, from some offset on"),
    "other-broker": (ERROR, "topics.json is of another broker than broker.conf"),
    "unknown-subscription": (ERROR, "a group has committed offsets, and no subscription that is known"),
    "misread-setting": (ERROR, "broker.conf has a value that the broker reads in another way than it seems"),
    "no-filter-hooks": (ERROR, "the night before had --filter-hooks, and this one has none"),
    "remark": (ERROR, "a remark of a night of an older mqsieve"),
    "differing-clients": (WARN, "clients of a group subscribe differently, or seem to, and no loss is certain"),
    "assumed-queues": (WARN, "the queues of a topic are not known, so which client reads which is assumed"),
    "behind": (WARN, "an online group does not keep up"),
    "offset-beyond-end": (WARN, "a group that is away has a committed offset beyond the end of the queue"),
    "other-version": (WARN, "the store looks like that of another RocketMQ version than the one that was given"),
    "empty-body": (WARN, "clients up to 5.2.0 may have lost pulls with messages that have no body"),
    "earlier-log": (WARN, "the log begins earlier than in the first night, and no night reads what is before it"),
    "quarantined-before": (INFO, "input of earlier nights could not be decoded"),
    "repaired": (INFO, "damage of the log is repaired"),
    "new-version": (INFO, "the broker has another RocketMQ version than in the night before"),
    "new-epoch": (INFO, "--new-epoch replaced all earlier rows of the broker"),
    "not-replayed": (INFO, "consumption that mqsieve does not replay, such as POP"),
}
"""By its code, the severity and the meaning of each condition. ``nightly --strict`` exits 3 if one is an error."""
OWN_CONDITIONS = frozenset({"does-not-compile", "topic-without-messages", "refused-pulls"})
"""Findings that are the conditions of the same name."""


@dataclass(frozen=True)
class Problem:
    """A condition of CONDITIONS that holds now. ``text`` says of what, in one line."""

    code: str
    text: str

    @property
    def severity(self) -> str:
        return CONDITIONS[self.code][0]


@dataclass(frozen=True)
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
    found = [*_problems(facts, counts, findings), *(Problem("not-replayed", line) for line in not_replayed)]
    return sorted(found, key=lambda problem: SEVERITIES.index(problem.severity))


def errors(problems: Iterable[Problem]) -> list[Problem]:
    return [problem for problem in problems if problem.severity == ERROR]


def _problems(
    facts: BrokerFacts, counts: Mapping[GroupTopic, Counts], findings: Iterable[Finding]
) -> Iterator[Problem]:
    yield from map(_of_remark, facts.last.remarks)
    for text in facts.last.misread_settings:
        if f"misread-setting: {text}" not in facts.last.remarks:
            yield Problem("misread-setting", text)
    in_force = facts.in_force
    in_quarantine = list(_in_quarantine(facts))
    if not facts.topics:
        first = f", the first in quarantine: {in_quarantine[0].text}" if in_quarantine else ""
        yield Problem("no-message", f"no message: nothing could be decoded{first}")
    if not in_force:
        yield Problem("no-subscription", "no subscription: nothing can be delivered")
    for row in in_force:
        if row.compile_error is not None:
            whose = f"{row.consumer_group} on {row.topic}"
            yield Problem("does-not-compile", f"{whose} does not compile: {on_one_line(row.compile_error)}")
    by_code: defaultdict[ResponseCode, list[str]] = defaultdict(list)
    for row, code in refused(in_force, facts.broker):
        by_code[code].append(f"{row.consumer_group} on {row.topic}")
    for code, subscriptions in by_code.items():
        text = f"the broker refuses every pull of {listed(subscriptions, NAMED)} with {code.text}"
        yield Problem("refused-pulls", text)
    yield from _without_messages(facts, in_force)
    yield from _of_findings(counts, findings)
    for group, topic in sorted(counts, key=itemgetter(1, 0)):
        if lost := counts[group, topic]["lost"]:
            text = f"{group} on {topic} lost {counted(lost, 'entry', 'entries')}, {MEANINGS['lost']}"
            yield Problem("lost-messages", text)
    for ahead in away_beyond_end(facts):
        yield Problem("offset-beyond-end", f"{ahead.consumer_group} on {ahead.topic}: {ahead.text}")
    yield from (Problem(problem.code, f"quarantined: {problem.text}") for problem in in_quarantine)


def _of_remark(remark: str) -> Problem:
    """A remark of the ledger: its condition, and a text."""
    code, _, text = remark.partition(": ")
    return Problem(code, text) if code in CONDITIONS else Problem("remark", remark)


def _of_findings(counts: Mapping[GroupTopic, Counts], findings: Iterable[Finding]) -> Iterator[Problem]:
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
    for code, found in (
        ("quarantined", [each for each in every if each.new]),
        ("quarantined-before", [each for each in every if not each.new]),
    ):
        for each in found[:SHOWN]:
            place = f"{'offset' if is_mapped_file(each.source_file) else 'line'} {each.first:,}"
            place = place if each.pieces == 1 else f"{each.pieces:,} times from {place} on"
            yield Problem(code, f"{each.source_file}, {place}: {each.reason}")
        if len(found) > SHOWN:
            yield Problem(code, f"{counted(len(found) - SHOWN, 'more reason')}; export quarantine lists all")


def quarantined(facts: BrokerFacts, run: str) -> list[Quarantined]:
    """All of it, by file and reason. ``run``: that of the last night."""
    columns = ("source_file", "reason", "offset", "run")
    pieces: defaultdict[tuple[str, str], list[tuple[int, str]]] = defaultdict(list)
    for file, reason, offset, met_in in tuples(facts.rows(QUARANTINE, columns), *columns):
        pieces[file, reason].append((offset, met_in))
    before = max((night.run for night in facts.nights if night.run < run), default="")
    return [
        Quarantined(file, reason, len(found), sum(before < met_in <= run for _, met_in in found), min(found)[0])
        for (file, reason), found in sorted(pieces.items())
    ]
