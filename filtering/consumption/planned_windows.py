"""The pull windows of one group on one topic in a night, for each of its clients."""

from __future__ import annotations

from collections.abc import Sequence

from filtering.consumption.allocation import ClientTags
from filtering.consumption.client_windows import by_client
from filtering.consumption.filters_in_force import FiltersInForce
from filtering.consumption.offsets import Offsets
from filtering.consumption.unread_queues import UnreadQueues
from filtering.delivery.pull_window import PullWindow


class PlannedWindows:
    """``online`` and ``backlog`` as in ``NightPlan``; ``unread`` is what waits in queues that no client reads."""

    def __init__(self, clients: Sequence[ClientTags], filters: FiltersInForce) -> None:
        self.online: list[PullWindow] = []
        self.backlog: list[PullWindow] = []
        self.unread = UnreadQueues(clients, filters)
        self._clients = clients
        self._since_start: list[tuple[list[PullWindow], int]] = []
        """The windows since the last start: each as a list and an index into it."""
        self._resets: dict[int, int] = {}
        """By queue id, the number of windows in ``_since_start`` before its last reset."""

    def add(self, windows: list[PullWindow], window: PullWindow) -> None:
        """Adds a window to ``online`` or ``backlog``, split by client."""
        for part in by_client(window, self._clients):
            self._since_start.append((windows, len(windows)))
            windows.append(part)
        self.unread.add(windows, window)

    def read_later(self) -> None:
        """Adds what was pulled after all, because a client read its queue again."""
        for windows, window in self.unread.take_read():
            self.add(windows, window)

    def start(self) -> None:
        """The group begins to pull."""
        self.read_later()
        self._since_start, self._resets = [], {}

    def reset(self, queue_id: int) -> None:
        """An operator sets the group's offset in a queue: what waits there is not pulled."""
        self.read_later()
        self.unread.forget(queue_id)
        self._resets[queue_id] = len(self._since_start)

    def limit(self, offsets: Offsets) -> None:
        """Ends the windows of each queue since the last start, or since its last reset, at these offsets."""
        for number, (windows, index) in enumerate(self._since_start):
            windows[index] = windows[index].up_to(
                {queue_id: end for queue_id, end in offsets.items() if number >= self._resets.get(queue_id, 0)}
            )
