"""However many messages a group got, the block tells which."""

from typing import Any

import numpy as np
import pyarrow as pa

from filtering import sql92
from filtering.delivery import delivery_blocks
from filtering.delivery.delivery_blocks import block_matches, block_rows, recipients, rows_of_deliveries
from filtering.delivery.message_filter import MessageFilter
from filtering.delivery.pull_window import PullWindow
from filtering.delivery.topic_filters import TopicFilters
from schemas.deliveries import pairs_of
from tests.entries import entries

MESSAGES = 1000
DIVISORS = (1, 2, 3, 15, 16, 17, 100, 250, 333, 999, 1001)
GROUPS = {f"every_{d}th": d for d in DIVISORS} | {"every_16th_too": 16}
ROWS = [
    {"queue_offset": i, "store_timestamp": i, "properties": {f"by{d}": "yes" for d in DIVISORS if i % d == d - 1}}
    for i in range(MESSAGES)
]


def blocks() -> list[dict[str, pa.Array]]:
    topic_entries = entries("T", ROWS)
    windows = [
        PullWindow(MessageFilter(group, "T", expression=sql92.compile(f"by{d} IS NOT NULL").predicate), 7)
        for group, d in GROUPS.items()
    ]
    window_recipients = recipients(list(GROUPS), [7] * len(windows), [None] * (len(windows) - 1) + [5000])
    outcome = TopicFilters(64, windows=windows).run(topic_entries)
    return list(block_rows(topic_entries, block_matches(outcome.delivered, "DELIVERED", window_recipients)))


def received(match: dict[str, Any]) -> list[int]:
    """As the table's comments say."""
    match match:
        case {"positions": [*positions]}:
            return positions
        case {"bits": [*words]}:
            return [i for i in range(MESSAGES) if words[i // 64] >> i % 64 & 1]
    return list(range(MESSAGES))


def pairs(rows: list[dict[str, pa.Array]]) -> list[dict[str, Any]]:
    """The rows of the table deliveries."""
    table = pa.concat_tables(
        pa.table(row | {"source": pa.nulls(1, pa.string()), "run": pa.array(["r"])}) for row in rows
    )
    rows_of_table: list[dict[str, Any]] = pa.Table.from_batches(pairs_of(table)).to_pylist()
    return rows_of_table


EXPECTED = {group: list(range(d - 1, MESSAGES, d)) for group, d in GROUPS.items() if d <= MESSAGES}


def test_a_block_holds_which_group_got_which_message() -> None:
    (block,) = blocks()
    (matches,) = block["matches"].to_pylist()
    match_of = {group["consumer_group"]: match for match in matches for group in match["recipients"]}
    assert {group: received(match) for group, match in match_of.items()} == EXPECTED
    assert {group: match["messages"] for group, match in match_of.items()} == {g: len(e) for g, e in EXPECTED.items()}
    assert match_of["every_16th"] is match_of["every_16th_too"]


def test_a_block_with_many_matches_is_several_rows_with_the_same_pairs(monkeypatch: Any) -> None:
    monkeypatch.setattr(delivery_blocks, "BYTES_IN_A_ROW", 500)
    rows = blocks()
    assert len(rows) > 2
    by_group: dict[str, list[int]] = {}
    for pair in pairs(rows):
        by_group.setdefault(pair["consumer_group"], []).append(pair["queue_offset"])
        expected = 5000 if pair["consumer_group"] == "every_16th_too" else pair["queue_offset"]
        assert (pair["available_at"], pair["subscription_from"], pair["outcome"]) == (expected, 7, "DELIVERED")
    assert by_group == EXPECTED


def test_a_message_that_two_groups_popped_is_in_the_block_once() -> None:
    deliveries = {
        "queue_id": [0, 0, 0], "queue_offset": [1, 0, 1], "commitlog_offset": [500, 100, 500], "group": [0, 0, 1],
        "store_timestamp": [5, 1, 5], "outcome": [0, 0, 0], "available_at": [10, 20, 30], "subscription_from": [7] * 3,
    }  # fmt: skip
    columns = {name: np.array(values, np.int64) for name, values in deliveries.items()}
    (row,) = rows_of_deliveries("T", columns, ["g", "h"], ["DELIVERED"])
    assert [row[name].to_pylist() for name in ("queue_offset", "commitlog_offset")] == [[[0, 1]], [[100, 500]]]
    names = "consumer_group", "queue_offset", "available_at"
    assert sorted(tuple(pair[name] for name in names) for pair in pairs([row])) == [
        ("g", 0, 20), ("g", 1, 10), ("h", 1, 30),
    ]  # fmt: skip
