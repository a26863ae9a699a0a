"""What traces of clients prove and deny of deliveries.

A trace is proof: the client itself wrote that its listener was called with the message. No trace proves nothing, but
where tracing was on and complete: the client's traces of the messages just before and after it in the queue are there,
by one process, and are older than a trace is ever late. A client does not trace a call whose last message has no
MSG_REGION (the broker gives it to all but messages of a batch), and no message with TRACE_ON=false. So a delivery is
denied if none of the messages from it up to the next traced one could have kept its call from being traced.
Of messages that were popped or broadcast, none is denied: several clients read a queue.
Source: ConsumeMessageTraceHookImpl, SendMessageProcessor.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from filtering.delivery.entries import Int64s, positions_in
from filtering.frozen import frozen
from filtering.pops.handed_out import nth

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
