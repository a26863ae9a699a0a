"""What groups pulled, by the windows that nights stored, and what they popped.

Nights do not store who pulled what: they store windows (:mod:`schemas.pull_windows`). A group pulled a message if one
of its windows covers it, and if that window is about messages of the night that first filtered it:

1. NightsOfLog says which night first filtered a message: by its place in the log, unless that night could not read it.
2. EntriesOfNights are entries with their nights, of which a window covers some. What-if asks it for blocks of entries,
   ``export missed`` for those of a topic, audits for those of deliveries.
3. PullHistory asks for single messages: which windows cover one, when and with which subscription the group pulled it.
4. PopsOfMessages: which pops handed out a message or passed it over, where the broker wrote its pops down.
5. FirstStarts: where groups began in queues.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cache, cached_property, lru_cache, partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from answers.facts import BrokerFacts, GroupQueue, in_queue
from filtering.broker_config import BrokerConfig
from filtering.delivery import Outcome
from filtering.delivery.entries import Int32s, Int64s, among
from filtering.delivery.pull_window import (
    BY_ANOTHER_FILTER,
    NO_END,
    OffsetRange,
    PullWindow,
    Reason,
    StartReason,
    WindowKind,
    is_about,
)
from filtering.frozen import frozen
from filtering.journey import JourneyStep, JourneyStepKind
from filtering.names import subscribed_topic
from filtering.pops.handed_out import PopOutcomes
from filtering.sql92 import Expressions
from filtering.subscriptions.events import GroupTopic
from filtering.subscriptions.history import in_force_at, states_by_key
from filtering.subscriptions.subscription_row import SubscriptionRow
from filtering.time_spans import BEGINNING
from schemas.delta.table_rows import least, one_of, sorted_by, tuples
from schemas.errors import time_text
from schemas.pull_windows import PULL_WINDOWS, stored_windows
from schemas.tables import CONSUMEQUEUE, CURRENT_OFFSETS, POPS

if TYPE_CHECKING:
    from answers.messages import StoredMessage

_FROM_OFFSETS = (WindowKind.BACKLOG, WindowKind.RESET, WindowKind.LOST)
"""The windows that begin at an offset: where groups began, returned or went back."""
WindowOfNight = tuple[int, PullWindow]
"""The number of a night, and a window that it planned."""
Flags = npt.NDArray[np.bool_]


# Which messages windows cover.


@frozen(eq=False)
class NightsOfLog:
    """Which night first filtered which messages of a topic. Nights are numbered in order. Picklable.

    ``ends``: by night, the physical offset up to which it filtered new messages. ``late``: the physical offsets of
    messages that a night could not read, ascending; ``filtered_in``: the later nights that first filtered them.
    """

    ends: Int64s
    late: Int64s = field(default_factory=lambda: np.empty(0, np.int64))
    filtered_in: Int64s = field(default_factory=lambda: np.empty(0, np.int64))

    @classmethod
    def of_topic(cls, facts: BrokerFacts, topic: str) -> NightsOfLog:
        """Reads only the files of entries that have late messages. A replay has no entries, and one night."""
        if facts.is_replay:
            return cls(np.array([NO_END]))
        runs, ends = [night.run for night in facts.nights], _ends(facts)
        files = [
            file
            for file in facts.warehouse.files(CONSUMEQUEUE, facts.name)
            if bisect_left(runs, file.greatest["run"]) > np.searchsorted(ends, file.least["commitlog_offset"], "right")
        ]
        where = [one_of("topic", [topic])]
        rows = facts.warehouse.rows(CONSUMEQUEUE, ["commitlog_offset", "run"], where, files)
        offsets, first = np.unique(rows["commitlog_offset"].to_numpy(), return_index=True)
        written = rows["run"].combine_chunks().dictionary_encode()
        run_number = np.array([bisect_left(runs, run) for run in written.dictionary.to_pylist()], np.int64)
        filtered_in = run_number[written.indices.to_numpy()][first]
        is_late = filtered_in > np.searchsorted(ends, offsets, "right")
        return cls(ends, offsets[is_late], filtered_in[is_late])

    def nights(self, commitlog_offset: Int64s) -> tuple[Int64s, Flags]:
        """The night of each message, and whether it came late. A message after the last night has the next number."""
        is_late = among(commitlog_offset, self.late)
        night = np.searchsorted(self.ends, commitlog_offset, side="right")
        night[is_late] = self.filtered_in[np.searchsorted(self.late, commitlog_offset[is_late])]
        return night, is_late

    def entries(
        self, queue_id: Int32s, queue_offset: Int64s, commitlog_offset: Int64s, store_timestamp: Int64s
    ) -> EntriesOfNights:
        """Entries of the topic with their nights."""
        queue_ids, queue_of = np.unique(queue_id, return_inverse=True)
        night, is_late = self.nights(commitlog_offset)
        is_filtered = night < len(self.ends)
        return EntriesOfNights(
            queue_ids, queue_of, queue_offset, commitlog_offset, store_timestamp, night, is_late, is_filtered
        )


@frozen(eq=False)
class EntriesOfNights:
    """n entries of a topic, and the night that first filtered each; made by :meth:`NightsOfLog.entries`.

    ``queue_of``: for each entry, the index of its queue in ``queue_ids``. ``is_late``: whether an earlier night could
    not read it. ``is_filtered``: whether any night filtered it.
    """

    queue_ids: Int32s
    queue_of: Int64s
    queue_offset: Int64s
    commitlog_offset: Int64s
    store_timestamp: Int64s
    night: Int64s
    is_late: Flags
    is_filtered: Flags

    def covered_by(self, night: int, window: PullWindow) -> Flags | None:
        """The entries that a window of a night covers; None if there are none."""
        if self.store_timestamp.max() < window.stored_from or window.stored_to <= self.store_timestamp.min():
            return None
        covered: Flags = is_about(window.kind, night, self.night, self.is_late) & self.is_filtered
        if not covered.any():
            return None
        covered &= (window.stored_from <= self.store_timestamp) & (self.store_timestamp < window.stored_to)
        if window.offsets or window.only_listed:
            covered &= self._is_in(window.range_of, self.queue_offset)
        if window.physical_ranges:
            covered &= self._is_in(window.physical_range_of, self.commitlog_offset)
        return covered if covered.any() else None

    def _is_in(self, range_of: Callable[[int], OffsetRange], offset: Int64s) -> Flags:
        """Whether each entry's offset is in the range of its queue."""
        low, high = np.array([range_of(queue_id) for queue_id in self.queue_ids.tolist()], np.int64).reshape(-1, 2).T
        is_in: Flags = (low[self.queue_of] <= offset) & (offset < high[self.queue_of])
        return is_in


def read_windows(
    facts: BrokerFacts, groups: Collection[str] | None, topics: Collection[str]
) -> Mapping[GroupTopic, Sequence[WindowOfNight]]:
    """The windows of groups on topics, each with the number of its night, in order. ``groups``: only these; None: all.

    Raises UsageError if an older mqsieve ran the nights.
    """
    facts.check_has_windows()
    numbers = {night.run: number for number, night in enumerate(facts.nights)}
    where = [one_of("topic", topics), *([] if groups is None else [one_of("consumer_group", groups)])]
    windows: defaultdict[GroupTopic, list[WindowOfNight]] = defaultdict(list)
    for run, window in stored_windows(facts.rows(PULL_WINDOWS, where=where)):
        windows[window.key].append((numbers[run], window))
    return windows


def popped_ranges(facts: BrokerFacts, keys: Collection[GroupTopic]) -> dict[GroupTopic, dict[int, OffsetRange]]:
    """What pops of some groups read of topics: in each queue from where the first of them began to the group's offset.

    Only pops that the broker wrote down.
    """
    if not keys:
        return {}
    names = ["consumer_group", "topic", "queue_id"]
    where = [one_of("topic", {topic for _, topic in keys}), one_of("consumer_group", {group for group, _ in keys})]
    starts = least(facts.recorded_pops([*names, "start_offset"], where), names, "start_offset")
    ranges: dict[GroupTopic, dict[int, OffsetRange]] = {key: {} for key in keys}
    for group, topic, queue_id, decided_to in tuples(
        facts.rows(CURRENT_OFFSETS, [*names, "decided_to"], where), *names, "decided_to"
    ):
        if (group, topic) in ranges and (group, topic, queue_id) in starts:
            ranges[group, topic][queue_id] = starts[group, topic, queue_id], decided_to or 0
    return ranges


def _ends(facts: BrokerFacts) -> Int64s:
    return np.array([night.delivered_to or 0 for night in facts.nights], np.int64)


# When groups pulled single messages.


@frozen
class Pulled:
    """The group pulled the message at ``at`` (ms), when ``row`` and the broker's ``config`` were in force."""

    row: SubscriptionRow
    at: int
    config: BrokerConfig


class _TopicHistory:
    """What nights filtered of one topic, and with which windows. ``groups``: the only groups to read; None: all."""

    def __init__(self, facts: BrokerFacts, groups: Collection[str] | None, topic: str) -> None:
        self._facts = facts
        self._groups = groups
        self._topic = topic

    @cached_property
    def windows(self) -> Mapping[GroupTopic, Sequence[WindowOfNight]]:
        """The windows of each group, with the numbers of their nights, in order."""
        return read_windows(self._facts, self._groups, [self._topic])

    @cached_property
    def log(self) -> NightsOfLog:
        return NightsOfLog.of_topic(self._facts, self._topic)

    @cached_property
    def first_starts(self) -> FirstStarts:
        return FirstStarts(self._facts, (window for each in self.windows.values() for _, window in each))

    def windows_of(self, group: str, night: int) -> Iterator[WindowOfNight]:
        """The windows of a group that may be about messages which a night first filtered."""
        return chain(self._by_night.get((group, None), ()), self._by_night.get((group, night), ()))

    @cached_property
    def _by_night(self) -> Mapping[tuple[str, int | None], Sequence[WindowOfNight]]:
        """The windows of new messages by group and night, and the others by group and None."""
        by_night: defaultdict[tuple[str, int | None], list[WindowOfNight]] = defaultdict(list)
        for (group, _), windows in self.windows.items():
            for night, window in windows:
                by_night[group, night if window.kind is WindowKind.ONLINE else None].append((night, window))
        return by_night


class PullHistory:
    """When groups pulled messages of a broker. ``groups``: the only groups to read; None: all.

    Raises UsageError if an older mqsieve ran the nights.
    """

    def __init__(self, facts: BrokerFacts, groups: Collection[str] | None) -> None:
        facts.check_has_windows()
        self._facts = facts
        self._topic_history = cache(partial(_TopicHistory, facts, groups))
        self._covering = lru_cache(maxsize=64)(self._windows_at)

    def is_filtered(self, message: StoredMessage) -> bool:
        """Whether a night filtered the message."""
        return self._night_of(message.topic, message.commitlog_offset)[0] < len(self._facts.nights)

    def windows(self, message: StoredMessage, group: str) -> Sequence[WindowOfNight]:
        """The windows of a group that cover a message, each with the number of its night."""
        place = message.queue_id, message.queue_offset, message.commitlog_offset, message.store_timestamp
        windows: Sequence[WindowOfNight] = self._covering((group, message.topic), place)
        return windows

    def pulls(self, message: StoredMessage, group: str, rows: Sequence[SubscriptionRow]) -> list[Pulled]:
        """The pulls of a message by a group with these states on the topic, in order."""
        by_start = {row.valid_from: row for row in rows}
        pulls = []
        for night, window in self.windows(message, group):
            if window.kind not in (WindowKind.LOST, WindowKind.UNCERTAIN):
                at = self._pulled_at(night, window, message)
                pulls.append(Pulled(by_start[window.subscription_from], at, self._config(night, window, at)))
        return sorted(pulls, key=lambda pull: pull.at)

    def changes(self, message: StoredMessage, group: str) -> list[int]:
        """When the subscription changed (ms), and the broker may have answered a pull that it held with the message."""
        held = (window for _, window in self.windows(message, group) if window.reason is Reason.HELD_PULL)
        return sorted({window.subscription_from for window in held})

    def start(self, group: str, topic: str, queue_id: int) -> Start | None:
        """Where and why a group began in a queue (:meth:`FirstStarts.start`)."""
        return self._topic_history(topic).first_starts.start((group, topic, queue_id))

    def covering(self, group: str, topic: str, entries: pa.Table) -> tuple[Sequence[Int64s], Flags]:
        """All that windows decide of entries of a topic, as columns of numbers. ``entries``: rows of CONSUMEQUEUE.

        The columns are: which windows cover an entry (equal numbers stand for the same ones), the night that first
        filtered it, and whether an earlier one could not read it. Also returns whether another subscription than the
        one that pulled it may have filtered it.
        """
        names = ("queue_id", "queue_offset", "commitlog_offset", "store_timestamp")
        of_nights = self._topic_history(topic).log.entries(*(entries[name].to_numpy() for name in names))
        sets = np.zeros(len(entries), np.int64)
        is_at_change = np.zeros(len(entries), np.bool_)
        for night, window in self._topic_history(topic).windows.get((group, topic), ()):
            covered = of_nights.covered_by(night, window)
            if covered is not None:
                is_at_change |= covered & (window.reason in BY_ANOTHER_FILTER)
                sets = np.unique(2 * sets + covered, return_inverse=True)[1].reshape(-1)
        return [sets, of_nights.night, of_nights.is_late.astype(np.int64)], is_at_change

    def instants(self, group: str, topic: str) -> set[int]:
        """Instants (ms) at which it may change what a pull of a message that is stored then depends on."""
        windows = (window for _, window in self._topic_history(topic).windows.get((group, topic), ()))
        ends = {window.available_at for window in windows if window.available_at is not None}
        return ends.union(night.as_of or 0 for night in self._facts.nights)

    def _windows_at(self, key: GroupTopic, place: tuple[int, int, int, int]) -> Sequence[WindowOfNight]:
        """The windows of a group that cover the entry at a place: queue id and offset, physical offset, store time."""
        first, is_late = self._night_of(key[1], place[2])
        if first == len(self._facts.nights):
            return ()
        group, topic = key
        return [
            (night, window)
            for night, window in self._topic_history(topic).windows_of(group, first)
            if window.covers(*place) and is_about(window.kind, night, first, is_late)
        ]

    def _night_of(self, topic: str, commitlog_offset: int) -> tuple[int, bool]:
        (night,), (is_late,) = self._topic_history(topic).log.nights(np.array([commitlog_offset]))
        return int(night), bool(is_late)

    def _pulled_at(self, night: int, window: PullWindow, message: StoredMessage) -> int:
        """When the group pulled a message in a window; one that was behind, when the night began."""
        if window.available_at is not None:
            return window.available_at
        is_behind = window.kind is WindowKind.BACKLOG and night
        return (self._facts.nights[night - 1].as_of or 0) if is_behind else message.store_timestamp

    def _config(self, night: int, window: PullWindow, at: int) -> BrokerConfig:
        """The broker's configuration in the night that planned a window; a late one is of the night of ``at`` (ms)."""
        nights = self._facts.nights
        if window.kind is not WindowKind.LATE:
            return nights[night].broker
        return next((night.broker for night in nights if at <= (night.as_of or 0)), self._facts.broker)


# Pops: what became of a message that a group popped, and by which pop it was passed over.


OTHER_TAGS = "clients of the group had other tags, or registered them later: it is not known which request popped it"
NOT_ACKNOWLEDGED = "nobody acknowledged it: a client was leaving, or told to pull, and may have got it, or dropped it"
_Pop = Mapping[str, Any]
"""A row of pops."""


class _PopsOfQueue:
    """The ``rows`` of pops of a group and a queue."""

    def __init__(self, rows: pa.Table) -> None:
        names = ("popped_at", "record_offset", "start_offset", "queue_offset")
        self._popped_at, self._written_at, self._starts, self._offsets = (rows[name].to_numpy() for name in names)
        self._with_message = sorted_by(
            rows.filter(rows["commitlog_offset"].is_valid()), "commitlog_offset", "popped_at", "record_offset"
        )
        self._messages = self._with_message["commitlog_offset"].to_numpy()
        self.has_pops = bool(len(rows))

    def pops_at(self, commitlog_offset: int) -> Sequence[_Pop]:
        """The pops of a message in the order of time."""
        begin, end = (int(np.searchsorted(self._messages, commitlog_offset, side)) for side in ("left", "right"))
        pops: list[_Pop] = self._with_message.slice(begin, end - begin).to_pylist()
        return pops

    def passed_over_at(self, commitlog_offset: int, queue_offset: int) -> int | None:
        """The time (ms) of the first pop, written down after a message, that began before it and ended behind it."""
        later = (self._written_at > commitlog_offset) & (self._starts <= queue_offset) & (queue_offset < self._offsets)
        return int(self._popped_at[later].min()) if later.any() else None


class PopsOfMessages:
    """The pops of groups on one broker."""

    def __init__(self, facts: BrokerFacts) -> None:
        self._facts = facts
        self._queue = cache(self._read_queue)

    def are_recorded(self, message: StoredMessage, consumer_group: str) -> bool:
        """Whether the broker ever wrote down that the group popped the message's topic."""
        return (consumer_group, subscribed_topic(consumer_group, message.topic)) in self._facts.pops.recorded

    def steps(self, message: StoredMessage, consumer_group: str) -> Iterator[JourneyStep]:
        """What happened to one copy of a message at each pop that handed it out, and until it ended."""
        outcomes = {
            each.available_at: each.outcome for each in message.deliveries if each.consumer_group == consumer_group
        }
        step = partial(JourneyStep, topic=message.topic, queue_id=message.queue_id, queue_offset=message.queue_offset)
        for pop in self._queue(consumer_group, message.topic, message.queue_id).pops_at(message.commitlog_offset):
            at, acknowledged_at = pop["popped_at"], pop["acknowledged_at"]
            outcome = outcomes.get(at, str(Outcome.NOT_SUBSCRIBED))
            due = at + pop["invisible_time"]
            yield step(JourneyStepKind.FILTERED, at, due=due, outcome=outcome, attempt=pop["attempt"] or 1)
            if pop["renewed_at"] is not None:
                yield step(JourneyStepKind.RENEWED, pop["renewed_at"], due=pop["visible_at"])
            if acknowledged_at is not None:
                yield step(JourneyStepKind.ACKNOWLEDGED, acknowledged_at)

    def has_popped(self, message: StoredMessage, consumer_group: str) -> bool:
        """Whether the record has a pop of the message's queue."""
        return self._queue(consumer_group, message.topic, message.queue_id).has_pops

    def passed_over_at(self, message: StoredMessage, consumer_group: str) -> int | None:
        """The time (ms) of the pop that read the message and did not hand it out; None if the record has none."""
        queue = self._queue(consumer_group, message.topic, message.queue_id)
        return queue.passed_over_at(message.commitlog_offset, message.queue_offset)

    def uncertain(self, message: StoredMessage, consumer_group: str, rows: Sequence[SubscriptionRow]) -> str | None:
        """Why the record leaves open whether a client got the message; None if it does not. ``rows``: its states."""
        tags = pa.chunked_array([pa.array([message.tags], pa.string())])
        for pop in self._queue(consumer_group, message.topic, message.queue_id).pops_at(message.commitlog_offset):
            popped_at = np.array([pop["popped_at"]])
            is_kept = np.array([pop["acknowledged_at"] is not None or pop["renewed_at"] is not None])
            for row in in_force_at(rows, pop["popped_at"]):
                if not row.is_consuming and pop["acknowledged_at"] is None:
                    return NOT_ACKNOWLEDGED
                if self._uncertain.check_tags(row, popped_at, tags, np.zeros(1, np.int64)).is_uncertain.any():
                    return OTHER_TAGS
            if self._uncertain.may_be_given_up(consumer_group, np.array([pop["attempt"] or 1])).any():
                return Reason.CONFIG_NOT_KNOWN
            is_redelivered = np.array([pop["redelivered_as"] is not None])
            own = [((consumer_group, message.topic), np.zeros(1, np.int64))]
            if self._uncertain.may_be_for_nobody(own, popped_at, is_kept, is_redelivered).any():
                return NOT_ACKNOWLEDGED
        return None

    @cached_property
    def _uncertain(self) -> PopOutcomes:
        facts = self._facts
        return PopOutcomes(
            states_by_key(facts.history), facts.events, facts.pops.recorded, facts.pop_groups, Expressions()
        )

    def _read_queue(self, consumer_group: str, topic: str, queue_id: int) -> _PopsOfQueue:
        if POPS.name not in self._facts.last.tables:
            return _PopsOfQueue(POPS.schema.empty_table())
        where = [one_of("consumer_group", [consumer_group]), *in_queue(topic, queue_id)]
        return _PopsOfQueue(self._facts.recorded_pops(None, where))


# Where groups began in queues.


@frozen
class Start:
    """A group began at ``at`` (ms) in a queue, at an offset, for this reason."""

    at: int
    queue_offset: int
    reason: Reason | StartReason

    @property
    def text(self) -> str:
        return f"{time_text(self.at)} at offset {self.queue_offset:,} of the queue: {self.reason}"


class FirstStarts:
    """Where groups began in queues. ``windows``: all of these groups and topics, in order."""

    def __init__(self, facts: BrokerFacts, windows: Iterable[PullWindow]) -> None:
        self._facts = facts
        self._known_from = (facts.nights[0].as_of or 0) if facts.history_is_incomplete and facts.nights else BEGINNING
        self._entries = cache(self._read_entries)
        self._windows: defaultdict[GroupTopic, list[PullWindow]] = defaultdict(list)
        for window in windows:
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
        reason = window.reason
        if offset == 0 and isinstance(reason, StartReason):
            reason = reason.with_first_message
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
        """The queue offsets and store times (ms) of a queue's entries, in the order of the log.

        Offsets begin at 0 again where the queue does.
        """
        columns = ["queue_offset", "store_timestamp", "commitlog_offset"]
        rows = sorted_by(self._facts.rows(CONSUMEQUEUE, columns, in_queue(topic, queue_id)), "commitlog_offset")
        return rows["queue_offset"].to_numpy(), rows["store_timestamp"].to_numpy()
