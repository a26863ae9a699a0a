"""The version of a broker, and what it changes. Other modules ask for one of these facts, not for a number.

Measured on the published jars of 4.3.0 to 5.5.0. 5.1.2 was never published: it counts as 5.1.1.
"""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from typing import NamedTuple

from filtering.counted import check_type

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

    @property
    def pop_clients_give_up(self) -> bool:
        """Whether Java clients of this version drop a message that they popped too often.

        An older one goes on with it. Source: DefaultMQPushConsumerImpl.processPopResult.
        """
        return self >= RocketMQVersion(5, 3, 1)

    @property
    def knows_maped_files(self) -> bool:
        """Whether the keys of file sizes in broker.conf begin with mapedFileSize. Later, with mappedFileSize."""
        return self < RocketMQVersion(4, 5, 2)

    @property
    def resets_offsets_itself(self) -> bool:
        """Whether the broker itself resets the offsets of an online group. Before, its clients do, 10 to 20 s later."""
        return self >= RocketMQVersion(5, 2, 0)


TEXT_SEARCHES_SINCE = RocketMQVersion(5, 1, 3)
NEWEST = RocketMQVersion(5, 5, 0)
"""The newest version that was measured. Newer brokers count as this one."""


def version_of(given: RocketMQVersion | str | None) -> RocketMQVersion:
    """A version, also as text; None is the newest. Raises ValueError."""
    if given is None:
        return NEWEST
    return given if isinstance(given, RocketMQVersion) else RocketMQVersion.parse(given)


class ShownVersions(NamedTuple):
    """The versions of a broker that something shows, and what shows it: ``reason``.

    They begin with ``least`` and end before ``below`` (None: with the newest). The broker counts as ``taken_for``.
    """

    least: RocketMQVersion
    below: RocketMQVersion | None
    taken_for: RocketMQVersion
    reason: str

    def includes(self, version: RocketMQVersion) -> bool:
        return self.least <= version and (self.below is None or version < self.below)

    def narrowed(self, other: ShownVersions | None) -> ShownVersions:
        """These versions, as far as ``other`` shows them, too; ``other`` has the reason if it shows more.

        These if no version is in both.
        """
        if other is None or (self.least >= other.least and self._ends_by(other)):
            return self
        least, below = max(self.least, other.least), self.below if self._ends_by(other) else other.below
        if below is not None and least >= below:
            return self
        both = ShownVersions(least, below, other.taken_for, other.reason)
        return both if both.includes(other.taken_for) else both._replace(taken_for=self.taken_for)

    def _ends_by(self, other: ShownVersions) -> bool:
        return other.below is None or (self.below is not None and self.below <= other.below)


def up_to_4(reason: str) -> ShownVersions:
    return ShownVersions(RocketMQVersion(0, 0, 0), RocketMQVersion(5, 0, 0), RocketMQVersion(4, 9, 7), reason)


def before_text_searches(reason: str) -> ShownVersions:
    """5.0.0 to 5.1.2."""
    return ShownVersions(RocketMQVersion(5, 0, 0), TEXT_SEARCHES_SINCE, RocketMQVersion(5, 1, 1), reason)


def since_5(reason: str) -> ShownVersions:
    return ShownVersions(RocketMQVersion(5, 0, 0), None, NEWEST, reason)


def since_text_searches(reason: str) -> ShownVersions:
    """5.1.3 and later."""
    return ShownVersions(TEXT_SEARCHES_SINCE, None, NEWEST, reason)


def since_databases(reason: str) -> ShownVersions:
    """5.2.0 and later, which may keep configurations and queues in RocksDB."""
    return ShownVersions(RocketMQVersion(5, 2, 0), None, NEWEST, reason)


def only(version: RocketMQVersion, reason: str) -> ShownVersions:
    return ShownVersions(version, version._replace(patch=version.patch + 1), version, reason)


class Settings(NamedTuple):
    """Some settings that a broker has from the version ``since`` on, and prints into its log when it starts.

    A broker that has them, and none of the next ones, counts as ``taken_for``. Source: BrokerConfig.
    """

    since: RocketMQVersion
    taken_for: RocketMQVersion
    keys: Sequence[str]


SETTINGS = (
    Settings(
        RocketMQVersion(5, 0, 0),
        RocketMQVersion(5, 1, 1),
        ("accountStatsEnable", "brokerHeartbeatInterval", "enableControllerMode", "enablePopLog", "popPollingSize"),
    ),
    Settings(
        TEXT_SEARCHES_SINCE,
        TEXT_SEARCHES_SINCE,
        ("cgColdReadThreshold", "coldCtrStrategyEnable", "enablePopBatchAck", "globalColdReadThreshold"),
    ),
    Settings(
        RocketMQVersion(5, 1, 4),
        RocketMQVersion(5, 1, 4),
        ("enableMixedMessageType", "enableSingleTopicRegister", "enableSplitRegistration"),
    ),
    Settings(
        RocketMQVersion(5, 2, 0),
        NEWEST,
        ("configBlackList", "enablePopMessageThreshold", "popInflightMessageThreshold"),
    ),
)


def shown_by_settings(printed: Container[str]) -> ShownVersions:
    """What the names of all settings that a broker prints show of its version."""
    shown = up_to_4("4.x: broker.log prints no setting of 5.x")
    for settings, later in zip(SETTINGS, (*SETTINGS[1:], None), strict=True):
        key = next((key for key in settings.keys if key in printed), None)
        if key is not None:
            until = later.since if later is not None else None
            ends = f", and no setting of {until}" if until is not None else ""
            reason = f"{settings.since} or newer: broker.log prints {key}{ends}"
            shown = ShownVersions(settings.since, until, settings.taken_for, reason)
    return shown


_NUMBER_OF_4_0_0 = 213


def client_version(number: int) -> RocketMQVersion | None:
    """The version with a number of MQVersion, as heartbeats have it; None before 4.0.0.

    From there on, each version has two numbers, for its snapshot and its release, and each minor one ten versions.
    """
    major, rest = divmod(number - _NUMBER_OF_4_0_0, 200)
    minor, rest = divmod(rest, 20)
    return RocketMQVersion(4 + major, minor, rest // 2) if major >= 0 else None
