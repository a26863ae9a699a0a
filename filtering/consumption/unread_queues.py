"""Messages in queues that no client reads, because their client does not subscribe to the topic: they wait.

Source: AllocateMessageQueueAveragely, RebalanceImpl. The broker keeps the group's offset. When another client gets the
queue, or its client subscribes to the topic, the messages are pulled from there, under the subscription then in force.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from filtering.consumption.allocation import ClientTags
from filtering.consumption.client_windows import read_from, unread
from filtering.consumption.filters_in_force import FiltersInForce
from filtering.consumption.offsets import BrokerOffsets
from filtering.delivery.pull_window import BEGINNING, PullWindow
from filtering.subscriptions.subscription_row import SubscriptionRow

NOT_READ = "no client read the queue before"


@dataclass(frozen=True)
class _Waiting:
    """A window of one queue that no client reads until ``until`` (ms), and the list in which it belongs."""

    windows: list[PullWindow]
    queue_id: int
    window: PullWindow
    until: int


class UnreadQueues:
    """What waits in the queues of one group and topic that no client reads."""

    def __init__(self, clients: Sequence[ClientTags], filters: FiltersInForce) -> None:
        self._clients = clients
        self._filters = filters
        self._pulls: list[tuple[int, int, SubscriptionRow]] = []
        self._waiting: list[_Waiting] = []

    def note_pulls(self, row: SubscriptionRow, begin: int, end: int) -> None:
        """The group pulls under a subscription in [``begin``, ``end``) (ms). Call it in the order of time."""
        self._pulls.append((begin, end, row))

    def add(self, windows: list[PullWindow], window: PullWindow, clients: ClientTags) -> None:
        """Keeps what no client reads of a window that belongs in ``windows``."""
        for queue_id, part in unread(window, clients):
            self._waiting.append(_Waiting(windows, queue_id, part, clients.valid_to))

    def keep(self, windows: list[PullWindow], window: PullWindow, at: int) -> PullWindow:
        """Keeps what no client reads at ``at`` (ms) of a window of listed queues, and returns the rest."""
        rest = dict(window.offsets)
        for queue_id, offsets in window.offsets.items():
            until = read_from(queue_id, at, self._clients)
            if until > at:
                del rest[queue_id]
                self._waiting.append(_Waiting(windows, queue_id, replace(window, offsets={queue_id: offsets}), until))
        return replace(window, offsets=rest)

    def begins(self, broker_offsets: BrokerOffsets) -> dict[int, int]:
        """By queue id, the offset from which messages wait."""
        found: dict[int, int] = {}
        for each in self._waiting:
            begin, _ = each.window.offsets[each.queue_id]
            if each.window.stored_from > BEGINNING:
                topic, since = each.window.topic, each.window.stored_from
                begin = max(begin, broker_offsets.first_since(topic, each.queue_id, since))
            found[each.queue_id] = min(begin, found.get(each.queue_id, begin))
        return found

    def forget(self, queue_id: int) -> None:
        """The group's offset in a queue was set: what waits there is not pulled."""
        self._waiting = [each for each in self._waiting if each.queue_id != queue_id]

    def take_read(self) -> Iterator[tuple[list[PullWindow], PullWindow]]:
        """Removes and returns what was pulled after all, by the pulls so far: windows, and the lists for them."""
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            window = self._read(each)
            if window is None:
                self._waiting.append(each)
            else:
                yield each.windows, window

    def _read(self, waiting: _Waiting) -> PullWindow | None:
        for begin, end, row in self._pulls:
            at = read_from(waiting.queue_id, max(begin, waiting.until), self._clients)
            if at < end:
                return replace(
                    waiting.window,
                    message_filter=self._filters.at(row, at),
                    subscription_from=row.valid_from,
                    available_at=at,
                    reason=NOT_READ,
                )
        return None
