"""The lock of a warehouse in an object store. Its files are in a folder here: the store needs the same of both."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path

import pytest
from deltalake.exceptions import DeltaError

from schemas.delta.warehouse import Lease, leased, utc_now
from schemas.errors import WarehouseBusy
from schemas.storage import Storage


@pytest.fixture
def lock(tmp_path: Path) -> Storage:
    (tmp_path / ".lock").mkdir()
    return Storage(str(tmp_path / ".lock"))


def after(minutes: float) -> Callable[[], datetime]:
    """A clock that is ahead."""
    return lambda: utc_now() + timedelta(minutes=minutes)


def take(lock: Storage, minutes: float) -> Lease | str:
    """A lease, or the refusal."""
    try:
        return Lease.take(lock, "s3://bucket/tables", after(minutes))
    except WarehouseBusy as error:
        return str(error)


def test_a_run_that_was_killed_is_in_the_way_for_ten_minutes(lock: Storage) -> None:
    """Then one of the runs that wait takes over."""
    killed = Lease.take(lock, "s3://bucket/tables")
    refusal = take(lock, 9)
    assert isinstance(refusal, str)
    assert refusal.startswith("another run is writing to s3://bucket/tables (")
    assert f"process {os.getpid()}, since " in refusal
    assert refusal.endswith(" UTC on")
    with ThreadPoolExecutor(8) as threads:
        taken = list(threads.map(lambda _: take(lock, 11), range(8)))
    [held] = [lease for lease in taken if isinstance(lease, Lease)]
    assert (killed.is_held(), held.is_held()) == (False, True)


def test_a_run_that_works_keeps_its_lease(lock: Storage) -> None:
    lease = Lease.take(lock, "s3://bucket/tables")
    for minutes in (9, 18):
        assert lease.renew(after(minutes))
        assert isinstance(take(lock, minutes + 9), str)
    assert isinstance(take(lock, 29), Lease)
    assert not lease.renew(after(29))


def test_a_run_that_lost_its_lease_leaves_the_other_ones(lock: Storage) -> None:
    lost = Lease.take(lock, "s3://bucket/tables")
    lost.renew()
    other = take(lock, 11)
    assert isinstance(other, Lease)
    lost.release()
    assert other.is_held()
    assert other.renew(after(11))
    other.release()
    assert lock.files(recursive=True) == []


@pytest.fixture(params=[signal.default_int_handler, signal.SIG_IGN], ids=["foreground", "background"])
def sigint(request: pytest.FixtureRequest) -> Iterator[object]:
    """A shell that runs a script starts background commands with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, request.param)
    yield request.param
    signal.signal(signal.SIGINT, before)


def test_a_run_that_lost_its_lease_ends(lock: Storage, sigint: object) -> None:
    """A machine that was suspended wakes up, and another run works on its tables."""

    def night() -> None:
        with leased(lock, "s3://bucket/tables", renewed_every=timedelta(milliseconds=200)):
            assert isinstance(take(lock, 11), Lease)
            threading.Event().wait(20)

    with pytest.raises(WarehouseBusy, match=r"^another run took over s3://bucket/tables, since "):
        night()
    assert isinstance(take(lock, 0), str)
    assert signal.getsignal(signal.SIGINT) is sigint


def test_ctrl_c_does_not_end_a_run_in_the_background(lock: Storage) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with leased(lock, "s3://bucket/tables"):
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
    assert lock.files(recursive=True) == []


def test_it_is_renewed_while_the_run_works(lock: Storage) -> None:
    an_hour_later, written, checked = threading.Event(), threading.Event(), threading.Event()
    renewals = count(1)

    def clock() -> datetime:
        if not an_hour_later.is_set():
            return utc_now()
        if next(renewals) == 2:  # The first is written, and a file in a folder is not written at once.
            written.set()
            checked.wait(20)
        return after(60)()

    with leased(lock, "s3://bucket/tables", clock, renewed_every=timedelta(milliseconds=5)):
        an_hour_later.set()
        assert written.wait(20)
        assert isinstance(take(lock, 65), str)
        checked.set()
    assert lock.files(recursive=True) == []


def test_a_store_that_cannot_be_read_for_a_while_does_not_end_a_run(lock: Storage) -> None:
    rounds = threading.Semaphore(0)

    class Counted(timedelta):
        def total_seconds(self) -> float:
            rounds.release()
            return super().total_seconds()

    def wait_for_rounds(count: int) -> None:
        while rounds.acquire(blocking=False):
            pass
        for _ in range(count):
            assert rounds.acquire(timeout=20)

    first = "_delta_log/00000000000000000000.json"
    with leased(lock, "s3://bucket/tables", renewed_every=Counted(milliseconds=5)):
        content = lock.read(first)
        assert content is not None
        lock.write(first, b"an error page")
        wait_for_rounds(3)
        with pytest.raises(DeltaError):
            Lease(lock, "", 0).renew()
        lock.write(first, content)
        wait_for_rounds(3)
        assert lock.read("renewed-0") is not None
        lock.write(first, b"an error page")
