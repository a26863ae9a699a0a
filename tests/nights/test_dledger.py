"""The log of a broker with enableDLegerCommitLog, with and without a commitlog from before."""

from __future__ import annotations

import shutil
from itertools import pairwise
from pathlib import Path

import pytest

from jobs import audit, nightly, verify
from schemas.rocketmq_store.commitlog_walk import Records, Walk, scan
from schemas.rocketmq_store.segments import segments
from schemas.storage import Storage
from tests.captures import capture
from tests.nights.commands import Run, night, rows_of

MESSAGES = {"dledger550": 300, "dledger550_mixed": 350}


def given(name: str, warehouse: Path, store: Path | None = None) -> list[str]:
    folder = capture(name)
    return night(warehouse, store or folder / "store", folder / "s.yaml", folder / "broker.conf")


def data_of(store: Path) -> list[Path]:
    return sorted((store / "dledger-n0" / "data").iterdir())


@pytest.mark.parametrize("name", MESSAGES)
def test_the_brokers_own_consume_queues_agree(name: str, run: Run, tmp_path: Path) -> None:
    """Their entries have the physical offset of the record after DLedger's header."""
    assert run(nightly, *given(name, tmp_path / "w")).code == 0
    assert len(list(rows_of(tmp_path / "w", "commitlog"))) == len(list(rows_of(tmp_path / "w", "consumequeue")))
    assert len(list(rows_of(tmp_path / "w", "commitlog"))) == MESSAGES[name]
    assert not list(rows_of(tmp_path / "w", "quarantine"))
    ended = run(verify, "--warehouse", tmp_path / "w", "--store", capture(name) / "store")
    assert (ended.code, ended.out.splitlines()[-1]) == (0, "no difference in what could be judged")
    assert run(audit, "--warehouse", tmp_path / "w", "--fail-on", "error").code == 0


@pytest.mark.parametrize("cut", [475, 475 + 20, 475 + 48, 475 + 48 + 100, 20_000, 32_768, 40_000])
def test_a_log_that_grows(cut: int, run: Run, tmp_path: Path) -> None:
    """The first night's copy ends after a record, in a header, after one, in a record, between two files, or later."""
    store = tmp_path / "store"
    shutil.copytree(capture("dledger550") / "store", store)
    for file in data_of(store):
        content = file.read_bytes()
        kept = max(0, min(len(content), cut - int(file.name)))
        file.write_bytes(content[:kept] + bytes(len(content) - kept))
    assert run(nightly, *given("dledger550", tmp_path / "grown", store)).code == 0
    first = len(list(rows_of(tmp_path / "grown", "commitlog")))
    assert 0 < first < MESSAGES["dledger550"]
    assert run(nightly, *given("dledger550", tmp_path / "grown")).code == 0
    messages = sorted(row["msg_id"] for row in rows_of(tmp_path / "grown", "commitlog", "msg_id"))
    assert len(set(messages)) == len(messages) == MESSAGES["dledger550"]
    assert not list(rows_of(tmp_path / "grown", "quarantine"))
    assert run(verify, "--warehouse", tmp_path / "grown", "--store", capture("dledger550") / "store").code == 0


@pytest.mark.parametrize(
    ("at", "lost", "quarantined"), [(475 + 3, 0, 48), (475 + 47, 0, 48), (475 + 48 + 7, 1, 48 + 169 + 48)]
)
def test_a_damaged_header_or_record(at: int, lost: int, quarantined: int, run: Run, tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(capture("dledger550") / "store", store)
    content = bytearray(data_of(store)[0].read_bytes())
    content[at] ^= 0xFF
    data_of(store)[0].write_bytes(content)
    assert run(nightly, *given("dledger550", tmp_path / "w", store)).code == 0
    assert len(list(rows_of(tmp_path / "w", "commitlog"))) == MESSAGES["dledger550"] - lost
    assert sum(len(row["bytes"]) for row in rows_of(tmp_path / "w", "quarantine")) <= quarantined


@pytest.mark.parametrize("step", [1, 47, 48, 500, 4_000])
def test_parts_of_a_segment_join(step: int) -> None:
    """As tasks read them: each part begins where the one before ended, and together they have all records."""
    segment = segments(Storage.at(str(capture("dledger550") / "store")))[0]
    whole = [int(at) for piece in scan(segment) if isinstance(piece, Records) for at in piece.physical_offsets()]
    offsets, walks = [], []
    begin = segment.offset
    for stop in range(begin + step, segment.end + step, step) if step > 40 else [segment.end]:
        walk = Walk(
            segment, begin, min(stop, segment.end), segment.data_end, begin > segment.offset, chunk_bytes=step + 300
        )
        offsets += [int(at) for piece in walk if isinstance(piece, Records) for at in piece.physical_offsets()]
        if walk.first is not None:
            walks.append(walk)
        begin = min(stop, segment.end)
    assert offsets == whole
    assert all(before.reached == after.first for before, after in pairwise(walks))
