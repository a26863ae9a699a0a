"""The counts of nights for each group on each topic, and those of one night beside another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TypeAlias

from filtering.subscriptions.events import GroupTopic
from schemas.answers.facts import BrokerFacts
from schemas.delivery_stats import COUNTS, DELIVERY_STATS, client_drops

Counts: TypeAlias = Mapping[str, int]
"""By name, the counts of delivery_stats, and ``client_drops``."""
NOTHING: Counts = dict.fromkeys((*COUNTS, "client_drops"), 0)


@dataclass(frozen=True)
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
    for (run, group, topic), counts in summed.items():
        by_run[run][group, topic] = {**counts, "client_drops": client_drops(counts)}
    return by_run


def group_counts(
    facts: BrokerFacts, now: Mapping[GroupTopic, Counts], before: Mapping[GroupTopic, Counts]
) -> list[GroupCounts]:
    """The counts of two nights, ``before`` and ``now``, side by side: by topic and name, all groups of either."""
    expressions = {row.key: row.expression or "*" for row in facts.in_force}
    return [
        GroupCounts(*key, expressions.get(key, ""), now.get(key, NOTHING), before.get(key))
        for key in sorted(now.keys() | before.keys(), key=itemgetter(1, 0))
    ]


def total(counts: Iterable[Counts]) -> Counts:
    """The sums of some counts."""
    sums = Counter(NOTHING)
    for each in counts:
        sums.update(each)
    return sums
