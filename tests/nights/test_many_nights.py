"""After many nights, tables have few files and all rows, and a night costs what it cost in the beginning."""

from __future__ import annotations

import gc
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs import audit, nightly
from jobs.night.commit import FILES_IN_A_TIER, Changes, compact
from schemas.deliveries import DELIVERY_BLOCKS
from schemas.delta.table import DataFileWriter
from schemas.delta.warehouse import Warehouse
from schemas.run_ledger import RUN_LEDGER
from schemas.tables import APPENDED_TABLES, QUARANTINE
from tests.broker_log import SEGMENT, BrokerLog
from tests.depth import DEEP
from tests.nights.commands import night, rows_of
from tests.nights.growing_broker import BEFORE, GrowingBroker, sql
from tests.nights.opened_files import opened_files
from tests.records import record

NIGHTS = 20
MESSAGES = 7


def test_twenty_small_nights_leave_few_files_and_every_row(tmp_path: Path) -> None:
    events, config, store = tmp_path / "events.yaml", tmp_path / "broker.conf", tmp_path / "store"
    events.write_text("- {group: cg_all, topic: T, tag: '*', at: 1}\n")
    config.write_text("brokerName=b\n")
    log = BrokerLog()
    for _ in range(NIGHTS):
        log.append(MESSAGES)
        log.write(store)
        nightly.main(night(tmp_path / "w", store, events, config))
    warehouse = Warehouse.at(str(tmp_path / "w"))
    for table in (*APPENDED_TABLES, RUN_LEDGER):
        assert len(warehouse.files(table, "b")) < NIGHTS // 2, table.name
    offsets = [row["commitlog_offset"] for row in rows_of(warehouse, "commitlog")]
    assert len(offsets) == len(set(offsets)) == NIGHTS * MESSAGES
    assert sorted(row["commitlog_offset"] for row in rows_of(warehouse, "deliveries")) == sorted(offsets)
    ledger = list(rows_of(warehouse, "run_ledger"))
    assert len({row["run"] for row in ledger}) == NIGHTS
    assert [row["rows"]["commitlog"] for row in ledger] == [MESSAGES] * NIGHTS


def test_small_topics_share_a_row_group(tmp_path: Path) -> None:
    """Each group of a broker has a retry topic with few messages, and a row group for each takes a millisecond."""
    topics = [f"%RETRY%cg_{number}" for number in range(40)]
    events, config, log = tmp_path / "events.yaml", tmp_path / "broker.conf", BrokerLog()
    events.write_text("".join(f"- {{group: {topic[7:]}, topic: '{topic}', tag: '*', at: 1}}\n" for topic in topics))
    config.write_text("brokerName=b\n")
    for topic in topics * 2:
        log.append(1, topic)
    nightly.main(night(tmp_path / "w", log.write(tmp_path / "store"), events, config))
    warehouse = Warehouse.at(str(tmp_path / "w"))
    received = [(row["consumer_group"], row["queue_offset"]) for row in rows_of(warehouse, "deliveries")]
    assert sorted(received) == sorted((topic[7:], offset) for topic in topics for offset in (0, 1))
    [file] = warehouse.files(DELIVERY_BLOCKS, "b")
    assert pq.ParquetFile(tmp_path / "w" / "delivery_blocks" / file.path).num_row_groups == 1


@dataclass(frozen=True)
class Cost:
    """What a night took: data files of the tables after it, files that it opened, and its peak memory, KiB."""

    files: int
    opened: int
    memory: int


def reset_peak() -> None:
    """Sets the peak of this process's memory back to what it has now."""
    gc.collect()
    pa.default_memory_pool().release_unused()
    Path("/proc/self/clear_refs").write_text("5")


def memory(name: str) -> int:
    """VmHWM (the peak) or VmRSS (now) of this process, KiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))


SOAK = 48
"""The first 16 nights fill the first tier of files; 32 more repeat that twice."""
MORE_MEMORY = 8 << 10
"""KiB that the noise of an allocator may add."""


@pytest.mark.skipif(not DEEP, reason="48 nights, with MQSIEVE_DEEP=1")
def test_small_nights_stay_as_cheap_as_they_were(tmp_path: Path) -> None:
    """The broker keeps three segments of its log, as it would after months."""
    events, config, store = tmp_path / "events.yaml", tmp_path / "broker.conf", tmp_path / "store"
    groups = [f"- {{group: cg_{i}, topic: T, sql: \"n > '{i}'\", at: 1}}\n" for i in range(20)]
    events.write_text("".join(groups))
    config.write_text("brokerName=b\n")
    folder, log, costs = tmp_path / "w", BrokerLog(), list[Cost]()
    for _ in range(SOAK):
        log.append(100)
        log.write(store, start=max(0, len(log.data) // SEGMENT - 2) * SEGMENT)
        folder.mkdir(exist_ok=True)
        reset_peak()
        before = memory("VmRSS")
        with opened_files(folder) as opened:
            nightly.main(night(folder, store, events, config))
            count = opened()
        warehouse = Warehouse.at(str(folder))
        files = sum(len(warehouse.log(table).files) for table in (*APPENDED_TABLES, RUN_LEDGER))
        costs.append(Cost(files, count, memory("VmHWM") - before))
    second, third = costs[FILES_IN_A_TIER : 2 * FILES_IN_A_TIER], costs[2 * FILES_IN_A_TIER :]
    tables = len((*APPENDED_TABLES, RUN_LEDGER))
    assert max(cost.files for cost in third) <= max(cost.files for cost in second) + tables, costs
    assert max(cost.opened for cost in third) <= 1.1 * max(cost.opened for cost in second), costs
    assert max(cost.memory for cost in third) <= max(cost.memory for cost in second) + MORE_MEMORY, costs
    assert len(list(rows_of(folder, "commitlog", "commitlog_offset"))) == SOAK * 100


DAMAGE = 384 << 20
HELD_OF_IT = 192 << 10
PIECE = 1 << 20
"""KiB. A few pieces of the damage are in memory at the same time, with copies."""


def test_a_night_and_an_audit_do_not_hold_all_damage_of_earlier_nights(tmp_path: Path) -> None:
    """Zeros between two messages of one segment, in a sparse file."""
    events, config, store = tmp_path / "events.yaml", tmp_path / "broker.conf", tmp_path / "store"
    events.write_text("- {group: cg_all, topic: T, tag: '*', at: 1}\n")
    config.write_text("brokerName=b\n")
    segment = BrokerLog().append(1).write(store) / "commitlog" / f"{0:020d}"
    for after_damage in (DAMAGE, DAMAGE + 4096):
        with segment.open("r+b") as file:
            file.seek(after_damage)
            file.write(record(after_damage, queue_offset=after_damage // 4096))
            file.truncate(2 * DAMAGE)
        reset_peak()
        before = memory("VmRSS")
        nightly.main(night(tmp_path / "w", store, events, config))
    assert memory("VmHWM") - before < HELD_OF_IT
    reset_peak()
    before = memory("VmRSS")
    audit.main(["--warehouse", str(tmp_path / "w"), "--all"])
    assert memory("VmHWM") - before < 2 * DAMAGE >> 10  # the engine's own samples of bad rows hold it once
    assert sum(len(row["bytes"]) for row in rows_of(tmp_path / "w", "quarantine", "bytes")) > DAMAGE


def test_small_files_are_merged_without_holding_all_of_their_damage(tmp_path: Path) -> None:
    """Zeros take almost no place in a file."""
    warehouse = Warehouse.at(str(tmp_path))
    changes = Changes(warehouse, "b", "1")
    changes.create_missing([QUARANTINE])
    piece = {"source_file": f"{0:020d}", "reason": "zeros", "bytes": bytes(PIECE), "run": "1"}
    for first in range(FILES_IN_A_TIER):
        writer = DataFileWriter(QUARANTINE, warehouse.log(QUARANTINE).storage)
        for number in range(first, DAMAGE // PIECE if not first else first + 1, FILES_IN_A_TIER):
            writer.write([QUARANTINE.rows_batch([piece | {"offset": number * PIECE}] * FILES_IN_A_TIER)])
        changes.add_files(QUARANTINE, writer.close())
    changes.commit()
    reset_peak()
    before = memory("VmRSS")
    changes = Changes(warehouse, "b", "2")
    compact(QUARANTINE, changes)
    changes.commit()
    assert memory("VmHWM") - before < HELD_OF_IT
    [file] = warehouse.files(QUARANTINE, "b")
    assert file.rows == DAMAGE // PIECE + FILES_IN_A_TIER * (FILES_IN_A_TIER - 1)


def test_a_night_of_nothing_new_needs_no_compiler(broker: GrowingBroker) -> None:
    """To import Numba takes as long as the rest of such a night."""
    broker.night([sql(BEFORE, "cg", "n = '1'")])
    given = {"store": "store", "subscriptions": "events.jsonl", "broker-config": "broker.conf", "warehouse": "w"}
    options = [str(part) for name, file in given.items() for part in (f"--{name}", broker.folder / file)]
    program = "import sys; from jobs import nightly; nightly.main(sys.argv[1:]); print('numba' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", program, *options], capture_output=True, text=True, check=True)
    assert "There was nothing new" in ended.stdout
    assert ended.stdout.endswith("\nFalse\n")


def test_a_night_with_nothing_new_says_whose_counts_it_shows(broker: GrowingBroker) -> None:
    """Otherwise it would look as if the group had received as many messages again."""
    first = broker.night([sql(BEFORE, "cg", "n >= 0")]).out
    run = max(row["run"] for row in rows_of(broker.folder / "w", "run_ledger"))
    again = broker.night([sql(BEFORE, "cg", "n >= 0")]).out
    title, empty, *rest = again.splitlines()
    assert (title, empty) == (f"Nothing was new: the counts are those of run {run}.", "")
    table = first[: first.index("\nbroker ")].splitlines()
    assert rest[: len(table)] == table
