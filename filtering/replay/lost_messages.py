"""What clients of a group do not get because another client's subscription is in force instead of theirs.

Source: ConsumerGroupInfo.updateSubscription, ExpressionMessageFilter, PullAPIWrapper.processPullResult.
The broker filters every pull of the group by the one subscription that it holds; a client then
compares tags with those of its own. So a client loses what its own subscription passes at the
broker and at the client, and the one in force does not pass at the broker.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from filtering.broker_config import BrokerConfig
from filtering.consumer_filter_manager import Subscription
from filtering.replay import bit_planes
from filtering.replay.delivered_sets import Delivered
from filtering.replay.delivery import Delivery
from filtering.replay.message_filter import MessageFilter, message_filters
from filtering.subscriptions.events import Operation, SubscriptionEvent
from filtering.subscriptions.history import SubscriptionRow, subscription_history
from filtering.subscriptions.in_force import in_force_at
from filtering.subscriptions.inconsistency import ClientSubscription, SubscriptionInForce

LOST_TYPES = (
    "loss int, topic string, queue_id int, queue_offset bigint, commitlog_offset bigint, store_timestamp bigint"
)
LOST_COLUMNS = ("topic", "queue_id", "queue_offset", "commitlog_offset", "store_timestamp")


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

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Batches of delivery_blocks.ENTRY_COLUMNS to batches of LOST_TYPES, a row a message and loss (its index)."""
        for batch in batches:
            for topic in pc.unique(batch["topic"]).to_pylist():
                if topic in self._of_topic:
                    yield from self._of_topic[topic].lost(batch.filter(pc.equal(batch["topic"], topic)))


class _LossesOfTopic:
    def __init__(self, numbered: Sequence[tuple[int, Loss]], bit_num: int) -> None:
        self._numbered = list(numbered)
        self._own = Delivery([loss.own for _, loss in numbered], bit_num)
        answered = [loss.in_force for _, loss in numbered if loss.in_force is not None]
        self._in_force = Delivery(answered, bit_num)

    def lost(self, entries: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        times = entries["store_timestamp"].to_numpy()
        pulled = (entries["properties"], entries["tags_code"], times, entries["filter_bit_map"])
        wanted = self._own.run(*pulled)
        returned = self._in_force.run(*pulled)
        own = _flags(wanted.delivered, len(self._own.consumer_groups), len(times))
        in_force = iter(
            _flags([*returned.delivered, *returned.dropped_by_client], len(self._in_force.consumer_groups), len(times))
        )
        for (number, loss), lost in zip(self._numbered, own, strict=True):
            if loss.in_force is not None:
                lost &= ~next(in_force)
            lost &= times >= loss.interval.valid_from
            if loss.interval.valid_to is not None:
                lost &= times < loss.interval.valid_to
            positions = pa.array(np.flatnonzero(lost))
            if len(positions):
                numbers = pa.array(np.full(len(positions), number, np.int32))
                columns = [entries[name].take(positions) for name in LOST_COLUMNS]
                yield pa.RecordBatch.from_arrays([numbers, *columns], ["loss", *LOST_COLUMNS])


def _flags(shared: Iterable[Delivered], filters: int, rows: int) -> npt.NDArray[np.bool_]:
    """Which entries went to each filter, shape (filters, rows)."""
    flags = np.zeros((filters, rows), bool)
    for each in shared:
        flags[list(each.filters)] = bit_planes.unpack(each.bits, rows)
    return flags
