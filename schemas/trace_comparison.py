"""Deliveries and traces of clients side by side, and what traces prove and deny of deliveries.

Tables as numbers come first, and the rules at the end."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from filtering.delivery.entries import Int64s, positions_in
from filtering.frozen import frozen
from filtering.names import subscribed_topic
from filtering.pops.handed_out import nth, numbered
from filtering.subscriptions.events import GroupTopic
from schemas.arrow_batches import codes
from schemas.delta.table import StoredFile
from schemas.delta.table_rows import files_that_may_hold, group_numbers, within
from schemas.messages.stored_messages import read_messages
from schemas.pops import RECORDED
from schemas.storage import Storage

TRACE_COLUMNS = ("consumer_group", "topic", "queue_id", "queue_offset", "commitlog_offset", "records", "retry_times",
                 "consumed_at", "client_process", "message_id", "trace_offset", "run")  # fmt: skip
"""The columns of consumptions that are compared with deliveries."""
_PROPERTIES = _REGION, _TRACE_ON, _ID = "MSG_REGION", "TRACE_ON", "UNIQ_KEY"


def with_message(rows: pa.Table) -> pa.Table:
    """The rows of consumptions that say of which group and message they are."""
    return rows.filter(pc.and_(pc.is_valid(rows["commitlog_offset"]), pc.is_valid(rows["consumer_group"])))


def keys(*parts: pa.Table) -> list[Int64s]:
    """A number for the group and the physical offset of each row, the same in all parts."""
    offsets = np.concatenate([part["commitlog_offset"].to_numpy() for part in parts])
    distinct, numbers = np.unique(offsets, return_inverse=True)
    key_numbers = codes(*(part["consumer_group"] for part in parts)) * len(distinct) + numbers.reshape(-1)
    return np.split(key_numbers, np.cumsum([len(part) for part in parts])[:-1])


def compared(rows: pa.Table, deliveries: pa.Table, as_of: int) -> tuple[Traces, Deliveries]:
    """Rows of consumptions and of PAIRS, as numbers. ``as_of`` (ms): instead of the time of a call without one."""
    traced_keys, delivery_keys = keys(rows, deliveries)
    names = [codes(deliveries[name]) for name in ("consumer_group", "topic")]
    queue = numbered([*names, deliveries["queue_id"].to_numpy()])
    traces = Traces(traced_keys, codes(rows["client_process"]), rows["consumed_at"].fill_null(as_of).to_numpy())
    offsets, available_at = (deliveries[name].to_numpy() for name in ("queue_offset", "available_at"))
    return traces, Deliveries(delivery_keys, queue, offsets, available_at)


def is_of(rows: pa.Table, subscribed: Collection[GroupTopic]) -> Mask:
    """Which rows are of some groups and the topics that these subscribe to, or of their retry topics."""
    names, number = group_numbers(rows, ["consumer_group", "topic"])
    mask: Mask = np.array([(group, subscribed_topic(group, topic)) in subscribed for group, topic in names], bool)[
        number
    ]
    return mask


def is_for_any_client(deliveries: pa.Table, subscribed: Collection[GroupTopic]) -> Mask:
    """Which rows of PAIRS are of pops or broadcasts, which the traces of one client do not deny.

    ``subscribed``: the groups and topics that pop without a record, or broadcast.
    """
    mask: Mask = is_of(deliveries, subscribed) | np.array(pc.equal(deliveries["source"], RECORDED), bool)
    return mask


def traceable(
    storage: Storage, files: Sequence[StoredFile], deliveries: pa.Table, consumed: pa.Table
) -> tuple[Mask, Mask]:
    """Of some rows of PAIRS: those of messages that a client traces, and those that it passes over in a call.

    ``files``: those of commitlog. ``consumed``: rows of consumptions. If a trace of the group may be of one of several
    messages, which have the same id, all of them count as passed over.
    """
    several = consumed.filter(pc.greater(consumed["records"], 1))
    shared = _group_and_id(several["consumer_group"], several["message_id"])
    groups, offsets = deliveries["consumer_group"], deliveries["commitlog_offset"].to_numpy()
    limits = int(offsets.min()), int(offsets.max()) + 1
    paths = [file.path for file in files_that_may_hold(files, [within("commitlog_offset", *limits)])]
    is_traced, is_passed_over = np.zeros(len(offsets), bool), np.zeros(len(offsets), bool)
    for messages in read_messages(storage, paths, limits, None, _PROPERTIES):
        rows = np.flatnonzero(np.isin(messages.commitlog_offset, offsets))
        for shape in np.unique(messages.shape_of[rows]).tolist():
            shape_rows = rows[messages.shape_of[rows] == shape]
            values = messages.properties(_PROPERTIES, shape_rows)
            here = np.isin(offsets, messages.commitlog_offset[shape_rows])
            place = np.searchsorted(messages.commitlog_offset[shape_rows], offsets[here])
            is_off, has_region = np.zeros((2, len(shape_rows)), bool)
            if _TRACE_ON in values:
                is_off = np.array(pc.equal(values[_TRACE_ON].text_of_each(), "false").fill_null(False))
            if _REGION in values:
                has_region = np.array(values[_REGION].text_of_each().is_valid())
            is_traced[here], is_passed_over[here] = (has_region & ~is_off)[place], is_off[place]
            if _ID in values and len(shared):
                ids = values[_ID].text_of_each().take(pa.array(place))
                is_shared = np.zeros(len(offsets), bool)
                is_shared[here] = pc.is_in(_group_and_id(groups.filter(pa.array(here)), ids), value_set=shared)
                is_traced &= ~is_shared
                is_passed_over |= is_shared
    return is_traced, is_passed_over


def _group_and_id(groups: pa.ChunkedArray, ids: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Each group and message id as one text."""
    return pc.binary_join_element_wise(*map(_combined, (groups, ids)), " ")


def _combined(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values


# The rules.
#
# A trace is proof: the client itself wrote that its listener was called with the message. No trace proves nothing, but
# where tracing was on and complete: the client's traces of the messages just before and after it in the queue are
# there, by one process, and are older than a trace is ever late. A client does not trace a call whose last message has
# no MSG_REGION (the broker gives it to all but messages of a batch), and no message with TRACE_ON=false. So a delivery
# is denied if none of the messages from it up to the next traced one could have kept its call from being traced.
# Of messages that were popped or broadcast, none is denied: several clients read a queue.
# Source: ConsumeMessageTraceHookImpl, SendMessageProcessor.


LATEST_TRACE = 6_000
"""A client sends its traces at most 5 s after the call (flushTraceInterval); 5,035 ms was the most that was seen."""

NEAR = 5_000
"""Another client does not take over a queue and give it back between two traces that are less apart (ms)."""

Mask = NDArray[np.bool_]


@frozen(eq=False)
class Traces:
    """Traces in any order. ``key``: a number for each group and message. ``process``: one for each process, or -1.

    ``consumed_at`` (ms): when the listener was called.
    """

    key: Int64s
    process: Int64s
    consumed_at: Int64s


@frozen(eq=False)
class Deliveries:
    """Deliveries in any order. ``key``: as in Traces. ``queue``: a number for each group, topic and queue.

    ``available_at``: ms.
    """

    key: Int64s
    queue: Int64s
    queue_offset: Int64s
    available_at: Int64s


def proven(deliveries: Deliveries, traces: Traces) -> Mask:
    """Which deliveries have a trace: as many of those of one message, after offset resets, as it has traces."""
    distinct, counts = np.unique(traces.key, return_counts=True)
    count = np.append(counts, 0)[positions_in(distinct, deliveries.key)]
    order = np.argsort(deliveries.available_at, kind="stable")
    is_proven = np.empty(len(deliveries.key), bool)
    is_proven[order] = nth(deliveries.key[order]) < count[order]
    return is_proven


def denied(
    deliveries: Deliveries, traces: Traces, as_of: int, traceable: Callable[[Int64s], tuple[Mask, Mask]]
) -> Mask:
    """Which deliveries complete traces deny. ``as_of``: up to when the log is known, ms.

    ``traceable``: of some deliveries, by position, those of messages that a client traces, and those of messages that
    it passes over in a call.
    """
    is_denied = np.zeros(len(deliveries.key), bool)
    if not len(deliveries.key):
        return is_denied
    order = np.lexsort((deliveries.queue_offset, deliveries.queue))
    is_last = np.append(np.diff(deliveries.queue[order]) != 0, True)
    ends = np.flatnonzero(is_last) + 1
    by_key = np.argsort(traces.key)
    trace = np.searchsorted(traces.key[by_key], deliveries.key[order])
    has_trace = np.append(traces.key[by_key], -1)[trace] == deliveries.key[order]
    trace = np.append(by_key, 0)[trace]
    at = np.arange(len(order))
    last = np.maximum.accumulate(np.where(has_trace, at, -1))
    following = np.minimum.accumulate(np.where(has_trace, at, len(at))[::-1])[::-1]
    begins = np.append(0, ends[:-1])[np.searchsorted(ends, at, "right")]
    is_between = ~has_trace & (last >= begins) & (following < ends[np.searchsorted(ends, at, "right")])
    between = np.flatnonzero(is_between)
    one, other = trace[last[between]], trace[following[between]]
    is_complete = (traces.process[one] == traces.process[other]) & (traces.process[one] >= 0)
    is_complete &= traces.consumed_at[other] - traces.consumed_at[one] < NEAR
    between = between[is_complete & (traces.consumed_at[other] + LATEST_TRACE <= as_of)]
    if not len(between):
        return is_denied
    is_traced, is_passed_over = traceable(order[between])
    prevents = np.zeros(len(at) + 1, np.int64)
    prevents[between] = ~is_traced & ~is_passed_over
    from_here = prevents[::-1].cumsum()[::-1]
    is_denied[order[between[is_traced & (from_here[between] == from_here[following[between]])]]] = True
    return is_denied
