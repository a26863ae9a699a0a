"""Why there is no lag: the group does not subscribe to the topic, or nothing was filtered for it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from filtering.counted import listed
from schemas.answers.facts import BrokerFacts
from schemas.errors import UsageError, did_you_mean
from schemas.time_text import time_text

NAMED = 10
"""The number of topics that a line names; others are counted."""


def check_subscribed(facts: BrokerFacts, group: str, topics: Collection[str] | None) -> None:
    """Raises UsageError for a group that never subscribed, or to none of these topics (None: any)."""
    subscribed = sorted({row.topic for row in facts.subscriptions_of(group)})
    if topics is not None and not set(topics).intersection(subscribed):
        named = ", ".join(topics)
        hint = did_you_mean(named, subscribed) or f"; it subscribes to {_named(subscribed)}"
        raise UsageError(f"{group} has no subscription to {named}{hint}")


def why_without_rows(facts: BrokerFacts, groups: Collection[str] | None, topics: Collection[str] | None) -> str:
    """Why there is no row of lag for groups that subscribed, or for topics. None stands for all."""
    rows = [
        row
        for row in facts.history
        if (groups is None or row.consumer_group in groups) and (topics is None or row.topic in topics)
    ]
    absent = sorted({row.topic for row in rows} - set(facts.topics))
    if not rows:
        subscribed = sorted({row.topic for row in facts.history})
        return f"no group subscribes to {', '.join(topics or ())}; groups subscribe to {_named(subscribed)}"
    if len(absent) == len({row.topic for row in rows}):
        return f"no message of the log has the topic {_named(absent)}{did_you_mean(absent[0], facts.topics)}"
    first, chosen = min(row.valid_from for row in rows), ", ".join(groups or topics or ())
    return f"no night has filtered messages for {chosen} yet: the first subscription begins at {time_text(first)}"


def _named(topics: Sequence[str]) -> str:
    return listed(topics, NAMED, "topic") or "nothing"
