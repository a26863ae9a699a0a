"""What decides whether a group gets a message, lowered to predicates.

Source: org.apache.rocketmq.broker.filter.ExpressionMessageFilter, ExpressionForRetryMessageFilter,
org.apache.rocketmq.client.impl.consumer.PullAPIWrapper.
"""

from __future__ import annotations

from dataclasses import dataclass

from filtering.predicate import FALSE, TRUE, Predicate


@dataclass(frozen=True)
class MessageFilter:
    """The three filters of one group's subscription to one topic."""

    consumer_group: str
    topic: str
    tags: Predicate = TRUE
    """Stage 1, on the consume queue entry's tags code."""
    bit_pos: tuple[int, ...] = ()
    """Stage 1, on the entry's filter bit map: all of these bits are set. Empty: no bit map is used."""
    born_time: int = 0
    """ms: only messages stored after it are held against the bit map."""
    expression: Predicate = TRUE
    """Stage 2, on the message's properties."""
    failure: Predicate = FALSE
    """Where evaluating the expression fails, which counts as not matching."""
    client_tags: Predicate = TRUE
    """The client's exact comparison of tags."""
