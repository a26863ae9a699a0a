"""Records with a wrong queue offset in their header, which has no checksum."""

from __future__ import annotations

import struct

import pytest

from jobs import pulls
from tests.nights.commands import rows_of
from tests.nights.growing_broker import BEFORE, GrowingBroker, sql

QUEUE_OFFSET = 20
"""Bytes from the start of a record to its queue offset."""
EVERY = [sql(BEFORE, "g", "n IS NOT NULL")]


def change(broker: GrowingBroker, number: int, queue_offset: int) -> bytes:
    """Changes the queue offset of a message in the store. Returns the record."""
    file = broker.folder / "store" / "commitlog" / f"{0:020d}"
    starts = [int.from_bytes(entry[:8], "big") for entry in broker.log.queues["T", 0]]
    log = bytearray(file.read_bytes())
    struct.pack_into(">q", log, starts[number] + QUEUE_OFFSET, queue_offset)
    file.write_bytes(log)
    return bytes(log[starts[number] : starts[number + 1]])


@pytest.mark.parametrize("queue_offset", [2**63 - 1, -(2**63), -1])
def test_an_offset_that_no_queue_has_is_quarantined(broker: GrowingBroker, queue_offset: int) -> None:
    damaged = change(broker, 3, queue_offset)
    ended = broker.night(EVERY)
    assert ended.code == 0, ended.error
    assert broker.received("g") == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    [row] = rows_of(broker.folder / "w", "quarantine")
    assert row["bytes"] == damaged
    assert row["reason"] == "the queue offset is not between 0 and 461168601842738789"


def test_pulls_refuses_a_queue_of_which_most_is_missing(broker: GrowingBroker) -> None:
    change(broker, 3, 2**40)
    assert broker.night(EVERY).code == 0
    ended = broker.run(pulls, "--group", "g", "--topic", "T", "--warehouse", broker.folder / "w")
    assert (ended.code, ended.out) == (2, "")
    assert ended.error == (
        "mqsieve: T/0 cannot be simulated: its queue offsets reach from 0 to 1,099,511,627,776, and only 10 of these "
        "messages are stored\n"
    )
