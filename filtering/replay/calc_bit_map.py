"""The filter bit map of each message, a batch at a time.

Source: org.apache.rocketmq.broker.filter.CommitLogDispatcherCalcBitMap.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from filtering import sql92
from filtering.broker_config import BrokerConfig
from filtering.matcher import Matcher
from filtering.predicate import Predicate
from filtering.replay import bit_planes
from filtering.subscriptions.history import SubscriptionRow

FOREVER = int(np.iinfo(np.int64).max)
BITS_AT_ONCE = 1 << 26


@dataclass(frozen=True)
class FilterDataInForce:
    """A ConsumerFilterData and the store times (ms, end exclusive) at which the broker held it, dead or alive."""

    predicate: Predicate
    bit_pos: tuple[int, ...]
    valid_from: int
    valid_to: int = FOREVER


def filter_data_in_force(
    history: Iterable[SubscriptionRow], broker: BrokerConfig
) -> dict[str, list[FilterDataInForce]]:
    """By topic, the filter data that the broker held and when; none where it computes no bit maps."""
    if not (broker.enable_calc_filter_bit_map and broker.enable_consume_queue_ext):
        return {}
    by_topic: dict[str, list[FilterDataInForce]] = defaultdict(list)
    for row in history:
        if row.filter_expression is not None and row.bit_pos is not None:
            valid_to = FOREVER if row.valid_to is None else row.valid_to
            predicate = sql92.compile(row.filter_expression).predicate
            by_topic[row.topic].append(FilterDataInForce(predicate, row.bit_pos, row.valid_from, valid_to))
    return dict(by_topic)


class CalcBitMap:
    """Computes the bit maps of one topic's messages. Picklable, so that Spark can send it to its workers."""

    def __init__(self, filter_data: Sequence[FilterDataInForce], bit_num: int) -> None:
        """``bit_num``: bits of a bit map, a multiple of 8."""
        predicates = list(dict.fromkeys(data.predicate for data in filter_data))
        index = {predicate: i for i, predicate in enumerate(predicates)}
        self._matcher = Matcher(predicates)
        self._in_force = [(index[data.predicate], data.bit_pos, data.valid_from, data.valid_to) for data in filter_data]
        self._bit_num = bit_num

    def bit_maps(self, properties: pa.Array, store_timestamps: npt.NDArray[np.int64]) -> pa.Array:
        """One bit map a message (binary, bit_num / 8 bytes, LSB first); null where the topic had no filter data.

        ``properties``: what Matcher.match takes; ``store_timestamps``: ms, as many.
        """
        step = max(64, BITS_AT_ONCE // self._bit_num)
        parts = [
            self._bit_maps_of(properties.slice(start, step), store_timestamps[start : start + step])
            for start in range(0, len(store_timestamps), step)
        ]
        return pa.concat_arrays(parts) if parts else pa.array([], pa.binary())

    def _bit_maps_of(self, properties: pa.Array, store_timestamps: npt.NDArray[np.int64]) -> pa.Array:
        rows = len(store_timestamps)
        matched = self._matcher.match(properties).bits
        planes = np.zeros((self._bit_num, bit_planes.words(rows)), np.uint64)
        has_filter_data = np.zeros(rows, bool)
        for predicate, bit_pos, valid_from, valid_to in self._in_force:
            in_force = (store_timestamps >= valid_from) & (store_timestamps < valid_to)
            if not in_force.any():
                continue
            has_filter_data |= in_force
            hits = matched[predicate] if in_force.all() else matched[predicate] & bit_planes.pack(in_force)
            for position in bit_pos:
                planes[position] |= hits
        return bit_planes.to_bit_maps(planes, has_filter_data)
