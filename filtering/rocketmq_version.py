"""The version of a broker, and what it changes. No other module compares versions: it asks for one of these facts.

Measured on the published jars of 4.3.0 to 5.5.0. 5.1.2 was never published: it counts as 5.1.1.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from filtering.type_checks import check_type

_TEXT = re.compile(r"[vV]?([0-9]{1,4})[._]([0-9]{1,4})[._]([0-9]{1,4})")


class RocketMQVersion(NamedTuple):
    """A version of RocketMQ. Versions compare as numbers."""

    major: int
    minor: int
    patch: int

    @classmethod
    def parse(cls, text: str) -> RocketMQVersion:
        """Reads ``5.1.4``, also as RocketMQ's own tools write it: ``V5_1_4``. Raises ValueError."""
        check_type(text, str, "a version of RocketMQ is a text, such as '5.1.4'")
        match = _TEXT.fullmatch(text.strip())
        if match is None:
            raise ValueError(f"{text!r} is not a version of RocketMQ, such as 4.9.7 or 5.5.0")
        return cls(*map(int, match.groups()))

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"

    @property
    def has_text_searches(self) -> bool:
        """Whether CONTAINS, STARTSWITH and ENDSWITH are operators of SQL92. Before, they are plain names."""
        return self >= TEXT_SEARCHES_SINCE

    @property
    def filters_redeliveries_to_tags(self) -> bool:
        """Whether filterSupportRetry also filters a retry topic that is subscribed by tags, as clients do with ``*``.

        The message must then pass the SQL92 filter that the group has for the original topic
        (ExpressionForRetryMessageFilter). Later brokers look at the tags only.
        """
        return self < RocketMQVersion(5, 1, 4)

    @property
    def has_lag_metric(self) -> bool:
        """Whether the broker itself estimates the lag of a group by its filter (ConsumerLagCalculator)."""
        return self >= RocketMQVersion(5, 1, 0)

    @property
    def not_multi_dispatched(self) -> tuple[str, ...]:
        """The beginnings of topics whose messages get no entries in more queues, whatever INNER_MULTI_DISPATCH says.

        Measured on 4.9.7, 5.0.0, 5.1.0 to 5.3.0, 5.3.3 and 5.5.0. A message that a consumer sent back keeps the
        properties of the first one, so they do not tell.
        """
        since = (
            (RocketMQVersion(5, 1, 1), ("%RETRY%",)),
            (RocketMQVersion(5, 1, 3), ("SCHEDULE_TOPIC_XXXX",)),
            (RocketMQVersion(5, 2, 0), ("rmq_sys_",)),
            (RocketMQVersion(5, 4, 0), ("%DLQ%",)),
        )
        return tuple(topic for version, topics in since if self >= version for topic in topics)

    @property
    def dispatches_to_plain_names_only(self) -> bool:
        """Whether a name in INNER_MULTI_DISPATCH that has a slash gets no file. Before, it has a folder in another."""
        return self >= RocketMQVersion(5, 1, 3)

    @property
    def clients_take_empty_bodies(self) -> bool:
        """Whether Java clients of this version take a message without a body.

        An older one fails in ProcessQueue.putMessage, and its listener never gets any message of that pull.
        """
        return self >= RocketMQVersion(5, 3, 0)


TEXT_SEARCHES_SINCE = RocketMQVersion(5, 1, 3)
NEWEST = RocketMQVersion(5, 5, 0)
"""The newest version that was measured. Newer brokers count as this one."""


def version_of(given: RocketMQVersion | str | None) -> RocketMQVersion:
    """A version, also as text; None is the newest. Raises ValueError."""
    if given is None:
        return NEWEST
    return given if isinstance(given, RocketMQVersion) else RocketMQVersion.parse(given)
