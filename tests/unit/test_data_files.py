"""The statistics of data files, by which readers skip files."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from schemas.delta.data_files import DataFileWriter
from schemas.delta.stored_files import StoredFile
from schemas.delta.table import Table, column
from schemas.storage import Storage

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
