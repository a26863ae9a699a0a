"""Clients of one group that subscribe differently: which subscription wins, and which messages are lost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

import numpy as np
import pyarrow as pa

from filtering.counted import counted
from filtering.delivery.lost_messages import LOST, Loss, LostMessages, losses
from filtering.subscriptions.inconsistency import GroupClients, group_clients
from schemas.answers.facts import BrokerFacts
from schemas.arrow_batches import table_of
from schemas.delta.table_rows import sorted_by
from schemas.messages.stored_entries import scan_entries
from schemas.spark_tasks import Session

_OF_LOSS = pa.schema(
    [
        ("consumer_group", pa.string()),
        ("clients", pa.list_(pa.string())),
        ("valid_from", pa.int64()),
        ("valid_to", pa.int64()),
        ("lost", pa.bool_()),
    ]
)
"""The columns of ``lost_rows`` that are told of a loss. Times are in ms."""


@dataclass(frozen=True)
class Disagreements:
    """``states`` in which clients disagree, the possible ``losses``, and the lost ``messages`` (rows of LOST)."""

    states: Sequence[GroupClients]
    losses: Sequence[Loss]
    messages: pa.Table

    def losses_in(self, state: GroupClients) -> Sequence[tuple[Loss, int]]:
        """The losses in a state, each with its number of messages."""
        return self._by_state.get(state, ())

    @cached_property
    def _by_state(self) -> Mapping[GroupClients, Sequence[tuple[Loss, int]]]:
        counts = np.bincount(self.messages["loss"].to_numpy(), minlength=len(self.losses)).tolist()
        by_state = defaultdict(list)
        for loss, messages in zip(self.losses, counts, strict=True):
            by_state[loss.state].append((loss, messages))
        return by_state


@dataclass(frozen=True)
class InconsistentGroup:
    """A group whose clients disagree on a topic.

    ``last_state`` describes the last such state. ``lost`` counts the messages lost to overruled clients in all states.
    """

    consumer_group: str
    topic: str
    last_state: str
    lost: int

    @property
    def text(self) -> str:
        """The last state, and the number of lost messages."""
        return f"{self.last_state}; {counted(self.lost, 'message')} lost to overruled clients"


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
    rows = sorted_by(found.messages, "loss", "topic", "queue_id", "queue_offset")
    losses = (
        (loss.state.consumer_group, loss.clients, loss.state.valid_from, loss.state.valid_to, loss.in_force is not None)
        for loss in found.losses
    )
    of_rows = table_of(_OF_LOSS, losses).take(rows["loss"])
    rows = rows.drop_columns(["loss"])
    return pa.table([*rows.columns, *of_rows.columns], schema=pa.unify_schemas([rows.schema, _OF_LOSS]))
