"""How far each group is behind on each topic, summed over its queues."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from schemas.answers.facts import BrokerFacts
from schemas.answers.report_nights import Key


@dataclass(frozen=True)
class GroupLag:
    """``behind``: entries after the committed offsets, as the broker's tools count; None where none is known.

    ``exact``: the messages among them that the group would get; ``oldest_ms``: the age of the oldest of those.
    """

    behind: int | None = None
    exact: int | None = None
    oldest_ms: int | None = None


def group_lags(facts: BrokerFacts) -> dict[Key, GroupLag]:
    """The lag after the last night, of groups that it is known of."""
    columns = ("topic", "consumer_group", "queue_end", "committed")
    behind: defaultdict[Key, int] = defaultdict(int)
    for topic, group, end, committed in zip(*(facts.offsets[name].to_pylist() for name in columns), strict=True):
        if group is not None and committed is not None:
            behind[topic, group] += max(0, end - committed)
    return {key: GroupLag(entries) for key, entries in behind.items()}
