"""Messages of small topics wait until there are enough of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from schemas.messages import commitlog_rows as module
from schemas.messages.commitlog_rows import Messages, Shape, TopicBatch, TopicBatches, topic_batches


@pytest.fixture(autouse=True)
def _small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MESSAGES_AT_ONCE", 100)
    monkeypatch.setattr(module, "ENOUGH_OF_A_TOPIC", 20)
    monkeypatch.setattr(module, "MOST_WAITING", 150)
    monkeypatch.setattr(module, "MOST_WAITING_TEXT", 100_000)


class Log:
    """Makes parts of a log. The physical offset of a message is its number."""

    def __init__(self) -> None:
        self.messages = 0

    def part(self, topics: Sequence[str]) -> Messages:
        names = sorted(set(topics))
        offsets = np.arange(self.messages, self.messages + len(topics))
        self.messages += len(topics)
        zeros = np.zeros(len(topics), np.int32)
        tags = [f"{topic} {offset}" for topic, offset in zip(topics, offsets, strict=True)]
        return Messages(
            [Shape(name, ()) for name in names],
            np.array([names.index(topic) for topic in topics], np.int32),
            zeros, offsets, offsets, zeros, offsets, zeros, zeros, zeros,
            {"TAGS": pa.array(tags, pa.string())}, [], None,
        )  # fmt: skip


def due(batch: TopicBatch | None) -> dict[str, list[int]]:
    """The physical offsets of the messages to filter, by topic. Checks that columns go with their messages."""
    assert batch is not None
    offsets_by_topic = {}
    for topic, rows in batch.messages.rows_by_topic(batch.is_due):
        offsets_by_topic[topic] = batch.messages.commitlog_offset[rows].tolist()
        tags = batch.messages.named["TAGS"].take(pa.array(rows)).to_pylist()
        assert tags == [f"{topic} {offset}" for offset in offsets_by_topic[topic]]
    return offsets_by_topic


def test_a_large_topic_does_not_wait_for_small_ones() -> None:
    batches, log = TopicBatches(), Log()
    assert batches.add(log.part(["large"] * 60)) is None
    assert due(batches.add(log.part(["large"] * 39 + ["small"]))) == {"large": [*range(99)]}
    assert due(batches.rest()) == {"small": [99]}
    assert batches.rest() is None


def test_messages_that_waited_come_before_the_new_ones() -> None:
    batches, log = TopicBatches(), Log()
    assert due(batches.add(log.part(["small"] * 19 + ["large"] * 81))) == {"large": [*range(19, 100)]}
    assert due(batches.add(log.part(["small"] + ["large"] * 99)))["small"] == [*range(19), 100]
    assert batches.rest() is None


def test_too_many_waiting_messages_are_filtered() -> None:
    batches, log = TopicBatches(), Log()
    topics = [f"topic {i % 50}" for i in range(100)]
    assert due(batches.add(log.part(topics))) == {}
    assert due(batches.add(log.part(topics))) == {f"topic {i}": [*range(i, 200, 50)] for i in range(50)}
    assert batches.rest() is None


@pytest.mark.parametrize("length", [100, 2_000])
def test_messages_with_long_properties_do_not_wait(length: int) -> None:
    """Arrow's texts of one column have no room for more than 2 GiB."""
    batches, log = TopicBatches(), Log()
    topics = [f"{'t' * length} {i % 50}" for i in range(100)]
    waiting = due(batches.add(log.part(topics))) == {}
    assert waiting == (length == 100)
    assert (batches.rest() is not None) == waiting


def test_the_text_of_properties_is_what_it_is_without_dictionaries() -> None:
    texts = pa.array(["ab", None, "ab", "äö"])
    none = pa.nulls(4, pa.string())
    whole = Log().part(["T"] * 4)
    for slot in (texts, texts.dictionary_encode()):
        messages = replace(whole, named={"TAGS": none}, slots=[slot, None, slot], others=texts)
        assert messages.text_bytes() == 24
        assert messages.take(np.array([1, 3])).text_bytes() == 12


@pytest.mark.parametrize("seed", range(20))
def test_nothing_is_lost_or_changes_its_order(seed: int) -> None:
    rng, log = np.random.default_rng(seed), Log()
    expected: defaultdict[str, list[int]] = defaultdict(list)

    def parts() -> Iterator[Messages]:
        for size in rng.integers(0, 70, size=20).tolist():
            topics = [f"topic {int(number)}" for number in rng.zipf(1.3, size=size).clip(0, 40)]
            for offset, topic in enumerate(topics, log.messages):
                expected[topic].append(offset)
            yield log.part(topics)

    offsets_by_topic: defaultdict[str, list[int]] = defaultdict(list)
    for batch in topic_batches(parts()):
        for topic, offsets in due(batch).items():
            offsets_by_topic[topic] += offsets
    assert offsets_by_topic == expected
