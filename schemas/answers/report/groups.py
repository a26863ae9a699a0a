"""The counts of one night for each group on each topic, beside those of another night, and how far each is behind."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow.compute as pc

from filtering.subscriptions.events import GroupTopic
from schemas.answers.facts import BrokerFacts
from schemas.answers.lag.lag import lag
from schemas.answers.report.group_counts import Counts, GroupCounts, group_counts, total
from schemas.delta.table_rows import tuples
from schemas.queue_progress import QUEUE_PROGRESS


@dataclass(frozen=True)
class GroupLag:
    """``behind``: entries after the group's offsets, as the broker's tools count them.

    ``would_get``: the messages that the group has yet to pull and would receive; ``oldest_ms``: the age of the
    oldest of them at the end of the night, None if there is none.
    """

    behind: int = 0
    would_get: int = 0
    oldest_ms: int | None = None


@dataclass(frozen=True)
class GroupReport(GroupCounts):
    """One group on one topic. ``before``: the counts of the compared night.

    ``delivered_in_all``: the deliveries in all nights of the report. ``last_pulled``: queue id and queue offset of an
    entry that the group pulled last, None if it never pulled.
    """

    delivered_in_all: int
    lag: GroupLag
    last_pulled: tuple[int, int] | None

    @property
    def change(self) -> int:
        """How many more messages were delivered than in the compared night."""
        return self.counts["delivered"] - (self.delivered_before or 0)


@dataclass(frozen=True)
class TopicReport:
    """All groups of one topic together. ``stored``: the entries added to its queues in the night."""

    topic: str
    groups: int
    stored: int
    counts: Counts
    before: Counts | None


def group_reports(
    facts: BrokerFacts, nights: Sequence[Mapping[GroupTopic, Counts]], before: Mapping[GroupTopic, Counts]
) -> list[GroupReport]:
    """The reports of all groups, the greatest change first, then the most pending.

    ``nights``: the counts of the nights that are shown, of which the last is reported. ``before``: those of the
    compared night.
    """
    in_all: Counter[GroupTopic] = Counter()
    for night in nights:
        in_all.update({key: each["delivered"] for key, each in night.items()})
    lags, pulled = _group_lags(facts), _last_pulled(facts)
    reports = [
        GroupReport(
            **vars(group),
            delivered_in_all=in_all[group.key],
            lag=lags.get(group.key, GroupLag()),
            last_pulled=pulled.get(group.key),
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
    of_now, of_before = _by_topic(now), _by_topic(before)
    return [
        TopicReport(
            topic,
            len(of_now[topic]),
            stored.get(topic, 0),
            total(of_now[topic]),
            total(of_before[topic]) if topic in of_before else None,
        )
        for topic in sorted(stored.keys() | of_now.keys() | of_before.keys())
    ]


def _by_topic(counts: Mapping[GroupTopic, Counts]) -> defaultdict[str, list[Counts]]:
    by_topic: defaultdict[str, list[Counts]] = defaultdict(list)
    for (_, topic), each in counts.items():
        by_topic[topic].append(each)
    return by_topic


def _last_pulled(facts: BrokerFacts) -> dict[GroupTopic, tuple[int, int]]:
    """The queue in which each group is farthest, and the offset of the last entry that it pulled there."""
    rows = facts.offsets.filter(pc.greater(facts.offsets["told_to"], 0))
    farthest_first = rows.take(pc.sort_indices(rows, sort_keys=[("told_to", "descending")]))
    last_pulled: dict[GroupTopic, tuple[int, int]] = {}
    for group, topic, queue_id, told_to in tuples(farthest_first, "consumer_group", "topic", "queue_id", "told_to"):
        last_pulled.setdefault((group, topic), (queue_id, told_to - 1))
    return last_pulled


def _group_lags(facts: BrokerFacts) -> dict[GroupTopic, GroupLag]:
    """By group and topic, the lag after the last night; without the groups that are not behind."""
    lags: dict[GroupTopic, GroupLag] = {}
    for row in lag(facts, only_behind=True):
        total = lags.get(row.key, GroupLag())
        ages = [age for age in (total.oldest_ms, row.oldest_ms) if age is not None]
        lags[row.key] = GroupLag(total.behind + row.behind, total.would_get + row.would_get, max(ages, default=None))
    return lags
