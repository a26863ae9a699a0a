"""Where consumer groups began in queues: by the windows that nights planned."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cache

import numpy as np
import pyarrow.compute as pc

from answers.facts import BrokerFacts, GroupQueue, in_queue
from filtering.consumption.group import FIRST_START, StartReason, with_first_message
from filtering.consumption.plan import resets_and_first_starts
from filtering.counted import counted, listed
from filtering.delivery.entries import Int64s
from filtering.delivery.pull_window import PullWindow, WindowKind
from filtering.frozen import frozen
from filtering.journey import group_of_topic
from filtering.subscriptions.events import ConsumeFrom, GroupTopic
from filtering.time_spans import BEGINNING
from schemas.commitlog import COMMITLOG
from schemas.delta.table_rows import one_of, sorted_by, within
from schemas.errors import time_text
from schemas.pull_windows import PULL_WINDOWS, stored_windows
from schemas.tables import CONSUMEQUEUE

NAMED = 3
"""The number of groups that a line names; others are counted."""
_FROM_OFFSETS = (WindowKind.BACKLOG, WindowKind.RESET, WindowKind.LOST)
"""The windows that begin at an offset: where groups began, returned or went back."""
_FIRST_START_PREFIX = f"{FIRST_START}: "


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
