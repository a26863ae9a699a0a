"""Splits pull windows between clients that check different tags.

Source: PullAPIWrapper.processPullResult.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from filtering.consumption.allocation import ClientTags
from filtering.delivery.pull_window import FOREVER, PullWindow, UncertainChange
from filtering.predicate import TRUE, And, Predicate

NOT_KNOWN = "which client of the group read it is not known: the messages have no queue ids"
NOTHING: Mapping[int, int] = MappingProxyType({})


def by_client(window: PullWindow, clients: ClientTags) -> Iterator[PullWindow]:
    """Splits a window by client. Queues that no client reads are left out."""
    if clients.undecided:
        checked = replace(window.message_filter, client_tags=clients.passed_by_some)
        yield replace(window, message_filter=checked, is_of_client=True)
    for check in dict.fromkeys(clients.by_queue.values()):
        if check is not None:
            queues = [queue_id for queue_id, queue_check in clients.by_queue.items() if queue_check is check]
            yield _narrowed(window, queues, check)


def undecided(window: PullWindow, clients: ClientTags, begins: Mapping[int, int] = NOTHING) -> UncertainChange:
    """The messages of a window that only some of the clients keep, from offsets in ``begins`` on, by queue id."""
    returned = window.message_filter.tags, window.message_filter.expression
    return UncertainChange(
        *window.key, And((*returned, clients.passed_by_all)), And((*returned, clients.passed_by_some)),
        window.stored_from, window.stored_to, changed_at=window.subscription_from,
        offsets=window.offsets or {queue_id: (begin, FOREVER) for queue_id, begin in begins.items()},
        only_listed=window.only_listed, places=window.places, reason=NOT_KNOWN,
    )  # fmt: skip


def unread(window: PullWindow, clients: ClientTags) -> Iterator[tuple[int, PullWindow]]:
    """What :func:`by_client` leaves out: queue ids, each with its window."""
    for queue_id, check in clients.by_queue.items():
        if check is None:
            part = _narrowed(window, [queue_id], window.message_filter.client_tags)
            low, high = part.offsets[queue_id]
            if low < high:
                yield queue_id, part


def read_from(queue_id: int, at: int, clients: Sequence[ClientTags]) -> int:
    """The first time (ms) from ``at`` on at which a client reads a queue; FOREVER if none does."""
    for part in clients:
        if part.valid_from <= at < part.valid_to and part.by_queue.get(queue_id, TRUE) is None:
            at = part.valid_to
    return at


def by_time(window: PullWindow, clients: Sequence[ClientTags]) -> Iterator[tuple[PullWindow, ClientTags | None]]:
    """Splits a window by the times at which clients check different tags. Each part has its clients if they do."""
    at = window.available_at
    begin, end = (window.stored_from, window.stored_to) if at is None else (at, at + 1)
    overlapping = [part for part in clients if part.valid_from < end and begin < part.valid_to]
    if not overlapping:
        yield window, None
        return
    for part in overlapping:
        if begin < part.valid_from:
            yield replace(window, stored_from=begin, stored_to=part.valid_from), None
        during = (
            window
            if at is not None
            else replace(window, stored_from=max(begin, part.valid_from), stored_to=min(end, part.valid_to))
        )
        yield during, part
        begin = part.valid_to
    if begin < end:
        yield replace(window, stored_from=begin), None


def _narrowed(window: PullWindow, queue_ids: Iterable[int], client_tags: Predicate) -> PullWindow:
    everything = (0, 0) if window.only_listed else (0, FOREVER)
    ranges = {queue_id: window.offsets.get(queue_id, everything) for queue_id in queue_ids}
    checked = replace(window.message_filter, client_tags=client_tags)
    return replace(window, message_filter=checked, offsets=ranges, only_listed=True, is_of_client=True)
