from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from schemas.rocketmq_store.consume_queue import (
    consume_queue_file_size,
    decode_consume_queue,
    encode_consume_queue,
    split_files,
)
from schemas.rocketmq_store.consume_queue_ext import (
    ExtensionError,
    decode_consume_queue_ext,
    encode_units,
    is_address,
)
from tests.captures import UNDAMAGED, capture, rows

Files = dict[str, bytes]


def encode_extension(codes: Any, times: Any, maps: pa.BinaryArray, file_size: int) -> tuple[Any, Files]:
    """The files of an extension, filled up with zeros."""
    addresses, units = encode_units(codes, times, maps, file_size)
    padding = -len(units) % file_size
    return addresses, split_files(np.append(units, np.zeros(padding, np.uint8)), file_size)


def queues(name: str) -> list[tuple[str, list[dict[str, Any]]]]:
    entries = rows(name, "consumequeue")
    grouped = groupby(entries, lambda row: f"{row['topic']}/{row['queueId']}")
    return [(queue, list(group)) for queue, group in grouped]


def files_in(folder: Path) -> Files:
    return {file.name: file.read_bytes() for file in folder.iterdir()} if folder.is_dir() else {}


def file_sizes(name: str) -> tuple[int, int]:
    lines = (capture(name) / "broker.conf").read_text().splitlines()
    conf = dict(line.split("=", 1) for line in lines if "=" in line)
    return int(conf["mappedFileSizeConsumeQueue"]), int(conf["mappedFileSizeConsumeQueueExt"])


def bit_maps(entries: list[dict[str, Any]]) -> list[bytes | None]:
    texts = [entry["ext"]["bitMap"] for entry in entries]
    return [None if text is None else bytes.fromhex(text) for text in texts]


@pytest.mark.parametrize("name", UNDAMAGED)
def test_rebuilt_files_are_the_brokers_byte_for_byte(name: str) -> None:
    store = capture(name) / "store"
    queue_size, ext_size = file_sizes(name)
    for queue, entries in queues(name):
        codes: Any = [entry["tagsCode"] for entry in entries]
        if "ext" in entries[0] and entries[0]["ext"]:
            times = [entry["ext"]["msgStoreTime"] for entry in entries]
            codes, ext = encode_extension(codes, times, pa.array(bit_maps(entries), pa.binary()), ext_size)
            assert ext == files_in(store / "consumequeue_ext" / queue), queue
        offsets = [entry["commitLogOffset"] for entry in entries]
        files = encode_consume_queue(offsets, [entry["size"] for entry in entries], codes, queue_size)
        assert files == files_in(store / "consumequeue" / queue), queue


@pytest.mark.parametrize("name", UNDAMAGED)
def test_the_brokers_files_read_back(name: str) -> None:
    store = capture(name) / "store"
    for queue, entries in queues(name):
        table = decode_consume_queue(files_in(store / "consumequeue" / queue))
        keys = ("queueOffset", "commitLogOffset", "size", "rawTagsCode")
        assert list(zip(*table.to_pydict().values(), strict=True)) == [
            tuple(row[key] for key in keys) for row in entries
        ]
        ext = decode_consume_queue_ext(files_in(store / "consumequeue_ext" / queue))
        if not len(ext):
            continue
        assert ext["address"].to_pylist() == [row["rawTagsCode"] for row in entries]
        assert ext["tags_code"].to_pylist() == [row["ext"]["tagsCode"] for row in entries]
        assert ext["store_timestamp"].to_pylist() == [row["ext"]["msgStoreTime"] for row in entries]
        assert ext["filter_bit_map"].to_pylist() == bit_maps(entries)


def test_the_captures_that_have_an_extension() -> None:
    assert [name for name in UNDAMAGED if (capture(name) / "store" / "consumequeue_ext").is_dir()] == [
        "small",
        "dev",
        "otherbloom",
    ]


def test_the_configured_file_size_is_rounded_up_to_whole_entries() -> None:
    assert [consume_queue_file_size(size) for size in (1, 20, 1000, 1001, 6_000_000)] == [20, 20, 1000, 1020, 6_000_000]


def test_full_files_do_not_make_an_empty_one_after() -> None:
    files = encode_consume_queue(range(50), [1] * 50, [0] * 50, 500)

    assert {name: len(data) for name, data in files.items()} == {f"{0:020d}": 500, f"{500:020d}": 500}
    assert encode_consume_queue([], [], [], 500) == {}


def test_a_queue_that_does_not_begin_at_0() -> None:
    files = encode_consume_queue([900, 1000], [100, 100], [7, 8], 500, first_queue_offset=30)

    assert list(files) == [f"{500:020d}"]
    assert files[f"{500:020d}"][: 5 * 20] == 5 * (bytes(8) + b"\x7f\xff\xff\xff" + bytes(8))
    assert decode_consume_queue(files).to_pylist() == [
        {"queue_offset": 30, "commitlog_offset": 900, "size": 100, "tags_code": 7},
        {"queue_offset": 31, "commitlog_offset": 1000, "size": 100, "tags_code": 8},
    ]


def test_addresses_are_told_from_tags_codes() -> None:
    codes = [-(2**63), -(2**31) - 1, -(2**31), 0, 2**31 - 1, 1_795_237_514_116]

    assert is_address(codes).tolist() == [True, True, False, False, False, False]


def test_a_bit_map_too_long_for_a_unit_leaves_the_tags_code() -> None:
    maps = pa.array([b"\1" * 14, b"\1" * 32748, b"", b"\2" * 32747], pa.binary())
    codes, files = encode_extension([1, 2, 3, 4], [10, 20, 30, 40], maps, 1 << 16)

    assert (codes - np.int64(-(2**63))).tolist()[0] == 0
    assert codes.tolist()[1] == 2
    assert decode_consume_queue_ext(files)["filter_bit_map"].to_pylist() == [b"\1" * 14, None, b"\2" * 32747]


def test_units_larger_than_a_file_are_an_error() -> None:
    with pytest.raises(ExtensionError, match="does not fit in a file of 100"):
        encode_extension([1], [2], pa.array([bytes(77)], pa.binary()), 100)
    assert len(encode_extension([1], [2], pa.array([bytes(76)], pa.binary()), 100)[1]) == 1
