"""Copies of a store in which the rest of an earlier segment is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from filtering.time_spans import DAY
from tests.broker_log import BrokerLog
from tests.nights.commands import Ended, rows_of
from tests.nights.growing_broker import BEFORE, GrowingBroker, event

SEGMENT = 1 << 11
EVENTS = [event(BEFORE, "register", "cg", expression="*", consume_from="first")]
MISSING = "the rest of this one is missing"


@pytest.fixture
def small_segments(broker: GrowingBroker) -> GrowingBroker:
    broker.log = BrokerLog(segment=SEGMENT)
    return broker


@pytest.fixture
def sixty(small_segments: GrowingBroker) -> GrowingBroker:
    """A broker with 60 messages in several small segments."""
    small_segments.log.append(50)
    small_segments.grow()
    return small_segments


def segment(broker: GrowingBroker, number: int) -> Path:
    return broker.folder / "store" / "commitlog" / f"{number * SEGMENT:020}"


def night(broker: GrowingBroker) -> Ended:
    return broker.night(EVENTS)


def has_all(broker: GrowingBroker, count: int = 60) -> bool:
    """Whether nothing is in quarantine, the group received every message once, and the audits pass."""
    assert list(rows_of(broker.folder / "w", "quarantine")) == []
    assert broker.received("cg") == list(range(count))
    return broker.passes_audits()


@pytest.mark.parametrize(("later", "counts"), [(40 * DAY, True), (3650 * DAY, False)], ids=["idle", "damaged"])
def test_a_copy_of_the_log_alone_was_taken_at_its_last_store_time(
    broker: GrowingBroker, later: int, counts: bool
) -> None:
    """A broker may be idle for weeks. The time of a damaged record may be ten years too late."""
    before = broker.log.messages[-1].stored_at
    broker.log.time = before + later
    broker.log.append().write(broker.folder / "store")
    night(broker)
    last = broker.log.messages[-1].stored_at if counts else before
    assert [row["as_of"] for row in rows_of(broker.folder / "w", "run_ledger")] == [last]


def test_a_time_that_later_messages_contradict_is_damage(broker: GrowingBroker) -> None:
    before = broker.log.time
    broker.log.time = before + 40 * DAY
    broker.log.append()
    broker.log.time = before
    broker.log.append(2).write(broker.folder / "store")
    night(broker)
    assert [row["as_of"] for row in rows_of(broker.folder / "w", "run_ledger")] == [broker.log.messages[-1].stored_at]


@pytest.mark.parametrize("rest", ["missing", "empty", "zeros", "short"])
def test_the_rest_of_a_segment_is_read_when_it_is_there(sixty: GrowingBroker, rest: str) -> None:
    file = segment(sixty, 1)
    whole = file.read_bytes()
    if rest == "missing":
        file.unlink()
    else:
        file.write_bytes({"empty": b"", "zeros": whole[:900].ljust(SEGMENT, b"\0"), "short": whole[:900]}[rest])
    code, out, _ = night(sixty)
    assert (code, MISSING in out, "There was nothing new" in night(sixty).out) == (0, True, True)
    assert len(sixty.received("cg")) < 60
    file.write_bytes(whole)
    assert "1 damaged place of the log was repaired" in night(sixty).out
    assert "quarantined" not in night(sixty).out
    assert has_all(sixty)


@pytest.mark.parametrize("intact", [0, 1, 2])
def test_damage_around_the_missing_rest_of_a_segment(sixty: GrowingBroker, intact: int) -> None:
    """Segment 1 is cut ``intact`` messages after a damaged one, and segment 2 begins with a damaged one."""
    offsets = [int.from_bytes(entry[:8]) for entry in sixty.log.queues["T", 0]]
    files = [segment(sixty, number) for number in (1, 2)]
    whole = [file.read_bytes() for file in files]
    in_segment_1 = [offset - SEGMENT for offset in offsets if SEGMENT <= offset < 2 * SEGMENT]
    files[0].write_bytes(scratched(whole[0], in_segment_1[2])[: in_segment_1[3 + intact]])
    files[1].write_bytes(scratched(whole[1], 0))
    for expected in (MISSING, "There was nothing new"):
        assert expected in night(sixty).out
    assert len(sixty.received("cg")) < 60
    for file, content in zip(files, whole, strict=True):
        file.write_bytes(content)
    night(sixty)
    assert has_all(sixty)


def test_the_missing_rest_of_a_segment_is_read_although_damage_before_it_stays(sixty: GrowingBroker) -> None:
    offsets = [int.from_bytes(entry[:8]) for entry in sixty.log.queues["T", 0]]
    lost = next(number for number, offset in enumerate(offsets) if offset >= SEGMENT) + 2
    file = segment(sixty, 1)
    damaged = scratched(file.read_bytes(), offsets[lost] - SEGMENT)
    file.write_bytes(damaged[: offsets[lost + 1] - SEGMENT])
    assert MISSING in night(sixty).out
    file.write_bytes(damaged)
    night(sixty)
    assert sixty.received("cg") == [number for number in range(60) if number != lost]
    assert len(list(rows_of(sixty.folder / "w", "quarantine"))) == 1
    assert sixty.passes_audits()


def scratched(data: bytes, at: int) -> bytes:
    """The same bytes, of which a record that begins at ``at`` has lost its magic code."""
    return data[: at + 4] + bytes(4) + data[at + 8 :]


def test_a_segment_of_which_only_the_zeros_at_its_end_are_missing(sixty: GrowingBroker) -> None:
    """Its filler says how far it goes: no message is missing."""
    file = segment(sixty, 1)
    whole = file.read_bytes()
    file.write_bytes(whole.rstrip(b"\0") + b"\0")
    _, out, _ = night(sixty)
    assert ("quarantined" in out, sixty.received("cg")) == (False, list(range(60)))
    file.write_bytes(whole)
    assert "There was nothing new" in night(sixty).out


@pytest.mark.parametrize(("at", "removed"), [(4, 1), (300, 150)])
def test_a_segment_from_whose_middle_bytes_are_missing(sixty: GrowingBroker, at: int, removed: int) -> None:
    """The filler then lies too early, and a whole copy has other messages in its place."""
    file = segment(sixty, 1)
    whole = file.read_bytes()
    file.write_bytes(whole[:at] + whole[at + removed :])
    for expected in (MISSING, "There was nothing new"):
        assert expected in night(sixty).out
    file.write_bytes(whole)
    night(sixty)
    assert has_all(sixty)


def test_the_first_segment_is_missing_in_the_first_night(sixty: GrowingBroker) -> None:
    """What groups received of it is not known: the first night told what they received of the rest."""
    first = segment(sixty, 0).read_bytes()
    segment(sixty, 0).unlink()
    assert "begins earlier" not in night(sixty).out
    received = sixty.received("cg")
    segment(sixty, 0).write_bytes(first)
    sixty.log.append(10)
    sixty.grow()
    out = night(sixty).out
    assert f"the log begins earlier than in all nights before (at offset 0, not {SEGMENT:,})" in out
    assert min(sixty.received("cg")) == min(received)
    sixty.log.append(10)
    sixty.grow()
    assert "begins earlier" not in night(sixty).out
    assert sixty.passes_audits()


def test_a_full_segment_of_which_the_copy_is_from_the_night_before(small_segments: GrowingBroker) -> None:
    """A broker preallocates its segments, so a copy by size and time may take one for unchanged."""
    broker = small_segments
    broker.grow()
    old = segment(broker, 0).read_bytes()
    night(broker)
    broker.log.append(20)
    broker.grow()
    new = segment(broker, 0).read_bytes()
    segment(broker, 0).write_bytes(old)
    assert MISSING in night(broker).out
    segment(broker, 0).write_bytes(new)
    night(broker)
    assert broker.received("cg") == list(range(40))


@pytest.mark.parametrize("back", [(1, 2, 3), (2, 3, 1), (3, 1, 2)])
def test_adjacent_segments_that_are_missing_are_read_when_they_are_there(
    small_segments: GrowingBroker, back: tuple[int, ...]
) -> None:
    broker = small_segments
    broker.log.append(90)
    broker.grow()
    whole = {number: segment(broker, number).read_bytes() for number in back}
    for number in back:
        segment(broker, number).unlink()
    assert MISSING in night(broker).out
    for number in back:
        segment(broker, number).write_bytes(whole[number])
        assert "1 damaged place of the log was repaired" in night(broker).out
    assert "There was nothing new" in night(broker).out
    assert has_all(broker, 100)


def test_the_segment_where_the_last_night_ended_is_missing(small_segments: GrowingBroker) -> None:
    """No broker cuts its log there: a later segment has messages. What the first night stored stays."""
    broker = small_segments
    broker.log.append(20)
    broker.grow()
    night(broker)
    last = max((broker.folder / "store" / "commitlog").iterdir())
    changed = event(broker.log.time - 500, "register", "cg", expression="none", sub_version=broker.log.time)
    broker.log.append(50)
    broker.log.write(broker.folder / "store")
    whole = last.read_bytes()
    for damaged in (None, bytes(SEGMENT)):
        last.unlink() if damaged is None else last.write_bytes(damaged)
        out = broker.night([*EVENTS, changed]).out
        assert (MISSING in out, "the log differs" in out) == (True, False)
        assert broker.received("cg") == list(range(30))
    last.write_bytes(whole)
    broker.night([*EVENTS, changed])
    assert broker.received("cg") == list(range(30))
    assert sorted(row["queue_offset"] for row in rows_of(broker.folder / "w", "commitlog")) == list(range(80))
    assert broker.passes_audits()


@pytest.mark.parametrize("name", ["00000000000000000001", "00000000009999999999"])
@pytest.mark.parametrize("content", [b"", b"x" * 5_000])
def test_a_file_that_is_no_segment_of_the_log(small_segments: GrowingBroker, name: str, content: bytes) -> None:
    broker = small_segments
    broker.grow()
    wrong = broker.folder / "store" / "commitlog" / name
    wrong.write_bytes(content)
    assert night(broker).code == 0
    assert night(broker).code == 0
    broker.log.append(20)
    for _ in range(3):
        broker.grow()  # without the wrong file
        night(broker)
    assert broker.received("cg") == list(range(60))
    assert sorted(row["queue_offset"] for row in rows_of(broker.folder / "w", "commitlog")) == list(range(60))


def test_a_half_written_message_stays_in_quarantine_while_the_log_does_not_grow(broker: GrowingBroker) -> None:
    """Nights that have something else to do do not read it again."""
    broker.log.data = broker.log.data[:-40]
    broker.log.write(broker.folder / "store")
    night(broker)
    quarantine = list(rows_of(broker.folder / "w", "quarantine"))
    assert len(quarantine) == 1
    broker.commit(broker.log.time, cg=3)
    assert "There was nothing new" not in night(broker).out
    assert list(rows_of(broker.folder / "w", "quarantine")) == quarantine
