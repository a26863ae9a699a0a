"""Which client reads which queue, against AllocateMessageQueueAveragely over sorted queues and clients."""

from __future__ import annotations

import pytest

from filtering.consumption.clients import allocate_averagely


@pytest.mark.parametrize(
    ("queues", "clients", "readers"),
    [
        (1, "b a", "a"),
        (3, "b a", "a a b"),
        (2, "10.0.0.7@1 10.0.0.10@1 9@1", "10.0.0.10@1 10.0.0.7@1"),
        (4, "10.0.0.7@1 10.0.0.10@1 9@1", "10.0.0.10@1 10.0.0.10@1 10.0.0.7@1 9@1"),
        (7, "a b c d e", "a a b b c d e"),
        (4, "\uff08 \U0001f600 z", "z z \U0001f600 \uff08"),
    ],
)
def test_the_client_of_each_queue_is_that_of_the_real_strategy(queues: int, clients: str, readers: str) -> None:
    ids = range(queues)
    assert allocate_averagely(reversed(ids), clients.split()) == dict(zip(ids, readers.split(), strict=True))
