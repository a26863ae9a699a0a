"""Random pull windows over one block, against the same filters message by message."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from filtering.delivery.message_filter import MessageFilter
from filtering.delivery.pull_window import PullWindow
from filtering.delivery.topic_filters import WINDOW_COUNTS, TopicFilters
from filtering.predicate import TRUE, TagsCodeIn, TextIn
from filtering.tags_code import tags_code
from tests.entries import entries

MESSAGES = 150
BIT_NUM = 64
COLOURS = ("red", "green", "blue")
TAGS = ("Aa", "BB", "paid")
"""The first two have the same hash."""


def random_messages(choose: random.Random) -> tuple[list[dict[str, Any]], list[bytes | None]]:
    """Messages in three queues, and their bit maps, of which some are missing or have another length."""
    queue_ids = sorted(choose.choices([0, 1, 3], k=MESSAGES))
    rows: list[dict[str, Any]] = []
    for number, queue_id in enumerate(queue_ids):
        properties = {"TAGS": choose.choice(TAGS), "colour": choose.choice(COLOURS)}
        offset = number - queue_ids.index(queue_id)
        time = choose.randrange(100)
        row = {"queue_id": queue_id, "queue_offset": offset, "commitlog_offset": choose.randrange(100)}
        rows.append(row | {"store_timestamp": time, "properties": properties})
    bit_maps = [choose.choice([choose.randbytes(8), b"\xff" * 8, None, b"\xff" * 4]) for _ in rows]
    return rows, bit_maps


def random_window(choose: random.Random) -> PullWindow:
    texts = frozenset(choose.sample(TAGS, 2))
    has_tags = choose.random() < 0.5
    has_bit_map = not has_tags and choose.random() < 0.7
    message_filter = MessageFilter(
        "cg",
        "T",
        tags=TagsCodeIn(frozenset(map(tags_code, texts))) if has_tags else TRUE,
        bit_pos=tuple(choose.sample(range(BIT_NUM), 2)) if has_bit_map else (),
        born_time=choose.choice([-1, 30, 60]),
        expression=TRUE if has_tags else TextIn("colour", frozenset(choose.sample(COLOURS, 2))),
        failure=TextIn("colour", frozenset(choose.sample(COLOURS, 1))),
        client_tags=TextIn("TAGS", texts) if has_tags else TRUE,
    )
    offsets = {queue_id: (choose.randrange(20), choose.randrange(20, 50)) for queue_id in choose.sample([0, 1, 3], 2)}
    restarted = choose.sample([0, 1, 3], choose.choice([0, 0, 2]))
    return PullWindow(
        message_filter, 0, choose.randrange(50), choose.randrange(40, 101), offsets=offsets,
        only_listed=choose.random() < 0.5,
        physical_ranges={queue_id: (choose.randrange(50), 80) for queue_id in restarted},
    )  # fmt: skip


def outcomes(window: PullWindow, row: dict[str, Any], bit_map: bytes | None) -> Iterator[str]:
    """What one message adds to the counts of a window."""
    filters, properties = window.message_filter, row["properties"]
    if not window.covers(*(row[name] for name in ("queue_id", "queue_offset", "commitlog_offset", "store_timestamp"))):
        return
    tags, colours = filters.client_tags, filters.expression
    has_hash = tags == TRUE or tags_code(properties["TAGS"]) in map(tags_code, tags.texts)  # type: ignore[attr-defined]
    matches = colours == TRUE or properties["colour"] in colours.texts  # type: ignore[attr-defined]
    if properties["colour"] in filters.failure.texts:  # type: ignore[attr-defined]
        yield "evaluation_errors"
    uses_bit_map = bool(filters.bit_pos) and row["store_timestamp"] > filters.born_time
    if uses_bit_map and bit_map is not None and len(bit_map) * 8 == BIT_NUM:
        if not all(bit_map[at // 8] >> at % 8 & 1 for at in filters.bit_pos):
            return
        if not matches:
            yield "bit_map_false_positives"
    if has_hash:
        yield "passed_stage1"
        if matches:
            yield "passed_stage2"
            yield "delivered" if tags == TRUE or properties["TAGS"] in tags.texts else "dropped"  # type: ignore[attr-defined]


@pytest.mark.parametrize("seed", range(10))
def test_counts_and_messages_of_random_windows(seed: int) -> None:
    choose = random.Random(seed)
    rows, bit_maps = random_messages(choose)
    windows = [random_window(choose) for _ in range(40)]
    outcome = TopicFilters(BIT_NUM, windows=windows).run(entries("T", rows, bit_maps))
    delivered, dropped = (
        {window: each.positions.tolist() for each in sets for window in each.windows}
        for sets in (outcome.delivered, outcome.dropped_by_client)
    )
    for number, window in enumerate(windows):
        row_outcomes = [list(outcomes(window, row, bit_map)) for row, bit_map in zip(rows, bit_maps, strict=True)]
        for name, positions in (("delivered", delivered), ("dropped", dropped)):
            assert positions.get(number, []) == [i for i, each in enumerate(row_outcomes) if name in each]
        for column, queue_id in enumerate(outcome.queue_ids.tolist()):
            expected = Counter(
                name
                for row, each in zip(rows, row_outcomes, strict=True)
                if row["queue_id"] == queue_id
                for name in each
            )
            counts = dict(zip(WINDOW_COUNTS, outcome.counts[number, column].tolist(), strict=True))
            assert counts == {name: expected[name] for name in WINDOW_COUNTS}
