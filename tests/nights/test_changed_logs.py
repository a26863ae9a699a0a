"""Logs that grow, or are cut, repaired, replaced, or copied during a write."""

from __future__ import annotations

import os
import shutil
import zlib
from pathlib import Path

import pytest

from jobs import nightly
from jobs.night import tasks
from schemas.commitlog import COMMITLOG
from schemas.delta.warehouse import Warehouse
from tests.broker_log import SEGMENT, BrokerLog
from tests.nights.commands import Ended, Run, differing, received, rows_of, without_runs
from tests.records import filler

SUBSCRIPTIONS = """\
- {group: cg_all, topic: T, tag: "*", at: 1}
- {group: cg_even, topic: T, sql: "n IN ('0', '2', '4', '6', '8', '10', '12')", at: 1}
"""


@pytest.fixture
def night(run: Run, tmp_path: Path) -> Run:
    """Runs a night on a store, by default into the warehouse ``w`` in the test's folder."""
    (tmp_path / "subscriptions.yaml").write_text(SUBSCRIPTIONS, "utf-8")
    (tmp_path / "broker.conf").write_text("brokerName=b\nenablePropertyFilter=true\n")

    def night(store: Path, *more: object, warehouse: str = "w") -> Ended:
        return run(
            nightly, "--store", store, "--warehouse", tmp_path / warehouse, "--subscriptions",
            tmp_path / "subscriptions.yaml", "--broker-config", tmp_path / "broker.conf", *more,
        )  # fmt: skip

    return night


Night = Run


def numbers(warehouse: Path) -> list[int]:
    """The numbers of the messages in the warehouse, in the order of the log."""
    rows = rows_of(warehouse, "commitlog", "commitlog_offset", "properties")
    return [int(row["properties"]["n"]) for row in sorted(rows, key=lambda row: row["commitlog_offset"])]


def added_rows(warehouse: Path, table: str) -> list[int]:
    """The rows that each night added to a table, by the ledger."""
    entries = sorted(rows_of(warehouse, "run_ledger", "run", "rows"), key=lambda row: row["run"])
    return [dict(row["rows"]).get(table, 0) for row in entries]


def test_messages_added_to_a_preallocated_segment_are_new(night: Night, tmp_path: Path) -> None:
    log = BrokerLog().append(5)
    store = log.write(tmp_path / "store")
    segment = store / "commitlog" / f"{0:020d}"
    night(store)
    before = segment.stat()
    log.append(3)
    with segment.open("r+b") as file:
        file.write(log.data)
    os.utime(segment, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert segment.stat().st_size == before.st_size
    assert night(store).code == 0
    assert numbers(tmp_path / "w") == list(range(8))
    assert received(tmp_path / "w", "cg_all") == list(range(8))
    assert received(tmp_path / "w", "cg_even") == [0, 2, 4, 6]
    assert "There was nothing new" in night(store).out


def test_a_log_that_rotates_keeps_what_was_read(night: Night, tmp_path: Path) -> None:
    log = BrokerLog().append(200)
    night(log.write(tmp_path / "store"))
    log.append(100)
    night(log.write(tmp_path / "store", start=SEGMENT))
    assert numbers(tmp_path / "w") == list(range(300))
    assert received(tmp_path / "w", "cg_all") == list(range(300))


def test_a_broker_may_delete_just_what_was_read(night: Night, tmp_path: Path) -> None:
    log = BrokerLog().append(20)
    log.data += filler(SEGMENT - len(log.data))
    log.write(tmp_path / "store")
    night(tmp_path / "store")
    log.append(5)
    _, out, _ = night(log.write(tmp_path / "store", start=SEGMENT))
    assert "deleted" not in out
    assert received(tmp_path / "w", "cg_all") == list(range(25))


@pytest.mark.parametrize("topic", ["read before", "new"])
def test_what_the_broker_deleted_before_a_night_read_it(night: Night, tmp_path: Path, topic: str) -> None:
    """The log goes on with a queue that lost nothing: it is no other log."""
    log = BrokerLog().append(5).append(5, topic="read before")
    night(log.write(tmp_path / "store"))
    end = len(log.data)
    log.append(200)
    log.data += filler(SEGMENT - len(log.data) % SEGMENT)
    start = len(log.data)
    log.append(2, topic=topic).append(3)
    code, out, _ = night(log.write(tmp_path / "store", start=start))
    assert code == 0
    assert f"the broker deleted {start - end:,} bytes of its log (offsets {end:,} to {start:,})" in out
    assert received(tmp_path / "w", "cg_all") == [0, 1, 2, 3, 4, 205, 206, 207]


def test_the_half_written_end_of_a_living_log_is_left_to_the_next_night(night: Night, tmp_path: Path) -> None:
    log = BrokerLog().append(4, level="high").append(1, note="x" * 200)
    whole = log.data
    for cut in (len(whole) - 1, len(whole) - 150, len(whole) - 230):
        folder = tmp_path / str(cut)
        torn = BrokerLog()
        torn.data = whole[:cut] + bytes(len(whole) - cut)
        night(torn.write(folder / "store"), warehouse=f"{cut}/w")
        assert numbers(folder / "w") == [0, 1, 2, 3], cut
        night(log.write(folder / "store"), warehouse=f"{cut}/w")
        assert numbers(folder / "w") == [0, 1, 2, 3, 4], cut
        assert received(folder / "w", "cg_all") == [0, 1, 2, 3, 4]
        assert received(folder / "w", "cg_even") == [0, 2, 4]
        assert list(rows_of(folder / "w", "quarantine")) == []


def test_a_damaged_end_that_stays_is_quarantined(night: Night, tmp_path: Path) -> None:
    log = BrokerLog().append(4)
    log.data = log.data[:-10] + bytes(10)
    store = log.write(tmp_path / "store")
    for _ in range(2):
        assert night(store).code == 0
    assert numbers(tmp_path / "w") == [0, 1, 2]
    (piece,) = rows_of(tmp_path / "w", "quarantine")
    assert piece["bytes"].rstrip(b"\0") in log.data


def cut_and_continued(tmp_path: Path, body: bytes) -> tuple[Path, Path]:
    """A log that a night read, and the log after a recovery cut its end and other messages followed."""
    before, after = BrokerLog().append(6), BrokerLog().append(4)
    before.append(6, tag="old")
    after.append(8, tag="new", body=body)
    return before.write(tmp_path / "before"), after.write(tmp_path / "after")


@pytest.mark.parametrize("body", [b"body", b"a longer body"])
def test_a_cut_log_gets_its_new_end(night: Night, tmp_path: Path, body: bytes) -> None:
    before, after = cut_and_continued(tmp_path, body)
    night(before)
    code, out, _ = night(after)
    assert code == 0
    assert ("the log differs from offset" in out, "older copy" in out) == (True, False)
    assert numbers(tmp_path / "w") == list(range(12))
    assert received(tmp_path / "w", "cg_all") == list(range(12))
    night(after, warehouse="fresh")
    tables, expected = without_runs(tmp_path / "w"), without_runs(tmp_path / "fresh")
    for name in ("commitlog", "consumequeue", "deliveries", "current_offsets"):
        assert tables[name] == expected[name], name


def test_a_cut_in_an_earlier_night_keeps_the_nights_before_it(night: Night, tmp_path: Path) -> None:
    log = BrokerLog().append(5)
    night(log.write(tmp_path / "store"))
    first = log.data
    night(log.append(5).write(tmp_path / "store"))
    runs = [row["run"] for row in rows_of(tmp_path / "w", "run_ledger", "run")]
    recovered = BrokerLog().append(5)
    assert recovered.data == first
    recovered.append(2)
    assert recovered.data == log.data[: len(recovered.data)]
    night(recovered.append(3, tag="new").write(tmp_path / "store"))
    run_of = {row["properties"]["n"]: row["run"] for row in rows_of(tmp_path / "w", "commitlog")}
    assert {run_of[str(n)] for n in range(5)} == {min(runs)}
    assert received(tmp_path / "w", "cg_all") == list(range(10))


def flipped(log: bytes, offset: int) -> bytes:
    """A log with a damaged magic code of the record at an offset."""
    return log[: offset + 4] + b"\xff" * 4 + log[offset + 8 :]


@pytest.mark.parametrize("damaged", [3, 8, 9])
def test_messages_that_were_read_stay_when_their_bytes_are_damaged_later(
    night: Night, tmp_path: Path, damaged: int
) -> None:
    log = BrokerLog().append(10)
    size = len(log.data) // 10
    night(log.write(tmp_path / "store"))
    deliveries = list(rows_of(tmp_path / "w", "deliveries"))
    log.data = flipped(log.data, damaged * size)
    night(log.write(tmp_path / "store"))
    log.append(2)
    assert "the log differs" not in night(log.write(tmp_path / "store")).out
    assert numbers(tmp_path / "w") == list(range(12))
    assert all(row in rows_of(tmp_path / "w", "deliveries") for row in deliveries)


def test_a_log_that_was_cut_and_damaged_before_the_cut(night: Night, tmp_path: Path) -> None:
    before, after = BrokerLog().append(5), BrokerLog().append(4)
    size = len(before.data) // 5
    night(before.write(tmp_path / "store"))
    night(before.append(4).write(tmp_path / "store"))
    after.append(3, tag="new")
    after.data = flipped(after.data, size)
    _, out, _ = night(after.write(tmp_path / "store"))
    assert f"the log differs from offset {4 * size:,} on" in out
    assert numbers(tmp_path / "w") == list(range(7))
    assert received(tmp_path / "w", "cg_all") == list(range(7))


def test_a_log_that_got_shorter(night: Night, tmp_path: Path) -> None:
    log = BrokerLog().append(9)
    night(log.write(tmp_path / "store"))
    shorter = BrokerLog().append(4)
    code, out, _ = night(shorter.write(tmp_path / "store"))
    assert (code, "the log differs from offset" in out) == (0, True)
    assert numbers(tmp_path / "w") == [0, 1, 2, 3]
    assert received(tmp_path / "w", "cg_all") == [0, 1, 2, 3]
    assert "If this is an older copy of the store, run nightly on the newest one to have them back" in out
    night(log.write(tmp_path / "store"))
    assert numbers(tmp_path / "w") == received(tmp_path / "w", "cg_all") == list(range(9))


@pytest.mark.parametrize("kept", [4, 17])
def test_a_log_that_got_shorter_by_segments(night: Night, tmp_path: Path, kept: int) -> None:
    """The zeros at its end are no damage, although the night before had read that part of the log."""
    night(BrokerLog(segment=1 << 11).append(40).write(tmp_path / "store"))
    shutil.rmtree(tmp_path / "store")
    _, out, _ = night(BrokerLog(segment=1 << 11).append(kept).write(tmp_path / "store"))
    assert ("the log differs from offset" in out, "quarantined" in out) == (True, False)
    assert numbers(tmp_path / "w") == list(range(kept))


def test_a_new_epoch_with_a_shorter_log(night: Night, tmp_path: Path) -> None:
    night(BrokerLog(segment=1 << 11).append(40).write(tmp_path / "before"))
    _, out, _ = night(BrokerLog(segment=1 << 11).append(5, tag="new").write(tmp_path / "after"), "--new-epoch")
    assert ("a new epoch of b" in out, "quarantined" in out) == (True, False)
    assert numbers(tmp_path / "w") == list(range(5))


def test_a_full_last_segment_that_was_cut(night: Night, tmp_path: Path) -> None:
    log = BrokerLog(segment=1 << 11).append(40)
    first = log.data[: log.segment]
    log.data = first
    night(log.write(tmp_path / "store"))
    count = len(numbers(tmp_path / "w"))
    night(BrokerLog(segment=1 << 11).append(count - 3).write(tmp_path / "store"))
    assert numbers(tmp_path / "w") == list(range(count - 3))


def test_another_log_is_refused_and_a_new_epoch_replaces_everything(night: Night, tmp_path: Path) -> None:
    night(BrokerLog().append(9).write(tmp_path / "store"))
    other = BrokerLog(first_time=1_795_500_000_000).append(5).write(tmp_path / "other")
    before = without_runs(tmp_path / "w")
    code, _, error = night(other)
    assert (code, "holds another log than the one of broker b" in error, "--new-epoch" in error) == (2, True, True)
    assert differing(without_runs(tmp_path / "w"), before) == []
    code, out, _ = night(other, "--new-epoch")
    assert (code, "a new epoch of b" in out) == (0, True)
    night(other, warehouse="fresh")
    assert differing(without_runs(tmp_path / "w"), without_runs(tmp_path / "fresh")) == []


def test_another_log_whose_start_was_deleted_is_refused_too(night: Night, tmp_path: Path) -> None:
    night(BrokerLog().append(150).write(tmp_path / "store"))
    other = BrokerLog(first_time=1_795_500_000_000).append(100, body=b"x" * 500)
    code, _, error = night(other.write(tmp_path / "other", start=SEGMENT * 2))
    assert (code, "holds another log" in error) == (2, True)


@pytest.mark.parametrize("deleted", [0, 2])
def test_a_log_of_new_messages_only_may_begin_in_a_queue_that_was_created_again(
    night: Night, tmp_path: Path, deleted: int
) -> None:
    """The broker has deleted all that nights read. That the other queues go on shows that it is the same log."""
    log = BrokerLog()
    for topic in ("T", "A", "B"):
        log.append(9, topic)
    log.write_queues(log.write(tmp_path / "store"))
    night(tmp_path / "store")
    del log.queues["T", 0]
    log.append(deleted)
    log.data += filler(SEGMENT - len(log.data) % SEGMENT)
    start = len(log.data)
    log.append(4 - deleted).append(1, "A")
    log.write_queues(log.write(tmp_path / "store", start))
    code, out, error = night(tmp_path / "store")
    assert (code, "the broker deleted" in out) == (0, True), error
    assert received(tmp_path / "w", "cg_all") == sorted([*range(9), *range(deleted, 4)])


def test_a_body_that_was_damaged_is_replaced_by_its_own(night: Night, tmp_path: Path) -> None:
    log = BrokerLog().append(3).append(1, body=b"the right body").append(2)
    whole = log.data
    log.data = whole.replace(b"the right body", b"the wrong body")
    _, out, _ = night(log.write(tmp_path / "store"))
    assert "1 message whose body does not match the crc32" in out
    log.data = whole
    _, out, _ = night(log.write(tmp_path / "store"))
    assert "1 message with a damaged body has the right one now" in out
    bodies = {row["properties"]["n"]: row["body"] for row in rows_of(tmp_path / "w", "commitlog")}
    assert (bodies["3"], len(bodies)) == (b"the right body", 6)
    assert received(tmp_path / "w", "cg_all") == list(range(6))


@pytest.mark.parametrize(
    ("bodies", "kept"),
    [("keep", {b"body", b"the wrong body"}), ("damaged", {None, b"the wrong body"}), ("none", {None})],
)
def test_bodies_are_stored_by_choice_and_checksums_always(
    night: Night, tmp_path: Path, bodies: str, kept: set[bytes | None]
) -> None:
    log = BrokerLog().append(3).append(1, body=b"the right body").append(1)
    log.data = log.data.replace(b"the right body", b"the wrong body")
    night(log.write(tmp_path / "store"), "--bodies", bodies)
    rows = list(rows_of(tmp_path / "w", "commitlog", "body", "body_crc", "body_length"))
    assert {row["body"] for row in rows} == kept
    crcs = {4: zlib.crc32(b"body"), 14: zlib.crc32(b"the right body")}
    assert {row["body_length"]: row["body_crc"] for row in rows} == {
        length: crc & 0x7FFFFFFF for length, crc in crcs.items()
    }


def test_bodies_of_earlier_nights_are_compared_only_while_one_is_damaged(night: Night, tmp_path: Path) -> None:
    log = BrokerLog().append(3).append(1, body=b"the right body").append(2)
    first = log.data
    log.data = first.replace(b"the right body", b"the wrong body")
    night(log.write(tmp_path / "store"))
    night(log.append(1).write(tmp_path / "store"))
    log.data = first + log.data[len(first) :]
    assert "1 message with a damaged body has the right one now" in night(log.write(tmp_path / "store")).out
    night(log.append(1).write(tmp_path / "store"))
    for file in Warehouse.at(str(tmp_path / "w")).files(COMMITLOG, "b"):
        if file.least["commitlog_offset"] < len(first):
            (tmp_path / "w" / "commitlog" / file.path).write_bytes(b"?" * file.size)
    assert night(log.append(1).write(tmp_path / "store")).code == 0


def test_a_record_that_was_damaged_is_filtered_as_its_night_would_have(night: Night, tmp_path: Path) -> None:
    log = BrokerLog().append(6)
    whole = log.data
    log.damage(2)
    night(log.write(tmp_path / "store"))
    assert received(tmp_path / "w", "cg_even") == [0, 4]
    log.data = whole
    _, out, _ = night(log.write(tmp_path / "store"))
    assert "1 damaged place of the log was repaired" in out
    assert received(tmp_path / "w", "cg_even") == [0, 2, 4]
    assert list(rows_of(tmp_path / "w", "quarantine")) == []
    night(log.write(tmp_path / "store"), warehouse="fresh")
    tables, expected = without_runs(tmp_path / "w"), without_runs(tmp_path / "fresh")
    for name in ("commitlog", "consumequeue", "deliveries", "current_offsets"):
        assert tables[name] == expected[name], name


def test_a_store_of_zeros(night: Night, tmp_path: Path) -> None:
    store = tmp_path / "store"
    (store / "commitlog").mkdir(parents=True)
    (store / "commitlog" / f"{0:020d}").write_bytes(bytes(SEGMENT))
    code, out, _ = night(store)
    assert (code, "no message: nothing could be decoded" in out) == (0, True)
    assert night(store, "--strict").code == 3
    assert night(BrokerLog().append(2).write(store)).code == 0
    assert numbers(tmp_path / "w") == [0, 1]


def test_damage_between_messages_is_kept_with_its_bytes(
    night: Night, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "DAMAGE_AT_ONCE", 1)
    log = BrokerLog().append(3)
    at = len(log.data)
    log.data += b"\x00\x00\x01\x00" + b"noise" * 20
    end = len(log.data)
    log.append(3)
    code, _, _ = night(log.write(tmp_path / "store"))
    assert code == 0
    assert numbers(tmp_path / "w") == list(range(6))
    pieces = sorted(rows_of(tmp_path / "w", "quarantine"), key=lambda row: row["offset"])
    assert b"".join(piece["bytes"] for piece in pieces) == log.data[at:end]
    shutil.copytree(tmp_path / "w", tmp_path / "copy")
    assert "There was nothing new" in night(tmp_path / "store").out


def test_a_last_message_whose_properties_were_not_all_there_yet(night: Night, tmp_path: Path) -> None:
    """Properties have no checksum: a copy torn inside them holds another, valid message."""
    log = BrokerLog().append(5, x="A")
    whole, torn = log.data, BrokerLog()
    torn.data = whole[:-2] + b"\0\0"
    night(torn.write(tmp_path / "store"))
    night(torn.write(tmp_path / "store"))
    night(log.append(2).write(tmp_path / "store"))
    night(log.write(tmp_path / "other"), warehouse="undisturbed")
    rows, expected = (rows_of(tmp_path / name, "commitlog", "properties") for name in ("w", "undisturbed"))
    assert list(map(str, rows)) == list(map(str, expected))


def test_a_last_message_that_looks_unfinished_is_read_when_it_stays_the_same(night: Night, tmp_path: Path) -> None:
    """Zeros at the end of its properties may be bytes that were not written yet."""
    log = BrokerLog().append(5, x="A")
    log.data = log.data[:-2] + b"\0\0"
    night(log.write(tmp_path / "store"))
    assert numbers(tmp_path / "w") == [0, 1, 2, 3]
    assert "There was nothing new" not in night(log.write(tmp_path / "store")).out
    assert numbers(tmp_path / "w") == [0, 1, 2, 3, 4]
    assert received(tmp_path / "w", "cg_all") == [0, 1, 2, 3, 4]
    assert "There was nothing new" in night(log.write(tmp_path / "store")).out


def test_the_ledger_counts_the_recovered_message_and_not_its_file(night: Night, tmp_path: Path) -> None:
    log = BrokerLog().append(3).append(1, body=b"the right body").append(2)
    whole = log.data
    log.data = whole.replace(b"the right body", b"the wrong body")
    night(log.write(tmp_path / "store"))
    log.data = whole
    night(log.write(tmp_path / "store"))
    assert added_rows(tmp_path / "w", "commitlog") == [6, 1]


def test_the_ledger_does_not_count_damage_that_an_earlier_night_quarantined(night: Night, tmp_path: Path) -> None:
    log = BrokerLog().append(9)
    whole, size = log.data, len(log.data) // 9
    damaged = bytearray(whole)
    for number in (2, 4, 6):
        damaged[number * size + 4 : number * size + 8] = b"\xff" * 4
    log.data = bytes(damaged)
    night(log.write(tmp_path / "store"))
    for number in (2, 4):
        damaged[number * size + 4 : number * size + 8] = whole[number * size + 4 : number * size + 8]
    log.data = bytes(damaged)
    _, out, _ = night(log.write(tmp_path / "store"))
    assert "2 damaged places of the log were repaired" in out
    assert len(list(rows_of(tmp_path / "w", "quarantine"))) == 1
    assert added_rows(tmp_path / "w", "quarantine") == [3, 0]


def test_damage_over_the_border_of_segments_is_repaired_in_one_of_them(night: Night, tmp_path: Path) -> None:
    log = BrokerLog(segment=1 << 11).append(40)
    whole, border = log.data, log.segment
    log.data = whole[: border - 300] + b"\xff" * 320 + whole[border + 20 :]
    night(log.write(tmp_path / "store"))
    missing = set(range(40)) - set(numbers(tmp_path / "w"))
    log.data = whole[: border - 300] + b"\xff" * 300 + whole[border:]
    _, out, _ = night(log.write(tmp_path / "store"))
    assert "1 damaged place of the log was repaired" in out
    assert set(range(40)) - set(numbers(tmp_path / "w")) == missing - {max(missing)}
    assert "There was nothing new" in night(log.write(tmp_path / "store")).out


def test_a_log_that_was_cut_before_its_quarantined_damage(night: Night, tmp_path: Path) -> None:
    log = BrokerLog().append(10)
    whole, size = log.data, len(log.data) // 10
    log.damage(8)
    night(log.write(tmp_path / "store"))
    log.data = whole[: 5 * size]
    assert night(log.write(tmp_path / "store")).code == 0
    assert numbers(tmp_path / "w") == [0, 1, 2, 3, 4]
