"""Which message a trace of a client means, and which deliveries traces prove, deny and decide.

*What a trace means.* It names no queue, but a message id. The message that the client was handed is the one of its
group's retry topics with this id and as many deliveries before, else the one of an ordinary topic. If a producer sent a
message again after a time-out, two records have its id: they are taken in turn.

*What it proves.* The client itself wrote that its listener was called with the message. An orderly consumer also tries
a message again in its own memory, and counts: then it did not receive it again.

*What is denied.* No trace proves nothing, but where tracing was on and complete: the client's traces of the messages
just before and after it in the queue are there, by one process, and the log is known from then on for as long as a
trace is ever late. A client does not trace a call whose last message has no MSG_REGION (the broker gives it to all but
messages of a batch), and no message with TRACE_ON=false. So a delivery is denied if none of the messages from it up to
the next traced one could have kept its call from being traced. Of messages that were popped or broadcast, none is
denied: several clients read a queue.

*What is decided.* A trace is stronger than any rule. Where nothing is open, it is the check of the rules; it decides

- the messages in *uncertain* windows, those of clients that disagree, and those that were in flight when the group left
  or changed its subscription: one that a client traced is DELIVERED, and one that complete traces deny is DENIED;
- whether a group got the messages that the broker deleted in the night in which it came for them;
- how often a message was received: if a client traced it more often than the rules say, the other times are
  deliveries, too, as when a client leaves while it consumes;
- whether a client got what the broker's record says that a pop handed out: it may have been dropped by its tags, given
  up, or popped for nobody. No trace denies it, since the messages of a queue go to any of the clients that pop.

Source: ConsumeMessageTraceHookImpl, SendMessageProcessor, ConsumeMessageOrderlyService; runs of RocketMQ 5.5.0.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from filtering.consumption.uncertainty import HELD_PULL_MS
from filtering.delivery.entries import Int64s, positions_in
from filtering.delivery.pull_window import PULLED, PullWindow, Reason, WindowKind
from filtering.frozen import frozen
from filtering.journey import is_copy
from filtering.names import SEPARATOR, group_of_topic, is_retry_topic, namespace_of, retry_topics
from filtering.pops.handed_out import NONE, nth, numbered
from filtering.subscriptions.events import GroupTopic
from filtering.time_spans import DAY, FOREVER

Mask = NDArray[np.bool_]

LONGEST_CALL = DAY
"""A return is joined with a call of an earlier night that is at most this long ago (ms)."""
LATEST_TRACE = 6_000
"""A client sends its traces at most 5 s after the call (flushTraceInterval); 5,035 ms was the most that was seen."""
NEAR = 5_000
"""Another client does not take over a queue and give it back between two traces that are less apart (ms)."""

_OFFSET_ID = "^(?:[0-9A-F]{32}|[0-9A-F]{56})$"
_OFFSET_DIGITS = 16
_RETRY, _SUBSCRIBED, _ORDINARY, _OTHER, _NEVER = range(5)
"""How a message fits a trace: the least is taken."""


def of_first_traces(request: Int64s, is_call: Mask, trace_offset: Int64s) -> Mask:
    """Which rows, in the order of the log, are not of traces that a client sent again after a time-out.

    A call is in one trace only, and so is its return. ``request``: a number for each request id.
    """
    key = request * 2 + is_call
    first = np.full(key.max(initial=0) + 1, -1, np.int64)
    first[key[::-1]] = trace_offset[::-1]
    return np.equal(first[key], trace_offset)


def full_names(groups: Sequence[str], known: Collection[str]) -> list[str]:
    """The names of groups with their namespaces, which traces leave out (ConsumeMessageTraceHookImpl)."""
    by_name: dict[str, list[str]] = {}
    for group in known:
        if namespace_of(group):
            by_name.setdefault(group.partition(SEPARATOR)[2], []).append(group)
    return [by_name[name][0] if name not in known and len(by_name.get(name, ())) == 1 else name for name in groups]


def ids_with_offsets(ids: pa.StringArray) -> tuple[pa.StringArray, pa.Int64Array]:
    """The ids that may be those of messages without UNIQ_KEY, and the physical offsets in them."""
    offset_ids = ids.filter(pc.match_substring_regex(ids, _OFFSET_ID))
    digits = pc.utf8_slice_codeunits(offset_ids, -_OFFSET_DIGITS)
    text = "".join(digits.to_pylist())
    octets = np.frombuffer(bytes.fromhex(text), ">i8")
    return offset_ids, pa.array(octets.astype(np.int64))


def meant(
    rows: pa.Table, ids: Int64s, messages: pa.Table, message_ids: Int64s, subscribed: Collection[GroupTopic]
) -> tuple[Int64s, Int64s, Mask]:
    """The position of the message that each trace means, or NONE; how many fit as well; whether others may fit better.

    ``ids``, ``message_ids``: a number for the id of each. ``subscribed``: groups with the topics that they ever had.
    """
    order = np.lexsort((messages["commitlog_offset"].to_numpy(), message_ids))
    lows, highs = (np.searchsorted(message_ids[order], ids, side) for side in ("left", "right"))
    counts = highs - lows
    row = np.repeat(np.arange(len(rows)), counts)
    pair_number = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
    message = order[np.repeat(lows, counts) + pair_number]
    ranks = _fit(rows, messages, row, message, subscribed)
    by_row = np.lexsort((pair_number, ranks, row))
    row, message, ranks = row[by_row], message[by_row], ranks[by_row]
    begins = np.searchsorted(row, np.arange(len(rows)))
    least = np.append(ranks, _NEVER)[begins]
    least[counts == 0] = _NEVER
    is_best = (ranks == least[row]) & (ranks < _NEVER)
    records = np.bincount(row[is_best], minlength=len(rows))
    turns = _turns(rows, ids) % np.maximum(records, 1)
    taken = np.append(message, 0)[np.minimum(begins + turns, len(message))]
    return np.where(records == 0, NONE, taken), records, least > _SUBSCRIBED


def _fit(
    rows: pa.Table, messages: pa.Table, row: Int64s, message: Int64s, subscribed: Collection[GroupTopic]
) -> Int64s:
    """How the message of each pair fits its row: _RETRY to _NEVER."""
    groups = rows["consumer_group"].combine_chunks().dictionary_encode()
    topics = messages["topic"].combine_chunks().dictionary_encode()
    group_of = {name: number for number, name in enumerate(groups.dictionary.to_pylist())}
    names = topics.dictionary.to_pylist()
    topic_of = {name: number for number, name in enumerate(names)}
    is_retry = np.array([is_retry_topic(name) for name in names], bool)
    ordinary = np.array([_rank_of_topic(name) for name in names], np.int64)
    reads, owns = np.zeros((2, len(group_of) + 1, len(names)), bool)
    for name, number in topic_of.items():
        if (owner := group_of_topic(name)) in group_of:
            owns[group_of[owner], number] = True
    for group, topic in subscribed:
        if group in group_of:
            for name in {topic, *retry_topics(group, topic)} & topic_of.keys():
                (reads if name == topic else owns)[group_of[group], topic_of[name]] = True
    group = groups.indices.fill_null(-1).to_numpy()[row]
    topic = topics.indices.to_numpy()[message]
    retry_times = rows["retry_times"].fill_null(-1).to_numpy()[row]
    is_own = owns[group, topic] & (messages["reconsume_times"].fill_null(0).to_numpy()[message] == retry_times)
    ranks = np.where(reads[group, topic], _SUBSCRIBED, ordinary[topic])
    fit: Int64s = np.where(is_retry[topic], np.where(is_own, _RETRY, _NEVER), ranks)
    return fit


def _rank_of_topic(topic: str) -> int:
    if not is_copy(topic):
        return _ORDINARY
    return _NEVER if group_of_topic(topic) is None else _OTHER


def _turns(rows: pa.Table, ids: Int64s) -> Int64s:
    """The number of each row among those of the same group, id and count of deliveries, by time."""
    codes = [rows[name].combine_chunks().dictionary_encode().indices for name in ("consumer_group", "retry_times")]
    keys = numbered([ids, *(code.fill_null(-1).to_numpy() for code in codes)])
    order = np.argsort(rows["consumed_at"].fill_null(0).to_numpy(), kind="stable")
    turns = np.empty(len(rows), np.int64)
    turns[order] = nth(keys[order])
    return turns


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
    deliveries: Deliveries,
    traces: Traces,
    unread: Iterable[tuple[int, int]],
    traceable: Callable[[Int64s], tuple[Mask, Mask]],
) -> Mask:
    """Which deliveries complete traces deny. ``unread``: the times [from, to) of which a part of the log is not known,
    ms.

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
    for begin, end in unread:
        is_complete &= (traces.consumed_at[other] + LATEST_TRACE <= begin) | (end <= traces.consumed_at[one])
    between = between[is_complete]
    if not len(between):
        return is_denied
    is_traced, is_passed_over = traceable(order[between])
    prevents = np.zeros(len(at) + 1, np.int64)
    prevents[between] = ~is_traced & ~is_passed_over
    from_here = prevents[::-1].cumsum()[::-1]
    is_denied[order[between[is_traced & (from_here[between] == from_here[following[between]])]]] = True
    return is_denied


@frozen(eq=False)
class Covered:
    """Of some messages: whether a window of tonight or of the night before filtered them, and of tonight.

    ``is_open``: whether it is uncertain who received them. ``is_of_client``: whether a client with other tags than the
    group's other clients read them. ``is_lost``: whether they count as deleted before the group pulled them tonight.
    ``subscription_from``: of what filtered them.
    """

    is_filtered: Mask
    is_tonight: Mask
    is_open: Mask
    is_of_client: Mask
    is_lost: Mask
    subscription_from: Int64s

    def add(
        self, window: PullWindow, is_tonight: bool, own: Int64s, inside: Int64s, stored_at: Int64s, received_at: Int64s
    ) -> None:
        """Adds what a window says of the messages ``own`` of its group in a queue. It covers those that are ``inside``.

        Both are positions. ``stored_at``, ``received_at``: when each of ``own`` was stored, and received, if known; ms.
        """
        self.is_open[inside] |= is_open(window)
        if ends_with_change(window):
            since, until = stored_at - HELD_PULL_MS, np.maximum(stored_at + HELD_PULL_MS, received_at)
            self.is_open[own] |= (since <= window.stored_to) & (window.stored_to <= until)
        if window.kind is WindowKind.LOST:
            self.is_lost[inside] = is_tonight
        if window.kind in (*PULLED, WindowKind.LOST) or window.reason is Reason.BEGAN_EARLIER:
            self.is_filtered[inside] = True
            self.is_of_client[inside] = window.is_of_client
            self.subscription_from[inside] = window.subscription_from
            self.is_tonight[inside] |= is_tonight and window.kind in PULLED


def is_open(window: PullWindow) -> bool:
    """Whether it is not known who received the messages of a window."""
    return window.kind in (WindowKind.UNCERTAIN, WindowKind.LOST) or window.is_of_client


def ends_with_change(window: PullWindow) -> bool:
    """Whether a group left, or changed its subscription, at the end of a window.

    The events do not say how far it was: it may have been handed what its rules leave to the next subscription, or it
    may have pulled later what they give to this one, as a pull is held for up to HELD_PULL_MS.
    """
    return window.kind is WindowKind.ONLINE and window.stored_to != FOREVER


def of_most_traced_try(key: Int64s, tries: Int64s) -> Mask:
    """Which traces are of the try that their message has most traces of. ``key``: as in Traces.

    ``tries``: how often it was tried before. The others are of a consumer that tried it again in its own memory.
    """
    pairs, number, counts = np.unique(np.stack([key, tries]), axis=1, return_inverse=True, return_counts=True)
    order = np.lexsort((pairs[1], -counts, pairs[0]))
    is_most = np.zeros(len(order), bool)
    is_most[order[np.append(True, np.diff(pairs[0][order]) != 0)[: len(order)]]] = True
    return is_most[number.reshape(-1)]


def is_new_delivery(
    key: Int64s, times_delivered: Int64s, times_popped: Int64s, covered: Covered, is_broadcast: Mask
) -> Mask:
    """Which traces, in the order of time, are deliveries that the rules do not say. ``key``: as in Traces.

    Of the message of each: how often the rules say that it was delivered, and the broker's record that it was popped.
    """
    is_first = (times_delivered == 0) & covered.is_open & covered.is_filtered
    is_again = (times_delivered > 0) & ~is_broadcast  # each client of a group that broadcasts traces it
    is_new: Mask = nth(key) >= times_delivered
    return is_new & np.where(times_popped > 0, nth(key) < times_popped, is_first | is_again)
