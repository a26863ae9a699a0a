"""Which group received which message, when, and by which subscription.

The files store blocks (:mod:`filtering.delivery.delivery_blocks`): some messages of one topic, and for each set of
groups that received the same messages, which messages these are. Readers see one row per pair of message and group.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from filtering.delivery import MATCH
from schemas.delta.table import Table, column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from schemas.delta.warehouse import Warehouse


_MATCH = "matches.list.element"
_RECIPIENT = f"{_MATCH}.recipients.list.element"

RECORDED, PLANNED, TRACED = "RECORDED", "PLANNED", "TRACED"
"""How a pop or a delivery is known: the broker wrote it down, it follows from subscriptions and offsets, or these leave
it uncertain, and a trace of the client decides it."""

DELIVERIES = "deliveries"
"""The name under which readers see delivery_blocks."""

DELIVERY_BLOCKS = Table(
    "delivery_blocks",
    "Deliveries in blocks of messages of one topic; schemas.deliveries.read gives one row per message and group.",
    [
        column("broker_name", pa.string(), nullable=False),
        column("topic", pa.string(), nullable=False),
        column("first_store_timestamp", pa.int64(), "least store_timestamp of the messages, ms", nullable=False),
        column("last_store_timestamp", pa.int64(), "greatest store_timestamp of the messages, ms", nullable=False),
        column("messages", pa.int32(), "number of messages in the block", nullable=False),
        column("queue_id", pa.list_(pa.int32()), "one for each message", nullable=False),
        column("queue_offset", pa.list_(pa.int64()), "one for each message", nullable=False),
        column("commitlog_offset", pa.list_(pa.int64()), "one for each message", nullable=False),
        column("store_timestamp", pa.list_(pa.int64()), "one for each message, ms", nullable=False),
        column(
            "matches",
            pa.list_(MATCH),
            "one for each set of groups that received the same messages: the outcome, DELIVERED, or for messages "
            "that the broker returned DROPPED_BY_CLIENT (tag check), DROPPED_BY_HOOK (filter hook) or DEAD (popped "
            "once too often, and given up), or DENIED (the client's traces "
            "deny an uncertain delivery); the number of messages; the groups, with the valid_from of the "
            "subscription and when they could first pull (null: when stored) or popped; the messages, numbered from "
            "0, as positions or as bits (message i is bit i % 64 of word i DIV 64); if both are null, all messages",
            nullable=False,
        ),
        column(
            "source",
            pa.string(),
            "RECORDED: the broker wrote the deliveries down; TRACED: traces of clients decided them; null: inferred",
        ),
        column("run", pa.string(), "the run that decided the deliveries", nullable=False),
    ],
    statistics_on=("topic", "first_store_timestamp", "last_store_timestamp", "run"),
    dictionary_encoded=(
        "topic",
        "source",
        "run",
        "queue_id.list.element",
        f"{_MATCH}.outcome",
        f"{_RECIPIENT}.consumer_group",
        f"{_RECIPIENT}.subscription_from",
        f"{_RECIPIENT}.available_at",
    ),
    delta_encoded=(
        "queue_offset.list.element",
        "commitlog_offset.list.element",
        "store_timestamp.list.element",
        f"{_MATCH}.messages",
        f"{_MATCH}.positions.list.element",
    ),
)


def read(spark: SparkSession, warehouse: Warehouse) -> DataFrame:
    """The deliveries as a DataFrame, one row per pair of message and group.

    Columns: consumer_group, broker_name, topic, queue_id, queue_offset, commitlog_offset, outcome, available_at (ms,
    when the group could first pull the message, or popped it), subscription_from (valid_from of the subscription that
    filtered it; 0: none is known), source (RECORDED: the broker wrote it down; TRACED: a trace of the client decided
    what was uncertain; PLANNED: it is inferred) and run.
    """
    from schemas.spark_views import pairs

    return pairs(warehouse.read(spark, DELIVERY_BLOCKS))


# Expands rows of delivery_blocks to pairs of message and group, without a Spark session.


PAIRS = pa.schema(
    [
        column("consumer_group", pa.string()),
        column("topic", pa.string()),
        column("queue_id", pa.int32()),
        column("queue_offset", pa.int64()),
        column("commitlog_offset", pa.int64()),
        column(
            "outcome",
            pa.string(),
            "DELIVERED (if the group broadcasts: to at least one client), DROPPED_BY_CLIENT, DROPPED_BY_HOOK, DEAD or "
            "DENIED",
        ),
        column(
            "available_at",
            pa.int64(),
            "when the group could first pull it, or popped it; if TRACED, consumed it",
        ),
        column("subscription_from", pa.int64(), "valid_from of the subscription that filtered it"),
        column(
            "source",
            pa.string(),
            "RECORDED: the broker wrote it down; TRACED: a trace decided it; PLANNED: inferred",
        ),
        column("run", pa.string(), "the run that decided the delivery"),
    ]
)
"""The columns of :func:`schemas.deliveries.read`, without broker_name."""
DELIVERY_COLUMNS = PAIRS.insert(1, column("broker_name", pa.string()))
"""The columns of :func:`schemas.deliveries.read`."""


def pairs_of(
    blocks: pa.Table, groups: Collection[str] | None = None, outcomes: Collection[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """A batch of PAIRS for each row of delivery_blocks. ``groups``, ``outcomes``: those to include; None: all.

    ``blocks`` may be without columns other than ``messages`` and ``matches``: then pairs lack what comes
    from them.
    """
    for row in range(len(blocks)):
        batch = _pairs({name: blocks[name][row] for name in blocks.column_names}, groups, outcomes)
        if batch.num_rows:
            yield batch


def table_of_pairs(blocks: pa.Table, groups: Collection[str], outcomes: Collection[str]) -> pa.Table:
    """The rows of PAIRS of some groups with some outcomes."""
    return pa.Table.from_batches(list(pairs_of(blocks, groups, outcomes)), PAIRS)


def positions_of(match: Any, messages: int) -> NDArray[np.int64]:
    """Which messages of a block a MATCH holds, ascending."""
    if match["positions"].is_valid:
        return np.asarray(match["positions"].values, np.int64)
    if match["bits"].is_valid:
        octets = match["bits"].values.to_numpy().view(np.uint8)
        return np.flatnonzero(np.unpackbits(octets, count=messages, bitorder="little"))
    return np.arange(messages)


def _pairs(
    block: dict[str, pa.Scalar], groups: Collection[str] | None, outcomes: Collection[str] | None
) -> pa.RecordBatch:
    messages = block["messages"].as_py()
    received: list[NDArray[np.int64]] = []
    columns: dict[str, list[Any]] = {"consumer_group": [], "outcome": [], "subscription_from": [], "available_at": []}
    matches = block["matches"].values
    if outcomes is not None:
        matches = matches.filter(pc.is_in(matches.field("outcome"), pa.array(list(outcomes), pa.string())))
    for match in _matches_of(matches, groups):
        positions, outcome = positions_of(match, messages), match["outcome"].as_py()
        for recipient in match["recipients"].as_py():
            if groups is None or recipient["consumer_group"] in groups:
                received.append(positions)
                columns["outcome"].append(outcome)
                for name in ("consumer_group", "subscription_from", "available_at"):
                    columns[name].append(recipient[name])
    at = np.concatenate([np.empty(0, np.int64), *received])
    recipient_of_pair = pa.array(np.repeat(np.arange(len(received)), [len(positions) for positions in received]))
    index = pa.array(at)
    values = {
        name: pa.array(column, PAIRS.field(name).type).take(recipient_of_pair) for name, column in columns.items()
    }
    for name in block.keys() & {"queue_id", "queue_offset", "commitlog_offset"}:
        values[name] = block[name].values.take(index)
    available_at = values.pop("available_at")
    if "store_timestamp" in block:
        values["available_at"] = pc.coalesce(available_at, block["store_timestamp"].values.take(index))
    for name in block.keys() & {"topic", "run"}:
        values[name] = pa.repeat(block[name].as_py(), len(at))
    if "source" in block:
        values["source"] = pa.repeat(block["source"].as_py() or PLANNED, len(at))
    schema = pa.schema([field for field in PAIRS if field.name in values])
    return pa.RecordBatch.from_arrays([values[name] for name in schema.names], schema=schema)


def _matches_of(matches: pa.StructArray, groups: Collection[str] | None) -> pa.StructArray:
    """The matches of a block that some of the groups received."""
    if groups is None:
        return matches
    recipients = matches.field("recipients")
    wanted = pc.is_in(recipients.flatten().field("consumer_group"), value_set=pa.array(list(groups), pa.string()))
    return matches.take(pc.unique(pc.list_parent_indices(recipients).filter(wanted)))
