"""Expands rows of delivery_blocks to pairs of message and group, without a Spark session."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from schemas.delta.table import column

PAIRS = pa.schema(
    [
        column("consumer_group", pa.string()),
        column("topic", pa.string()),
        column("queue_id", pa.int32()),
        column("queue_offset", pa.int64()),
        column("commitlog_offset", pa.int64()),
        column("outcome", pa.string(), "DELIVERED, DROPPED_BY_CLIENT or DROPPED_BY_HOOK"),
        column("available_at", pa.int64(), "when the group could first pull the message"),
        column("subscription_from", pa.int64(), "valid_from of the subscription that filtered it"),
        column("run", pa.string(), "the run that decided the delivery"),
    ]
)
"""The columns of :func:`schemas.deliveries.read`, without broker_name."""
DELIVERY_COLUMNS = PAIRS.insert(1, column("broker_name", pa.string()))
"""The columns of :func:`schemas.deliveries.read`."""


def pairs_of(
    blocks: pa.Table, groups: Collection[str] | None = None, outcomes: Collection[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """A batch of PAIRS for each row of delivery_blocks. ``groups``, ``outcomes``: those to include; None: all."""
    for row in range(len(blocks)):
        batch = _pairs({name: blocks[name][row] for name in blocks.column_names}, groups, outcomes)
        if batch.num_rows:
            yield batch


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
    values |= {name: block[name].values.take(index) for name in ("queue_id", "queue_offset", "commitlog_offset")}
    stored = block["store_timestamp"].values.take(index)
    values["available_at"] = pc.coalesce(values["available_at"], stored)
    values |= {name: pa.repeat(block[name].as_py(), len(at)) for name in ("topic", "run")}
    return pa.RecordBatch.from_arrays([values[name] for name in PAIRS.names], schema=PAIRS)


def _matches_of(matches: pa.StructArray, groups: Collection[str] | None) -> pa.StructArray:
    """The matches of a block that some of the groups received."""
    if groups is None:
        return matches
    recipients = matches.field("recipients")
    wanted = pc.is_in(recipients.flatten().field("consumer_group"), value_set=pa.array(list(groups), pa.string()))
    return matches.take(pc.unique(pc.list_parent_indices(recipients).filter(wanted)))
