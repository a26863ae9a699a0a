"""Where a group begins, as users write it: ``first``, ``last``, or a time.

RocketMQ's consumeTimestamp (20261126013000) is a time of the client's time zone, which no event has.
"""

from __future__ import annotations

from filtering.subscriptions.events import ConsumeFrom, ConsumeStart
from filtering.subscriptions.instants import instant


def parse_consume_from(value: object) -> ConsumeStart:
    """``first``, ``last``, or a time: ms since 1970, or an ISO time (UTC by default). Raises ValueError otherwise."""
    text = str(value)
    if text in ("first", "last"):
        return ConsumeFrom(text)
    try:
        return instant(text)
    except ValueError as error:
        raise ValueError(f"consume_from must be first, last or a time: {error}") from None


def consume_from_value(start: ConsumeStart) -> str | int:
    """What :func:`parse_consume_from` reads as this start."""
    return start.value if isinstance(start, ConsumeFrom) else start
