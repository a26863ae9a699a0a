"""The messages that a night filters as new ones."""

from __future__ import annotations

from dataclasses import dataclass, replace

from jobs.night.changes import Changes
from jobs.night.log_plan import LogPlan
from jobs.night.night_inputs import NightInputs
from jobs.night.state import BrokerState
from jobs.night.steps import Step
from schemas.consumequeue import CONSUMEQUEUE
from schemas.consumer_offsets import CONSUMER_OFFSETS
from schemas.delta.stored_files import files_since
from schemas.delta.table_rows import within
from schemas.messages.bodies import Bodies
from schemas.queue_progress import QUEUE_PROGRESS
from schemas.storage import Storage


@dataclass(frozen=True)
class NewMessages:
    """The new messages of a night.

    ``log``: parts of the log to read. ``stored``: the physical offsets (the second exclusive) between which stored
    messages have no entries.
    """

    log: LogPlan | None = None
    store: Storage | None = None
    bodies: Bodies = Bodies.KEEP
    stored: tuple[int, int] | None = None

    def with_stored(self, offsets: tuple[int, int]) -> NewMessages:
        """The same, and stored messages without entries between two more physical offsets."""
        known = self.stored or offsets
        return replace(self, stored=(min(known[0], offsets[0]), max(known[1], offsets[1])))


def new_messages(
    inputs: NightInputs,
    plan: LogPlan | None,
    state: BrokerState,
    rest: tuple[int, int] | None,
    bodies: Bodies,
    steps: frozenset[Step],
) -> NewMessages:
    """Finds the new messages of a night. ``rest``: physical offsets of stored messages that a redo leaves to it."""
    store = inputs.snapshot.storage if inputs.snapshot is not None else None
    return NewMessages(plan, store, bodies, rest or _stored(state, steps))


def _stored(state: BrokerState, steps: frozenset[Step]) -> tuple[int, int] | None:
    last = state.last
    if last is None:
        return None
    begin = last.delivered_to if Step.DELIVER in steps else last.dispatched_to
    end = last.dispatched_to if steps == {Step.DELIVER} else last.ingested_to
    return (begin or 0, end or 0) if (begin or 0) < (end or 0) else None


def forget_undelivered(state: BrokerState, changes: Changes) -> None:
    """Removes the entries that dispatch made since the last night. A night makes them again while filtering them."""
    last = state.last
    if last is None or (last.delivered_to or 0) == (last.dispatched_to or 0):
        return
    for table in (CONSUMEQUEUE, QUEUE_PROGRESS):
        changes.delete_rows(table, [within("run", state.first_prepared)], changes.files(table))


def forget_prepared_offsets(state: BrokerState, changes: Changes) -> None:
    """Removes the committed offsets that ingest left for deliver. The night's own rows have them."""
    first = state.first_prepared
    if first is not None:
        files = files_since(changes.files(CONSUMER_OFFSETS), first)
        changes.delete_rows(CONSUMER_OFFSETS, [within("run", first)], files)
