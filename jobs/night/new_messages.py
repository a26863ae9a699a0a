"""The messages that a night filters as new ones."""

from __future__ import annotations

from dataclasses import dataclass

from jobs.night.log_plan import LogPlan
from jobs.night.night_inputs import NightInputs
from jobs.night.state import BrokerState
from schemas.messages.bodies import Bodies
from schemas.storage import Storage


@dataclass(frozen=True)
class NewMessages:
    """The new messages of a night. Ranges are physical offsets, the second one exclusive.

    ``log``: parts of the log to read. ``stored``: stored messages without entries; with ``stored_in``, only those
    of that run. ``undelivered``: messages with entries that were not filtered yet.
    """

    log: LogPlan | None = None
    store: Storage | None = None
    bodies: Bodies = Bodies.KEEP
    stored: tuple[int, int] | None = None
    stored_in: str | None = None
    undelivered: tuple[int, int] | None = None


def new_messages(
    inputs: NightInputs, plan: LogPlan | None, state: BrokerState, rest: tuple[int, int] | None, bodies: Bodies
) -> NewMessages:
    """Finds the new messages of a night. ``rest``: physical offsets of stored messages that a redo leaves to it."""
    last = state.last
    if rest is None and last is not None and (last.dispatched_to or 0) < (last.ingested_to or 0):
        rest = last.dispatched_to or 0, last.ingested_to or 0
    undelivered = None
    if last is not None and (last.delivered_to or 0) < (last.dispatched_to or 0):
        undelivered = last.delivered_to or 0, last.dispatched_to or 0
    store = inputs.snapshot.storage if inputs.snapshot is not None else None
    return NewMessages(plan, store, bodies, rest, undelivered=undelivered)
