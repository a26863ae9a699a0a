"""Damaged logs: every whole message is found, and recovery is what a real broker did."""

import json
import random
import struct
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from schemas.rocketmq_store.commitlog_walk import DAMAGE_BYTES, FIRST_WINDOW, REASONS, Damage, Records, scan
from schemas.rocketmq_store.message_decoder import decode
from schemas.rocketmq_store.record_layout import LONGEST, BytesKind
from schemas.rocketmq_store.recovery import Recovery, recovery
from schemas.rocketmq_store.segments import CommitLogError, Segment, segments
from schemas.storage import Storage
from tests.captures import DAMAGED, UNDAMAGED, capture, rows
from tests.records import filler, log_of, record


def walked(log: bytes, folder: Path, offset: int = 0) -> tuple[list[int], list[Damage]]:
    """The offsets of the messages kept, and the damage."""
    file = folder / f"{offset:020d}"
    file.write_bytes(log)
    return split(Segment(offset, file.name, len(log), Storage.at(str(folder))))


def split(segment: Segment) -> tuple[list[int], list[Damage]]:
    kept: list[int] = []
    damage: list[Damage] = []
    for piece in scan(segment):
        if isinstance(piece, Records):
            kept += decode(piece, ["commitlog_offset"]).column(0).to_pylist()
        else:
            damage.append(piece)
    return kept, damage


def damage_report(name: str) -> dict[str, Any]:
    report: dict[str, Any] = json.loads((capture(name) / "DAMAGE.json").read_text())
    return report


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_captures_keep_every_whole_message(name: str) -> None:
    kept: list[int] = []
    damage: list[Damage] = []
    for segment in segments(Storage.at(str(capture(name) / "store"))):
        offsets, pieces = split(segment)
        kept += offsets
        damage += pieces
    whole = [row["physicalOffset"] for row in rows(name, "messages") if not row.get("blank")]
    report = damage_report(name)

    if report["kind"] == "corrupt":
        assert kept == whole
        assert damage == []
        return
    assert kept == whole[: report["messagesWhollyBefore"]]
    [piece] = damage
    assert piece.offset == report["message"]["physicalOffset"]
    reason = {"torn": "lengths in the record", "truncated": "incomplete"}[report["kind"]]
    assert reason in piece.reason
    assert piece.bytes[: 660098 - 659900] == _bytes_at(name, 659900, 660098)


def _bytes_at(name: str, start: int, end: int) -> bytes:
    file = capture(name) / "store" / "commitlog" / f"{655360:020d}"
    return file.read_bytes()[start - 655360 : end - 655360]


def test_a_body_without_its_crc_is_kept_and_countable() -> None:
    flipped = []
    for segment in segments(Storage.at(str(capture("small_corrupt") / "store"))):
        for records in scan(segment):
            assert isinstance(records, Records)
            batch = decode(records, ["commitlog_offset", "body_crc", "body_crc_computed"])
            flipped += [
                row["commitlog_offset"] for row in batch.to_pylist() if row["body_crc"] != row["body_crc_computed"]
            ]

    assert flipped == [damage_report("small_corrupt")["message"]["physicalOffset"]]


@pytest.mark.parametrize("name", DAMAGED)
def test_recovery_of_damaged_captures_is_what_the_broker_did(name: str) -> None:
    report = damage_report(name)
    answer = recovery(Storage.at(str(capture(name) / "store")))

    for end, real in (
        (answer.end_after_clean_shutdown, report["brokerStartedAfterCleanShutdown"]),
        (answer.end_after_crash, report["brokerStartedAfterCrash"]),
    ):
        assert (answer.refused is None) == real["loads"]
        assert end == real.get("commitLogMaxOffset")


@pytest.mark.parametrize("name", UNDAMAGED)
def test_recovery_of_a_sound_store_loses_nothing(name: str) -> None:
    answer = recovery(Storage.at(str(capture(name) / "store")))
    last = rows(name, "messages")[-1]

    assert answer.refused is None
    assert answer.end_after_clean_shutdown == answer.end_after_crash == last["physicalOffset"] + last["storeSize"]


def test_a_segment_of_another_size_is_refused(tmp_path: Path) -> None:
    (tmp_path / f"{0:020d}").write_bytes(log_of({}).ljust(1000, b"\0"))

    assert recovery(Storage.at(str(tmp_path))).refused is None
    assert "1000 bytes instead of 2000" in str(recovery(Storage.at(str(tmp_path)), segment_size=2000).refused)


@pytest.mark.parametrize(("damaged", "is_noticed"), [(1, False), (2, True)])
def test_a_broker_checks_the_last_ten_segments(tmp_path: Path, damaged: int, is_noticed: bool) -> None:
    """commitLogRecoverMaxNum. Of these twelve, neither a consume queue nor a checkpoint says more."""
    for number in range(12):
        log = record(1000 * number)
        body = b"pair" if number == damaged else b"paid"
        segment = log.replace(b"paid", body) + filler(1000 - len(log))
        (tmp_path / f"{1000 * number:020d}").write_bytes(segment)

    end = 1000 * damaged if is_noticed else 11_000 + len(record(0))
    answer = recovery(Storage.at(str(tmp_path)))
    assert answer.end_after_clean_shutdown == answer.end_after_crash == end


def test_an_unused_last_segment_is_no_reason_to_refuse(tmp_path: Path) -> None:
    log = log_of({}, {})
    (tmp_path / f"{0:020d}").write_bytes(log + filler(1000 - len(log)))
    (tmp_path / f"{1000:020d}").write_bytes(b"")

    assert recovery(Storage.at(str(tmp_path))).end_after_crash == len(log)
    assert [split(segment) for segment in segments(Storage.at(str(tmp_path)))] == [([0, len(log) // 2], []), ([], [])]


def test_fillers_and_zeros_at_the_end_are_no_damage(tmp_path: Path) -> None:
    log = log_of({}, {})
    for end in (b"", b"\0" * 3, b"\0" * 500, b"\0" * (3 << 20), filler(8), filler(300), filler(300)[:50]):
        assert walked(log + end, tmp_path) == ([0, len(log) // 2], [])
    assert walked(b"\0" * 4096, tmp_path) == ([], [])


def test_a_whole_record_that_cannot_be_decoded_is_set_aside_alone(tmp_path: Path) -> None:
    """Two of them in a row: a store host that claims IPv6 over IPv4, as a message sent back by a consumer has."""
    first = record(0)
    claims = record(len(first), sys_flag=0x20)
    again = record(len(first + claims), sys_flag=0x20)
    last = record(len(first + claims + again))
    kept, damage = walked(first + claims + again + last, tmp_path)

    assert kept == [0, len(first + claims + again)]
    assert [(piece.offset, piece.bytes) for piece in damage] == [
        (len(first), claims),
        (len(first + claims), again),
    ]


@pytest.mark.parametrize("unwritten", [0, 500])
def test_a_last_record_that_cannot_be_decoded_ends_where_its_size_says(tmp_path: Path, unwritten: int) -> None:
    """Without properties, it ends with zeros. The next message follows them."""
    first = record(0)
    claims = record(len(first), sys_flag=0x20)
    kept, [piece] = walked(first + claims + bytes(unwritten), tmp_path)

    assert kept == [0]
    assert piece.bytes == claims


def test_a_port_that_java_refuses(tmp_path: Path) -> None:
    first = record(0, port=70000)
    kept, [piece] = walked(first + record(len(first)), tmp_path)

    assert kept == [len(first)]
    assert "port" in piece.reason


@pytest.mark.parametrize("queue_offset", [-1, -(2**63), 2**63 // 20, 2**63 - 1])
def test_a_queue_offset_that_no_consume_queue_has(tmp_path: Path, queue_offset: int) -> None:
    """The header has no checksum. The broker does not look at the queue offset when it recovers its log."""
    first = record(0, queue_offset=queue_offset)
    log = first + record(len(first), queue_offset=2**63 // 20 - 1)
    kept, [piece] = walked(log, tmp_path)

    assert kept == [len(first)]
    assert piece.bytes == first
    assert "queue offset" in piece.reason
    assert recovery(Storage.at(str(tmp_path))).end_after_crash == len(log)


EMPTY = record(0, body=b"")
TWO = len(log_of({}, {}))
LAST_MESSAGES = {
    "a queue offset that no queue has": (log_of({}, {"queue_offset": -1}), TWO),
    "a port that Java refuses": (log_of({}, {"port": 70000}), TWO),
    "lengths that do not add up": (log_of({}, {"sys_flag": 0x20}, {}), len(record(0))),
    "the CRC of an empty body": (EMPTY[:8] + b"\1\2\3\4" + EMPTY[12:], len(EMPTY)),
}


@pytest.mark.parametrize(("log", "end"), LAST_MESSAGES.values(), ids=LAST_MESSAGES)
def test_what_a_broker_notices_of_a_wrong_message_when_it_recovers(tmp_path: Path, log: bytes, end: int) -> None:
    """The rest of a segment is zeros."""
    (tmp_path / f"{0:020d}").write_bytes(log.ljust(1000, b"\0"))

    assert recovery(Storage.at(str(tmp_path))).end_after_crash == end


def test_an_embedded_record_is_not_taken_for_one_of_the_log(tmp_path: Path) -> None:
    broken = b"\x7f" * 40
    carrier = record(40, body=record(0) + record(7))
    kept, [piece] = walked(broken + carrier, tmp_path)

    assert kept == [40]
    assert piece.bytes == broken


def test_an_embedded_record_is_no_message_when_its_carrier_is_damaged(tmp_path: Path) -> None:
    carrier = b"\xff" * 8 + record(0, body=record(0) + record(7))[8:]
    kept, [piece] = walked(carrier + record(len(carrier)), tmp_path)

    assert kept == [len(carrier)]
    assert piece.bytes == carrier


@pytest.mark.parametrize("length", range(FIRST_WINDOW - 8, FIRST_WINDOW + 9))
def test_a_message_is_found_wherever_it_begins_after_damage(tmp_path: Path, length: int) -> None:
    """The log is searched piece by piece: a message may begin in one and go on in the next."""
    kept, [piece] = walked(b"\x7f" * length + record(length), tmp_path)

    assert kept == [length]
    assert len(piece.bytes) == length


def test_filler_after_a_damaged_last_message_is_no_damage(tmp_path: Path) -> None:
    first, broken = record(0), b"\x7f" * 40
    kept, [piece] = walked(first + broken + filler(300), tmp_path)

    assert kept == [0]
    assert piece.bytes == broken


def test_a_file_of_random_bytes_is_all_damage(tmp_path: Path) -> None:
    noise = random.Random(5).randbytes(5 * DAMAGE_BYTES // 2)
    kept, damage = walked(noise, tmp_path, offset=1 << 30)

    assert kept == []
    assert [len(piece.bytes) for piece in damage] == [DAMAGE_BYTES, DAMAGE_BYTES, DAMAGE_BYTES // 2]
    assert b"".join(piece.bytes for piece in damage) == noise
    assert damage[1].offset == (1 << 30) + DAMAGE_BYTES


def test_noise_anywhere_costs_only_the_messages_it_touches(tmp_path: Path) -> None:
    """Random damage to a real segment: the rest is kept, and every byte is a message, damage or filler."""
    [_, segment, *_] = segments(Storage.at(str(capture("small") / "store")))
    sound = (capture("small") / "store" / "commitlog" / segment.path).read_bytes()
    spans = [
        (row["physicalOffset"] - segment.offset, row["storeSize"])
        for row in rows("small", "messages")
        if segment.offset <= row["physicalOffset"] < segment.offset + segment.size and not row.get("blank")
    ]
    rng = random.Random(11)
    for _ in range(150):
        log = bytearray(sound)
        length = rng.choice([1, 4, 100, 3000, 30000])
        start = rng.randrange(spans[-1][0])
        noise = rng.choice([rng.randbytes(length), bytes(length), b"\xff" * length])
        log[start : start + length] = noise
        kept, damage = walked(bytes(log), tmp_path, segment.offset)

        untouched = {at + segment.offset for at, size in spans if at + size <= start or at >= start + length}
        assert untouched <= set(kept)
        sizes = {at + segment.offset: size for at, size in spans}
        pieces = sorted([(at, sizes[at]) for at in kept] + [(piece.offset, len(piece.bytes)) for piece in damage])
        assert all(at + size == after for (at, size), (after, _) in pairwise(pieces))
        for piece in damage:
            begin = piece.offset - segment.offset
            assert piece.bytes == log[begin : begin + len(piece.bytes)]


def test_a_log_that_is_being_written_gives_what_is_whole(tmp_path: Path) -> None:
    """However much of the next record has reached the file, the messages before it are kept and nothing fails.

    (With all but its properties there, and zeros after, a record is whole to the broker too.)
    """
    log = log_of({}, {})
    properties = b"TAGS\x01paid\x02"
    after = record(len(log), properties=properties)
    for written in range(len(after) - len(properties)):
        for tail in (b"", bytes(600)):
            kept, damage = walked(log + after[:written] + tail, tmp_path)
            assert kept == [0, len(log) // 2]
            assert sum(len(piece.bytes) for piece in damage) <= len(after)


def test_what_is_appended_after_planning_is_not_read(tmp_path: Path) -> None:
    log = log_of({}, {})
    file = tmp_path / f"{0:020d}"
    file.write_bytes(log)
    [planned] = segments(Storage.at(str(tmp_path)))
    file.write_bytes(log + record(len(log)))

    assert split(planned) == ([0, len(log) // 2], [])


def test_paths_without_a_commit_log(tmp_path: Path) -> None:
    with pytest.raises(CommitLogError, match="does not exist; give a broker's store folder"):
        segments(Storage.at(str(tmp_path / "nowhere")))
    with pytest.raises(CommitLogError, match="holds no commit log segment"):
        segments(Storage.at(str(tmp_path)))
    (tmp_path / "notes.txt").write_text("not a segment")
    with pytest.raises(CommitLogError, match="holds no commit log segment"):
        segments(Storage.at(str(tmp_path)))
    with pytest.raises(CommitLogError, match="is a file"):
        segments(Storage.at(str(tmp_path / "notes.txt")))


def test_a_store_and_its_commitlog_folder_are_the_same() -> None:
    store = Storage.at(str(capture("small") / "store"))

    assert segments(store) == segments(store.child("commitlog"))
    assert [segment.offset for segment in segments(store)] == [131072 * index for index in range(6)]


@pytest.mark.parametrize("behind", [0, 400])
def test_a_size_that_leads_behind_the_data_costs_one_message(tmp_path: Path, behind: int) -> None:
    """A damaged size may point to the end of the file, or to the zeros there, where a record might end as well."""
    log = log_of(*[{}] * 5)
    size = len(log) // 5
    claimed = (len(log) + behind - size).to_bytes(4, "big")
    kept, damage = walked(log[:size] + claimed + log[size + 4 :] + bytes(2 * behind), tmp_path)

    assert kept == [0, 2 * size, 3 * size, 4 * size]
    assert [(piece.offset, len(piece.bytes)) for piece in damage] == [(size, size)]


@pytest.mark.parametrize(
    ("flushed_time", "flushed_offset", "is_noticed"),
    [(1999, 0, True), (2000, 0, False), (0, 999, True), (0, 1000, False), (2000, 999, True), (1999, 1000, False)],
)
def test_after_a_crash_the_checkpoint_says_where_the_broker_begins(
    tmp_path: Path, flushed_time: int, flushed_offset: int, is_noticed: bool
) -> None:
    """The second of two segments begins at 1000, stored at 2000 ms; the body in the first one is damaged.

    The time counts only without the offset (ConsumeQueueStore.isMappedFileMatchedRecover, StoreCheckpoint).
    """
    for number, body in enumerate([b"pair", b"paid"]):
        log = record(1000 * number, store_timestamp=1000 * (number + 1))
        segment = log.replace(b"paid", body) + filler(1000 - len(log))
        (tmp_path / f"{1000 * number:020d}").write_bytes(segment)
    (tmp_path / "checkpoint").write_bytes(struct.pack(">6q", 9999, flushed_time, 0, 0, 0, flushed_offset))

    assert recovery(Storage.at(str(tmp_path))).end_after_crash == (0 if is_noticed else 1000 + len(record(1000)))


@pytest.mark.parametrize("damaged", [b"\xda\xa3", b"paid"])
def test_a_broker_does_not_begin_at_a_segment_whose_first_message_is_damaged(tmp_path: Path, damaged: bytes) -> None:
    """Its magic code, or its body. The checkpoint has reached it (CommitLog.isMappedFileMatchedRecover)."""
    for number, wrong in enumerate([b"paid", damaged]):
        log = record(1000 * number).replace(wrong, b"pair"[: len(wrong)])
        (tmp_path / f"{1000 * number:020d}").write_bytes(log + filler(1000 - len(log)))
    (tmp_path / "checkpoint").write_bytes(struct.pack(">6q", 0, 0, 0, 0, 0, 2000))

    assert recovery(Storage.at(str(tmp_path))).end_after_crash == 0


def test_a_log_whose_only_segment_was_not_used(tmp_path: Path) -> None:
    (tmp_path / f"{0:020d}").write_bytes(b"")

    assert recovery(Storage.at(str(tmp_path))) == Recovery(None, 0, 0)


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (filler(40), BytesKind.INCONSISTENT),
        (bytes(64), BytesKind.ZEROS),
        (b"\x7f" * 40, BytesKind.ILLEGAL_MAGIC),
        (b"\x7f" * 4 + bytes(60), BytesKind.ILLEGAL_MAGIC),
        (bytes(4) + b"\x7f" * 60, BytesKind.ILLEGAL_MAGIC),
        ((LONGEST + 1).to_bytes(4, "big") + record(0)[4:], BytesKind.INCOMPLETE),
    ],
)
def test_what_lies_between_two_messages_is_damage_with_its_reason(
    tmp_path: Path, broken: bytes, reason: BytesKind
) -> None:
    """Filler that does not fill the file, too: a broker writes it only at the end."""
    first = record(0)
    kept, [piece] = walked(first + broken + record(len(first + broken)), tmp_path)

    assert kept == [0, len(first + broken)]
    assert (piece.bytes, piece.reason) == (broken, REASONS[reason])


def test_bytes_too_few_for_a_record_end_the_file(tmp_path: Path) -> None:
    first = record(0)
    kept, [piece] = walked(first + b"\1\2\3", tmp_path)

    assert (kept, piece.bytes, piece.reason) == ([0], b"\1\2\3", REASONS[BytesKind.INCOMPLETE])
