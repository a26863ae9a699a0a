"""What traces decide: the messages of which events leave uncertain whether a group received them.

Which ones, and why, is in :mod:`filtering.traces`. These deliveries have the source TRACED. They take the place of what
is said tonight of the same message and group. What an earlier night decided stays: what tonight's traces say of it are
rows of tonight. Audits name what traces contradict.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from filtering.delivery import MATCH, Outcome
from filtering.delivery.entries import Int64s
from filtering.delivery.pull_window import PullWindow
from filtering.names import subscribed_topic
from filtering.pops.handed_out import NONE, matching, nth
from filtering.subscriptions.events import ConsumeMode, GroupTopic
from filtering.traces import Covered, Mask, denied, ends_with_change, is_new_delivery, is_open, of_most_traced_try
from jobs.night.commit import Changes
from jobs.night.past import BrokerState
from jobs.night.pops import recorded_blocks
from schemas.arrow_batches import codes, replaced
from schemas.commitlog import COMMITLOG
from schemas.deliveries import DELIVERY_BLOCKS, PAIRS, RECORDED, TRACED, positions_of, table_of_pairs
from schemas.delta.table_rows import group_numbers, one_of, positions_by, sorted_by, within
from schemas.messages.traces import (
    TRACE_COLUMNS,
    compared,
    is_for_any_client,
    is_of,
    keys,
    traceable,
    with_message,
)
from schemas.pull_windows import PULL_WINDOWS, stored_windows
from schemas.run_ledger import filtered_to, unread_times
from schemas.tables import CONSUMPTIONS, POPS

OUTCOMES = (Outcome.DELIVERED, Outcome.DENIED)
_DECIDED_OUTCOMES = (Outcome.DELIVERED, Outcome.DENIED, Outcome.DROPPED_BY_CLIENT, Outcome.DEAD)
_INSTEAD_OF = {Outcome.DELIVERED: (Outcome.DROPPED_BY_CLIENT, Outcome.DEAD), Outcome.DENIED: (Outcome.DELIVERED,)}
"""By the outcome that traces decide, those of which it takes the place."""


class CountChange(NamedTuple):
    """What traces add to a count of delivery_stats of a group in a queue, or take from it."""

    consumer_group: str
    queue_id: int
    name: str
    change: int


class TracedDeliveries:
    """What the traces of a night decide. Its windows, deliveries and traces are in ``changes``.

    ``end``: the physical offset up to which the night goes. ``as_of``: its end, ms. ``log_start``: the physical offset
    at which its log begins. Since traces come late, those of the night before are compared with deliveries of both
    nights. ``recorded``: the groups whose pops the broker writes down. ``broadcasting``: the groups and topics each of
    whose clients gets every message.
    """

    def __init__(
        self,
        state: BrokerState,
        changes: Changes,
        end: int,
        as_of: int,
        log_start: int,
        recorded: Collection[str] = (),
        broadcasting: Collection[GroupTopic] = (),
    ) -> None:
        self._state, self._changes = state, changes
        self._recorded, self._broadcasting = recorded, broadcasting
        self._end, self._as_of, self._log_start = end, as_of, log_start
        self._first_trace = filtered_to(state.nights[:-1])
        self._before = state.nights[-1].run if state.nights else ""
        self._counts: defaultdict[str, list[CountChange]] = defaultdict(list)

    def run(self) -> Mapping[str, Sequence[CountChange]]:
        """Adds the deliveries that traces decide to the changes. Returns by topic how they change the counts."""
        where = [within("trace_offset", self._first_trace, self._end)]
        rows = with_message(self._changes.rows(CONSUMPTIONS, TRACE_COLUMNS, where))
        if not len(rows):
            return {}
        repeated = rows.filter(pa.array(_is_repeated(rows)))
        groups = {group for group, _ in self._open_keys} | set(repeated["consumer_group"].to_pylist())
        groups |= {*self._recorded}
        rows = rows.filter(pc.is_in(rows["consumer_group"], value_set=pa.array(sorted(groups), pa.string())))
        if not len(rows):
            return {}
        deliveries = self._decided(pc.unique(rows["consumer_group"]).to_pylist(), self._before)
        received = self._received(rows, deliveries)
        decided = pa.concat_tables([self._denied(rows, pa.concat_tables([deliveries, received])), received])
        if len(decided):
            self._replace(decided)
            self._add(decided)
        return self._counts

    @cached_property
    def _windows(self) -> Mapping[GroupTopic, Sequence[tuple[str, PullWindow]]]:
        """The windows of tonight and of the night before, each with its run, by group and topic."""
        windows: defaultdict[GroupTopic, list[tuple[str, PullWindow]]] = defaultdict(list)
        for run, window in stored_windows(self._changes.rows(PULL_WINDOWS, where=[within("run", self._before)])):
            windows[window.key].append((run, window))
        return windows

    @cached_property
    def _open_keys(self) -> Collection[GroupTopic]:
        return {
            key
            for key, windows in self._windows.items()
            if any(is_open(window) or ends_with_change(window) for _, window in windows)
        }

    def _decided(self, groups: Sequence[str], first_run: str) -> pa.Table:
        blocks = self._changes.rows(DELIVERY_BLOCKS, where=[within("run", first_run)])
        return table_of_pairs(blocks, groups, _DECIDED_OUTCOMES)

    def _denied(self, rows: pa.Table, deliveries: pa.Table) -> pa.Table:
        """The deliveries that were uncertain, and that complete traces deny, as PAIRS."""
        is_denied_before = pc.equal(deliveries["outcome"], Outcome.DENIED)
        denied_before, deliveries = (
            deliveries.filter(is_denied_before),
            self._for_one_client(deliveries.filter(pc.equal(deliveries["outcome"], Outcome.DELIVERED))),
        )
        traces, compared_deliveries = compared(rows, deliveries, self._as_of)
        storage, files = self._changes.warehouse.log(COMMITLOG).storage, self._changes.files(COMMITLOG)
        is_denied = denied(
            compared_deliveries, traces, self._unread, lambda at: traceable(storage, files, deliveries.take(at), rows)
        )
        delivery_keys, known = keys(deliveries, denied_before)
        newly_denied = deliveries.filter(pa.array(is_denied & ~np.isin(delivery_keys, known)))
        newly_denied = newly_denied.filter(pa.array(self._covered(newly_denied, newly_denied["available_at"]).is_open))
        is_tonight = np.array(pc.equal(newly_denied["run"], self._changes.run), np.int64)
        self._count(newly_denied, delivered=-is_tonight, passed_stage1=-is_tonight, passed_stage2=-is_tonight)
        run, source = (pa.repeat(text, len(newly_denied)) for text in (self._changes.run, TRACED))
        return replaced(newly_denied, outcome=pa.repeat(Outcome.DENIED, len(newly_denied)), run=run, source=source)

    @cached_property
    def _unread(self) -> list[tuple[int, int]]:
        """The times of which no copy of the log has all messages."""
        where = [within("commitlog_offset", self._state.filtered_to, self._end)]
        stored = pc.max(self._changes.rows(COMMITLOG, ["store_timestamp"], where)["store_timestamp"]).as_py()
        last_stored = stored or self._state.offsets.last_stored
        return unread_times(self._state.nights, self._log_start, last_stored, self._as_of)

    def _for_one_client(self, deliveries: pa.Table) -> pa.Table:
        """The deliveries without those of pops and broadcasts, which the traces of one client do not deny."""
        popped = {
            (group, subscribed_topic(group, topic))
            for (group, topic), windows in self._windows.items()
            if any(window.mode is ConsumeMode.POP for _, window in windows)
        }
        return deliveries.filter(pa.array(~is_for_any_client(deliveries, popped.union(self._broadcasting))))

    def _received(self, rows: pa.Table, deliveries: pa.Table) -> pa.Table:
        """What clients traced more often than it was delivered, as PAIRS: open messages, and those received again."""
        delivery_keys, keys_of_rows = keys(deliveries.filter(pc.equal(deliveries["outcome"], Outcome.DELIVERED)), rows)
        is_candidate = ~np.isin(keys_of_rows, delivery_keys) | _is_repeated(rows)
        candidates = rows.filter(pa.array(np.array(pc.equal(rows["records"], 1)) & is_candidate))
        if not len(candidates):
            return PAIRS.empty_table()
        offsets = one_of("commitlog_offset", pc.unique(candidates["commitlog_offset"]).to_pylist())
        groups = pc.unique(candidates["consumer_group"]).to_pylist()
        where = [offsets, one_of("consumer_group", groups), within("trace_offset", below=self._end)]
        traced = _most_traced_try(self._changes.rows(CONSUMPTIONS, TRACE_COLUMNS, where))
        deliveries = self._decided(groups, "")
        deliveries = sorted_by(deliveries.filter(offsets.mask(deliveries)), "available_at")
        is_tonight = pc.equal(deliveries["run"], self._changes.run)
        is_dropped = pc.and_(pc.is_in(deliveries["outcome"], pa.array(_INSTEAD_OF[Outcome.DELIVERED])), is_tonight)
        parts = [deliveries.filter(mask) for mask in (pc.equal(deliveries["outcome"], Outcome.DELIVERED), is_dropped)]
        popped = self._recorded_pops(traced)
        key, delivery_key, delivered, dropped, popped_key = keys(traced, deliveries, *parts, popped)
        size = max((int(each.max(initial=0)) for each in (key, delivery_key, popped_key)), default=0) + 1
        times_delivered, times_popped = (np.bincount(each, minlength=size)[key] for each in (delivered, popped_key))
        covered = self._covered(traced, traced["consumed_at"].fill_null(self._as_of))
        is_broadcast = is_of(traced, self._broadcasting)
        is_new = is_new_delivery(key, times_delivered, times_popped, covered, is_broadcast)
        last_subscription_from = np.zeros(size, np.int64)
        last_subscription_from[delivery_key] = deliveries["subscription_from"].to_numpy()
        subscription_from = np.where(covered.is_filtered, covered.subscription_from, last_subscription_from[key])
        was_dropped = np.isin(key, dropped) & (times_delivered == 0)
        is_first = covered.is_tonight & (times_delivered == 0)
        traced = traced.append_column("subscription_from", pa.array(subscription_from))
        passed = (~was_dropped)[is_new].astype(np.int64)
        self._count(
            traced.filter(pa.array(is_new)),
            delivered=np.ones(int(is_new.sum()), np.int64),
            passed_stage1=passed,
            passed_stage2=passed,
            scanned=passed * ~is_first[is_new],
            lost=-(covered.is_lost & (times_delivered == 0))[is_new].astype(np.int64),
            hash_collisions=-(was_dropped & (times_popped == 0) & ~covered.is_of_client)[is_new].astype(np.int64),
        )
        pop_at = matching([popped_key], [key])
        popped_at = popped["popped_at"].take(pa.array(pop_at, mask=pop_at == NONE))
        traced = traced.append_column("available_at", pc.coalesce(popped_at, traced["consumed_at"]))
        traced = traced.filter(pa.array(is_new)).drop_columns(["consumed_at", "run"])
        known = {"outcome": Outcome.DELIVERED, "source": TRACED, "run": self._changes.run}
        for name, text in known.items():
            traced = traced.append_column(name, pa.repeat(text, len(traced)))
        return traced.select(PAIRS.names).cast(PAIRS)

    def _recorded_pops(self, traced: pa.Table) -> pa.Table:
        """The pops of the broker's record that handed out some messages to the groups that traced them, by time."""
        groups = [group for group in pc.unique(traced["consumer_group"]).to_pylist() if group in self._recorded]
        offsets = traced["commitlog_offset"].to_pylist() if groups else []
        where = [one_of("source", [RECORDED]), one_of("consumer_group", groups), one_of("commitlog_offset", offsets)]
        return sorted_by(
            self._changes.rows(POPS, ["consumer_group", "commitlog_offset", "popped_at"], where), "popped_at"
        )

    def _count(self, rows: pa.Table, **changes: Int64s) -> None:
        """Adds up, by group and queue, how each row changes some counts."""
        queues, queue = group_numbers(rows, ["consumer_group", "topic", "queue_id"])
        for name, each in changes.items():
            sums = np.bincount(queue, each, len(queues)).astype(np.int64).tolist()
            for (group, topic, queue_id), change in zip(queues, sums, strict=True):
                self._counts[topic].append(CountChange(group, queue_id, name, change))

    def _covered(self, rows: pa.Table, received_at: pa.ChunkedArray) -> Covered:
        """What the windows of tonight and of the night before say of some groups and messages.

        ``received_at`` (ms): when the group received each message, as far as that is known.
        """
        no = np.zeros((5, len(rows)), bool)
        covered = Covered(no[0], no[1], no[2], no[3], no[4], np.zeros(len(rows), np.int64))
        received = received_at.to_numpy()
        offsets = rows["commitlog_offset"].to_numpy()
        stored = self._stored_at(offsets)
        queue_offset = rows["queue_offset"].to_numpy()
        for (group, topic, queue_id), own in positions_by(rows, ["consumer_group", "topic", "queue_id"]):
            for run, window in self._windows.get((group, topic), ()):
                inside = own[window.covers(queue_id, queue_offset[own], offsets[own], stored[own])]
                covered.add(window, run == self._changes.run, own, inside, stored[own], received[own])
        return covered

    def _stored_at(self, offsets: Int64s) -> Int64s:
        """The store timestamps of the messages at some physical offsets."""
        if not len(offsets):
            return offsets
        limits = within("commitlog_offset", int(offsets.min()), int(offsets.max()) + 1)
        where = [limits, one_of("commitlog_offset", np.unique(offsets).tolist())]
        rows = self._changes.rows(COMMITLOG, ["commitlog_offset", "store_timestamp"], where)
        rows = rows.take(pc.sort_indices(rows["commitlog_offset"]))
        at = np.searchsorted(rows["commitlog_offset"].to_numpy(), offsets)
        times: Int64s = rows["store_timestamp"].to_numpy()[at]
        return times

    def _replace(self, decided: pa.Table) -> None:
        """Takes what traces decided otherwise out of the deliveries of tonight."""
        taken: defaultdict[str, dict[tuple[str, str], Int64s]] = defaultdict(dict)
        offsets = decided["commitlog_offset"].to_numpy()
        for (topic, group, outcome), own in positions_by(decided, ["topic", "consumer_group", "outcome"]):
            taken[topic] |= {(group, instead): offsets[own] for instead in _INSTEAD_OF[outcome]}
        where = [one_of("run", [self._changes.run]), one_of("topic", taken)]
        blocks = self._changes.rows(DELIVERY_BLOCKS, where=where)
        is_traced = pc.equal(blocks["source"], TRACED).fill_null(False)
        changed = list(_without(blocks.filter(pc.invert(is_traced)), taken))
        self._changes.delete_rows(DELIVERY_BLOCKS, where)
        self._changes.add_rows(DELIVERY_BLOCKS, [*blocks.filter(is_traced).to_batches(), *changed])

    def _add(self, decided: pa.Table) -> None:
        stored = self._stored_at(decided["commitlog_offset"].to_numpy())
        outcome = np.array(pc.index_in(decided["outcome"], value_set=pa.array(OUTCOMES)), np.int64)
        blocks = recorded_blocks(decided, stored, outcome, OUTCOMES, self._changes.run, TRACED)
        self._changes.add_rows(DELIVERY_BLOCKS, list(blocks))


def _is_repeated(rows: pa.Table) -> Mask:
    """Which traces say the same of a message as one before them, such as that it was received for the first time."""
    tries = codes(rows["retry_times"])
    is_repeated: Mask = nth(keys(rows)[0] * (tries.max(initial=0) + 1) + tries) > 0
    return is_repeated


def _most_traced_try(rows: pa.Table) -> pa.Table:
    """The traces of the try that a message has most traces of, by time."""
    rows = rows.filter(pc.equal(rows["records"], 1))
    rows = sorted_by(with_message(rows), "consumed_at")
    return rows.filter(pa.array(of_most_traced_try(keys(rows)[0], rows["retry_times"].fill_null(0).to_numpy())))


def _without(blocks: pa.Table, taken: Mapping[str, Mapping[tuple[str, str], Int64s]]) -> Iterator[pa.RecordBatch]:
    """The blocks without some messages: by topic, group and outcome, their physical offsets."""
    for row in blocks.to_batches(max_chunksize=1):
        taken_of_topic = taken[row["topic"][0].as_py()]
        matches = row["matches"].flatten()
        kept = _matches_without(matches, row["commitlog_offset"].flatten().to_numpy(), taken_of_topic)
        if len(kept):
            lists = pa.ListArray.from_arrays(pa.array([0, len(kept)], pa.int32()), kept)
            yield row.set_column(row.schema.get_field_index("matches"), row.schema.field("matches"), lists)


def _matches_without(
    matches: pa.StructArray, offsets: Int64s, taken: Mapping[tuple[str, str], Int64s]
) -> pa.StructArray:
    kept: list[Any] = []
    for match in matches:
        outcome, positions = match["outcome"].as_py(), positions_of(match, len(offsets))
        rest = []
        for recipient in match["recipients"].as_py():
            taken_of_group = taken.get((recipient["consumer_group"], outcome))
            left = positions if taken_of_group is None else positions[~np.isin(offsets[positions], taken_of_group)]
            if len(left) == len(positions):
                rest.append(recipient)
            elif len(left):
                kept.append(
                    {"outcome": outcome, "messages": len(left), "recipients": [recipient], "positions": left.tolist()}
                )
        if len(rest) == len(match["recipients"]):
            kept.append(match.as_py())
        elif rest:
            kept.append(match.as_py() | {"recipients": rest})
    return pa.array(kept, MATCH)
