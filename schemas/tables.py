"""The tables of a warehouse, except its ledger."""

from __future__ import annotations

from schemas.commitlog import COMMITLOG
from schemas.consumequeue import CONSUMEQUEUE
from schemas.consumer_offsets import CONSUMER_OFFSETS
from schemas.consumptions import CONSUMPTIONS
from schemas.current_offsets import CURRENT_OFFSETS
from schemas.deliveries import DELIVERY_BLOCKS
from schemas.delivery_stats import DELIVERY_STATS
from schemas.pops import POP_RECORDS, POPS
from schemas.pull_windows import PULL_WINDOWS
from schemas.quality_results import QUALITY_RESULTS
from schemas.quarantine import QUARANTINE
from schemas.queue_progress import QUEUE_PROGRESS
from schemas.subscriptions import SUBSCRIPTION_EVENTS, SUBSCRIPTIONS

TABLES = (
    COMMITLOG, POP_RECORDS, CONSUMEQUEUE, DELIVERY_BLOCKS, POPS, DELIVERY_STATS, PULL_WINDOWS, CONSUMER_OFFSETS,
    CURRENT_OFFSETS, QUEUE_PROGRESS, SUBSCRIPTIONS, SUBSCRIPTION_EVENTS, QUARANTINE, CONSUMPTIONS,
)  # fmt: skip
APPENDED_TABLES = (
    COMMITLOG, POP_RECORDS, CONSUMEQUEUE, DELIVERY_BLOCKS, POPS, DELIVERY_STATS, PULL_WINDOWS, CONSUMER_OFFSETS,
    QUEUE_PROGRESS, SUBSCRIPTION_EVENTS, QUARANTINE, CONSUMPTIONS,
)  # fmt: skip
"""Tables to which every night adds files."""
DERIVED_TABLES = (
    CONSUMEQUEUE, DELIVERY_BLOCKS, POPS, DELIVERY_STATS, PULL_WINDOWS, CONSUMER_OFFSETS, CURRENT_OFFSETS,
    QUEUE_PROGRESS,
)  # fmt: skip
"""Tables whose rows follow from messages and subscriptions. Repeated nights make them again."""
REBUILT_TABLES = (
    CONSUMEQUEUE, DELIVERY_BLOCKS, POPS, DELIVERY_STATS, PULL_WINDOWS, CURRENT_OFFSETS, QUEUE_PROGRESS, SUBSCRIPTIONS,
)  # fmt: skip
"""Tables that can be rebuilt if they are lost. consumer_offsets has offsets of snapshots, which are nowhere else."""
TRIMMED_TABLES = (COMMITLOG, POP_RECORDS, CONSUMEQUEUE, DELIVERY_BLOCKS, POPS, CONSUMPTIONS)
"""Tables from which maintenance removes all rows of old nights. From quarantine it removes those of the log."""
UNLEDGERED_TABLES = (QUALITY_RESULTS,)
"""Tables that no night reads. Their commits are independent, and the ledger does not list them."""
