"""How far each group is behind on each topic, summed over its queues."""

from __future__ import annotations

from dataclasses import dataclass

from schemas.answers.facts import BrokerFacts
from schemas.answers.lag import lag
from schemas.answers.report_nights import Key


@dataclass(frozen=True)
class GroupLag:
    """``behind``: entries after the group's offsets, as the broker's tools count them.

    ``exact``: the messages that the group would get of those it has yet to pull; ``oldest_ms``: the age of the oldest
    of them at the end of the night, None where there is none.
    """

    behind: int = 0
    exact: int = 0
    oldest_ms: int | None = None


def group_lags(facts: BrokerFacts) -> dict[Key, GroupLag]:
    """By topic and group, the lag after the last night."""
    found: dict[Key, GroupLag] = {}
    for each in lag(facts):
        key = each.topic, each.consumer_group
        sofar = found.get(key, GroupLag())
        ages = [age for age in (sofar.oldest_ms, each.oldest_pending_ms) if age is not None]
        found[key] = GroupLag(sofar.behind + each.lag, sofar.exact + each.exact_lag, max(ages, default=None))
    return found
