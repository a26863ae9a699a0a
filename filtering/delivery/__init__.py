"""Filters blocks of consume queue entries: filter bit maps at dispatch, then the filters of all groups at delivery.

What became of a message is an Outcome. The Arrow types of delivery blocks are here for what only reads: the matcher's
loops take long to import.
"""

from __future__ import annotations

from enum import StrEnum

import pyarrow as pa


class Outcome(StrEnum):
    """What became of a message for a group. Delivery blocks have the first five."""

    DELIVERED = "DELIVERED"
    DROPPED_BY_CLIENT = "DROPPED_BY_CLIENT"
    DROPPED_BY_HOOK = "DROPPED_BY_HOOK"
    DEAD = "DEAD"
    DENIED = "DENIED"
    """The rules say that the group received the message, and the traces of its client that it did not."""
    STOPPED_BY_TAGS_CODE = "STOPPED_BY_TAGS_CODE"
    STOPPED_BY_BIT_MAP = "STOPPED_BY_BIT_MAP"
    STOPPED_BY_EXPRESSION = "STOPPED_BY_EXPRESSION"
    EXPRESSION_FAILED = "EXPRESSION_FAILED"
    PENDING = "PENDING"
    WAITING = "WAITING"
    NEVER_STORED = "NEVER_STORED"
    NOT_SUBSCRIBED = "NOT_SUBSCRIBED"


RECIPIENT = pa.struct(
    [
        pa.field("consumer_group", pa.string(), nullable=False),
        pa.field("subscription_from", pa.int64(), nullable=False),
        pa.field("available_at", pa.int64()),
    ]
)
MATCH = pa.struct(
    [
        pa.field("outcome", pa.string(), nullable=False),
        pa.field("messages", pa.int32(), nullable=False),
        pa.field("recipients", pa.list_(RECIPIENT), nullable=False),
        pa.field("positions", pa.list_(pa.int32())),
        pa.field("bits", pa.list_(pa.int64())),
    ]
)
