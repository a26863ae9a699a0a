"""However many messages a group got, the block tells which."""

import pyarrow as pa

from filtering import sql92
from filtering.replay.delivery import Delivery
from filtering.replay.delivery_blocks import DeliveryBlocks
from filtering.replay.message_filter import MessageFilter

MESSAGES = 1000
DIVISORS = (1, 2, 3, 15, 16, 17, 100, 250, 333, 999, 1001)


def received(match: dict[str, object]) -> list[int]:
    """As the table's comments say."""
    match match:
        case {"positions": [*words], "messages": int(count)}:
            return [word >> 16 * i & 0xFFFF for word in words for i in range(4)][:count]
        case {"bits": [*words]}:
            return [i for i in range(MESSAGES) if words[i // 64] >> i % 64 & 1]
    return list(range(MESSAGES))


def test_a_block_tells_who_got_what() -> None:
    groups = {f"every_{d}th": d for d in DIVISORS} | {"every_16th_too": 16}
    delivery = Delivery(
        [
            MessageFilter(group, "T", expression=sql92.compile(f"by{divisor} IS NOT NULL").predicate)
            for group, divisor in groups.items()
        ],
        bit_num=64,
    )
    of_each = [{f"by{d}": "yes" for d in DIVISORS if i % d == d - 1} for i in range(MESSAGES)]
    entries = pa.RecordBatch.from_pydict(
        {
            "broker_name": ["b"] * MESSAGES,
            "topic": ["T"] * MESSAGES,
            "queue_id": pa.array([1] * MESSAGES, pa.int32()),
            "queue_offset": range(MESSAGES),
            "commitlog_offset": range(MESSAGES),
            "tags_code": [0] * MESSAGES,
            "store_timestamp": [0] * MESSAGES,
            "filter_bit_map": pa.nulls(MESSAGES, pa.binary()),
            "properties": pa.array([list(each.items()) for each in of_each], pa.map_(pa.string(), pa.string())),
        }
    )
    (block,) = DeliveryBlocks({"T": delivery})(iter([entries]))
    (matches,) = block["matches"].to_pylist()
    found = {group: match for match in matches for group in match["consumer_group"]}
    expected = {group: list(range(d - 1, MESSAGES, d)) for group, d in groups.items() if d <= MESSAGES}
    assert {group: received(match) for group, match in found.items()} == expected
    assert {group: match["messages"] for group, match in found.items()} == {g: len(e) for g, e in expected.items()}
    assert found["every_16th"] is found["every_16th_too"]
