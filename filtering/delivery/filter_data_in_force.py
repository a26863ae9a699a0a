"""Which filters set bits in the filter bit maps, and when.

Source: org.apache.rocketmq.broker.filter.CommitLogDispatcherCalcBitMap.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from filtering.broker_config import BrokerConfig
from filtering.delivery.pull_window import FOREVER
from filtering.predicate import Predicate
from filtering.subscriptions.subscription_row import SubscriptionRow


@dataclass(frozen=True)
class FilterDataInForce:
    """A ConsumerFilterData, dead or alive, and the interval (ms, end exclusive) in which the broker had it."""

    predicate: Predicate
    bit_pos: tuple[int, ...]
    valid_from: int
    valid_to: int = FOREVER


def filter_data_in_force(
    history: Iterable[SubscriptionRow], broker: BrokerConfig
) -> dict[str, list[FilterDataInForce]]:
    """By topic, the filter data that the broker had, and when. Empty if the broker computes no bit maps."""
    if not broker.calculates_bit_maps:
        return {}
    by_topic: dict[str, list[FilterDataInForce]] = defaultdict(list)
    for row in history:
        data = row.filter_data
        if data is not None and data.compiled is not None:
            valid_to = FOREVER if row.valid_to is None else row.valid_to
            by_topic[row.topic].append(
                FilterDataInForce(data.compiled.predicate, data.bit_pos, row.valid_from, valid_to)
            )
    return dict(by_topic)
