"""Repeats earlier nights, after the history was corrected or the broker cut its log."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc

from filtering.consumption.offsets import BrokerOffsets, Key
from filtering.delivery.entries import TRANSACTION_FLAGS, WITHOUT_ENTRY
from jobs.night.changes import Changes
from jobs.night.log_comparison import is_segment_name
from jobs.night.log_plan import LogPlan
from jobs.night.state import BrokerState, read_state_before
from schemas.commitlog import COMMITLOG
from schemas.consumer_offsets import CONSUMER_OFFSETS
from schemas.delta.table_rows import one_of, sorted_by, within
from schemas.errors import UsageError
from schemas.quarantine import QUARANTINE
from schemas.run_ledger import HOOKS, MESSAGES_FROM, LedgerEntry, first_beyond, unreplaced_nights
from schemas.subscriptions import SUBSCRIPTION_EVENTS, SUBSCRIPTIONS
from schemas.tables import DERIVED_TABLES

PhysicalRange = tuple[int, int]
"""Physical offsets, the second exclusive."""


@dataclass(frozen=True)
class PastNight:
    """An earlier night to repeat. ``stored``: the physical offsets of its messages, the second one exclusive.

    ``has_hooks``: whether its messages were filtered with the filter hooks of the present night, or with none.
    """

    entry: LedgerEntry
    stored: PhysicalRange
    offsets: BrokerOffsets
    has_hooks: bool = False


@dataclass(frozen=True)
class Redo:
    """The nights to repeat.

    ``state``: the state before the first of them. ``rest``: physical offsets of stored messages that the new night
    must filter, too.
    """

    state: BrokerState
    nights: Sequence[PastNight] = ()
    rest: PhysicalRange | None = None


def plan_redo(state: BrokerState, cut: int | None, redo_from: int | None, hooks: str, changes: Changes) -> Redo:
    """Plans which nights to repeat, and removes their rows.

    ``cut``: the physical offset from which the log differs (0 if it is another log). ``redo_from``: a time in ms.
    ``hooks``: the filter hooks of the present night, as text. Raises UsageError if messages of these nights were
    removed, or if the nights had other hooks.
    """
    if cut is None and redo_from is None:
        return Redo(state)
    if cut == 0:
        for table in (COMMITLOG, QUARANTINE, SUBSCRIPTIONS, SUBSCRIPTION_EVENTS, *DERIVED_TABLES):
            changes.replace_rows(table, [])
        return Redo(BrokerState(()))
    entries = unreplaced_nights(state.entries)
    count = len(entries)
    cut_at = count if cut is None else first_beyond(entries, cut)
    redo_at = next(
        (i for i, entry in enumerate(entries) if redo_from is not None and (entry.as_of or 0) >= redo_from), count
    )
    first = min(cut_at, redo_at)
    if first == count:
        return Redo(state)
    if first < cut_at:
        _check_messages(entries, first)
    _check_hooks(entries, range(first, cut_at), cut, hooks)
    before = read_state_before(changes.warehouse, entries, entries[first].run)
    past = list(past_nights(entries, range(first, cut_at), changes))
    for table in DERIVED_TABLES:
        changes.delete_rows(table, [within("run", entries[first].run)], changes.files(table))
    rest = None
    if cut is not None:
        _cut_log(cut, changes)
        rest = _dispatched_to(entries, cut_at), cut
    return Redo(before, past, rest)


def _check_messages(entries: Sequence[LedgerEntry], first: int) -> None:
    """Raises UsageError if messages that one of the nights read were removed."""
    messages_from = int(entries[-1].inputs.get(MESSAGES_FROM, "0"))
    incomplete = [i for i in range(first, len(entries)) if (entries[i].log_start or 0) < messages_from]
    if incomplete:
        raise UsageError(
            "maintain --keep-days removed messages of the nights to repeat: give --redo-from "
            f"{(entries[incomplete[-1]].as_of or 0) + 1} or later"
        )


def _check_hooks(entries: Sequence[LedgerEntry], repeated: range, cut: int | None, hooks: str) -> None:
    """Raises UsageError if messages would be filtered with other hooks than in their night."""
    for index in repeated:
        if _hooks_of(entries, index) not in ("", hooks):
            raise UsageError(
                f"the night {entries[index].run} had {'other ' if hooks else ''}filter hooks and cannot be repeated "
                f"{'with these' if hooks else 'without'}: give the --filter-hooks that it had, or --redo-from "
                f"{(entries[index].as_of or 0) + 1} or later"
            )
    if cut is None or cut <= _dispatched_to(entries, repeated.stop):
        return
    had = _hooks_of(entries, repeated.stop)
    if had != hooks:
        raise UsageError(
            f"the log was cut, and the night {entries[repeated.stop].run}, of which messages before the cut are "
            f"filtered again, had {'no ' if not had else 'other ' if hooks else ''}filter hooks: run this night "
            f"once with {'the --filter-hooks that it had' if had else 'no --filter-hooks'}"
        )


def _hooks_of(entries: Sequence[LedgerEntry], index: int) -> str:
    """The hooks with which the messages of a night were filtered: by itself, or by a later run of deliver."""
    dispatched_to = entries[index].dispatched_to or 0
    delivering = (entry for entry in entries[index:] if (entry.delivered_to or 0) >= dispatched_to)
    return next(delivering, entries[index]).inputs.get(HOOKS, "")


def _dispatched_to(entries: Sequence[LedgerEntry], index: int) -> int:
    """The physical offset up to which the runs before an index made consume queue entries."""
    return entries[index - 1].dispatched_to or 0 if index else 0


def _cut_log(cut: int, changes: Changes) -> None:
    """Removes the messages and the quarantined bytes from a physical offset on."""
    behind = [file for file in changes.files(COMMITLOG) if file.greatest["commitlog_offset"] >= cut]
    changes.delete_rows(COMMITLOG, [within("commitlog_offset", cut)], behind)
    delete_log_damage(cut, None, changes)


def delete_log_damage(start: int, stop: int | None, changes: Changes) -> None:
    """Removes the quarantined bytes of the log from ``start`` to ``stop`` (exclusive; None: the end of the log)."""
    files = changes.files(QUARANTINE)
    names = set(changes.warehouse.rows(QUARANTINE, ["source_file"], files=files)["source_file"].to_pylist())
    segments = [name for name in names if is_segment_name(name)]
    changes.delete_rows(QUARANTINE, [one_of("source_file", segments), within("offset", start, stop)], files)


def forget_unsettled(state: BrokerState, plan: LogPlan | None, changes: Changes) -> None:
    """Removes quarantined bytes and damaged messages that this night reads again."""
    last = state.last
    if plan is None or last is None or not changes.warehouse.exists(QUARANTINE):
        return
    if plan.ranges and plan.cut is None:
        delete_log_damage(last.ingested_to or 0, None, changes)
    for part in plan.repaired:
        delete_log_damage(part.start, part.stop, changes)
    if plan.mended:
        offsets = [part.start for part in plan.mended]
        files = [
            file for file in changes.files(COMMITLOG) if file.may_have("commitlog_offset", min(offsets), max(offsets))
        ]
        changes.delete_rows(COMMITLOG, [one_of("commitlog_offset", offsets)], files)


def past_nights(entries: Sequence[LedgerEntry], indices: range, changes: Changes) -> Iterator[PastNight]:
    """The nights with these indices, with the offsets that they knew. Their rows must still be in the tables."""
    if not indices:
        return
    queues = _StoredQueues(changes)
    committed = _Committed(changes)
    for index in indices:
        entry = entries[index]
        start, stop = _dispatched_to(entries, index), entry.dispatched_to or 0
        at = entry.inputs.get("committed_at")
        min_offsets = queues.min_offsets(entry.log_start or 0, stop)
        yield PastNight(
            entry,
            (start, stop),
            BrokerOffsets(
                committed.up_to(entry.run),
                int(at) if at else None,
                min_offsets,
                {topic: frozenset(queues) for topic, queues in min_offsets.items()},
                queues.stored_at_before(stop),
                is_whole=not entry.log_start,
            ),
            bool(_hooks_of(entries, index)),
        )


class _Committed:
    """The committed offsets of earlier snapshots."""

    def __init__(self, changes: Changes) -> None:
        rows = changes.warehouse.rows(CONSUMER_OFFSETS, files=changes.files(CONSUMER_OFFSETS))
        self._rows = sorted_by(rows.filter(pc.is_valid(rows["committed"])), "run")

    def up_to(self, run: str) -> dict[Key, dict[int, int]]:
        """The last committed offsets in runs up to ``run``, by group and topic, then by queue id."""
        found: defaultdict[Key, dict[int, int]] = defaultdict(dict)
        rows = self._rows.filter(pc.less_equal(self._rows["run"], run))
        names = ("consumer_group", "topic", "queue_id", "committed")
        for group, topic, queue_id, offset in zip(*(rows[name].to_pylist() for name in names), strict=True):
            found[group, topic][queue_id] = offset
        return dict(found)


class _StoredQueues:
    """The queues of a broker, computed from its stored messages."""

    def __init__(self, changes: Changes) -> None:
        names = ["topic", "queue_id", "queue_offset", "commitlog_offset", "store_timestamp"]
        rows = changes.warehouse.rows(COMMITLOG, [*names, "sys_flag"], files=changes.files(COMMITLOG))
        # Prepared and rolled back messages have no entry; their queue offset is always 0.
        rows = rows.filter(~np.isin(rows["sys_flag"].fill_null(0).to_numpy() & TRANSACTION_FLAGS, WITHOUT_ENTRY))
        self._queues: dict[tuple[str, int], tuple[np.ndarray, np.ndarray, np.ndarray]] = {}
        grouped = sorted_by(rows, *names[:3])
        topics, queue_ids = grouped["topic"].to_pylist(), grouped["queue_id"].to_numpy()
        arrays = [grouped[name].to_numpy() for name in names[2:]]
        changed = [
            i for i in range(len(topics)) if not i or (topics[i], queue_ids[i]) != (topics[i - 1], queue_ids[i - 1])
        ]
        for begin, end in zip(changed, [*changed[1:], len(topics)], strict=True):
            offsets, at, times = (array[begin:end] for array in arrays)
            self._queues[topics[begin], int(queue_ids[begin])] = offsets, at, times

    def min_offsets(self, log_start: int, log_end: int) -> dict[str, dict[int, int]]:
        """The first queue offset by topic and queue id, while the log had the physical offsets in this range."""
        found: defaultdict[str, dict[int, int]] = defaultdict(dict)
        for (topic, queue_id), (offsets, at, _) in self._queues.items():
            in_log = offsets[(at >= log_start) & (at < log_end)]
            known = offsets[at < log_end]
            if len(known):
                found[topic][queue_id] = int(in_log[0]) if len(in_log) else int(known[-1]) + 1
        return dict(found)

    def stored_at_before(self, log_end: int) -> Callable[[str, int, int], int | None]:
        """A function from topic, queue id and queue offset to a store time (ms), for entries before ``log_end``."""

        def stored_at(topic: str, queue_id: int, offset: int) -> int | None:
            offsets, at, times = self._queues.get((topic, queue_id), (np.empty(0), np.empty(0), np.empty(0)))
            index = int(np.searchsorted(offsets, offset))
            if index == len(offsets) or offsets[index] != offset or at[index] >= log_end:
                return None
            return int(times[index])

        return stored_at
