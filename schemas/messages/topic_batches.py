"""Collects messages until there are enough of a topic: filtering messages of a topic has a fixed cost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from schemas.messages.commitlog_rows import Messages, concat

MESSAGES_AT_ONCE = 1 << 16
"""Messages that are filtered together. More exceed the processor's cache; fewer repeat the fixed cost of a batch."""
ENOUGH_OF_A_TOPIC = 1 << 12
"""Filtering so many messages takes much longer than the fixed cost of a topic, which is about 1 ms."""
MOST_WAITING = 1 << 19
"""If more messages wait, all are filtered: they need 50 to 200 bytes each."""
MOST_WAITING_TEXT = 1 << 28
"""If the properties of waiting messages have more bytes, all are filtered: a column has room for less than 2 GiB."""


class TopicBatch(NamedTuple):
    """The messages to filter now are those that ``is_due`` selects; the others wait for more of their topics."""

    messages: Messages
    is_due: NDArray[np.bool_]


class TopicBatches:
    """Collects messages. The messages of each topic stay in the order in which they were added."""

    def __init__(self) -> None:
        self._waiting: list[Messages] = []
        self._new = 0

    def add(self, messages: Messages) -> TopicBatch | None:
        """Adds messages. A batch follows as soon as MESSAGES_AT_ONCE were added; it may be empty."""
        self._waiting.append(messages)
        self._new += len(messages)
        return self._batch() if self._new >= MESSAGES_AT_ONCE else None

    def rest(self) -> TopicBatch | None:
        """All messages that wait; None if there are none."""
        if not self._waiting:
            return None
        messages, self._waiting, self._new = concat(self._waiting), [], 0
        return TopicBatch(messages, np.ones(len(messages), bool))

    def _batch(self) -> TopicBatch:
        messages, self._waiting, self._new = concat(self._waiting), [], 0
        is_enough = messages.topic_sizes() >= ENOUGH_OF_A_TOPIC
        waiting = np.flatnonzero(~is_enough)
        if not len(waiting):
            return TopicBatch(messages, is_enough)
        rest = messages.take(waiting)
        if len(rest) > MOST_WAITING or rest.text_bytes() > MOST_WAITING_TEXT:
            return TopicBatch(messages, np.ones(len(messages), bool))
        self._waiting = [rest]
        return TopicBatch(messages, is_enough)


def topic_batches(parts: Iterable[Messages]) -> Iterator[TopicBatch]:
    """The same messages in batches."""
    batches = TopicBatches()
    for part in parts:
        batch = batches.add(part)
        if batch is not None:
            yield batch
    rest = batches.rest()
    if rest is not None:
        yield rest
