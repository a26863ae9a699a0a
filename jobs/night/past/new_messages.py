"""The messages that a night filters as new ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from jobs.night.commit.changes import Changes
from jobs.night.inputs.steps import Step
from jobs.night.log.log_plan import LogPlan
from jobs.night.past.state import BrokerState
from jobs.night.tasks.log_task import LogRange
from schemas.consumequeue import CONSUMEQUEUE
from schemas.consumer_offsets import CONSUMER_OFFSETS
from schemas.delta.table_rows import within
from schemas.messages.bodies import Bodies
from schemas.messages.stored_messages import PhysicalRange
from schemas.queue_progress import QUEUE_PROGRESS


@dataclass(frozen=True)
class NewMessages:
    """The new messages of a night.

    ``plan``: the parts of the log to read. ``stored``: where stored messages have no entries.
    """

    plan: LogPlan | None = None
    bodies: Bodies = Bodies.KEEP
    stored: PhysicalRange | None = None

    @property
    def repaired(self) -> Sequence[LogRange]:
        """The parts of the log that an earlier night could not read."""
        return self.plan.repaired if self.plan is not None else ()

    def with_stored(self, offsets: PhysicalRange) -> NewMessages:
        """The same, and stored messages without entries in one more range."""
        known = self.stored or offsets
        return replace(self, stored=(min(known[0], offsets[0]), max(known[1], offsets[1])))


def stored_before(state: BrokerState, steps: frozenset[Step]) -> PhysicalRange | None:
    """Where stored messages are for which earlier runs did not do what ``steps`` do; None if there are none."""
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
        changes.delete_rows(table, [within("run", state.first_prepared)])


def forget_prepared_offsets(state: BrokerState, changes: Changes) -> None:
    """Removes the committed offsets that ingest left for deliver: those of the night, or of a later snapshot, count."""
    first = state.first_prepared
    if first is not None:
        changes.delete_rows(CONSUMER_OFFSETS, [within("run", first)])
