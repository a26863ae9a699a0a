"""The consume queue extension, compared with the broker's files."""

from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from schemas.rocketmq_store.queue_files import ExtensionError, encode_units, is_address
from tests.captures import UNDAMAGED, capture, rows

Files = dict[str, bytes]


def encode_extension(codes: Any, times: Any, maps: pa.BinaryArray, file_size: int) -> tuple[Any, Files]:
    """The files of an extension, filled up with zeros."""
    addresses, units = encode_units(codes, times, maps, file_size)
    octets = units.tobytes() + bytes(-len(units) % file_size)
    return addresses, {f"{at:020d}": octets[at : at + file_size] for at in range(0, len(octets), file_size)}


def queues(name: str) -> list[tuple[str, list[dict[str, Any]]]]:
    entries = rows(name, "consumequeue")
    grouped = groupby(entries, lambda row: f"{row['topic']}/{row['queueId']}")
    return [(queue, list(group)) for queue, group in grouped]


def files_in(folder: Path) -> Files:
    return {file.name: file.read_bytes() for file in folder.iterdir()} if folder.is_dir() else {}


def ext_file_size(name: str) -> int:
    lines = (capture(name) / "broker.conf").read_text().splitlines()
    return int(dict(line.split("=", 1) for line in lines if "=" in line)["mappedFileSizeConsumeQueueExt"])


def bit_maps(entries: list[dict[str, Any]]) -> list[bytes | None]:
    texts = [entry["ext"]["bitMap"] for entry in entries]
    return [None if text is None else bytes.fromhex(text) for text in texts]


@pytest.mark.parametrize("name", UNDAMAGED)
def test_rebuilt_extensions_are_the_brokers_byte_for_byte(name: str) -> None:
    store = capture(name) / "store"
    for queue, entries in queues(name):
        if not entries[0].get("ext"):
            continue
        codes = [entry["ext"]["tagsCode"] for entry in entries]
        times = [entry["ext"]["msgStoreTime"] for entry in entries]
        addresses, files = encode_extension(codes, times, pa.array(bit_maps(entries), pa.binary()), ext_file_size(name))
        assert files == files_in(store / "consumequeue_ext" / queue), queue
        assert addresses.tolist() == [entry["rawTagsCode"] for entry in entries]


def test_the_captures_that_have_an_extension() -> None:
    assert [name for name in UNDAMAGED if (capture(name) / "store" / "consumequeue_ext").is_dir()] == [
        "small",
        "dev",
        "otherbloom",
    ]


def test_addresses_are_told_from_tags_codes() -> None:
    codes = [-(2**63), -(2**31) - 1, -(2**31), 0, 2**31 - 1, 1_795_237_514_116]

    assert is_address(codes).tolist() == [True, True, False, False, False, False]


def test_a_bit_map_too_long_for_a_unit_leaves_the_tags_code() -> None:
    maps = pa.array([b"\1" * 14, b"\1" * 32748, b"", b"\2" * 32747], pa.binary())
    codes, files = encode_extension([1, 2, 3, 4], [10, 20, 30, 40], maps, 1 << 16)

    assert (codes - np.int64(-(2**63))).tolist()[0] == 0
    assert codes.tolist()[1] == 2
    units = files[f"{0:020d}"]
    assert [units[start : start + 2] for start in (0, 34, 54)] == [size.to_bytes(2) for size in (34, 20, 32767)]


def test_units_larger_than_a_file_are_an_error() -> None:
    with pytest.raises(ExtensionError, match="does not fit in a file of 100"):
        encode_extension([1], [2], pa.array([bytes(77)], pa.binary()), 100)
    assert len(encode_extension([1], [2], pa.array([bytes(76)], pa.binary()), 100)[1]) == 1
