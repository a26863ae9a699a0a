"""Where a group began in a queue, by the number of entries that it pulled in its first night there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from filtering.broker_config import BrokerConfig
from filtering.delivery.entries import Int64s
from filtering.delivery.pull_window import FOREVER
from filtering.pulls import is_pulling
from filtering.subscriptions.subscription_row import SubscriptionRow

Span = tuple[int, int]
"""Times (ms), the second exclusive."""


def pulling_spans(rows: Iterable[SubscriptionRow], config: BrokerConfig, as_of: int) -> list[Span]:
    """When a group with these states, in order, pulled until ``as_of`` (ms). A span that goes on ends at FOREVER."""
    spans: list[Span] = []
    for row in rows:
        if row.valid_from > as_of or not is_pulling(row, config):
            continue
        end = FOREVER if row.valid_to is None or row.valid_to > as_of else row.valid_to
        if spans and spans[-1][1] == row.valid_from:
            spans[-1] = spans[-1][0], end
        else:
            spans.append((row.valid_from, end))
    return spans


def first_pulled(
    offsets: Int64s, times: Int64s, spans: Sequence[Span], resets: Iterable[tuple[int, int]], told_to: int, pulled: int
) -> int:
    """The queue offset of the first of ``pulled`` entries.

    ``offsets`` and ``times`` (ms) are those of the queue's entries after the night, ascending. ``spans``: when the
    group pulled in the night. ``resets``: its offset resets of the night as (ms, offset), in order. Deliveries were
    decided up to the offset ``told_to``. Before it moved to another offset, the group had pulled all that was stored.
    """
    moves: dict[int, int] = {}
    """By the time (ms) until which it pulled from where it was, the offset at which it went on."""
    until = spans[-1][1]
    is_moved = False
    for at, offset in resets:
        left = max((stop for _, stop in spans if stop <= at), default=None)
        if any(start <= at < stop for start, stop in spans):
            moves[at] = offset
        elif left is not None and left < until:
            moves[left] = offset
        elif left is not None:
            is_moved = True
    stored = int(np.searchsorted(times, until))
    end = int(np.searchsorted(offsets, told_to))
    if until < FOREVER and (is_moved or stored < end or end < pulled):
        end = stored
    for at in sorted(moves, reverse=True):
        pulled -= max(end - int(np.searchsorted(offsets, moves[at])), 0)
        end = int(np.searchsorted(times, at))
    first = max(end - max(pulled, 0), 0)
    return int(offsets[first]) if first < len(offsets) else told_to
