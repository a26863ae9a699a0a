"""Copies of a store in which the rest of an earlier segment is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.broker_log import BrokerLog
from tests.nights.commands import Ended
from tests.nights.growing_broker import BEFORE, GrowingBroker, event

SEGMENT = 1 << 11
EVENTS = [event(BEFORE, "register", "cg", expression="*", consume_from="first")]
MISSING = "the rest of this one is missing"


@pytest.fixture
def small_segments(broker: GrowingBroker) -> GrowingBroker:
    broker.log = BrokerLog(segment=SEGMENT)
    return broker


def segment(broker: GrowingBroker, number: int) -> Path:
    return broker.folder / "store" / "commitlog" / f"{number * SEGMENT:020}"


def night(broker: GrowingBroker, warehouse: str = "w") -> Ended:
    return broker.night(EVENTS, warehouse=warehouse)


@pytest.mark.parametrize("rest", ["missing", "empty", "zeros", "short"])
def test_the_rest_of_a_segment_is_read_when_it_is_there(small_segments: GrowingBroker, rest: str) -> None:
    broker = small_segments
    broker.log.append(50)
    broker.grow()
    file = segment(broker, 1)
    whole = file.read_bytes()
    if rest == "missing":
        file.unlink()
    else:
        file.write_bytes({"empty": b"", "zeros": whole[:900].ljust(SEGMENT, b"\0"), "short": whole[:900]}[rest])
    code, out, _ = night(broker)
    assert (code, MISSING in out, "There was nothing new" in night(broker).out) == (0, True, True)
    assert len(broker.received("cg")) < 60
    file.write_bytes(whole)
    assert "1 damaged place of the log was repaired" in night(broker).out
    assert "quarantined" not in night(broker).out
    assert broker.received("cg") == list(range(60))
    assert broker.passes_audits()


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
