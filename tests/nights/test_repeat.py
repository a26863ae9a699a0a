"""Nights that are repeated after the log was cut, or replaced by a new epoch: every night filters what it did then."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from filtering.time_spans import DAY
from jobs import audit, deliver, dispatch, ingest, maintain, nightly, register
from tests.broker_log import BROKER_CONF, SEGMENT, BrokerLog
from tests.nights.commands import Ended, Run, contents, differing, night, rows_of
from tests.nights.growing_broker import BEFORE, GrowingBroker, event, sql

EVENTS = """\
{"at": 1, "op": "register", "group": "cg_all", "topic": "T", "expression": "*", "consume_from": "first"}
{"at": 1, "op": "register", "group": "cg_odd", "topic": "T", "type": "SQL92", "expression": "n IN ('1', '9', '13')"}
"""
REPEATED = (
    "commitlog", "consumequeue", "deliveries", "delivery_stats", "consumer_offsets", "queue_progress", "subscriptions",
)  # fmt: skip
"""Tables that are the same after a redo, with the names of runs. The last run is in current_offsets."""
OTHER_EPOCH = 1_795_500_000_000


class Nights:
    """Nights of one broker into the warehouse ``w``."""

    def __init__(self, run: Run, folder: Path) -> None:
        self._run = run
        self.folder = folder
        self.warehouse = folder / "w"
        (folder / "events.jsonl").write_text(EVENTS)
        (folder / "broker.conf").write_text(BROKER_CONF)

    def read(self, log: BrokerLog, *more: object) -> Ended:
        """A night on a log."""
        log.write(self.folder / "store")
        return self.again(*more)

    def again(self, *more: object) -> Ended:
        """A night on the last log."""
        given = self.folder / "store", self.folder / "events.jsonl", self.folder / "broker.conf"
        return self._run(nightly, *night(self.warehouse, *given, *more))

    def rebuild(self) -> Ended:
        return self._run(maintain, "--rebuild", "--warehouse", self.warehouse)

    def audit(self) -> Ended:
        return self._run(audit, "--all", "--warehouse", self.warehouse)

    def tables(self) -> dict[str, Counter[str]]:
        return contents(self.warehouse, names=REPEATED)

    def runs(self) -> list[str]:
        return sorted(row["run"] for row in rows_of(self.warehouse, "run_ledger", "run"))

    def delivered_in(self) -> dict[int, str]:
        """The night of each delivery to cg_all, by queue offset."""
        rows = rows_of(self.warehouse, "deliveries")
        return {row["queue_offset"]: row["run"] for row in rows if row["consumer_group"] == "cg_all"}


def cut_log(nights: Nights) -> None:
    """Four nights: the second one reads messages 6 to 19, of which the third one finds those from 9 on cut."""
    first = BrokerLog().append(6)
    nights.read(first)
    nights.read(first.append(14, tag="old"))
    recovered = BrokerLog().append(6).append(3, tag="old")
    recovered.time += 1
    nights.read(recovered.append(4, tag="new"))
    nights.read(recovered.append(4, tag="new"))


def new_epoch(nights: Nights) -> None:
    """Two nights of a log, and two of the log after the broker was wiped."""
    log = BrokerLog().append(6)
    nights.read(log)
    nights.read(log.append(6))
    other = BrokerLog(first_time=OTHER_EPOCH).append(4)
    nights.read(other, "--new-epoch")
    nights.read(other.append(4))


def new_epoch_and_cut(nights: Nights) -> None:
    new_epoch(nights)
    recovered = BrokerLog(first_time=OTHER_EPOCH).append(5)
    recovered.time += 1
    nights.read(recovered.append(2, tag="new"))
    nights.read(recovered.append(2, tag="new"))


@pytest.fixture(params=[cut_log, new_epoch, new_epoch_and_cut], ids=lambda each: each.__name__)
def nights(run: Run, tmp_path: Path, request: pytest.FixtureRequest) -> Nights:
    nights = Nights(run, tmp_path)
    request.param(nights)
    return nights


def test_a_redo_of_all_nights_changes_nothing(nights: Nights) -> None:
    before, runs = nights.tables(), nights.runs()
    ended = nights.again("--redo-from", 0)
    assert (ended.code, ended.error.count("mqsieve")) == (0, 0)
    assert differing(nights.tables(), before) == []
    assert nights.runs()[:-1] == runs
    assert nights.audit().code == 0


@pytest.mark.parametrize("index", [1, 2, 3])
def test_a_redo_from_a_later_night_changes_nothing(nights: Nights, index: int) -> None:
    before = nights.tables()
    since = sorted(row["as_of"] for row in rows_of(nights.warehouse, "run_ledger", "run", "as_of"))[index]
    assert nights.again("--redo-from", since).code == 0
    assert differing(nights.tables(), before) == []


@pytest.mark.parametrize("table", ["delivery_blocks", "queue_progress", "subscriptions"])
def test_a_rebuild_gives_the_same_tables(nights: Nights, table: str) -> None:
    before = contents(nights.warehouse)
    shutil.rmtree(nights.warehouse / table)
    ended = nights.rebuild()
    assert (ended.code, ended.error) == (0, "")
    assert differing(contents(nights.warehouse), before) == []
    assert "There was nothing new" in nights.again().out
    assert nights.audit().code == 0


def test_a_second_cut_leaves_the_nights_before_it(run: Run, tmp_path: Path) -> None:
    """It lies before the end of a night that the first cut replaced, and after nights that followed the first cut."""
    nights = Nights(run, tmp_path)
    cut_log(nights)
    before = nights.delivered_in()
    recovered = BrokerLog().append(6).append(3, tag="old")
    recovered.time += 1
    recovered.append(4, tag="new")
    nights.read(recovered.append(2, tag="new").append(3, tag="newest"))
    after = nights.delivered_in()
    assert sorted(after) == list(range(18))
    assert {offset: after[offset] for offset in range(13)} == {offset: before[offset] for offset in range(13)}
    tables = nights.tables()
    assert nights.again("--redo-from", 0).code == 0
    assert differing(nights.tables(), tables) == []


@pytest.mark.parametrize("kept", [4, 8])
def test_a_log_that_got_shorter_and_grows_again(run: Run, tmp_path: Path, kept: int) -> None:
    """The cut lies in the first or in the second of two nights, and the night that finds it reads nothing new."""
    nights = Nights(run, tmp_path)
    log = BrokerLog().append(6)
    nights.read(log)
    nights.read(log.append(6))
    shorter = BrokerLog().append(kept)
    assert nights.read(shorter).code == 0
    assert "There was nothing new" in nights.again().out
    shorter.time += 1
    assert nights.read(shorter.append(2, tag="new")).code == 0
    for table in ("commitlog", "consumequeue"):
        assert sorted(row["queue_offset"] for row in rows_of(nights.warehouse, table)) == list(range(kept + 2))
    before = nights.tables()
    assert nights.again("--redo-from", 0).code == 0
    assert differing(nights.tables(), before) == []


def test_a_redo_in_the_night_that_finds_the_cut(run: Run, tmp_path: Path) -> None:
    for folder in ("redone", "undisturbed"):
        (tmp_path / folder).mkdir()
    redone, undisturbed = Nights(run, tmp_path / "redone"), Nights(run, tmp_path / "undisturbed")
    after = BrokerLog().append(6).append(3, tag="old")
    after.time += 1
    after.append(4, tag="new")
    for nights, more in ((redone, ("--redo-from", 0)), (undisturbed, ())):
        nights.read(BrokerLog().append(6))
        nights.read(BrokerLog().append(6).append(14, tag="old"))
        assert nights.read(after, *more).code == 0
    runs = frozenset({"run"})
    assert differing(contents(redone.warehouse, runs), contents(undisturbed.warehouse, runs)) == []


def test_a_redo_after_steps_of_which_the_last_is_missing(run: Run, tmp_path: Path) -> None:
    """Messages that have entries and are not filtered yet are filtered once."""
    nights = Nights(run, tmp_path)
    store = BrokerLog().append(6).write(tmp_path / "store")
    warehouse = ("--warehouse", nights.warehouse)
    config = ("--broker-config", tmp_path / "broker.conf")
    run(register, *warehouse, *config, "--subscriptions", tmp_path / "events.jsonl")
    run(ingest, *warehouse, *config, "--store", store)
    run(dispatch, *warehouse)
    assert nights.again("--redo-from", 0).code == 0
    rows = list(rows_of(nights.warehouse, "deliveries"))
    assert sorted(row["queue_offset"] for row in rows if row["consumer_group"] == "cg_all") == list(range(6))
    assert "There was nothing new" in run(deliver, *warehouse).out
    assert nights.audit().code == 0


def test_a_redo_keeps_the_switches_of_each_night(broker: GrowingBroker) -> None:
    """The property filter was switched off after the first night. A late event of another group repeats that night."""
    lines = [sql(BEFORE, "cg", "n IS NOT NULL")]
    broker.night(lines)
    (broker.folder / "broker.conf").write_text("brokerName=b\nenablePropertyFilter=false\n")
    broker.grow()
    end = BrokerLog().append(10).time - 1000
    assert broker.night(lines, "--redo-from", end + 1).code == 0
    lines.append(event(BEFORE + 10, "register", "other", expression="*", consume_from="first"))
    assert broker.night(lines, "--redo-from", BEFORE).code == 0
    assert broker.received("cg") == list(range(10))
    assert broker.received("other") == list(range(20))
    assert broker.passes_audits()
    shutil.rmtree(broker.folder / "w" / "delivery_blocks")
    assert broker.run(maintain, "--rebuild", "--warehouse", broker.folder / "w").code == 0
    assert broker.received("cg") == list(range(10))


def test_a_redo_of_a_night_without_deliveries_passes_audits(broker: GrowingBroker) -> None:
    broker.night([sql(BEFORE, "cg", "n = 'none'")])
    assert broker.passes_audits()
    broker.night([sql(BEFORE, "cg", "n IS NOT NULL")], "--redo-from", 0)
    assert broker.failed_audits() == []


def test_old_nights_that_a_cut_divides_are_kept_whole(run: Run, tmp_path: Path) -> None:
    """The third night made entries of messages that the second one had stored."""
    nights = Nights(run, tmp_path)

    def grown(log: BrokerLog, size: int) -> BrokerLog:
        while len(log.data) < size:
            log.append(body=b"b" * 1000)
        return log

    nights.read(grown(BrokerLog(), SEGMENT // 2))
    nights.read(grown(BrokerLog(), 2 * SEGMENT))
    log = grown(BrokerLog(), SEGMENT)
    log.time += 10 * DAY
    nights.read(grown(log, 3 * SEGMENT // 2))
    log.time += DAY
    nights.read(grown(log, 4 * SEGMENT - 2000))
    log.append(1)
    log.write(tmp_path / "store", start=3 * SEGMENT)
    assert nights.again().code == 0
    for days in (5, 0):
        assert run(maintain, "--keep-days", days, "--warehouse", nights.warehouse).code == 0
        messages, entries = (
            {row["commitlog_offset"] for row in rows_of(nights.warehouse, table, "commitlog_offset")}
            for table in ("commitlog", "consumequeue")
        )
        assert messages == entries
        assert nights.audit().code == 0


def test_nights_of_a_new_epoch_can_be_repeated_after_old_nights_were_removed(run: Run, tmp_path: Path) -> None:
    nights = Nights(run, tmp_path)
    new_epoch(nights)
    assert run(maintain, "--keep-days", 0, "--warehouse", nights.warehouse).code == 0
    before = nights.tables()
    assert nights.again("--redo-from", 0).code == 0
    assert differing(nights.tables(), before) == []


def test_a_night_of_messages_that_each_have_their_own_topic(broker: GrowingBroker) -> None:
    """So many distinct texts are stored without a dictionary; a redo, backlogs and answers read them as one."""
    broker.log = BrokerLog(segment=1 << 20)
    for number in range(1_100):
        name: dict[str, Any] = {f"name_{number}": "x"}
        broker.log.append(topic=f"%RETRY%cg_{number}", **name)
    events = [sql(BEFORE, "cg", "n IS NOT NULL")]
    for _ in range(2):
        broker.grow()
        assert broker.night(events).code == 0
    received = broker.received("cg")
    assert broker.night(events, "--redo-from", 0).code == 0
    assert broker.received("cg") == received
    assert broker.passes_audits()
