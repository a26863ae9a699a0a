"""Why there is no lag: the group does not subscribe to the topic, or nothing was filtered for it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial

from filtering.counted import listed
from schemas.answers.facts import BrokerFacts
from schemas.errors import UsageError, did_you_mean
from schemas.time_text import time_text

NAMED = 10
"""The number of topics that a line names; others are counted."""


def check_asked(brokers: Sequence[BrokerFacts], groups: Collection[str] | None, topics: Collection[str] | None) -> None:
    """Raises UsageError for a topic or a group that no broker knows, or that subscribes to none of these topics.

    None stands for all.
    """
    for topic in topics or ():
        _one_passes([partial(facts.check_topic, topic) for facts in brokers])
    for group in groups or ():
        _one_passes([partial(check_subscribed, facts, group, topics) for facts in brokers])


def _one_passes(checks: Sequence[Callable[[], None]]) -> None:
    """Raises the first error of the checks if all fail."""
    errors = []
    for check in checks:
        try:
            return check()
        except UsageError as error:
            errors.append(error)
    raise errors[0]


def check_subscribed(facts: BrokerFacts, group: str, topics: Collection[str] | None) -> None:
    """Raises UsageError for a group that never subscribed, or to none of these topics (None: any)."""
    subscribed = sorted({row.topic for row in facts.subscriptions_of(group)})
    if topics is not None and not set(topics).intersection(subscribed):
        named = ", ".join(topics)
        hint = did_you_mean(named, subscribed) or f"; it subscribes to {_named(subscribed)}"
        raise UsageError(f"{group} has no subscription to {named}{hint}")


def why_without_rows(
    brokers: Sequence[BrokerFacts], groups: Collection[str] | None, topics: Collection[str] | None
) -> str:
    """Why no broker has a row of lag for groups that subscribed, or for topics. None stands for all."""
    history = [row for facts in brokers for row in facts.history]
    rows = [
        row
        for row in history
        if (groups is None or row.consumer_group in groups) and (topics is None or row.topic in topics)
    ]
    with_messages = sorted({topic for facts in brokers for topic in facts.topics})
    absent = sorted({row.topic for row in rows} - set(with_messages))
    if not rows:
        subscribed = sorted({row.topic for row in history})
        return f"no group subscribes to {', '.join(topics or ())}; groups subscribe to {_named(subscribed)}"
    if len(absent) == len({row.topic for row in rows}):
        return f"no message of the log has the topic {_named(absent)}{did_you_mean(absent[0], with_messages)}"
    first, chosen = min(row.valid_from for row in rows), ", ".join(groups or topics or ())
    return f"no night has filtered messages for {chosen} yet: the first subscription begins at {time_text(first)}"


def _named(topics: Sequence[str]) -> str:
    return listed(topics, NAMED, "topic") or "nothing"
