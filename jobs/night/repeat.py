"""Repeats earlier nights, after the history was corrected or the broker cut its log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from filtering.delivery.pull_window import NO_END
from filtering.frozen import frozen
from jobs.night import Step
from jobs.night.commit import Changes
from jobs.night.log import LogPlan
from jobs.night.past import BrokerState, PastNight, past_nights, read_state_before
from jobs.night.pops import restore_pops
from schemas.commitlog import COMMITLOG
from schemas.delta.table_rows import Condition, one_of, within
from schemas.errors import UsageError
from schemas.messages.stored_messages import PhysicalRange
from schemas.run_ledger import LedgerEntry, filtered_to, first_beyond, unreplaced_runs
from schemas.subscriptions import SUBSCRIPTION_EVENTS, SUBSCRIPTIONS
from schemas.tables import (
    CONSUMEQUEUE,
    CONSUMER_OFFSETS,
    CONSUMPTIONS,
    DERIVED_TABLES,
    POP_RECORDS,
    QUARANTINE,
    QUEUE_PROGRESS,
    is_of_log,
)


@frozen
class Repeat:
    """The nights to repeat.

    ``state``: the state before the first of them. ``rest``: where the stored messages are that the new night must
    filter, too. ``undelivered``: the entries of runs since the last night; what they dispatched was removed.
    """

    state: BrokerState
    nights: Sequence[PastNight] = ()
    rest: PhysicalRange | None = None
    undelivered: Sequence[LedgerEntry] = ()


def plan_repeat(state: BrokerState, cut: int | None, redo_from: int | None, hooks: str, changes: Changes) -> Repeat:
    """Plans which nights to repeat, and removes their rows.

    ``cut``: the physical offset from which the log differs (0 if it is another log). ``redo_from``: a time in ms.
    ``hooks``: the filter hooks of the present night, as text. Raises UsageError if messages of these nights were
    removed, or if the nights had other hooks.
    """
    if cut is None and redo_from is None:
        return Repeat(state)
    if cut == 0:
        read = (COMMITLOG, POP_RECORDS, CONSUMPTIONS, QUARANTINE, SUBSCRIPTIONS, SUBSCRIPTION_EVENTS)
        for table in (*read, *DERIVED_TABLES):
            changes.replace_rows(table, [])
        return Repeat(BrokerState(()))
    entries = unreplaced_runs(state.entries)
    nights = state.nights
    count = len(nights)
    cut_at = count if cut is None else first_beyond(nights, cut)
    redo_at = next(
        (i for i, night in enumerate(nights) if redo_from is not None and (night.as_of or 0) >= redo_from), count
    )
    first = min(cut_at, redo_at)
    if first == count and cut is None:
        return Repeat(state)
    if first < cut_at:
        _check_messages(nights[first:], entries[-1].messages_from)
    _check_hooks(nights, range(first, cut_at), cut, hooks)
    first_run = state.first_run(first)
    before = read_state_before(changes.warehouse, entries, first_run)
    past = list(past_nights(nights, range(first, cut_at), changes))
    begin = _first_entry(first_run, changes)
    rest, undelivered = None, []
    if cut is not None:
        _cut_log(cut, changes)
        restore_pops(first_run, cut, changes)
        rest = filtered_to(nights[:cut_at]), cut
    elif state.first_undelivered is not None:
        runs = (entry for entry in entries if entry.run >= state.first_undelivered)
        undelivered = [replace(entry, dispatched_to=entry.delivered_to) for entry in runs]
    _remove_derived(first_run, state.first_undelivered if undelivered else None, changes)
    # Among the removed entries may be those of older messages, which these nights could read again.
    if past:
        first_offset, end = past[0].stored_range
        past[0] = replace(past[0], stored_range=(min(begin, first_offset), end))
    elif rest is not None:
        rest = min(begin, rest[0]), rest[1]
    return Repeat(before, past, rest, undelivered)


def _remove_derived(first_run: str, first_undelivered: str | None, changes: Changes) -> None:
    """Removes derived rows from a run on; committed offsets only up to ``first_undelivered``: no night used others."""
    for table in DERIVED_TABLES:
        removed = [within("run", first_run, first_undelivered if table is CONSUMER_OFFSETS else None)]
        changes.withdraw(table, removed)  # Nights without rows of a table may have some now.
        changes.delete_rows(table, removed)


def _first_entry(first_run: str, changes: Changes) -> int:
    """The least physical offset of the entries of a run and of later runs."""
    rows = changes.rows(CONSUMEQUEUE, ["commitlog_offset"], [within("run", first_run)])
    return int(rows["commitlog_offset"].to_numpy().min(initial=NO_END))


def _check_messages(nights: Sequence[LedgerEntry], messages_from: int) -> None:
    """Raises UsageError if messages that one of the nights read were removed."""
    incomplete = [night for night in nights if (night.log_start or 0) < messages_from]
    if incomplete:
        raise UsageError(
            "maintain --keep-days removed messages of the nights to repeat: give --redo-from "
            f"{(incomplete[-1].as_of or 0) + 1} or later"
        )


def _check_hooks(nights: Sequence[LedgerEntry], repeated: range, cut: int | None, hooks: str) -> None:
    """Raises UsageError if messages would be filtered with other hooks than in their night."""
    for index in repeated:
        if nights[index].hooks not in ("", hooks):
            raise UsageError(
                f"the night {nights[index].run} had {'other ' if hooks else ''}filter hooks and cannot be repeated "
                f"{'with these' if hooks else 'without'}: give the --filter-hooks that it had, or --redo-from "
                f"{(nights[index].as_of or 0) + 1} or later"
            )
    if cut is None or cut <= filtered_to(nights[: repeated.stop]) or repeated.stop == len(nights):
        return
    had = nights[repeated.stop].hooks
    if had != hooks:
        raise UsageError(
            f"the log was cut, and the night {nights[repeated.stop].run}, of which messages before the cut are "
            f"filtered again, had {'no ' if not had else 'other ' if hooks else ''}filter hooks: run this night "
            f"once with {'the --filter-hooks that it had' if had else 'no --filter-hooks'}"
        )


def _cut_log(cut: int, changes: Changes) -> None:
    """Removes the messages and the quarantined bytes from a physical offset on."""
    for table in (COMMITLOG, POP_RECORDS):
        changes.delete_rows(table, [within("commitlog_offset", cut)])
    changes.delete_rows(CONSUMPTIONS, [within("trace_offset", cut)])
    delete_log_damage(within("offset", cut), changes)


def delete_log_damage(where: Condition, changes: Changes) -> None:
    """Removes the quarantined bytes and records of the log for which a condition holds. Lines of text files stay."""
    names = set(changes.rows(QUARANTINE, ["source_file"])["source_file"].to_pylist())
    changes.delete_rows(QUARANTINE, [one_of("source_file", list(filter(is_of_log, names))), where])


def forget_unsettled(state: BrokerState, log_plan: LogPlan | None, changes: Changes) -> None:
    """Removes quarantined bytes and damaged messages that this night reads again."""
    last = state.last
    if log_plan is None or not changes.warehouse.exists(QUARANTINE):
        return
    if last is not None and log_plan.ranges and log_plan.cut is None:
        delete_log_damage(within("offset", last.ingested_to or 0), changes)
    for part in log_plan.recovered_ranges:
        delete_log_damage(within("offset", part.start, part.stop), changes)
    if log_plan.recovered_bodies:
        recovered_bodies = [part.start for part in log_plan.recovered_bodies]
        changes.delete_rows(COMMITLOG, [one_of("commitlog_offset", recovered_bodies)])
        delete_log_damage(one_of("offset", recovered_bodies), changes)


def unfinished_range(state: BrokerState, steps: frozenset[Step]) -> PhysicalRange | None:
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
        changes.delete_rows(table, [within("run", state.first_undelivered)])


def forget_undelivered_offsets(state: BrokerState, changes: Changes) -> None:
    """Removes the committed offsets that ingest left for deliver: those of the night, or of a later snapshot, count."""
    first = state.first_undelivered
    if first is not None:
        changes.delete_rows(CONSUMER_OFFSETS, [within("run", first)])
