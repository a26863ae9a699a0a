"""What groups lose whose clients disagree about their subscription, for the summary and the job inconsistency."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from filtering.replay.delivery_blocks import ENTRY_COLUMNS
from filtering.replay.lost_messages import LOST_TYPES, Loss, LostMessages, losses
from filtering.subscriptions.events import SubscriptionEvent
from filtering.subscriptions.history import subscription_history
from filtering.subscriptions.inconsistency import SubscriptionInForce, subscriptions_in_force
from jobs.run import Run
from schemas.consumequeue import CONSUMEQUEUE
from schemas.local_files import map_rows


def inconsistencies(events: Sequence[SubscriptionEvent]) -> list[SubscriptionInForce]:
    """The states in which clients of a group disagree, by group, topic and time."""
    with_clients = {event.group for event in events if event.client_id is not None}
    states = subscriptions_in_force(event for event in events if event.group in with_clients)
    return [row for row in states if not row.is_consistent]


def losses_of(run: Run, events: Sequence[SubscriptionEvent], intervals: Sequence[SubscriptionInForce]) -> list[Loss]:
    """What the overruled subscriptions of ``intervals`` may lose."""
    return losses(intervals, subscription_history(events, run.broker), run.broker) if intervals else []


def lost_messages(run: Run, all_losses: Sequence[Loss]) -> DataFrame:
    """A row a message that a loss costs: columns of LOST_TYPES, ``loss`` an index into ``all_losses``."""
    entries = CONSUMEQUEUE.read(run.spark, run.warehouse)
    of_topics = entries.where(F.col("topic").isin(sorted({loss.own.topic for loss in all_losses})))
    kernel = LostMessages(all_losses, run.broker.bloom_filter.m)
    return map_rows(of_topics, run.broker.broker_name, ENTRY_COLUMNS, kernel, LOST_TYPES)


def counts(lost: DataFrame, all_losses: Sequence[Loss]) -> list[int]:
    """Messages by loss."""
    counted = {row["loss"]: row["count"] for row in lost.groupBy("loss").count().collect()}
    return [counted.get(i, 0) for i in range(len(all_losses))]


def told(interval: SubscriptionInForce) -> str:
    """Which subscription wins, who is overruled, and who does not subscribe to the topic at all."""
    own = "; ".join(f"{client.client_id} ({_expression(client.expression)})" for client in interval.overruled)
    if interval.expression is None:
        parts = ["no subscription is in force, pulls are refused", f"without effect: {own}"]
    else:
        wins = f"{_expression(interval.expression)} of {who(interval.agreeing) or 'a client that left'} is in force"
        parts = [wins, f"overruled: {own}"] if own else [wins]
    if interval.absent:
        parts.append(f"not subscribed: {who(interval.absent)}, whose share of the queues nobody reads")
    return "; ".join(parts)


def who(clients: Sequence[str]) -> str:
    return ", ".join(clients)


def _expression(expression: str | None) -> str:
    return " ".join((expression or "*").split())
