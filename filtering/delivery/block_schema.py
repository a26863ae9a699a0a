"""The Arrow types of delivery blocks, for what only reads them: the matcher's loops take long to import."""

from __future__ import annotations

import pyarrow as pa

DELIVERED = "DELIVERED"
DROPPED_BY_CLIENT = "DROPPED_BY_CLIENT"
DROPPED_BY_HOOK = "DROPPED_BY_HOOK"
DEAD = "DEAD"
DENIED = "DENIED"
"""The rules say that the group received the message, and the traces of its client that it did not."""

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
