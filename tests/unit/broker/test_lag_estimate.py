"""The broker's own estimate of lag, on queues longer than it looks at (ConsumeQueue.estimateMessageCount)."""

from typing import Any

import pytest

from filtering.broker_config import BrokerConfig
from filtering.consumption.lag import TopicLag
from filtering.delivery.message_filter import MessageFilter
from filtering.delivery.pull_window import NO_END, PullWindow
from filtering.predicate import TagsCodeIn
from filtering.tags_code import java_hash
from tests.entries import entries

PAID = MessageFilter("cg", "T", tags=TagsCodeIn(frozenset((java_hash("paid"),))))


def messages(count: int, every: int) -> list[dict[str, Any]]:
    """Messages of a queue, every n-th with the tag paid."""
    return [
        {
            "queue_id": 0, "queue_offset": i, "commitlog_offset": 100 * i, "size": 100, "store_timestamp": 1_000 + i,
            "properties": {"TAGS": "paid" if i % every == 0 else "open"},
        }
        for i in range(count)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("count", "every", "seen", "passed"),
    [
        (18_000, 6, 18_000, 3_000),  # all are looked at
        (30_000, 6, 20_000, 3_334),  # maxConsumeQueueScan
        (18_000, 2, 10_001, 5_001),  # sampleCountThreshold, passed by one
    ],
)
def test_it_looks_at_some_and_extrapolates(count: int, every: int, seen: int, passed: int) -> None:
    window = PullWindow(PAID, 0, offsets={0: (0, NO_END)}, only_listed=True)
    counter = TopicLag(BrokerConfig(), [window], [window])
    all_messages = messages(count, every)
    for start in range(0, count, 7_000):
        part = all_messages[start : start + 7_000]
        counter.add(entries("T", part, [None] * len(part)))
    sample, waiting = counter.sample_of("cg", 0), counter.waiting_of("cg", 0)
    assert sample is not None
    assert waiting is not None
    assert (sample.seen, sample.passed) == (seen, passed)
    assert sample.estimate(count) == passed * count // seen
    assert (waiting.messages, waiting.oldest_at) == (-(-count // every), 1_000)
