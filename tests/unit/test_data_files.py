"""Data files: the rows in them, and the statistics by which readers skip files."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from schemas.commitlog import COMMITLOG
from schemas.delta.data_files import DataFileWriter
from schemas.delta.stored_files import StoredFile
from schemas.delta.table import Table, column
from schemas.messages.bodies import Bodies
from schemas.messages.commitlog_rows import CommitlogRows
from schemas.rocketmq_store.commitlog_walk import Records, scan
from schemas.rocketmq_store.message_decoder import decode
from schemas.rocketmq_store.segments import Segment
from schemas.storage import Storage
from tests.records import log_of

TABLE = Table("topics", "Topics.", pa.schema([column("topic", pa.string())]), (), statistics_on=("topic",))
LONG = "y" * 5000
"""Parquet keeps no statistics of texts of more than 4,096 bytes."""


def written(folder: Path, *row_groups: list[str | None]) -> StoredFile:
    """A file with these topics."""
    writer = DataFileWriter(TABLE, Storage.at(str(folder)))
    for topics in row_groups:
        writer.write([TABLE.rows_batch([{"topic": topic} for topic in topics])])
    (file,) = writer.close()
    return StoredFile.from_data_file(file, None)


@pytest.mark.parametrize("row_groups", [(["T"], [LONG]), ([LONG], ["T"]), (["T", LONG],), ([LONG],)])
def test_a_file_with_a_long_text_may_have_any(tmp_path: Path, row_groups: list[list[str | None]]) -> None:
    assert written(tmp_path, *row_groups).may_have("topic", LONG, LONG)


def test_a_row_group_without_values_does_not_count(tmp_path: Path) -> None:
    file = written(tmp_path, ["b", None], [None], ["c"])
    assert [topic for topic in "abcd" if file.may_have("topic", topic, topic)] == ["b", "c"]


def test_texts_that_chunks_of_a_log_share_or_do_not(tmp_path: Path) -> None:
    """The same address with 4 and with 16 bytes is one text; each chunk has topics of its own."""
    mapped = b"\0" * 10 + b"\xff\xff" + bytes([10, 0, 0, 1])
    short = {"born_host": mapped[12:], "store_host": mapped[12:], "sys_flag": 0}
    long = {"born_host": mapped, "store_host": mapped, "sys_flag": 0x30}
    log = log_of(
        *(
            {"topic": f"T{number // 40}".encode(), "properties": [b"a\1x\2", b""][number % 3 == 0]}
            | (long if number % 2 else short)
            for number in range(120)
        )
    )
    (tmp_path / "log").write_bytes(log)
    rows, writer = CommitlogRows("run", Bodies.NONE, {}), DataFileWriter(COMMITLOG, Storage.at(str(tmp_path)))
    batches, decoded = [], []
    for piece in scan(Segment(0, "log", len(log), Storage.at(str(tmp_path))), chunk_bytes=1 << 12):
        assert isinstance(piece, Records)
        batches.append(rows.rows(piece)[0])
        decoded.append(decode(piece, ["topic", "born_host", "store_host", "commitlog_offset"]))
    writer.write(batches[:1])
    writer.write(batches[1:])
    (file,) = writer.close()
    found = pq.read_table(tmp_path / file.path)
    assert len(batches) > 3
    assert found.select(decoded[0].schema.names).to_pylist() == pa.Table.from_batches(decoded).to_pylist()
    assert found["property_names"].to_pylist() == [None if number % 3 == 0 else "a" for number in range(120)]
    stored = StoredFile.from_data_file(file, None)
    assert [topic for topic in ("T", "T0", "T2", "T3") if stored.may_have("topic", topic, topic)] == ["T0", "T2"]
