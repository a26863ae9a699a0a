"""Nights of real brokers with consume queues or configurations in RocksDB databases."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from rocksdict import Options, Rdict

from jobs import nightly, verify
from schemas.rocketmq_store.rocksdb import INSTALL
from tests.captures import capture
from tests.nights.commands import Run, arguments, night, rows_of
from tests.replayed import Replayed

IN_ROCKSDB = "identical: every entry in the database {} agrees with the warehouse; it has no bit maps\n"
IN_FILES = "identical: every consume queue and extension file agrees with the warehouse, byte for byte\n"


@pytest.mark.parametrize(
    ("name", "bit_map", "verified"),
    [
        ("rocks550", "off", IN_ROCKSDB.format("consumequeue")),
        ("single550", "off", IN_ROCKSDB.format("consumequeue")),
        ("configv2_533", "on", IN_FILES),
        ("double533", "on", IN_FILES),
    ],
)
def test_a_night_and_verify(name: str, bit_map: str, verified: str, run: Run, tmp_path: Path) -> None:
    """A broker that writes files, too, reads these (double533: rocksdbCQDoubleWriteEnable)."""
    ended = run(nightly, *arguments(name, tmp_path / "w"))
    assert (ended.code, "not replayed" in ended.out) == (0, False)
    assert f"filter bit map {bit_map}" in ended.out
    keys = ("consumer_group", "topic", "queue_id")
    committed = {
        tuple(row[key] for key in keys): row["committed"] for row in rows_of(tmp_path / "w", "current_offsets")
    }
    assert committed["cg_sql_true", "TagLab", 0] > 30
    compared = run(verify, "--warehouse", tmp_path / "w", "--store", capture(name) / "store")
    assert (compared.code, compared.out) == (0, verified)


@pytest.mark.parametrize("folder", ["consumequeue", "consumequeue_rocksdb"])
def test_damage_in_the_database_is_named(folder: str, replayed: Replayed, run: Run, tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(capture("rocks550") / "store", store)
    if folder != "consumequeue":
        (store / "consumequeue").rename(store / folder)

    def key(topic: bytes, queue_id: int, offset: int) -> bytes:
        return (
            len(topic).to_bytes(4, "big")
            + b"\1"
            + topic
            + b"\1"
            + queue_id.to_bytes(4, "big")
            + b"\1"
            + offset.to_bytes(8, "big")
        )

    def bound(topic: bytes, word: bytes, last: int) -> tuple[bytes, bytes]:
        return len(topic).to_bytes(4, "big") + b"\1" + topic + b"\1" + word + b"\1" + bytes(4), bytes(
            8
        ) + last.to_bytes(8, "big")

    families = {name: Options(raw_mode=True) for name in ("default", "offset")}
    database = Rdict(str(store / folder), Options(raw_mode=True), families)
    del database[key(b"TagLab", 0, 7)]
    changed = bytearray(database[key(b"OrderEvents", 1, 3)] or b"")
    changed[11] ^= 1
    changed[27] ^= 1
    size, stored = int.from_bytes(changed[8:12], "big"), int.from_bytes(changed[20:], "big")
    database[key(b"OrderEvents", 1, 3)] = bytes(changed)
    bounds = database.get_column_family("offset")
    bounds.__setitem__(*bound(b"Phantom", b"max", 0))
    bounds.__setitem__(*bound(b"Unused", b"min", 0))
    bounds.__setitem__(*bound(b"%LMQ%light", b"max", 4))
    database.close()
    ended = run(verify, "--warehouse", replayed("rocks550").location, "--store", store)
    assert ended.error == "mqsieve: 4 differences\n"
    assert (ended.code, ended.out.splitlines()) == (
        3,
        [
            "%LMQ%light/0: consumequeue: no message of the log belongs to this queue",
            f"OrderEvents/1: {folder}, entry 3: size is {size}, should be {size ^ 1}; "
            f"store_timestamp is {stored}, should be {stored ^ 1}",
            "Phantom/0: consumequeue: no message of the log belongs to this queue",
            f"TagLab/0: {folder}, entry 7: the entry is missing",
        ],
    )


@pytest.mark.parametrize("name", ["rocks550", "configv2_533"])
def test_without_the_package(name: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups receive the same: in one night without slow groups, offsets change nothing. A stale file is not read."""
    given = capture(name)
    run(nightly, *arguments(name, tmp_path / "with"))
    shutil.copytree(given / "store", tmp_path / "store")
    (tmp_path / "store" / "config" / "consumerOffset.json").write_text(
        '{"offsetTable":{"OrderEvents@cg_all_orders":{0:1}}}'
    )
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    ended = run(
        nightly,
        *night(tmp_path / "without", tmp_path / "store", given / "subscription_events.jsonl", given / "broker.conf"),
    )
    assert ended.code == 0
    lines = [line for line in ended.out.splitlines() if line.startswith("not replayed")]
    assert all(INSTALL in line for line in lines)
    assert len(lines) == (2 if name == "rocks550" else 1)
    assert lines[0].startswith("not replayed: offsets of consumers and topics: ")
    assert not any(row["committed"] for row in rows_of(tmp_path / "without", "current_offsets"))
    compared = run(verify, "--warehouse", tmp_path / "without", "--store", tmp_path / "store")
    if name == "rocks550":
        assert (compared.code, compared.out) == (2, "")
        assert compared.error == f"mqsieve: consumequeue is a RocksDB database: to read it, run {INSTALL}\n"
    else:
        assert (compared.code, compared.out) == (0, IN_FILES)


def test_a_database_that_cannot_be_read_does_not_stop_a_night(run: Run, tmp_path: Path) -> None:
    """A copy of a living broker may lack a table that the database has merged meanwhile."""
    shutil.copytree(capture("rocks550") / "store", tmp_path / "store")
    next((tmp_path / "store" / "consumequeue").glob("*.sst")).unlink()
    given = capture("rocks550")
    inputs = (tmp_path / "store", given / "subscription_events.jsonl", given / "broker.conf")
    ended = run(nightly, *night(tmp_path / "w", *inputs))
    assert (ended.code, "filter bit map off" in ended.out) == (0, True)
    (line,) = [line for line in ended.out.splitlines() if line.startswith("not replayed")]
    reason = f"{tmp_path / 'store'}/consumequeue cannot be read as a RocksDB database"
    assert line.startswith(f"not replayed: which messages the consume queues still have: {reason}")
    compared = run(verify, "--warehouse", tmp_path / "w", "--store", tmp_path / "store")
    assert (compared.code, compared.out, compared.error.startswith(f"mqsieve: {reason}")) == (2, "", True)
