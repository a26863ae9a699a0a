"""The pull windows of one group on one topic in a night, for each of its clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from filtering.consumption.allocation import ClientTags
from filtering.consumption.client_windows import by_client, by_time, undecided
from filtering.consumption.filters_in_force import FiltersInForce
from filtering.consumption.stint import Stint
from filtering.consumption.unread_queues import UnreadQueues
from filtering.delivery.pull_window import PullWindow, UncertainChange


class PlannedWindows:
    """The ``online`` and ``backlog`` windows, their ``stint``, and what waits ``unread`` because no client reads it.

    ``uncertain``: the messages of which it is not known which client read them. ``ends``: by queue id, the offset at
    which new messages begin.
    """

    def __init__(self, clients: Sequence[ClientTags], filters: FiltersInForce, ends: Mapping[int, int]) -> None:
        self.online: list[PullWindow] = []
        self.backlog: list[PullWindow] = []
        self.uncertain: list[UncertainChange] = []
        self._ends = ends
        self.stint = Stint()
        self.unread = UnreadQueues(clients, filters)
        self._clients = clients

    def add(self, windows: list[PullWindow], window: PullWindow) -> None:
        """Adds a window to ``online`` or ``backlog``, split by client."""
        for during, clients in by_time(window, self._clients):
            if clients is None:
                self.stint.add(windows, during)
            else:
                for part in by_client(during, clients):
                    self.stint.add(windows, part)
                if clients.undecided:
                    begins = self._ends if windows is self.online else {}
                    self.uncertain.append(undecided(during, clients, begins))
                self.unread.add(windows, during, clients)

    def read_later(self) -> None:
        """Adds what was pulled after all, because a client read its queue again."""
        for windows, window in self.unread.take_read():
            self.add(windows, window)

    def start(self, at: int) -> None:
        """The group begins to pull at ``at`` (ms)."""
        self.read_later()
        self.stint.start(at)

    def leave(self, queue_id: int) -> None:
        """The group goes on at another offset of a queue: what waits there is not pulled."""
        self.read_later()
        self.unread.forget(queue_id)
