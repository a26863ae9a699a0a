"""Since when a group pulls without a break, and the pull windows of its night."""

from __future__ import annotations

from dataclasses import dataclass, field

from filtering.consumption.offsets import COMMIT_DELAY, BrokerOffsets, Offsets
from filtering.delivery.pull_window import PullWindow


@dataclass
class Stint:
    """The group pulls since ``at`` (ms) without a break or a reset.

    ``moved``: the queues that it pulls from another offset than before: an operator set it, or they began again.
    ``behind``: those in which it was behind when the night began, and that it did not begin anew.
    """

    at: int = 0
    moved: set[int] = field(default_factory=set)
    behind: set[int] = field(default_factory=set)
    _windows: list[tuple[list[PullWindow], int]] = field(default_factory=list)
    """Each as a list and an index into it."""
    _begins: dict[int, int] = field(default_factory=dict)
    """By queue id, the number of windows before its last move."""

    def start(self, at: int) -> None:
        """The group begins to pull at ``at`` (ms)."""
        self.at = at
        self.behind = set()

    def add(self, windows: list[PullWindow], window: PullWindow) -> None:
        self._windows.append((windows, len(windows)))
        windows.append(window)

    def move(self, queue_id: int) -> None:
        """The group goes on at another offset of a queue. A committed offset says nothing about what was before."""
        self.moved.add(queue_id)
        self.behind.discard(queue_id)
        self._begins[queue_id] = len(self._windows)

    def limit(self, offsets: Offsets) -> None:
        """Ends the night's windows of each queue, since its last move, at these offsets.

        A client commits when it leaves. So what lies beyond a committed offset was not pulled in earlier times either.
        """
        for number, (windows, index) in enumerate(self._windows):
            windows[index] = windows[index].up_to(
                {queue_id: end for queue_id, end in offsets.items() if number >= self._begins.get(queue_id, 0)}
            )

    def offsets_behind(
        self, topic: str, committed: Offsets, decided: Offsets, broker_offsets: BrokerOffsets, until: int
    ) -> dict[int, int]:
        """By queue id, the offsets that a group has ``committed`` where it did not keep up ``until`` (ms).

        They are no less than the offsets that were ``decided`` before.
        """
        found: dict[int, int] = {}
        if broker_offsets.committed_at is None:
            return found
        until = min(until, broker_offsets.committed_at)
        for queue_id, offset in committed.items():
            stored_at = broker_offsets.stored_at(topic, queue_id, offset)
            since = 0 if queue_id in self.behind else self.at
            if stored_at is not None and max(stored_at, since) < until - COMMIT_DELAY:
                found[queue_id] = offset if queue_id in self.moved else max(offset, decided.get(queue_id, 0))
        return found
