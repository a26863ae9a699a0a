"""Clients of one group that subscribe differently: which subscription wins, and which messages are lost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import pyarrow as pa

from filtering.delivery.lost_messages import LOST, Loss, LostMessages, losses
from filtering.subscriptions.inconsistency import GroupClients, group_clients
from schemas.answers.facts import BrokerFacts
from schemas.delta.table_rows import sorted_by
from schemas.messages.stored_entries import scan_entries
from schemas.spark_tasks import Session


@dataclass(frozen=True)
class Disagreements:
    """``states`` in which clients disagree, the possible ``losses``, and the lost ``messages`` (rows of LOST)."""

    states: Sequence[GroupClients]
    losses: Sequence[Loss]
    messages: pa.Table

    def count(self, index: int) -> int:
        """The number of messages of the loss with this index."""
        return int(pa.compute.equal(self.messages["loss"], index).combine_chunks().true_count)

    def losses_in(self, state: GroupClients) -> Iterator[tuple[Loss, int]]:
        """The losses in a state, each with its number of messages."""
        for index, loss in enumerate(self.losses):
            if loss.interval == state:
                yield loss, self.count(index)


@dataclass(frozen=True)
class InconsistentGroup:
    """A group whose clients disagree on a topic.

    ``last_state`` describes the last such state. ``lost`` counts the messages lost to overruled clients in all states.
    """

    consumer_group: str
    topic: str
    last_state: str
    lost: int


def knows_clients(facts: BrokerFacts) -> bool:
    """Whether any event has a client id. Without one, the clients of a group cannot be distinguished."""
    return any(event.client_id is not None for event in facts.events)


def disagreements(facts: BrokerFacts, session: Session | None) -> Disagreements:
    """All disagreements of clients of one group, by group, topic and time."""
    states = [state for state in group_clients(facts.events) if not state.is_consistent]
    found = losses(states, facts.history, facts.broker) if states else []
    if not found:
        return Disagreements(states, (), LOST.empty_table())
    lost = LostMessages(found, facts.broker.bloom_filter.m)
    parts = scan_entries(facts.warehouse, facts.name, lost.properties, lost, session)
    return Disagreements(states, found, pa.concat_tables([LOST.empty_table(), *parts]))


def inconsistent_groups(facts: BrokerFacts, session: Session | None) -> list[InconsistentGroup]:
    """The groups and topics with disagreements."""
    found = disagreements(facts, session)
    groups = []
    for (group, topic), states in groupby(found.states, lambda state: state.key):
        of_topic = list(states)
        lost = sum(
            messages for state in of_topic for loss, messages in found.losses_in(state) if loss.in_force is not None
        )
        groups.append(InconsistentGroup(group, topic, describe(of_topic[-1]), lost))
    return groups


def describe(state: GroupClients) -> str:
    """Which subscription wins, which clients are overruled, and which do not subscribe to the topic at all."""
    own = "; ".join(f"{client.client_id} ({_expression(client.expression)})" for client in state.overruled)
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


def lost_rows(found: Disagreements) -> pa.Table:
    """A row for each loss and message, by loss and queue offset."""
    order = ["loss", "topic", "queue_id", "queue_offset"]
    rows = sorted_by(found.messages, *order)
    losses = [found.losses[number] for number in rows["loss"].to_pylist()]
    return (
        rows.drop_columns(["loss"])
        .append_column("consumer_group", pa.array([loss.interval.consumer_group for loss in losses], pa.string()))
        .append_column("clients", pa.array([list(loss.clients) for loss in losses], pa.list_(pa.string())))
        .append_column("valid_from", pa.array([loss.interval.valid_from for loss in losses], pa.int64()))
        .append_column("valid_to", pa.array([loss.interval.valid_to for loss in losses], pa.int64()))
        .append_column("lost", pa.array([loss.in_force is not None for loss in losses], pa.bool_()))
    )
