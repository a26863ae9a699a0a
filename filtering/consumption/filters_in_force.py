"""The message filters of a group, at an instant and in an interval."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise

from filtering.broker_config import BrokerConfig
from filtering.delivery.message_filter import MessageFilter, message_filter, reads_others
from filtering.pulls.pull import is_pulling
from filtering.subscriptions.events import GroupTopic
from filtering.subscriptions.in_force import in_force_at
from filtering.subscriptions.subscription_row import SubscriptionRow


class FiltersInForce:
    """The message filters of one group, from all states (``rows``) of its subscriptions."""

    def __init__(self, rows: Sequence[SubscriptionRow], config: BrokerConfig) -> None:
        self._rows = rows
        self._config = config

    def is_pulling(self, row: SubscriptionRow) -> bool:
        """Whether the group is online with this subscription, and the broker accepts its pulls."""
        return is_pulling(row, self._config)

    def at(self, row: SubscriptionRow, instant: int) -> MessageFilter:
        """The filter of a subscription that is pulling at an instant (ms)."""
        others = in_force_at(self._rows, instant) if reads_others(row, self._config) else ()
        found = message_filter(row, others, self._config)
        assert found is not None
        return found

    def during(self, row: SubscriptionRow, begin: int, end: int) -> Iterable[tuple[int, int, MessageFilter]]:
        """The filters of a subscription in [``begin``, ``end``) (ms), each with its part of that interval."""
        cuts = [begin, end]
        if reads_others(row, self._config):
            cuts[1:1] = sorted({other.valid_from for other in self._rows if begin < other.valid_from < end})
        for start, stop in pairwise(cuts):
            yield start, stop, self.at(row, max(start, row.valid_from))


class NightFilters:
    """The message filters of all groups in a night, from its history of subscriptions and its configuration."""

    def __init__(self, history: Iterable[SubscriptionRow], config: BrokerConfig) -> None:
        rows_of_group: defaultdict[str, list[SubscriptionRow]] = defaultdict(list)
        for row in history:
            rows_of_group[row.consumer_group].append(row)
        self._filters = {group: FiltersInForce(rows, config) for group, rows in rows_of_group.items()}
        self._rows = {(*row.key, row.valid_from): row for rows in rows_of_group.values() for row in rows}

    def at(self, key: GroupTopic, valid_from: int, instant: int) -> MessageFilter:
        """The filter at an instant (ms) of the subscription of a group and topic that is in force since then (ms)."""
        return self._filters[key[0]].at(self._rows[(*key, valid_from)], instant)
