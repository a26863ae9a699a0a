"""Clients of one group that subscribe differently: which subscription wins, and which messages are lost.

The broker filters every pull of the group by the one subscription that it has; a client then compares tags with
those of its own subscription. So a client loses a message if its own subscription lets it pass, at the broker and at
the client, but the subscription in force stops it at the broker.
Source: ConsumerGroupInfo.updateSubscription, ExpressionMessageFilter, PullAPIWrapper.processPullResult.

If the group pops, each request is filtered by its own subscription, and its queue goes on after what it read. So a
client loses a message that its own subscription lets pass, if the pop of another client read it first and passed it
over. Source: PopMessageProcessor.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import groupby

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from answers.facts import BrokerFacts
from answers.pull_history import popped_ranges
from filtering.broker_config import BrokerConfig
from filtering.consumption.clients import client_checks, dropping_clients, passes_in_force
from filtering.counted import counted
from filtering.delivery import Outcome
from filtering.delivery.entries import Entries
from filtering.delivery.message_filter import TAGS_PROPERTY, MessageFilter, message_filter
from filtering.delivery.pull_window import PullWindow
from filtering.delivery.topic_filters import TopicFilters
from filtering.frozen import frozen
from filtering.subscription_data import Filter, new_subscription
from filtering.subscriptions.events import ConsumeMode, GroupTopic
from filtering.subscriptions.history import in_force_at, registered_alone
from filtering.subscriptions.inconsistency import (
    GroupClients,
    SeemingDisagreement,
    group_clients,
    seeming_disagreements,
)
from filtering.subscriptions.subscription_row import SubscriptionRow
from schemas.arrow_batches import schema_of, table_of
from schemas.commitlog import COMMITLOG
from schemas.deliveries import DELIVERY_BLOCKS, PAIRS, pairs_of
from schemas.delta.table_rows import one_of, sorted_by, within
from schemas.messages.stored_messages import scan_entries
from schemas.run_ledger import LedgerEntry
from schemas.spark_tasks import Session
from schemas.tables import DELIVERY_STATS, client_drops

STOPPED, DROPPED, WAITING, PASSED_OVER = "STOPPED_BY_BROKER", "DROPPED_BY_CLIENT", "WAITING", "PASSED_OVER"
"""Why clients do not get a message: another subscription stops it, the client of the queue drops it, it waits, or
another client's pop read it, and passed it over for all."""
_LOSS_SCHEMA = pa.schema(
    [
        ("consumer_group", pa.string()),
        ("clients", pa.list_(pa.string())),
        ("valid_from", pa.int64()),
        ("valid_to", pa.int64()),
        ("lost", pa.bool_()),
        ("how", pa.string()),
    ]
)
"""The columns of ``lost_rows`` that describe a loss. Times are in ms."""


@frozen
class ClientsLoss:
    """What ``clients`` of a group do not get in a state, and ``how`` that is. Messages that only wait are not lost.

    Of DROPPED messages, one of the clients reads the queue.
    """

    state: GroupClients
    clients: tuple[str, ...]
    how: str

    @property
    def is_lost(self) -> bool:
        return self.how != WAITING


@frozen
class Disagreements:
    """``states`` in which clients disagree, the possible ``losses``, and the lost ``messages`` (rows of LOST).

    ``seeming``: disagreements of clients without ids. ``nights``: of the broker, with ``uncertain_by_run``: by group,
    topic and run, the messages of which it is not known whether a client lost them. ``has_queue_ids``: whether
    messages have real ones; if not, those of all disagreements are uncertain.
    """

    states: Sequence[GroupClients]
    losses: Sequence[ClientsLoss]
    messages: pa.Table
    seeming: Sequence[SeemingDisagreement]
    nights: Sequence[LedgerEntry]
    uncertain_by_run: Mapping[tuple[object, ...], Mapping[str, int]]
    has_queue_ids: bool

    def losses_in(self, state: GroupClients) -> Sequence[tuple[ClientsLoss, int]]:
        """The losses in a state, each with its number of messages."""
        return self._by_state.get(state, ())

    def uncertain_in(self, states: Sequence[GroupClients | SeemingDisagreement]) -> int:
        """The uncertain messages of the nights in which a group and topic had one of ``states``."""
        if self.has_queue_ids and isinstance(states[0], GroupClients):
            return 0
        key = states[0].key
        return sum(
            self.uncertain_by_run.get((*key, night.run), {}).get("uncertain", 0)
            for before, night in zip([None, *self.nights], self.nights, strict=False)
            if any(
                (night.as_of or 0) >= each.valid_from and (before is None or (before.as_of or 0) < each.end)
                for each in states
            )
        )

    @cached_property
    def _by_state(self) -> Mapping[GroupClients, Sequence[tuple[ClientsLoss, int]]]:
        counts = np.bincount(self.messages["loss"].to_numpy(), minlength=len(self.losses)).tolist()
        by_state = defaultdict(list)
        for loss, messages in zip(self.losses, counts, strict=True):
            by_state[loss.state].append((loss, messages))
        return by_state


@frozen
class InconsistentGroup:
    """A group whose clients disagree on a topic, or seem to.

    ``description`` is that of the last such state. ``lost`` counts the messages that clients lost in all states. If
    the clients have no ids and only seem to disagree, or the messages have no queue ids, ``uncertain`` counts those of
    which it is not known.
    """

    consumer_group: str
    topic: str
    description: str
    lost: int
    seems: bool = False
    uncertain: int = 0

    @property
    def text(self) -> str:
        """The last state, and the number of lost or uncertain messages."""
        if self.seems:
            deliveries = counted(self.uncertain, "delivery is", "deliveries are")
            return f"{self.description}; {deliveries} uncertain"
        lost = f"{self.description}; {counted(self.lost, 'message')} lost to clients"
        if not self.uncertain:
            return lost
        deliveries = counted(self.uncertain, "delivery is", "deliveries are")
        return f"{lost}; {deliveries} uncertain, as the messages have no queue ids"


# Which messages are lost, on workers.


LOST = schema_of(
    "loss int32, topic string, queue_id int32, queue_offset int64, commitlog_offset int64, store_timestamp int64"
)
"""One row for each message and loss. ``loss`` is an index into the losses; times are in ms."""


@frozen
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
            own = _own_filter(state, client.filter, broker)
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
        for each, clients in state.filters.items():
            own = _own_filter(state, each, broker, ConsumeMode.POP)
            if own is not None:
                by_filter.setdefault(own, []).extend(clients)
        if len(by_filter) > 1:
            result += [Loss(state, tuple(clients), own, None) for own, clients in by_filter.items()]
    return result


def _own_filter(
    state: GroupClients, filter: Filter, broker: BrokerConfig, mode: ConsumeMode = ConsumeMode.PULL
) -> MessageFilter | None:
    """The message filter of clients' own subscription, if it were in force; None if the broker would refuse it.

    It uses no bit map, because the stored bit maps were made for another expression.
    """
    expression, expression_type, is_filter_class = filter
    subscription = new_subscription(state.topic, expression, expression_type, 1, is_filter_class)
    row = replace(registered_alone(state.consumer_group, subscription, broker), mode=mode)
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
    return PullWindow(decides, state.valid_from, state.valid_from, state.end)


def knows_clients(facts: BrokerFacts) -> bool:
    """Whether any event has a client id. Without one, the clients of a group cannot be distinguished."""
    return any(event.client_id is not None for event in facts.events)


def disagreements(facts: BrokerFacts, session: Session | None) -> Disagreements:
    """All disagreements of clients of one group, by group, topic and time."""
    states = [state for state in group_clients(facts.events) if not state.is_consistent]
    pulled = [state for state in states if state.key not in facts.pops.recorded]
    stopped = losses(pulled, facts.history, facts.broker) if pulled else []
    lost_to_pops = losses_of_pops([state for state in states if state.key in facts.pops.recorded], facts.broker)
    tables = [LOST.empty_table()]
    if stopped or lost_to_pops:
        lost = LostMessages([*stopped, *lost_to_pops], facts.broker.bloom_filter.m)
        scanned = pa.concat_tables(scan_entries(facts.warehouse, facts.name, lost.properties, lost, session))
        is_of_pops = pc.greater_equal(scanned["loss"], len(stopped))
        tables.append(scanned.filter(pc.invert(is_of_pops)))
        tables += _passed_over(facts, scanned.filter(is_of_pops), [*stopped, *lost_to_pops])
    clients_losses = [
        ClientsLoss(loss.state, loss.clients, WAITING if loss.in_force is None else STOPPED) for loss in stopped
    ]
    clients_losses += [ClientsLoss(loss.state, loss.clients, PASSED_OVER) for loss in lost_to_pops]
    numbers = {loss: number for number, loss in enumerate(clients_losses)}
    counted_stages = ["passed_stage2", "delivered", "dropped_by_hook"]
    stages = facts.sums(DELIVERY_STATS, ["consumer_group", "topic"], counted_stages) if states else {}
    with_drops = {key for key, counts in stages.items() if client_drops(counts)}
    for key, key_states in groupby(states, lambda state: state.key):
        # Which client popped a message, and so whose tags were compared, is in no record.
        for loss, rows in (
            _dropped(facts, key, list(key_states)) if key in with_drops - facts.pops.recorded.keys() else ()
        ):
            number = pa.scalar(numbers.setdefault(loss, len(numbers)), pa.int32())
            tables.append(rows.add_column(0, LOST.field("loss"), pa.repeat(number, len(rows))).cast(LOST))
    seeming = seeming_disagreements(facts.history, facts.events)
    has_queue_ids = facts.last.has_queue_ids
    is_any_uncertain = seeming or (states and not has_queue_ids)
    by_run = ["consumer_group", "topic", "run"]
    uncertain = facts.sums(DELIVERY_STATS, by_run, ["uncertain"]) if is_any_uncertain else {}
    return Disagreements(
        states, list(numbers), pa.concat_tables(tables), seeming, facts.nights, uncertain, has_queue_ids
    )


def _passed_over(facts: BrokerFacts, matching: pa.Table, losses: Sequence[Loss]) -> Iterator[pa.Table]:
    """The messages that match the subscription of some clients, that pops went past, and that none handed out."""
    names = ["consumer_group", "topic", "queue_id", "queue_offset"]
    popped = popped_ranges(facts, {loss.state.key for loss in losses})
    pops = facts.recorded_pops(names, [one_of("topic", {loss.state.topic for loss in losses})])
    for key in dict.fromkeys(loss.state.key for loss in losses):
        numbers = [number for number, loss in enumerate(losses) if loss.state.key == key]
        rows = matching.filter(pc.is_in(matching["loss"], pa.array(numbers, pa.int32())))
        group = pc.and_(pc.equal(pops["consumer_group"], key[0]), pc.equal(pops["topic"], key[1]))
        for queue_id in pc.unique(rows["queue_id"]).to_pylist():
            if queue_id in popped[key]:
                queue_rows = rows.filter(pc.equal(rows["queue_id"], queue_id))
                (first, end), offsets = popped[key][queue_id], queue_rows["queue_offset"]
                is_read = pc.and_(pc.greater_equal(offsets, first), pc.less(offsets, end))
                handed_out = pops.filter(pc.and_(group, pc.equal(pops["queue_id"], queue_id)))["queue_offset"]
                yield queue_rows.filter(pc.and_not(is_read, pc.is_in(offsets, handed_out.combine_chunks())))


def _dropped(
    facts: BrokerFacts, key: GroupTopic, states: Sequence[GroupClients]
) -> Iterator[tuple[ClientsLoss, pa.Table]]:
    """What clients of a group dropped although the subscription in force let it pass: by loss, rows of LOST.

    A message that the group got at another time is not lost.
    """
    drops = pa.Table.from_batches(_pairs(facts, key, Outcome.DROPPED_BY_CLIENT), PAIRS)
    dropped = drops["commitlog_offset"].combine_chunks()
    received = [batch["commitlog_offset"] for batch in _pairs(facts, key, Outcome.DELIVERED)]
    again = [offsets.filter(pc.is_in(offsets, dropped)) for offsets in received]
    lost = drops.filter(pc.invert(pc.is_in(dropped, pa.concat_arrays([dropped[:0], *again]))))
    rows, dropped_at = _messages(facts, key[1], sorted_by(lost, "commitlog_offset", "available_at"))
    tags = rows["tags"].combine_chunks().dictionary_encode()
    codes = tags.indices.fill_null(len(tags.dictionary)).to_numpy()
    for state in states:
        in_state = (state.valid_from <= dropped_at) & (dropped_at < state.end)
        for code, tag in enumerate([*tags.dictionary.to_pylist(), None]) if state.expression_type is not None else ():
            properties = {} if tag is None else {TAGS_PROPERTY: tag}
            has_tag = in_state & (codes == code)
            if has_tag.any() and passes_in_force(state, properties):
                clients = tuple(dropping_clients(client_checks(state), properties))
                yield ClientsLoss(state, clients, DROPPED), rows.select(LOST.names[1:]).filter(pa.array(has_tag))


def _pairs(facts: BrokerFacts, key: GroupTopic, outcome: Outcome) -> Iterator[pa.RecordBatch]:
    """The deliveries of a group on a topic with an outcome, as PAIRS."""
    for blocks in facts.row_groups(DELIVERY_BLOCKS, where=[one_of("topic", [key[1]])]):
        yield from pairs_of(blocks, [key[0]], [outcome])


def _messages(facts: BrokerFacts, topic: str, pairs: pa.Table) -> tuple[pa.Table, NDArray[np.int64]]:
    """The messages of pairs, which are in the order of the log and of time, and when each was available last (ms)."""
    offsets, times = pairs["commitlog_offset"].to_numpy(), pairs["available_at"].to_numpy()
    is_last = np.append(offsets[1:] != offsets[:-1], [True] * min(len(offsets), 1))
    offsets, times = offsets[is_last], times[is_last]
    bounds = (int(offsets[0]), int(offsets[-1]) + 1) if len(offsets) else (0, 0)
    where = [one_of("topic", [topic]), within("commitlog_offset", *bounds)]
    rows = facts.rows(COMMITLOG, [*LOST.names[1:], "tags"], where)
    at = np.searchsorted(offsets, rows["commitlog_offset"].to_numpy())
    is_lost = np.isin(rows["commitlog_offset"].to_numpy(), offsets)
    return rows.filter(pa.array(is_lost)), times[at[is_lost]]


def inconsistent_groups(facts: BrokerFacts, session: Session | None) -> list[InconsistentGroup]:
    """The groups and topics with disagreements, or with seeming ones."""
    all_disagreements = disagreements(facts, session)
    groups = []
    for (group, topic), states in groupby(all_disagreements.states, lambda state: state.key):
        topic_states = list(states)
        lost = sum(
            messages for state in topic_states for loss, messages in all_disagreements.losses_in(state) if loss.is_lost
        )
        uncertain = all_disagreements.uncertain_in(topic_states)
        text = describe(topic_states[-1], pops=topic_states[-1].key in facts.pops.recorded)
        groups.append(InconsistentGroup(group, topic, text, lost, uncertain=uncertain))
    for (group, topic), seeming_states in groupby(all_disagreements.seeming, lambda each: each.key):
        seeming = list(seeming_states)
        groups.append(
            InconsistentGroup(group, topic, seeming[-1].text, 0, True, all_disagreements.uncertain_in(seeming))
        )
    return groups


def describe(state: GroupClients, pops: bool = False) -> str:
    """Which subscription wins, which clients are overruled, and which do not subscribe to the topic at all.

    ``pops``: the group pops, so that none wins.
    """
    own = "; ".join(f"{client.client_id} ({_expression(client.expression)})" for client in state.overruled)
    if pops:
        agreeing = f"{', '.join(state.agreeing) or 'a client that left'} ({_expression(state.expression)})"
        return (
            f"each pop is filtered by the subscription of its own client: {'; '.join(filter(None, [agreeing, own]))}. "
            "What it does not match is passed over for all"
        )
    if state.expression is None:
        parts = ["no subscription is in force, pulls are refused", f"without effect: {own}"]
    else:
        wins = f"{_expression(state.expression)} of {', '.join(state.agreeing) or 'a client that left'} is in force"
        parts = [wins, f"overruled: {own}"] if own else [wins]
    if state.absent:
        parts.append(f"not subscribed: {', '.join(state.absent)}, so their share of the queues is not read")
    return "; ".join(parts)


def _expression(expression: str | None) -> str:
    return " ".join((expression or "*").split())


def lost_rows(disagreements: Disagreements) -> pa.Table:
    """A row for each loss and message, by loss and queue offset."""
    rows = sorted_by(disagreements.messages, "loss", "topic", "queue_id", "queue_offset")
    losses = (
        (loss.state.consumer_group, loss.clients, loss.state.valid_from, loss.state.valid_to, loss.is_lost, loss.how)
        for loss in disagreements.losses
    )
    loss_columns = table_of(_LOSS_SCHEMA, losses).take(rows["loss"])
    rows = rows.drop_columns(["loss"])
    return pa.table([*rows.columns, *loss_columns.columns], schema=pa.unify_schemas([rows.schema, _LOSS_SCHEMA]))
