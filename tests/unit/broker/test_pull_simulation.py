"""How many pulls consumers need, compared with real consumers and a real message store."""

from collections import defaultdict
from functools import cache

import numpy as np
import pytest

from filtering.broker_config import BrokerConfig, read_properties
from filtering.pulls import GetMessageStatus, Pull, Queue, get_message, simulate_pulls
from tests.captures import UNDAMAGED, capture, rows
from tests.unit.broker import cases


@cache
def sizes(name: str) -> dict[tuple[str, int], list[int]]:
    by_queue = defaultdict(list)
    for entry in sorted(rows(name, "consumequeue"), key=lambda entry: entry["queueOffset"]):
        by_queue[entry["topic"], entry["queueId"]].append(entry["size"])
    return by_queue


@pytest.mark.parametrize("name", UNDAMAGED)
def test_as_many_pulls_as_real_consumers_needed(name: str) -> None:
    config = read_properties((capture(name) / "broker.conf").read_text("latin-1")).config
    for row, passed in zip(rows(name, "delivered"), rows(name, "cqfilter"), strict=True):
        delivered = {(queue_id, offset) for queue_id, offset in row["broker"]}
        pulls = 0
        for queue, stage1 in passed["queues"].items():
            lengths = sizes(name)[row["topic"], int(queue)]
            bits = np.frombuffer(bytes.fromhex(stage1["cqPassBits"]), np.uint8)
            steps = list(
                simulate_pulls(
                    Queue(
                        np.array(lengths),
                        np.unpackbits(bits, bitorder="little")[: len(lengths)].astype(bool),
                        np.array([(int(queue), offset) in delivered for offset in range(len(lengths))]),
                    ),
                    0,
                    config,
                )
            )
            assert sum(step.scanned for step in steps) == stage1["scanned"]
            assert sum(step.read for step in steps) == stage1["cqPass"]
            assert sum(step.found for step in steps) == stage1["matched"]
            pulls += len(steps)
        if row["mode"].endswith("retry topic"):
            # PullMessageProcessor, asked again on this store, returns every message to the first pull and
            # OFFSET_OVERFLOW_ONE to one from there on: this one consumer went on until it was told so.
            pulls += 1
        # A consumer that was offline made no pulls: its rows are the store's own answers.
        assert pulls == row["pulls"] or row["mode"] == "store, consumer offline", row["group"]


def test_random_pulls_return_what_the_real_store_returned() -> None:
    for case in cases("pulls_random"):
        config = BrokerConfig(
            mapped_file_size_consume_queue=1000,
            max_filter_message_size=case["mfms"],
            travel_cq_file_num_when_get_message=case["travel"],
            max_transfer_bytes_on_message_in_memory=case["bytes"],
            max_transfer_count_on_message_in_memory=case["count"],
        )
        queue = Queue(
            np.array(sizes("small")["OrderEvents", case["queue"]]),
            np.array([bit == "1" for bit in case["f1"]]),
            np.array([bit == "1" for bit in case["f2"]]),
        )
        assert get_message(queue, case["offset"], config, case["nums"]) == Pull(
            case["offset"],
            GetMessageStatus(case["status"]),
            case["next"],
            case["asked"],
            case["read"],
            case["found"],
            case["total"],
            0,
            queue.max_offset,
        ), case


def a_queue(length: int, size: int = 100, matching: int = 1, min_offset: int = 0) -> Queue:
    """Every ``matching``-th message matches, at stage 2; stage 1 passes all."""
    matches = np.arange(length) % matching == 0 if matching else np.zeros(length, bool)
    return Queue(np.full(length, size), np.ones(length, bool), matches, min_offset)


def test_a_pull_outside_of_the_queue() -> None:
    queue, config = a_queue(10, min_offset=5), BrokerConfig()
    assert list(simulate_pulls(queue, 3, config)) == [
        Pull(3, GetMessageStatus.OFFSET_TOO_SMALL, 5, min_offset=5, max_offset=15),
        Pull(5, GetMessageStatus.FOUND, 15, 10, 10, 10, 1000, min_offset=5, max_offset=15),
    ]
    at_the_end = Pull(15, GetMessageStatus.OFFSET_OVERFLOW_ONE, 15, min_offset=5, max_offset=15)
    assert get_message(queue, 15, config) == at_the_end
    behind_it = Pull(16, GetMessageStatus.OFFSET_OVERFLOW_BADLY, 15, min_offset=5, max_offset=15)
    assert get_message(queue, 16, config) == behind_it
    assert list(simulate_pulls(a_queue(0), 0, config)) == [Pull(0, GetMessageStatus.NO_MESSAGE_IN_QUEUE, 0)]


def test_a_batch_ends_with_its_messages_or_bytes() -> None:
    config = BrokerConfig()
    assert get_message(a_queue(100), 0, config).found == 32
    assert get_message(a_queue(100), 0, config, max_msg_nums=10).found == 10
    assert get_message(a_queue(100), 0, config, max_msg_nums=64).found == 32, "maxTransferCountOnMessageInMemory"
    assert get_message(a_queue(100, size=100_000), 0, config).found == 2, "maxTransferBytesOnMessageInMemory"
    assert get_message(a_queue(100, size=1 << 16), 0, config).found == 4, "just as many bytes"
    assert get_message(a_queue(100, size=1 << 20), 0, config).found == 1, "a large message comes alone"
    config = BrokerConfig(max_transfer_bytes_on_message_in_memory=1 << 30)
    assert get_message(a_queue(100, size=40 << 20), 0, config).found == 3, "MAX_PULL_MSG_SIZE, 128 MiB"


def test_a_pull_gives_up_after_max_filter_message_size() -> None:
    steps = list(simulate_pulls(a_queue(2000, matching=0), 0, BrokerConfig()))
    assert [(step.status, step.scanned, step.read) for step in steps] == [
        (GetMessageStatus.NO_MATCHED_MESSAGE, 800, 800),
        (GetMessageStatus.NO_MATCHED_MESSAGE, 800, 800),
        (GetMessageStatus.NO_MATCHED_MESSAGE, 400, 400),
    ]
    assert get_message(a_queue(2000, matching=0), 0, BrokerConfig(), max_msg_nums=1000).scanned == 1000


def test_a_pull_ends_with_the_consume_queue_file() -> None:
    config = BrokerConfig(mapped_file_size_consume_queue=1000)
    assert get_message(a_queue(200, matching=0), 30, config).next_begin_offset == 50
    travelling = BrokerConfig(mapped_file_size_consume_queue=1000, travel_cq_file_num_when_get_message=3)
    nothing = get_message(a_queue(200, matching=0), 30, travelling)
    assert (nothing.next_begin_offset, nothing.scanned, nothing.read) == (150, 120, 120)
    pull = get_message(a_queue(200, matching=70), 30, travelling)
    assert (pull.next_begin_offset, pull.found) == (100, 1)


def test_the_bit_map_saves_reads() -> None:
    config = BrokerConfig()
    matches = np.arange(1000) % 10 == 0
    with_bit_map = Queue(np.full(1000, 100), matches, matches)
    saved = [
        sum(pull.read for pull in simulate_pulls(queue, 0, config))
        for queue in (with_bit_map, a_queue(1000, matching=10))
    ]
    assert saved == [100, 1000]
