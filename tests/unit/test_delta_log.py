"""Delta tables that are open while others commit to them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from schemas.delta.delta_log import DeltaLog
from schemas.delta.table import DataFileWriter, Table, column
from schemas.storage import Storage

NUMBERS = Table("numbers", "Numbers.", [column("broker_name", pa.string()), column("number", pa.int64())])


def commit(log: DeltaLog, *numbers: int) -> None:
    writer = DataFileWriter(NUMBERS, log.storage)
    writer.write([NUMBERS.rows_batch([{"number": number} for number in numbers])])
    log.commit(writer.close(), (), "broker-a", "run")


def test_a_table_that_is_no_longer_pinned_shows_what_was_committed_since(tmp_path: Path) -> None:
    own, other = (DeltaLog(NUMBERS, Storage(str(tmp_path))) for _ in range(2))
    own.create()
    commit(own, 1, 2)
    assert [file.rows for file in own.files] == [2]
    own.pin(0)
    assert own.files == []
    commit(other, 3)
    own.pin(None)
    assert sorted(file.rows or 0 for file in own.files) == [1, 2]


def test_a_dropped_table_does_not_exist_until_it_is_made_again(tmp_path: Path) -> None:
    log = DeltaLog(NUMBERS, Storage(str(tmp_path)))
    log.create()
    commit(log, 1)
    log.drop()
    assert not log.exists
    log.create()
    assert (log.version, log.files) == (0, [])
