"""What groups pulled, by the windows that nights stored: which of them cover a message, and where groups began."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cache
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from answers.facts import BrokerFacts, GroupQueue, in_queue
from answers.messages import StoredMessage
from filtering.broker_config import BrokerConfig
from filtering.consumption.group import FIRST_START, StartReason, with_first_message
from filtering.consumption.plan import resets_and_first_starts
from filtering.consumption.uncertainty import BEGAN_EARLIER, DELETED_TONIGHT, HANDED_OVER, LEFT_PULL
from filtering.counted import counted, listed
from filtering.delivery.entries import Entries, Int64s, among
from filtering.delivery.message_filter import MessageFilter
from filtering.delivery.pull_window import (
    EVERYWHERE,
    HELD_PULL,
    NO_END,
    PULLED,
    Number,
    OffsetRange,
    PullWindow,
    WindowKind,
    is_about,
)
from filtering.delivery.topic_filters import ranges_of
from filtering.frozen import frozen
from filtering.journey import group_of_topic
from filtering.subscriptions.events import ConsumeFrom, GroupTopic
from filtering.subscriptions.subscription_row import SubscriptionRow
from filtering.time_spans import BEGINNING
from schemas.commitlog import COMMITLOG
from schemas.delta.table_rows import Key, least, one_of, sorted_by, tuples, within
from schemas.errors import time_text
from schemas.pull_windows import PULL_WINDOWS, stored_windows
from schemas.tables import CONSUMEQUEUE, CURRENT_OFFSETS

NAMED = 3
"""The number of groups that a line names; others are counted."""
_FROM_OFFSETS = (WindowKind.BACKLOG, WindowKind.RESET, WindowKind.LOST)
"""The windows that begin at an offset: where groups began, returned or went back."""
_FIRST_START_PREFIX = f"{FIRST_START}: "
_BY_ANOTHER_FILTER = HELD_PULL, LEFT_PULL, HANDED_OVER, DELETED_TONIGHT, BEGAN_EARLIER
"""Those of windows in which another subscription says of a message whether it is uncertain."""
Period = tuple[int, int]
"""Store times, ms, the second exclusive."""


@frozen(eq=False)
class LogOfNights:
    """Which night first filtered which messages. Nights are numbered in order.

    ``ends``: by night, the physical offset up to which it filtered new messages. ``late``: the physical offsets of
    messages that a night could not read, ascending; ``filtered_in``: the later nights that first filtered them.
    """

    ends: Int64s
    late: Int64s = field(default_factory=lambda: np.empty(0, np.int64))
    filtered_in: Int64s = field(default_factory=lambda: np.empty(0, np.int64))

    def nights(self, commitlog_offset: Int64s) -> tuple[Int64s, npt.NDArray[np.bool_]]:
        """The night of each message, and whether it came late. A message after the last night has the next number."""
        is_late = among(commitlog_offset, self.late)
        night = np.searchsorted(self.ends, commitlog_offset, side="right")
        night[is_late] = self.filtered_in[np.searchsorted(self.late, commitlog_offset[is_late])]
        return night, is_late


@frozen(eq=False)
class PulledMessages:
    """The messages that a group pulled: those that ``windows`` cover, each with the number of its night.

    The group has also pulled all messages of the queues that ``known_queues`` does not list; None: it lists all.
    """

    log: LogOfNights
    windows: Sequence[tuple[int, PullWindow]]
    known_queues: Collection[int] | None = None

    def among(self, entries: Entries) -> npt.NDArray[np.bool_]:
        """Whether the group pulled each entry of a block."""
        queue_ids, bounds = entries.queue_bounds
        sizes = np.diff(bounds)
        first, is_late = self.log.nights(entries.commitlog_offset)
        known = queue_ids if self.known_queues is None else list(self.known_queues)
        pulled: npt.NDArray[np.bool_] = ~np.repeat(np.isin(queue_ids, known), sizes)
        begin, end = int(entries.store_timestamp.min()), int(entries.store_timestamp.max())
        for night, window in self.windows:
            if end < window.stored_from or window.stored_to <= begin:
                continue
            flags = is_about(window.kind, night, first, is_late) & (first < len(self.log.ends))
            if not flags.any():
                continue
            low, high = ranges_of(queue_ids, window.offsets.items(), (0, 0) if window.only_listed else EVERYWHERE)
            flags &= (window.stored_from <= entries.store_timestamp) & (entries.store_timestamp < window.stored_to)
            flags &= (np.repeat(low, sizes) <= entries.queue_offset) & (entries.queue_offset < np.repeat(high, sizes))
            if window.physical_ranges:
                low, high = ranges_of(queue_ids, window.physical_ranges.items(), EVERYWHERE)
                flags &= np.repeat(low, sizes) <= entries.commitlog_offset
                flags &= entries.commitlog_offset < np.repeat(high, sizes)
            pulled |= flags
        return pulled


@frozen
class Pulled:
    """The group pulled the message at ``at`` (ms), when ``row`` and the broker's ``config`` were in force."""

    row: SubscriptionRow
    at: int
    config: BrokerConfig


class WindowsOfMessages:
    """The windows that cover messages. ``groups``: the only groups to read; None: all.

    Raises UsageError if an older mqsieve ran the nights.
    """

    def __init__(self, facts: BrokerFacts, groups: Collection[str] | None) -> None:
        facts.check_has_windows()
        self._facts = facts
        self._groups = groups
        self._nights = facts.nights
        self._runs = [night.run for night in facts.nights]
        self._numbers = {run: number for number, run in enumerate(self._runs)}
        self._ends = np.array([night.delivered_to or 0 for night in facts.nights], np.int64)
        self.topic_windows = cache(self._read_windows)
        """The windows of a topic, each with its run."""
        self._by_night = cache(self._windows_by_night)
        self._last: tuple[Any, Mapping[str, Sequence[tuple[int, PullWindow]]]] = None, {}

    def is_filtered(self, message: StoredMessage) -> bool:
        """Whether a night filtered the message."""
        return bool(self._nights_of(message.commitlog_offset, self._made_in(message))[0] < len(self._nights))

    def pulls(self, message: StoredMessage, group: str, rows: Sequence[SubscriptionRow]) -> list[Pulled]:
        """The pulls of a message by a group with these states on the topic, in order."""
        by_start = {row.valid_from: row for row in rows}
        pulls = []
        for night, window in self._by_group(message).get(group, ()):
            if window.kind not in (WindowKind.LOST, WindowKind.UNCERTAIN):
                at = self._pulled_at(night, window, message)
                pulls.append(Pulled(by_start[window.subscription_from], at, self._config(night, window, at)))
        return sorted(pulls, key=lambda pull: pull.at)

    def of(self, message: StoredMessage, group: str) -> list[PullWindow]:
        """The windows of a group that cover a message."""
        return [window for _, window in self._by_group(message).get(group, ())]

    def changes(self, message: StoredMessage, group: str) -> list[int]:
        """When the subscription changed (ms), and the broker may have answered a pull that it held with the message."""
        return sorted({window.subscription_from for window in self.of(message, group) if window.reason == HELD_PULL})

    def covering(
        self, topic: str, entries: pa.Table
    ) -> tuple[Sequence[npt.NDArray[np.int64 | np.bool_]], npt.NDArray[np.bool_]]:
        """All that windows decide of entries of a topic, as columns of numbers. ``entries``: rows of CONSUMEQUEUE.

        The columns are: which windows cover an entry (in a queue, equal numbers stand for the same ones), the night
        that first filtered it, and whether an earlier one could not read it. Also returns whether another subscription
        than the one that pulled it may have filtered it.
        """
        queue_ids, queue_offsets, offsets, stored_at = (
            entries[name].to_numpy() for name in ("queue_id", "queue_offset", "commitlog_offset", "store_timestamp")
        )
        runs = entries["run"].combine_chunks().dictionary_encode()
        numbers = np.array([bisect_left(self._runs, run) for run in runs.dictionary.to_pylist()], np.int64)
        made_in = numbers[runs.indices.to_numpy()]
        sets = np.zeros(len(entries), np.int64)
        is_at_change = np.zeros(len(entries), np.bool_)
        for queue_id in np.unique(queue_ids).tolist():
            at = np.flatnonzero(queue_ids == queue_id)
            place = queue_id, queue_offsets[at], offsets[at], stored_at[at]
            for _, window, is_covered in self._covered(topic, *place, made_in[at]):
                is_at_change[at] |= is_covered & (window.reason in _BY_ANOTHER_FILTER)
                sets[at] = np.unique(2 * sets[at] + is_covered, return_inverse=True)[1].reshape(-1)
        return [sets, *self._nights_of(offsets, made_in)], is_at_change

    def instants(self, topic: str) -> set[int]:
        """Instants (ms) at which it may change what a pull of a message that is stored then depends on."""
        ends = {window.available_at for _, window in self.topic_windows(topic) if window.available_at is not None}
        return ends.union(night.as_of or 0 for night in self._nights)

    def _by_group(self, message: StoredMessage) -> Mapping[str, Sequence[tuple[int, PullWindow]]]:
        """By group, the windows that cover a message, each with the number of its night."""
        place = message.topic, message.queue_offset, message.commitlog_offset  # an LMQ may have a message twice
        if self._last[0] != place:
            covering: defaultdict[str, list[tuple[int, PullWindow]]] = defaultdict(list)
            entry = message.queue_id, message.queue_offset, message.commitlog_offset, message.store_timestamp
            for night, window, is_covered in self._covered(message.topic, *entry, self._made_in(message)):
                if is_covered:
                    covering[window.consumer_group].append((night, window))
            self._last = place, covering
        return self._last[1]

    def _covered(
        self, topic: str, queue_id: int, queue_offset: Number, offset: Number, stored_at: Number, made_in: Number
    ) -> Iterator[tuple[int, PullWindow, Any]]:
        """The windows that may cover entries of a queue, each with the number of its night and whether it covers them.

        ``offset``: the physical one; ``stored_at``: ms; ``made_in``: the number of the run that made the entry. They
        are numbers, or arrays with an element for each entry.
        """
        first, is_late = self._nights_of(offset, made_in)
        is_filtered = first < len(self._nights)
        least, greatest = np.min(stored_at), np.max(stored_at)
        online, others = self._by_night(topic)
        of_nights = (online.get(night, ()) for night in range(np.min(first), np.max(first) + 1))
        for night, window in chain(others, *of_nights):
            if window.stored_from <= greatest and least < window.stored_to:
                is_inside = window.covers(queue_id, queue_offset, offset, stored_at)
                if np.any(is_inside):
                    yield night, window, is_inside & is_filtered & is_about(window.kind, night, first, is_late)

    def _windows_by_night(
        self, topic: str
    ) -> tuple[Mapping[int, Sequence[tuple[int, PullWindow]]], Sequence[tuple[int, PullWindow]]]:
        """The windows of new messages by the number of their night, and the others, each with that number."""
        online: defaultdict[int, list[tuple[int, PullWindow]]] = defaultdict(list)
        others: list[tuple[int, PullWindow]] = []
        for run, window in self.topic_windows(topic):
            night = self._numbers[run]
            (online[night] if window.kind is WindowKind.ONLINE else others).append((night, window))
        return online, others

    def _nights_of(self, offset: Number, made_in: Number) -> tuple[Any, Any]:
        """The numbers of the nights that first filtered messages, and whether the messages came late.

        By physical offset and by the number of the run that made the entry; a message after the last night has the next
        number.
        """
        own = np.searchsorted(self._ends, offset, "right")
        return np.maximum(own, made_in), made_in > own

    def _made_in(self, message: StoredMessage) -> int:
        """The number of the run that made a message's entry; 0 if it has none."""
        return bisect_left(self._runs, message.dispatched_by or "")

    def _pulled_at(self, night: int, window: PullWindow, message: StoredMessage) -> int:
        """When the group pulled a message in a window; one that was behind, when the night began."""
        if window.available_at is not None:
            return window.available_at
        is_behind = window.kind is WindowKind.BACKLOG and night
        return (self._nights[night - 1].as_of or 0) if is_behind else message.store_timestamp

    def _config(self, night: int, window: PullWindow, at: int) -> BrokerConfig:
        """The broker's configuration in the night that planned a window; a late one is of the night of ``at`` (ms)."""
        if window.kind is not WindowKind.LATE:
            return self._nights[night].broker
        return next((night.broker for night in self._nights if at <= (night.as_of or 0)), self._facts.broker)

    def _read_windows(self, topic: str) -> Sequence[tuple[str, PullWindow]]:
        where = [one_of("consumer_group", self._groups)] if self._groups is not None else []
        return stored_windows(self._facts.rows(PULL_WINDOWS, where=[one_of("topic", [topic]), *where]))


class WindowsOfPeriod:
    """What some groups pulled of some topics by the windows of nights, and what waits for them."""

    def __init__(self, facts: BrokerFacts, groups: Collection[str], topics: Collection[str], period: Period) -> None:
        self._facts = facts
        self._first_kept = cache(self._read_first_kept)
        self._log = cache(self._read_log)
        where = [one_of("topic", topics), one_of("consumer_group", groups)]
        self._queues: defaultdict[GroupTopic, list[tuple[int, int | None, int]]] = defaultdict(list)
        columns = ["consumer_group", "topic", "queue_id", "decided_to", "queue_end"]
        for group, topic, *queue in tuples(facts.rows(CURRENT_OFFSETS, columns, where), *columns):
            self._queues[group, topic].append((*queue,))
        numbers = {night.run: number for number, night in enumerate(facts.nights)}
        self._windows: defaultdict[GroupTopic, list[tuple[int, PullWindow]]] = defaultdict(list)
        for run, window in stored_windows(facts.rows(PULL_WINDOWS, where=where)):
            if window.kind in PULLED and window.stored_from < period[1] and period[0] < window.stored_to:
                self._windows[window.key].append((numbers[run], window))
        popping = [key for key in facts.popping if key[0] in groups and key[1] in topics]
        for key, window in _pop_windows(facts, popping, self._queues).items():
            self._windows[key].append((len(facts.nights) - 1, window))

    def pulled(self, group: str, topic: str) -> PulledMessages:
        """What a group pulled of a topic. It counts as having pulled all of a queue in which it has no offset."""
        key = group, topic
        return PulledMessages(self._log(topic), self._windows[key], [queue_id for queue_id, *_ in self._queues[key]])

    def pending(self, group: str, topic: str) -> Mapping[int, OffsetRange]:
        """The offsets that a group has yet to pull, by queue id. Messages that the broker deleted are not pending."""
        pending: dict[int, OffsetRange] = {}
        for queue_id, decided_to, end in self._queues[group, topic]:
            begin = decided_to or 0
            pending[queue_id] = (max(begin, self._kept_from(topic, queue_id)) if begin < end else begin, NO_END)
        return pending

    def _read_log(self, topic: str) -> LogOfNights:
        """Which night first filtered which messages of a topic. Only files with late messages are read."""
        nights = self._facts.nights
        runs, ends = [night.run for night in nights], np.array([night.delivered_to or 0 for night in nights], np.int64)
        files = [
            file
            for file in self._facts.warehouse.files(CONSUMEQUEUE, self._facts.name)
            if bisect_left(runs, file.greatest["run"]) > np.searchsorted(ends, file.least["commitlog_offset"], "right")
        ]
        where = [one_of("topic", [topic])]
        rows = self._facts.warehouse.rows(CONSUMEQUEUE, ["commitlog_offset", "run"], where, files)
        offsets, first = np.unique(rows["commitlog_offset"].to_numpy(), return_index=True)
        written = rows["run"].combine_chunks().dictionary_encode()
        run_number = np.array([bisect_left(runs, run) for run in written.dictionary.to_pylist()], np.int64)
        filtered_in = run_number[written.indices.to_numpy()][first]
        is_late = filtered_in > np.searchsorted(ends, offsets, "right")
        return LogOfNights(ends, offsets[is_late], filtered_in[is_late])

    def _kept_from(self, topic: str, queue_id: int) -> int:
        """The first offset of a queue whose message is still in the broker's log."""
        return self._first_kept(topic).get((queue_id,), NO_END) if self._facts.last.log_start else 0

    def _read_first_kept(self, topic: str) -> Mapping[Key, int]:
        """These offsets of a topic, by queue id (a tuple of one)."""
        kept = [one_of("topic", [topic]), within("commitlog_offset", self._facts.last.log_start)]
        return least(self._facts.rows(CONSUMEQUEUE, ["queue_id", "queue_offset"], kept), ["queue_id"], "queue_offset")


def _pop_windows(
    facts: BrokerFacts, keys: Sequence[GroupTopic], queues: Mapping[GroupTopic, Sequence[tuple[int, int | None, int]]]
) -> dict[GroupTopic, PullWindow]:
    """What pops of some groups read: in each queue from where the first of them began to the group's offset."""
    if not keys:
        return {}
    names = ["consumer_group", "topic", "queue_id"]
    where = [one_of("topic", {topic for _, topic in keys}), one_of("consumer_group", {group for group, _ in keys})]
    starts = least(facts.recorded_pops([*names, "start_offset"], where), names, "start_offset")
    windows = {}
    for key in keys:
        read = {
            queue_id: (starts[*key, queue_id], decided_to or 0)
            for queue_id, decided_to, _ in queues.get(key, ())
            if (*key, queue_id) in starts
        }
        physical_ranges = facts.physical_ranges(key[1], read)
        windows[key] = PullWindow(
            MessageFilter(*key),
            BEGINNING,
            offsets=read,
            only_listed=True,
            physical_ranges=physical_ranges,
            kind=WindowKind.BACKLOG,
        )
    return windows


@frozen
class Start:
    """A group began at ``at`` (ms) in a queue, at an offset, for this reason."""

    at: int
    queue_offset: int
    reason: str

    @property
    def text(self) -> str:
        return f"{time_text(self.at)} at offset {self.queue_offset:,} of the queue: {self.reason}"


class FirstStarts:
    """Where groups began in queues. ``windows``: all of these groups and topics, each with its run, in order."""

    def __init__(self, facts: BrokerFacts, windows: Iterable[tuple[str, PullWindow]]) -> None:
        self._facts = facts
        self._known_from = (facts.nights[0].as_of or 0) if facts.history_is_incomplete and facts.nights else BEGINNING
        self._entries = cache(self._read_entries)
        self._windows: defaultdict[GroupTopic, list[PullWindow]] = defaultdict(list)
        for _, window in windows:
            if window.kind in _FROM_OFFSETS:
                self._windows[window.key].append(window)

    def start(self, queue: GroupQueue) -> Start | None:
        """Where and why a group began in a queue. None if it never did, or if that is not known.

        It is not known before the history begins, and where maintenance removed the messages of that time.
        """
        group, topic, queue_id = queue
        windows = [each for each in self._windows[group, topic] if queue_id in each.offsets or not each.only_listed]
        at = min((each.available_at for each in windows if each.available_at is not None), default=None)
        if at is None or at <= self._known_from:
            return None
        first = [window for window in windows if window.available_at == at]
        # An empty range leaves a queue to another window, or ends at the offset that the group has committed.
        window = max(first, key=lambda each: (each.kind is not WindowKind.LOST, *reversed(each.range_of(queue_id))))
        begin, (_, end) = self._begin(window, queue), window.range_of(queue_id)
        if begin is None or end == 0:
            return None
        lost = [each.offsets[queue_id][0] for each in first if each.kind is WindowKind.LOST]
        offset = min(begin, end, *lost)
        reason = window.reason.removeprefix(_FIRST_START_PREFIX)
        if offset == 0 and window.reason != reason:
            reason = with_first_message(StartReason(reason))
        return Start(at, offset, reason)

    def _begin(self, window: PullWindow, queue: GroupQueue) -> int | None:
        """The first offset of a queue in a window; the end of the queue if nothing was stored since then.

        None if maintenance removed the message.
        """
        _, topic, queue_id = queue
        low, _ = window.range_of(queue_id)
        if window.stored_from == BEGINNING:
            return low
        offsets, times = self._entries(topic, queue_id)
        at = int(np.searchsorted(times, window.stored_from))
        if at == 0 and self._facts.last.messages_from:
            return None
        return max(low, int(offsets[at] if at < len(offsets) else offsets[-1] + 1 if at else 0))

    def _read_entries(self, topic: str, queue_id: int) -> tuple[Int64s, Int64s]:
        """The queue offsets and store times (ms) of a queue's entries, ascending."""
        columns = ["queue_offset", "store_timestamp"]
        rows = sorted_by(self._facts.rows(CONSUMEQUEUE, columns, in_queue(topic, queue_id)), "queue_offset")
        return rows["queue_offset"].to_numpy(), rows["store_timestamp"].to_numpy()


def started_last_night(facts: BrokerFacts) -> list[str]:
    """Lines on the groups that began in the last night, for each topic and each reason but ``consume_from`` first.

    A line says how many of the messages that were stored before they came they got, or missed. There is none if there
    were no such messages.
    """
    oldest = min((file.least["store_timestamp"] for file in facts.warehouse.files(COMMITLOG, facts.name)), default=None)
    if oldest is None or not facts.nights or not facts.last.has_windows:
        return []
    rows = facts.rows(PULL_WINDOWS, where=[one_of("run", [facts.nights[-1].run]), within("available_at", oldest + 1)])
    is_first = pc.starts_with(rows["reason"], _FIRST_START_PREFIX)
    new: defaultdict[str, dict[str, int]] = defaultdict(dict)
    events = resets_and_first_starts(facts.events)[1]
    for row in rows.filter(is_first).select(["topic", "consumer_group", "available_at"]).to_pylist():
        topic, group = row["topic"], row["consumer_group"]
        event = events.get((group, topic))
        asked_for_first = event is not None and event.consume_from is ConsumeFrom.FIRST
        if not asked_for_first and group_of_topic(topic) is None:
            new[topic][group] = row["available_at"]
    starts = FirstStarts(facts, stored_windows(rows))
    return [line for topic in sorted(new) for line in _started(facts, starts, topic, new[topic])]


def _started(facts: BrokerFacts, starts: FirstStarts, topic: str, groups: Mapping[str, int]) -> Iterator[str]:
    """``groups``: when each began on the topic (ms)."""
    in_topic = one_of("topic", [topic])
    begin = max(
        facts.last.log_start or 0, *(facts.begins.get(queue, 0) for queue in facts.begins if queue[0] == topic), 0
    )
    before = [in_topic, within("store_timestamp", below=max(groups.values())), within("commitlog_offset", begin)]
    rows = sorted_by(facts.rows(CONSUMEQUEUE, ["queue_id", "queue_offset", "store_timestamp"], before), "queue_offset")
    messages: defaultdict[tuple[str, bool], Counter[str]] = defaultdict(Counter)
    for queue_id in pc.unique(rows["queue_id"]).to_pylist():
        queue_rows = rows.filter(pc.equal(rows["queue_id"], queue_id))
        offsets, times = queue_rows["queue_offset"].to_numpy(), queue_rows["store_timestamp"].to_numpy()
        for group, at in groups.items():
            start = starts.start((group, topic, queue_id))
            if start is not None:
                stored = int(np.searchsorted(times, at))
                missed = min(int(np.searchsorted(offsets, start.queue_offset)), stored)
                messages[start.reason, False][group] += missed
                messages[start.reason, True][group] += stored - missed
    for (reason, gets), starting_groups in sorted(messages.items()):
        names = [group for group, number in starting_groups.items() if number]
        if names:
            has, most = "with" if gets else "without", max(starting_groups.values())
            began = f"began {time_text(groups[names[0]])}" if len(names) == 1 else "began"
            number = counted(most, "message") if len(names) == 1 else f"up to {counted(most, 'message')}"
            whom = "it" if len(names) == 1 else "they"
            yield f"{listed(names, NAMED)} on {topic} {began} {has} {number} stored before {whom} came: {reason}"
