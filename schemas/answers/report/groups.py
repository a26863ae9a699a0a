"""The counts of one night for each group on each topic, beside those of another night."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

import pyarrow as pa

from filtering.subscriptions.events import GroupTopic
from schemas.answers.facts import BrokerFacts
from schemas.answers.report.group_lags import GroupLag, group_lags
from schemas.delivery_stats import COUNTS
from schemas.delta.aggregates import sums
from schemas.delta.table_rows import filtered, one_of

_NOTHING = dict.fromkeys(COUNTS, 0)


@dataclass(frozen=True)
class GroupReport:
    """One group on one topic. ``counts`` are those of delivery_stats of the night, summed over queues.

    ``before``: those of the compared night, None if it has none. ``delivered_in_all``: the deliveries in all nights of
    the report. ``last_pulled``: queue id and queue offset of an entry that the group pulled last, None if it never
    pulled. ``expression`` is empty if the group left without one.
    """

    consumer_group: str
    topic: str
    expression: str
    counts: Mapping[str, int]
    before: Mapping[str, int] | None
    delivered_in_all: int
    lag: GroupLag
    last_pulled: tuple[int, int] | None

    @property
    def change(self) -> int:
        """How many more messages were delivered than in the compared night."""
        return self.counts["delivered"] - (self.before or _NOTHING)["delivered"]


@dataclass(frozen=True)
class TopicReport:
    """All groups of one topic together. ``stored``: the entries added to its queues in the night."""

    topic: str
    groups: int
    stored: int
    counts: Mapping[str, int]
    before: Mapping[str, int] | None


def group_reports(facts: BrokerFacts, stats: pa.Table, shown: Sequence[str], compared: str | None) -> list[GroupReport]:
    """The reports of all groups, the greatest change first, then the most pending.

    ``stats``: rows of delivery_stats of the runs ``shown``, of which the last is reported, and of ``compared``.
    """
    expressions = {row.key: row.expression or "*" for row in facts.in_force}
    counts, before = _counts_of(stats, shown[-1:]), _counts_of(stats, [compared] if compared else [])
    in_all = _counts_of(stats, shown)
    lags, pulled = group_lags(facts), _last_pulled(facts)
    reports = [
        GroupReport(
            *key,
            expressions.get(key, ""),
            counts.get(key, _NOTHING),
            before.get(key),
            in_all.get(key, _NOTHING)["delivered"],
            lags.get(key, GroupLag()),
            pulled.get(key),
        )
        for key in sorted(counts.keys() | before.keys(), key=itemgetter(1, 0))
    ]
    return sorted(reports, key=lambda row: (-abs(row.change), -row.counts["pending"]))


def topic_reports(stats: pa.Table, progress: pa.Table, run: str, compared: str | None) -> list[TopicReport]:
    """The reports of all topics, by name. ``progress``: rows of queue_progress of the shown runs."""
    stored = sums(progress, ["run", "topic"], ["entries"])
    by_run = sums(stats, ["run", "topic"], COUNTS)
    now = {topic: counts for (row_run, topic), counts in by_run.items() if row_run == run}
    before = {topic: counts for (row_run, topic), counts in by_run.items() if row_run == compared}
    groups = Counter(topic for _, topic in _counts_of(stats, [run]))
    topics = now.keys() | before.keys() | {topic for row_run, topic in stored if row_run == run}
    return [
        TopicReport(
            topic,
            groups[topic],
            stored.get((run, topic), {"entries": 0})["entries"],
            now.get(topic, _NOTHING),
            before.get(topic),
        )
        for topic in sorted(topics)
    ]


def _counts_of(stats: pa.Table, runs: Sequence[str]) -> dict[GroupTopic, dict[str, int]]:
    rows = filtered(stats, [one_of("run", runs)])
    return {
        (group, topic): counts for (group, topic), counts in sums(rows, ["consumer_group", "topic"], COUNTS).items()
    }


def _last_pulled(facts: BrokerFacts) -> dict[GroupTopic, tuple[int, int]]:
    """The queue in which each group is farthest, and the offset of the last entry that it pulled there."""
    found: dict[GroupTopic, tuple[int, int]] = {}
    columns = ("consumer_group", "topic", "queue_id", "told_to")
    for group, topic, queue_id, pulled_to in zip(*(facts.offsets[name].to_pylist() for name in columns), strict=True):
        if pulled_to and pulled_to > found.get((group, topic), (0, -1))[1] + 1:
            found[group, topic] = queue_id, pulled_to - 1
    return found
