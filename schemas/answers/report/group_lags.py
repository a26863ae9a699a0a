"""How far each group is behind on each topic, summed over its queues."""

from __future__ import annotations

from dataclasses import dataclass

from filtering.subscriptions.events import GroupTopic
from schemas.answers.facts import BrokerFacts
from schemas.answers.lag.lag import lag


@dataclass(frozen=True)
class GroupLag:
    """``behind``: entries after the group's offsets, as the broker's tools count them.

    ``exact``: the messages that the group has yet to pull and would receive; ``oldest_ms``: the age of the oldest of
    them at the end of the night, None if there is none.
    """

    behind: int = 0
    exact: int = 0
    oldest_ms: int | None = None


def group_lags(facts: BrokerFacts) -> dict[GroupTopic, GroupLag]:
    """By group and topic, the lag after the last night; without the groups that are not behind."""
    lags: dict[GroupTopic, GroupLag] = {}
    for row in lag(facts, only_behind=True):
        total = lags.get(row.key, GroupLag())
        ages = [age for age in (total.oldest_ms, row.oldest_pending_ms) if age is not None]
        lags[row.key] = GroupLag(total.behind + row.lag, total.exact + row.exact_lag, max(ages, default=None))
    return lags
