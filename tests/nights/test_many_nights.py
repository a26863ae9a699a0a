"""After many nights, tables have few files and all rows."""

from __future__ import annotations

from pathlib import Path

from jobs import nightly
from schemas.delta.warehouse import Warehouse
from schemas.run_ledger import RUN_LEDGER
from schemas.tables import APPENDED_TABLES
from tests.broker_log import BrokerLog
from tests.nights.commands import night, rows_of

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
    assert len({row["run"] for row in rows_of(warehouse, "run_ledger")}) == NIGHTS
