"""The relation for the audits of pull windows: deliveries compared with the windows that nights planned."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from filtering.consumption.group_night import RESET
from filtering.delivery.pull_window import WindowKind
from filtering.subscriptions.events import GroupTopic
from schemas.answers.facts import BrokerFacts
from schemas.arrow_batches import table_of
from schemas.audits.scope import Scope
from schemas.consumer_offsets import CONSUMER_OFFSETS
from schemas.deliveries import DELIVERY_BLOCKS
from schemas.delivery_pairs import positions_of
from schemas.delta.table_rows import files_that_may_hold, sorted_by, within
from schemas.pull_windows import FILTERING, PULL_WINDOWS
from schemas.run_ledger import filtered_to

WINDOW_CHECKS = pa.schema(
    [
        ("broker_name", pa.string()),
        ("run", pa.string()),
        ("consumer_group", pa.string()),
        ("topic", pa.string()),
        ("messages", pa.int64()),
        ("outside", pa.int64()),
        ("twice", pa.int64()),
    ]
)
Mask = NDArray[np.bool_]
_ANEW, _LATE, _ONLINE = WindowKind.RESET.value, WindowKind.LATE.value, WindowKind.ONLINE.value
_FILTERING = FILTERING | {_LATE}


@dataclass(frozen=True)
class _Area:
    """A run, and the messages that some of its windows cover: groups whose windows cover the same share it."""

    run: str
    kind: str
    stored_from: int | None
    stored_to: int | None
    queues: tuple[tuple[int | None, ...], ...]
    only_listed: bool

    def mask(self, messages: _Messages) -> Mask:
        """The messages of a block that it covers."""
        found: Mask = self._kind_mask(messages)
        if self.stored_from is not None:
            found = found & (messages.stored_at >= self.stored_from)
        if self.stored_to is not None:
            found = found & (messages.stored_at < self.stored_to)
        in_queues = np.full(len(messages.stored_at), not self.only_listed)
        for queue_id, *limits in self.queues:
            of_queue = messages.queue_id == queue_id
            pairs = zip((messages.queue_offset, messages.commitlog_offset), (limits[:2], limits[2:]), strict=True)
            inside = np.logical_and.reduce(
                [(values >= (low or 0)) & (True if high is None else values < high) for values, (low, high) in pairs]
            )
            in_queues[of_queue] = inside[of_queue]
        found &= in_queues
        return found

    def _kind_mask(self, messages: _Messages) -> Mask:
        night = messages.nights[self.run]
        compare = {_ONLINE: np.equal, _LATE: np.less}.get(self.kind, np.less_equal)
        found: Mask = compare(messages.night, night)
        return found


@dataclass(frozen=True, eq=False)
class _Messages:
    """The messages of a block, and the number of the night of each by its place in the log. ``nights``: by run."""

    queue_id: NDArray[np.int32]
    queue_offset: NDArray[np.int64]
    commitlog_offset: NDArray[np.int64]
    stored_at: NDArray[np.int64]
    night: NDArray[np.int64]
    nights: Mapping[str, int]


@dataclass(frozen=True)
class _Window:
    """An area in which messages were available at ``available_at`` (ms) to a subscription; None: when stored."""

    area: _Area
    subscription_from: int
    available_at: int | None


def window_checks(scope: Scope) -> pa.Table:
    """Rows of WINDOW_CHECKS, one for each run, group and topic with deliveries.

    ``messages`` counts the deliveries and what clients dropped, ``outside`` those of them that no window of the run
    and of their subscription covers, and ``twice`` those that several windows cover though the group did not go back.
    """
    return table_of(WINDOW_CHECKS, (row for facts in scope.facts for row in _rows_of_broker(facts, scope.first_run)))


def _rows_of_broker(facts: BrokerFacts, first_run: str) -> Iterator[tuple[object, ...]]:
    if not facts.has_windows:
        return
    checks = _Checks(facts, first_run)
    where = [within("run", first_run)]
    for file in files_that_may_hold(facts.warehouse.files(DELIVERY_BLOCKS, facts.name), where):
        blocks = facts.warehouse.rows(DELIVERY_BLOCKS, where=where, files=[file])
        for row in range(len(blocks)):
            checks.add({name: blocks[name][row] for name in blocks.column_names})
    for key, counts in checks.counts.items():
        yield facts.name, *key, counts["messages"], counts["outside"], counts["twice"]


class _Checks:
    """Counts, by run, group and topic, the messages of delivery blocks inside and outside of windows."""

    def __init__(self, facts: BrokerFacts, first_run: str) -> None:
        self.counts: defaultdict[tuple[str, str, str], Counter[str]] = defaultdict(Counter)
        self._nights = {night.run: number for number, night in enumerate(facts.nights)}
        self._ends = [filtered_to(facts.nights[: number + 1]) for number in range(len(facts.nights))]
        self._is_replay = facts.is_replay
        self._windows: defaultdict[GroupTopic, list[_Window]] = defaultdict(list)
        self._went_back = _went_back(facts)
        for row in facts.rows(PULL_WINDOWS, where=[within("run", first_run)]).to_pylist():
            if row["kind"] in _FILTERING:
                key = row["consumer_group"], row["topic"]
                queues = tuple(tuple(queue.values()) for queue in row["queues"] or ())
                area = _Area(row["run"], row["kind"], row["stored_from"], row["stored_to"], queues, row["only_listed"])
                self._windows[key].append(_Window(area, row["subscription_from"], row["available_at"]))
                if row["kind"] == _ANEW or row["reason"] == RESET:
                    self._went_back[key].append(row["run"])
        for runs in self._went_back.values():
            runs.sort()

    def add(self, block: Mapping[str, Any]) -> None:
        """Adds a row of delivery_blocks."""
        run, topic, count = block["run"].as_py(), block["topic"].as_py(), block["messages"].as_py()
        names = ("queue_id", "queue_offset", "commitlog_offset", "store_timestamp")
        queue_id, queue_offset, commitlog_offset, stored_at = (block[name].values.to_numpy() for name in names)
        night = np.searchsorted(self._ends, commitlog_offset, side="right")
        if self._is_replay:
            night[:] = 0
        messages = _Messages(queue_id, queue_offset, commitlog_offset, stored_at, night, self._nights)
        covered: dict[_Area, Mask] = {}
        inside: dict[tuple[_Area, ...], Mask] = {}
        twice: dict[tuple[tuple[_Area, ...], ...], Mask] = {}
        for match in block["matches"]:
            positions = positions_of(match, count)
            outside_of: dict[tuple[_Area, ...], int] = {}
            twice_of: dict[tuple[tuple[_Area, ...], ...], int] = {}
            for recipient in match["recipients"].as_py():
                key = recipient["consumer_group"], topic
                of_run = tuple(
                    window.area
                    for window in self._windows.get(key, ())
                    if window.area.run == run
                    and window.subscription_from == recipient["subscription_from"]
                    and window.available_at == recipient["available_at"]
                )
                if of_run not in outside_of:
                    if of_run not in inside:
                        inside[of_run] = _any([_mask(area, messages, covered) for area in of_run], count)
                    outside_of[of_run] = int(np.count_nonzero(~inside[of_run][positions]))
                epochs = self._epochs(key)
                if epochs not in twice_of:
                    if epochs not in twice:
                        twice[epochs] = _any(
                            [_several([_mask(area, messages, covered) for area in areas], count) for areas in epochs],
                            count,
                        )
                    twice_of[epochs] = int(np.count_nonzero(twice[epochs][positions]))
                counts = self.counts[run, *key]
                counts["messages"] += len(positions)
                counts["outside"] += outside_of[of_run]
                counts["twice"] += twice_of[epochs]

    def _epochs(self, key: GroupTopic) -> tuple[tuple[_Area, ...], ...]:
        """The windows of a group that must not cover a message twice, divided by the runs in which it went back."""
        back = self._went_back.get(key, [])
        found: defaultdict[int, list[_Area]] = defaultdict(list)
        for window in self._windows.get(key, ()):
            if window.area.kind != _LATE and window.area.run not in back:
                found[bisect_right(back, window.area.run)].append(window.area)
        return tuple(tuple(areas) for areas in found.values())


def _went_back(facts: BrokerFacts) -> defaultdict[GroupTopic, list[str]]:
    """By group and topic, the runs in which offsets up to which deliveries are decided became less, or were reset."""
    rows = facts.rows(CONSUMER_OFFSETS, ["run", "consumer_group", "topic", "queue_id", "told_to"])
    last: dict[tuple[str, str, int], int] = {}
    found: defaultdict[GroupTopic, list[str]] = defaultdict(list)
    for row in sorted_by(rows, "run").to_pylist():
        queue = row["consumer_group"], row["topic"], row["queue_id"]
        if row["told_to"] is not None:
            if row["told_to"] < last.get(queue, 0):
                found[queue[:2]].append(row["run"])
            last[queue] = row["told_to"]
    for (group, topic, _), resets in facts.resets.items():
        for at, _ in resets:
            run = next((night.run for night in facts.nights if at <= (night.as_of or 0)), None)
            if run is not None:
                found[group, topic].append(run)
    return found


def _mask(area: _Area, messages: _Messages, known: dict[_Area, Mask]) -> Mask:
    if area not in known:
        known[area] = area.mask(messages)
    return known[area]


def _any(masks: Iterable[Mask], count: int) -> Mask:
    found: Mask = np.logical_or.reduce([np.zeros(count, np.bool_), *masks])
    return found


def _several(masks: Sequence[Mask], count: int) -> Mask:
    """What more than one of the masks holds."""
    if len(masks) < 2:
        return np.zeros(count, np.bool_)
    several: Mask = np.sum(masks, axis=0) > 1
    return several
