"""Makes the ledger entry of a night."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from jobs.night.commit.changes import Changes
from jobs.night.inputs.steps import Step
from jobs.night.log.log_plan import LogPlan, unsettled
from jobs.night.night import Night, NightOutcome
from jobs.night.past.new_messages import NewMessages
from jobs.night.past.state import BrokerState
from jobs.night.past.vanished_offsets import vanished_text
from schemas.commitlog import COMMITLOG
from schemas.delta.table_rows import one_of, within
from schemas.ledger_inputs import (
    ASSUMED_QUEUES,
    CUT,
    DAMAGED_BODIES,
    INPUTS_END,
    LAST_STORED,
    MESSAGE_LOG,
    NOT_COMMITTED,
    READ_QUEUES,
    RESETS_BY_TIME,
    WITHDRAWN,
)
from schemas.run_ledger import LedgerEntry
from schemas.withdrawals import withdrawals_text


def ledger_entry(
    job: str, night: Night, outcome: NightOutcome, fingerprints: Mapping[str, str], remarks: Sequence[str]
) -> LedgerEntry:
    """The ledger entry of a night, without the states of tables, and with the ``fingerprints`` of its inputs."""
    state, steps, new, changes = night.state, night.steps, night.new, night.changes
    plan, last = new.plan, state.last
    ingested_to = _ingested_to(state, plan, MESSAGE_LOG in fingerprints, outcome, changes)
    dispatched_to, delivered_to = (last.dispatched_to, last.delivered_to) if last else (None, None)
    if Step.DISPATCH in steps:
        dispatched_to = ingested_to
    elif Step.DELIVER not in steps:
        dispatched_to = _not_beyond(new, dispatched_to)
    delivered_to = dispatched_to if Step.DELIVER in steps else _not_beyond(new, delivered_to)
    cut = "" if plan is None or plan.cut is None else str(plan.cut)
    inputs = {**(last.inputs if last else {}), **fingerprints, CUT: cut, INPUTS_END: str(night.as_of)}
    if Step.DELIVER in steps:
        stored = last_stored(changes)
        inputs[LAST_STORED] = "" if stored is None else str(stored)
        inputs |= decided(night, outcome)
    topics = outcome.rows.topics if Step.DELIVER in steps else night.offsets.read_queues
    inputs[READ_QUEUES] = json.dumps({topic: n for topic, n in night.offsets.read_queues.items() if topic in topics})
    inputs[WITHDRAWN] = withdrawals_text(changes.withdrawn)
    if plan is None:
        log_start, fingerprint = (last.log_start, last.unsettled) if last else (None, None)
    else:
        log_start = plan.log.start
        inputs[NOT_COMMITTED] = vanished_text(state.topics, night.offsets.committed)
        inputs[DAMAGED_BODIES] = str(_damaged_bodies(state, plan, outcome, changes))
        fingerprint = unsettled(plan.log, ingested_to) if ingested_to is not None else None
    return LedgerEntry(
        changes.run,
        changes.broker_name,
        job,
        night.broker.changed,
        inputs,
        log_start=log_start,
        ingested_to=ingested_to,
        dispatched_to=dispatched_to,
        delivered_to=delivered_to,
        unsettled=fingerprint,
        as_of=night.as_of if Step.DELIVER in steps else (last.as_of if last else None),
        remarks=tuple(remarks),
    )


def decided(night: Night, outcome: NightOutcome) -> dict[str, str]:
    """What nights have decided so far that is in no other table: inputs of the next ones.

    Where clients with different tags shared queues of an unknown number, and the offsets of resets by time.
    """
    before = night.state.last.assumed_queues if night.state.last is not None else {}
    found = {**before, **outcome.plan.assumed}
    assumed = json.dumps([(*key, queues) for key, queues in sorted(found.items())])
    return {ASSUMED_QUEUES: assumed, RESETS_BY_TIME: json.dumps(night.resets_by_time)}


def _not_beyond(new: NewMessages, offset: int | None) -> int | None:
    """A physical offset up to which a step is done; it may have new messages before it, which later steps must find."""
    return None if offset is None else min([offset, *(part.start for part in new.repaired), *(new.stored or ())])


def _damaged_bodies(state: BrokerState, plan: LogPlan, outcome: NightOutcome, changes: Changes) -> int:
    """The number of stored messages in the log whose body is damaged."""
    before = state.last.inputs.get(DAMAGED_BODIES) if state.last else "0"
    if before == "0" and not plan.cut and not outcome.result.damaged_bodies:
        return 0
    damaged = [one_of("body_is_damaged", [True]), within("commitlog_offset", plan.log.start)]
    return len(changes.rows(COMMITLOG, ["commitlog_offset"], damaged))


def last_stored(changes: Changes) -> int | None:
    """When the last message in commitlog was stored (ms); None if there is none."""
    return max((file.greatest["store_timestamp"] for file in changes.files(COMMITLOG)), default=None)


def _ingested_to(
    state: BrokerState, plan: LogPlan | None, reads_message_log: bool, outcome: NightOutcome, changes: Changes
) -> int | None:
    """The physical offset up to which the log is in commitlog."""
    before = state.last.ingested_to if state.last else None
    if outcome.settled is not None:
        return outcome.settled
    if plan is not None and plan.cut:
        return plan.cut
    if plan is not None:
        return plan.log.start if before is None else before
    if not reads_message_log:
        return before
    ends = (file.greatest["commitlog_offset"] + 1 for file in changes.files(COMMITLOG))
    return max((end for end in (before, *ends) if end is not None), default=None)
