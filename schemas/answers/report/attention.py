"""The problems of a broker's last night that a person should act on, with what could not be decoded."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import itemgetter

from filtering.counted import counted, listed
from filtering.pulls.pull import ResponseCode, refusal
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


def attention(facts: BrokerFacts, counts: Mapping[GroupTopic, Counts]) -> Iterator[str]:
    """One line for each problem. ``counts``: those of the night, by group and topic."""
    yield from facts.last.remarks
    in_force = facts.in_force
    in_quarantine = list(_in_quarantine(facts))
    if not facts.topics:
        first = f", the first in quarantine: {in_quarantine[0]}" if in_quarantine else ""
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
    for group, topic in sorted(counts, key=itemgetter(1, 0)):
        if lost := counts[group, topic]["lost"]:
            yield f"{group} on {topic} lost {counted(lost, 'entry', 'entries')}, {MEANINGS['lost']}"
    for ahead in away_beyond_end(facts):
        yield f"{ahead.consumer_group} on {ahead.topic}: {ahead.text}"
    yield from (f"quarantined: {line}" for line in in_quarantine)


def _without_messages(facts: BrokerFacts, in_force: Iterable[SubscriptionRow]) -> Iterator[str]:
    """Topics that groups subscribe to but that have no message, mostly misspelt."""
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for row in facts.without_messages(in_force):
        groups[row.topic].append(row.consumer_group)
    for topic, names in groups.items():
        yield f"{topic} has no message; groups that subscribe to it: {len(names)}, such as {names[0]}"


def _in_quarantine(facts: BrokerFacts) -> Iterator[str]:
    found = quarantined(facts, facts.last.run)
    for each in found[:SHOWN]:
        place = f"{'offset' if is_mapped_file(each.source_file) else 'line'} {each.first:,}"
        place = place if each.pieces == 1 else f"{each.pieces:,} times from {place} on"
        yield f"{each.source_file}, {place}: {each.reason}"
    if len(found) > SHOWN:
        yield f"{counted(len(found) - SHOWN, 'more reason')}; export quarantine lists all"


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
