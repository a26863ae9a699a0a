"""What clients of a group do not get because another client's subscription is in force instead of theirs.

Source: ConsumerGroupInfo.updateSubscription, ExpressionMessageFilter, PullAPIWrapper.processPullResult.
The broker filters every pull of the group by the one subscription that it holds; a client then
compares tags with those of its own. So a client loses what its own subscription passes at the
broker and at the client, and the one in force does not pass at the broker.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from filtering.broker_config import BrokerConfig
from filtering.consumer_filter_manager import Subscription
from filtering.delivery import bit_planes
from filtering.delivery.entries import Entries
from filtering.delivery.match_sets import MatchSet
from filtering.delivery.message_filter import MessageFilter, message_filters
from filtering.delivery.pull_window import FOREVER, PullWindow
from filtering.delivery.topic_filters import TopicFilters
from filtering.subscriptions.events import Operation, SubscriptionEvent
from filtering.subscriptions.history import SubscriptionRow, subscription_history
from filtering.subscriptions.in_force import in_force_at
from filtering.subscriptions.inconsistency import ClientSubscription, SubscriptionInForce

LOST = pa.schema(
    [
        ("loss", pa.int32()),
        ("topic", pa.string()),
        ("queue_id", pa.int32()),
        ("queue_offset", pa.int64()),
        ("commitlog_offset", pa.int64()),
        ("store_timestamp", pa.int64()),
    ]
)
"""``loss`` is an index into the losses; times are ms."""


@dataclass(frozen=True)
class Loss:
    """A subscription of ``clients`` that was overruled for messages stored in an interval.

    ``in_force`` is the filter that the group's pulls met instead, None where they were refused: then
    nothing is lost yet, and what ``own`` passes waits for a subscription that the broker answers.
    """

    interval: SubscriptionInForce
    clients: tuple[str, ...]
    own: MessageFilter
    in_force: MessageFilter | None


def losses(
    intervals: Iterable[SubscriptionInForce], history: Sequence[SubscriptionRow], broker: BrokerConfig
) -> list[Loss]:
    """What each distinct overruled subscription may lose; ``history`` is of the same events as ``intervals``.

    A subscription whose pulls the broker would refuse loses nothing.
    """
    found = []
    for interval in intervals:
        by_filter: dict[MessageFilter, list[str]] = {}
        for client in interval.overruled:
            for own in _own_filter(interval, client, broker):
                by_filter.setdefault(own, []).append(client.client_id)
        if by_filter:
            in_force = _filter_in_force(interval, history, broker)
            found += [Loss(interval, tuple(clients), own, in_force) for own, clients in by_filter.items()]
    return found


def _own_filter(interval: SubscriptionInForce, client: ClientSubscription, broker: BrokerConfig) -> list[MessageFilter]:
    """The filter of a client's own subscription were it in force; none where its pulls would be refused.

    The bit maps on disk were made for another expression, so it uses none.
    """
    subscription = Subscription(
        topic=interval.topic,
        expression=client.expression,
        type=client.expression_type,
        version=1,
        class_filter_mode=client.class_filter_mode,
    )
    event = SubscriptionEvent(interval.valid_from, Operation.REGISTER, interval.consumer_group, (subscription,))
    filters = message_filters(subscription_history([event], broker)[-1:], broker)
    return [replace(each, bit_pos=(), born_time=0) for each in filters]


def _filter_in_force(
    interval: SubscriptionInForce, history: Sequence[SubscriptionRow], broker: BrokerConfig
) -> MessageFilter | None:
    if interval.expression is None:
        return None
    key = (interval.consumer_group, interval.topic)
    of_group = [row for row in history if row.consumer_group == interval.consumer_group]
    filters = message_filters(in_force_at(of_group, interval.valid_from), broker)
    return next((each for each in filters if (each.consumer_group, each.topic) == key), None)


class LostMessages:
    """Picklable, so that Spark can send it to its workers."""

    def __init__(self, all_losses: Sequence[Loss], bit_num: int) -> None:
        """``bit_num``: bits of a filter bit map as the broker is configured."""
        self._of_topic = {
            topic: _LossesOfTopic([(i, loss) for i, loss in enumerate(all_losses) if loss.own.topic == topic], bit_num)
            for topic in {loss.own.topic for loss in all_losses}
        }

    @property
    def properties(self) -> dict[str, tuple[str, ...]]:
        """The message properties that are read, by topic."""
        return {topic: of_topic.filters.properties for topic, of_topic in self._of_topic.items()}

    def __call__(self, blocks: Iterable[Entries]) -> pa.Table:
        """The columns of LOST, a row a message and loss."""
        batches = [self._of_topic[entries.topic].lost(entries) for entries in blocks if entries.topic in self._of_topic]
        return pa.Table.from_batches([batch for batch in batches if batch.num_rows], LOST)


class _LossesOfTopic:
    def __init__(self, numbered: Sequence[tuple[int, Loss]], bit_num: int) -> None:
        self._numbered = numbered
        windows = [_window(loss, loss.own) for _, loss in numbered]
        windows += [_window(loss, loss.in_force) for _, loss in numbered if loss.in_force is not None]
        self.filters = TopicFilters(bit_num, windows=windows)

    def lost(self, entries: Entries) -> pa.RecordBatch:
        outcome = self.filters.run(entries)
        wanted = _flags([*outcome.delivered], self.filters.windows, len(entries))
        returned = _flags([*outcome.delivered, *outcome.dropped_by_client], self.filters.windows, len(entries))
        in_force = iter(returned[len(self._numbered) :])
        rows, numbers = [], []
        for (number, loss), lost in zip(self._numbered, wanted, strict=False):
            positions = np.flatnonzero(lost & ~next(in_force) if loss.in_force is not None else lost)
            rows.append(positions)
            numbers.append(np.full(len(positions), number, np.int32))
        at = np.concatenate(rows)
        columns = [
            pa.array(np.concatenate(numbers)),
            pa.repeat(entries.topic, len(at)),
            *(pa.array(getattr(entries, name)[at]) for name in LOST.names[2:]),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=LOST)


def _window(loss: Loss, message_filter: MessageFilter) -> PullWindow:
    """The messages that were stored in the interval of a loss."""
    interval = loss.interval
    end = FOREVER if interval.valid_to is None else interval.valid_to
    return PullWindow(message_filter, interval.valid_from, interval.valid_from, end)


def _flags(sets: Iterable[MatchSet], windows: int, rows: int) -> npt.NDArray[np.bool_]:
    """Which entries went to each window, shape (windows, rows)."""
    flags = np.zeros((windows, rows), bool)
    for each in sets:
        flags[list(each.windows)] |= bit_planes.unpack(each.bits, rows)
    return flags
