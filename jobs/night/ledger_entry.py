"""Makes the ledger entry of a night."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jobs.night.broker import Broker
from jobs.night.changes import Changes
from jobs.night.log_plan import LogPlan, unsettled
from jobs.night.night import NightOutcome
from jobs.night.stages import Stage
from jobs.night.state import BrokerState
from schemas.commitlog import COMMITLOG
from schemas.delta.table_rows import one_of, within
from schemas.run_ledger import CUT, DAMAGED_BODIES, LedgerEntry


def ledger_entry(
    changes: Changes,
    job: str,
    broker: Broker,
    fingerprints: Mapping[str, str],
    state: BrokerState,
    plan: LogPlan | None,
    outcome: NightOutcome,
    stages: frozenset[Stage],
    as_of: int,
    remarks: Sequence[str],
) -> LedgerEntry:
    """The ledger entry of a night, without the states of the tables, which are only known after the commits."""
    last = state.last
    ingested_to = _ingested_to(state, plan, outcome, changes)
    dispatched_to = ingested_to if Stage.DISPATCH in stages else (last.dispatched_to if last else None)
    delivered_to = dispatched_to if Stage.DELIVER in stages else (last.delivered_to if last else None)
    cut = "" if plan is None or plan.cut is None else str(plan.cut)
    inputs = {**(last.inputs if last else {}), **fingerprints, CUT: cut}
    if plan is None:
        log_start, behind = (last.log_start, last.unsettled) if last else (None, None)
    else:
        log_start = plan.log.start
        inputs[DAMAGED_BODIES] = str(_damaged_bodies(state, plan, outcome, changes))
        behind = unsettled(plan.log, ingested_to) if ingested_to is not None else None
    return LedgerEntry(
        changes.run,
        broker.name,
        job,
        broker.config.changed,
        inputs,
        log_start=log_start,
        ingested_to=ingested_to,
        dispatched_to=dispatched_to,
        delivered_to=delivered_to,
        unsettled=behind,
        as_of=as_of,
        remarks=tuple(remarks),
    )


def _damaged_bodies(state: BrokerState, plan: LogPlan, outcome: NightOutcome, changes: Changes) -> int:
    """The number of stored messages in the log whose body is damaged."""
    before = state.last.inputs.get(DAMAGED_BODIES) if state.last else "0"
    if before == "0" and not plan.cut and not outcome.result.damaged_bodies:
        return 0
    damaged = [one_of("body_is_damaged", [True]), within("commitlog_offset", plan.log.start)]
    return len(changes.warehouse.rows(COMMITLOG, ["commitlog_offset"], damaged, changes.files(COMMITLOG)))


def _ingested_to(state: BrokerState, plan: LogPlan | None, outcome: NightOutcome, changes: Changes) -> int | None:
    """The physical offset up to which the log is in commitlog."""
    before = state.last.ingested_to if state.last else None
    if outcome.settled is not None:
        return outcome.settled
    if plan is not None and plan.cut:
        return plan.cut
    if plan is not None:
        return plan.log.start if before is None else before
    return max((file.greatest["commitlog_offset"] + 1 for file in changes.files(COMMITLOG)), default=before)
