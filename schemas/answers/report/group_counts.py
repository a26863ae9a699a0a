"""The counts of nights for each group on each topic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from filtering.subscriptions.events import GroupTopic
from schemas.answers.facts import BrokerFacts
from schemas.delivery_stats import COUNTS, DELIVERY_STATS, client_drops

Counts: TypeAlias = Mapping[str, int]
"""By name, the counts of delivery_stats, and ``client_drops``."""
NOTHING: Counts = dict.fromkeys((*COUNTS, "client_drops"), 0)


def counts_by_run(facts: BrokerFacts, runs: Sequence[str]) -> dict[str, dict[GroupTopic, Counts]]:
    """By run, the counts of each group on each topic, summed over its queues."""
    by_run: dict[str, dict[GroupTopic, Counts]] = {run: {} for run in runs}
    summed = facts.sums(DELIVERY_STATS, ["run", "consumer_group", "topic"], COUNTS, runs)
    for (run, group, topic), counts in summed.items():
        by_run[run][group, topic] = {**counts, "client_drops": client_drops(counts)}
    return by_run


def total(counts: Iterable[Counts]) -> Counts:
    """The sums of some counts."""
    sums = Counter(NOTHING)
    for each in counts:
        sums.update(each)
    return sums
