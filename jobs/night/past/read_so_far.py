"""The part of a broker's log that earlier nights read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from jobs.night.past.state import BrokerState
from schemas.commitlog import COMMITLOG
from schemas.delta.warehouse import Warehouse
from schemas.ledger_inputs import DAMAGED_BODIES
from schemas.messages.stored_messages import end_of_messages


@dataclass(frozen=True)
class ReadSoFar:
    """The part of a broker's log that earlier nights read: up to the physical offset ``end``.

    ``begin``: the least physical offset at which the log of a night began; None if all nights read message logs.
    ``unsettled``: the fingerprint of the bytes behind ``end``, which could still change; None if there were none.
    ``queue_ends``: the offset after the last entry, by topic and queue id. ``has_damaged_bodies``: whether a message
    in the log may be stored with a damaged body.
    """

    broker_name: str
    begin: int | None
    end: int
    unsettled: str | None
    queue_ends: Mapping[tuple[str, int], int]
    has_damaged_bodies: bool


def read_so_far(state: BrokerState, warehouse: Warehouse) -> ReadSoFar | None:
    """None before the first night with messages."""
    last = state.last
    if last is None or last.ingested_to is None:
        return None
    ends = {
        (topic, queue_id): end
        for topic, offsets in state.topics.items()
        for queue_id, end in zip(offsets.queue_ids, offsets.ends.tolist(), strict=True)
    }
    has_damaged_bodies = last.inputs.get(DAMAGED_BODIES) != "0"
    # After a message log, ingested_to is inside the last message.
    begun, files = last.ingested_to - 1, warehouse.files(COMMITLOG, last.broker_name)
    end = max(last.ingested_to, end_of_messages(warehouse, files, begun))
    begin = min((entry.log_start for entry in state.entries if entry.log_start is not None), default=None)
    return ReadSoFar(last.broker_name, begin, end, last.unsettled, ends, has_damaged_bodies)
