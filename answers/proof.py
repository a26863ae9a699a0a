"""How much of what is told of deliveries is proven by traces of clients, and what traces contradict.

A trace is proof: the client itself wrote that its listener was called with the message. So a trace without a delivery
contradicts what is told. No trace proves nothing, but where tracing was on and complete: the client's traces of the
messages just before and after it in the queue are there, by one process, and are older than a trace is ever late. A
client does not trace a call whose last message has no MSG_REGION (the broker gives it to all but messages of a batch),
and no message with TRACE_ON=false. So a delivery is denied if none of the messages from it up to the next traced one
could have kept its call from being traced. Source: ConsumeMessageTraceHookImpl, SendMessageProcessor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from answers.facts import BrokerFacts
from filtering.delivery.block_schema import DELIVERED
from filtering.delivery.entries import Int64s
from filtering.pops.handed_out import nth
from schemas.arrow_batches import codes
from schemas.commitlog import COMMITLOG
from schemas.consumptions import CONSUMPTIONS
from schemas.deliveries import DELIVERY_BLOCKS, PAIRS, pairs_of
from schemas.delta.table_rows import files_that_may_hold, within
from schemas.messages.stored_messages import read_messages

LATEST_TRACE = 6_000
"""A client sends its traces at most 5 s after the call (flushTraceInterval); 5,035 ms was the most that was seen."""

NEAR = 5_000
"""Another client does not take over a queue and give it back between two traces that are less apart (ms)."""

_OF_TRACES = ("consumer_group", "topic", "queue_id", "queue_offset", "commitlog_offset", "records", "consumed_at",
              "client_process", "run")  # fmt: skip
_REGION, _TRACE_ON = "MSG_REGION", "TRACE_ON"
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Proof:
    """What traces say of what is told about one broker.

    ``deliveries``: PAIRS that were delivered to groups that trace, with ``is_proven`` and ``is_denied``. ``traces``:
    rows of CONSUMPTIONS that can be judged, with ``is_told``.
    """

    deliveries: pa.Table
    traces: pa.Table

    @property
    def contradicted(self) -> pa.Table:
        """The traces without a delivery."""
        return self.traces.filter(pc.invert(self.traces["is_told"]))

    @property
    def denied(self) -> pa.Table:
        """The deliveries that complete traces deny."""
        return self.deliveries.filter(self.deliveries["is_denied"])


def proof(facts: BrokerFacts, first_run: str = "") -> Proof | None:
    """What is told, and traced, by the runs from ``first_run`` on. None if no client traced anything there.

    Traces whose message is not in the tables, or may be one of two, are not judged; nor are groups that are not known.
    """
    runs = [entry.run for entry in facts.entries]
    before = max((run for run in runs if run < first_run), default="")
    rows = facts.rows(CONSUMPTIONS, _OF_TRACES, [within("run", before)])
    rows = rows.filter(pc.and_(pc.is_valid(rows["commitlog_offset"]), pc.is_valid(rows["consumer_group"])))
    known = pa.array(facts.groups, pa.string())
    rows = rows.filter(pc.is_in(rows["consumer_group"], value_set=known))
    if not pc.any(pc.greater_equal(rows["run"], first_run)).as_py():
        return None
    groups = pc.unique(rows["consumer_group"]).to_pylist()
    told = _delivered(facts, groups, before)
    traced_keys, told_keys = _keys(rows, told)
    is_told = np.isin(traced_keys, told_keys)
    if not is_told.all():
        earlier = _delivered(
            facts, pc.unique(rows.filter(pa.array(~is_told))["consumer_group"]).to_pylist(), "", before
        )
        keys, earlier_keys = _keys(rows, earlier)
        is_told |= np.isin(keys, earlier_keys)
    is_judged = pc.and_(
        pc.and_(pc.equal(rows["records"], 1), pc.greater_equal(rows["run"], first_run)),
        pc.greater_equal(rows["commitlog_offset"], facts.last.messages_from),
    )
    traces = rows.append_column("is_told", pa.array(is_told)).filter(is_judged)
    is_proven = _proven(told, told_keys, traced_keys)
    is_denied = _denied(facts, told, told_keys, rows, traced_keys)
    told = told.append_column("is_proven", pa.array(is_proven)).append_column("is_denied", pa.array(is_denied))
    return Proof(told.filter(pc.greater_equal(told["run"], first_run)), traces)


def _delivered(facts: BrokerFacts, groups: Sequence[str], first: str, below: str | None = None) -> pa.Table:
    """The deliveries to some groups that runs from ``first`` on, and before ``below``, decided."""
    blocks = facts.rows(DELIVERY_BLOCKS, where=[within("run", first, below)])
    return pa.Table.from_batches(list(pairs_of(blocks, groups, [DELIVERED])), PAIRS)


def _keys(*parts: pa.Table) -> list[Int64s]:
    """A number for the group and the physical offset of each row, the same in all parts."""
    rows = pa.concat_tables([part.select(["consumer_group", "commitlog_offset"]) for part in parts])
    distinct, numbers = np.unique(rows["commitlog_offset"].to_numpy(), return_inverse=True)
    keys = codes(rows["consumer_group"]) * len(distinct) + numbers.reshape(-1)
    return np.split(keys, np.cumsum([len(part) for part in parts])[:-1])


def _proven(told: pa.Table, told_keys: Int64s, traced_keys: Int64s) -> Mask:
    """Which deliveries have a trace: as many of those of one message, after offset resets, as it has traces."""
    distinct, counts = np.unique(traced_keys, return_counts=True)
    at = np.searchsorted(distinct, told_keys)
    traces = np.where(np.append(distinct, -1)[at] == told_keys, np.append(counts, 0)[at], 0)
    order = np.argsort(told["available_at"].to_numpy(), kind="stable")
    is_proven = np.empty(len(told_keys), bool)
    is_proven[order] = nth(told_keys[order]) < traces[order]
    return is_proven


def _denied(facts: BrokerFacts, told: pa.Table, told_keys: Int64s, rows: pa.Table, traced_keys: Int64s) -> Mask:
    """Which deliveries complete traces deny."""
    denied = np.zeros(len(told), bool)
    if not len(told):
        return denied
    order, ends = _by_queue(told)
    by_key = np.argsort(traced_keys)
    trace = np.searchsorted(traced_keys[by_key], told_keys[order])
    found = np.append(traced_keys[by_key], -1)[trace] == told_keys[order]
    trace = np.append(by_key, 0)[trace]
    at = np.arange(len(order))
    last = np.maximum.accumulate(np.where(found, at, -1))
    following = np.minimum.accumulate(np.where(found, at, len(at))[::-1])[::-1]
    begins = np.append(0, ends[:-1])[np.searchsorted(ends, at, "right")]
    is_between = ~found & (last >= begins) & (following < ends[np.searchsorted(ends, at, "right")])
    process = codes(rows["client_process"])
    consumed_at = rows["consumed_at"].fill_null(facts.as_of).to_numpy()
    between = np.flatnonzero(is_between)
    one, other = trace[last[between]], trace[following[between]]
    is_complete = (process[one] == process[other]) & (process[one] >= 0)
    is_complete &= consumed_at[other] - consumed_at[one] < NEAR
    between = between[is_complete & (consumed_at[other] + LATEST_TRACE <= facts.as_of)]
    if not len(between):
        return denied
    is_traced, is_passed_over = _traceable(facts, told["commitlog_offset"].to_numpy()[order[between]])
    prevents = np.zeros(len(at) + 1, np.int64)
    prevents[between] = ~is_traced & ~is_passed_over
    from_here = prevents[::-1].cumsum()[::-1]
    is_denied = is_traced & (from_here[between] == from_here[following[between]])
    denied[order[between[is_denied]]] = True
    return denied


def _by_queue(told: pa.Table) -> tuple[Int64s, Int64s]:
    """The rows by group and queue, in the order of offsets, and the end of each group's queue in this order."""
    group, topic = (codes(told[name]) for name in PAIRS.names[:2])
    queue_id = told["queue_id"].to_numpy()
    order = np.lexsort((told["queue_offset"].to_numpy(), queue_id, topic, group))
    queues = np.stack([group, topic, queue_id])[:, order]
    is_last = np.append((queues[:, 1:] != queues[:, :-1]).any(axis=0), True)
    return order, np.flatnonzero(is_last) + 1


def _traceable(facts: BrokerFacts, offsets: Int64s) -> tuple[Mask, Mask]:
    """Of the messages at some physical offsets: those that a client traces, and those that it passes over in a call."""
    storage = facts.warehouse.log(COMMITLOG).storage
    limits = int(offsets.min()), int(offsets.max()) + 1
    files = files_that_may_hold(facts.warehouse.files(COMMITLOG, facts.name), [within("commitlog_offset", *limits)])
    is_traced, is_passed_over = np.zeros(len(offsets), bool), np.zeros(len(offsets), bool)
    for messages in read_messages(storage, [file.path for file in files], limits, None, (_REGION, _TRACE_ON)):
        rows = np.flatnonzero(np.isin(messages.commitlog_offset, offsets))
        for shape in np.unique(messages.shape_of[rows]).tolist():
            of_shape = rows[messages.shape_of[rows] == shape]
            values = messages.properties((_REGION, _TRACE_ON), of_shape)
            here = np.isin(offsets, messages.commitlog_offset[of_shape])
            place = np.searchsorted(messages.commitlog_offset[of_shape], offsets[here])
            is_off = np.zeros(len(of_shape), bool)
            if _TRACE_ON in values:
                is_off = (
                    pc.equal(values[_TRACE_ON].text_of_each(), "false").fill_null(False).to_numpy(zero_copy_only=False)
                )
            has_region = np.zeros(len(of_shape), bool)
            if _REGION in values:
                has_region = values[_REGION].text_of_each().is_valid().to_numpy(zero_copy_only=False)
            is_traced[here], is_passed_over[here] = (has_region & ~is_off)[place], is_off[place]
    return is_traced, is_passed_over
