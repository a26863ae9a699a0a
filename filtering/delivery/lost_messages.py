"""Messages that clients of a group lose because another client's subscription is in force instead of theirs.

Source: ConsumerGroupInfo.updateSubscription, ExpressionMessageFilter, PullAPIWrapper.processPullResult.
The broker filters every pull of the group by the one subscription that it has; a client then compares tags with
those of its own subscription. So a client loses a message if its own subscription lets it pass, at the broker and at
the client, but the subscription in force stops it at the broker.

If the group pops, each request is filtered by its own subscription, and its queue goes on after what it read. So a
client loses a message that its own subscription lets pass, if the pop of another client read it first and passed it
over. Source: PopMessageProcessor.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from filtering.broker_config import BrokerConfig
from filtering.delivery.entries import Entries
from filtering.delivery.message_filter import MessageFilter, message_filter
from filtering.delivery.pull_window import FOREVER, PullWindow
from filtering.delivery.topic_filters import TopicFilters
from filtering.subscription_data import SUB_ALL, TAG, new_subscription
from filtering.subscriptions.history import in_force_at, registered_alone
from filtering.subscriptions.inconsistency import ClientSubscription, GroupClients
from filtering.subscriptions.subscription_row import SubscriptionRow

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
"""One row for each message and loss. ``loss`` is an index into the losses; times are in ms."""


@dataclass(frozen=True)
class Loss:
    """A subscription of ``clients`` that was overruled in a state of its group.

    It counts for the messages stored in that state. ``own`` is the subscription's filter. ``in_force`` is the filter
    that the broker used instead. It is None if the broker refused the group's pulls: then the messages that ``own``
    lets pass are not lost but wait for a pull that is answered. It is also None for a group that pops.
    """

    state: GroupClients
    clients: tuple[str, ...]
    own: MessageFilter
    in_force: MessageFilter | None


def losses(states: Iterable[GroupClients], history: Sequence[SubscriptionRow], broker: BrokerConfig) -> list[Loss]:
    """A loss for each distinct overruled subscription. ``history`` must be of the same events as ``states``.

    A subscription whose pulls the broker would refuse loses nothing.
    """
    result = []
    for state in states:
        by_filter: dict[MessageFilter, list[str]] = {}
        for client in state.overruled:
            own = _own_filter(state, client, broker)
            if own is not None:
                by_filter.setdefault(own, []).append(client.client_id)
        if by_filter:
            in_force = _filter_in_force(state, history, broker)
            result += [Loss(state, tuple(clients), own, in_force) for own, clients in by_filter.items()]
    return result


def losses_of_pops(states: Iterable[GroupClients], broker: BrokerConfig) -> list[Loss]:
    """A loss for each distinct subscription of clients of groups that pop. None is in force for all."""
    result = []
    for state in states:
        by_filter: dict[MessageFilter, list[str]] = {}
        agreeing = [
            ClientSubscription(
                client, state.expression or SUB_ALL, state.expression_type or TAG, state.class_filter_mode
            )
            for client in (state.agreeing if state.expression_type is not None else ())
        ]
        for client in (*agreeing, *state.overruled):
            own = _own_filter(state, client, broker, pops=True)
            if own is not None:
                by_filter.setdefault(own, []).append(client.client_id)
        if len(by_filter) > 1:
            result += [Loss(state, tuple(clients), own, None) for own, clients in by_filter.items()]
    return result


def _own_filter(
    state: GroupClients, client: ClientSubscription, broker: BrokerConfig, pops: bool = False
) -> MessageFilter | None:
    """The filter that a client's own subscription would have in force; None if its pulls or pops would be refused.

    It uses no bit map, because the stored bit maps were made for another expression.
    """
    subscription = new_subscription(state.topic, client.expression, client.expression_type, 1, client.class_filter_mode)
    row = replace(registered_alone(state.consumer_group, subscription, broker), pops=pops)
    own = message_filter(row, [row], broker)
    return None if own is None else replace(own, bit_pos=(), born_time=0)


def _filter_in_force(
    state: GroupClients, history: Sequence[SubscriptionRow], broker: BrokerConfig
) -> MessageFilter | None:
    if state.expression is None:
        return None
    group_rows = [row for row in history if row.consumer_group == state.consumer_group]
    in_force = in_force_at(group_rows, state.valid_from)
    row = next((row for row in in_force if row.key == state.key), None)
    return None if row is None else message_filter(row, in_force, broker)


class LostMessages:
    """Finds the lost messages. Picklable, so that Spark can send it to its workers."""

    def __init__(self, all_losses: Sequence[Loss], bit_num: int) -> None:
        """``bit_num``: the bits of a filter bit map in the broker's configuration."""
        self._by_topic = {
            topic: _LossesOfTopic([(i, loss) for i, loss in enumerate(all_losses) if loss.own.topic == topic], bit_num)
            for topic in {loss.own.topic for loss in all_losses}
        }

    @property
    def properties(self) -> dict[str, tuple[str, ...]]:
        """The message properties that are read, by topic."""
        return {topic: topic_losses.filters.properties for topic, topic_losses in self._by_topic.items()}

    def __call__(self, blocks: Iterable[Entries]) -> pa.Table:
        """A table of LOST."""
        batches = [self._by_topic[entries.topic].lost(entries) for entries in blocks if entries.topic in self._by_topic]
        return pa.Table.from_batches([batch for batch in batches if batch.num_rows], LOST)


class _LossesOfTopic:
    """The losses of one topic, each with its number among all losses.

    They run as pull windows of one TopicFilters: the clients' own filter of each loss, then the filters in force.
    """

    def __init__(self, numbered: Sequence[tuple[int, Loss]], bit_num: int) -> None:
        self._numbered = numbered
        windows = [_window(loss, loss.own) for _, loss in numbered]
        windows += [_window(loss, loss.in_force) for _, loss in numbered if loss.in_force is not None]
        self.filters = TopicFilters(bit_num, windows=windows)

    def lost(self, entries: Entries) -> pa.RecordBatch:
        """The lost messages among a block of entries, as LOST."""
        block = self.filters.run(entries)
        delivered = block.delivered.flags(self.filters.window_count)
        returned = delivered | block.dropped_by_client.flags(self.filters.window_count)
        in_force = iter(returned[len(self._numbered) :])
        rows, numbers = [], []
        for (number, loss), own in zip(self._numbered, delivered, strict=False):
            positions = np.flatnonzero(own & ~next(in_force) if loss.in_force is not None else own)
            rows.append(positions)
            numbers.append(np.full(len(positions), number, np.int32))
        at = np.concatenate(rows)
        columns = [
            pa.array(np.concatenate(numbers)),
            pa.repeat(entries.topic, len(at)),
            *(pa.array(getattr(entries, name)[at]) for name in LOST.names[2:]),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=LOST)


def _window(loss: Loss, decides: MessageFilter) -> PullWindow:
    """The window of the messages that were stored in the state of a loss."""
    state = loss.state
    end = FOREVER if state.valid_to is None else state.valid_to
    return PullWindow(decides, state.valid_from, state.valid_from, end)
