"""Message logs in Parquet: the columns of different writers, and what a night says of those it cannot read."""

from __future__ import annotations

import json
from collections import Counter
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs import ingest
from schemas.messages import message_log
from schemas.rocketmq_store.segments import CommitLogError
from tests.nights.commands import Run, rows_of

TIME = 1_795_237_513_466


def columns_of(count: int, first: int = 0) -> dict[str, Any]:
    """The columns of some messages, by name."""
    offsets = list(range(first, first + count))
    return {
        "topic": ["OrderEvents"] * count,
        "queue_id": [0] * count,
        "queue_offset": offsets,
        "commitlog_offset": offsets,
        "store_timestamp": [TIME + offset for offset in offsets],
    }


def ingested(log: Path, warehouse: Path) -> None:
    ingest.main(["--store", str(log), "--warehouse", str(warehouse)])


def messages_in(warehouse: Path) -> list[tuple[int, int, str | None]]:
    rows = rows_of(warehouse, "commitlog", "commitlog_offset", "store_timestamp", "tags")
    return sorted(tuple(row.values()) for row in rows)


def rejected_in(warehouse: Path) -> list[tuple[str, int, str]]:
    quarantine = rows_of(warehouse, "quarantine", "source_file", "offset", "reason")
    return sorted(tuple(row.values()) for row in quarantine)


@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_nanoseconds_as_pandas_writes_them(tmp_path: Path, zone: str | None) -> None:
    times = pa.array([TIME * 1_000_000 + 999_999], pa.timestamp("ns", zone))
    table = pa.table(columns_of(1) | {"store_timestamp": times, "read.at": times})
    pq.write_table(table, tmp_path / "log.parquet", version="2.6")
    ingested(tmp_path / "log.parquet", tmp_path / "w")
    assert messages_in(tmp_path / "w") == [(0, TIME, None)]


def test_files_of_different_writers_in_one_folder(tmp_path: Path) -> None:
    """Their columns have different types, and are not the same ones. A column in capitals is another one."""
    log = tmp_path / "log"
    log.mkdir()
    files: dict[str, dict[str, Any]] = {
        "a": columns_of(2),
        "b": columns_of(2, 2) | {"commitlog_offset": ["2", "three"], "tags": ["a", "b"]},
        "c": columns_of(1, 4) | {"commitlog_offset": pa.array([4], pa.int32()), "Tags": ["no tag"]},
        "d": columns_of(1, 5) | {"store_timestamp": pa.array([TIME + 5], pa.timestamp("ms")), "tags": ["d"]},
        "e": columns_of(1, 6) | {"store_timestamp": pa.array([(TIME + 6) * 1_000_000], pa.timestamp("ns"))},
    }
    for name, columns in files.items():
        pq.write_table(pa.table(columns), log / f"{name}.parquet")
    old = pa.table(files["e"] | columns_of(1, 7) | {"store_timestamp": pa.array([TIME + 7], pa.timestamp("ms"))})
    pq.write_table(old, log / "f.parquet", use_deprecated_int96_timestamps=True)
    ingested(log, tmp_path / "w")
    tags = {2: "a", 5: "d"}
    assert messages_in(tmp_path / "w") == [(each, TIME + each, tags.get(each)) for each in (0, 1, 2, 4, 5, 6, 7)]
    assert rejected_in(tmp_path / "w") == [("b.parquet", 2, "commitlog_offset is not of type bigint")]


def test_two_columns_of_one_name_are_told(tmp_path: Path) -> None:
    table = pa.table(columns_of(1))
    pq.write_table(table.append_column("topic", pa.array(["x"])), tmp_path / "log.parquet")
    with pytest.raises(CommitLogError, match=r"log\.parquet has two columns of one name: leave one out or rename it"):
        message_log.files(tmp_path / "log.parquet")


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("body", pa.array([5]), "column body has the type int64, not binary"),
        ("flag", pa.array([b"5"]), "column flag has the type binary, not int"),
    ],
)
def test_types_that_cannot_be_read_are_named_with_their_column(
    tmp_path: Path, name: str, values: pa.Array, message: str
) -> None:
    pq.write_table(pa.table(columns_of(1) | {name: values}), tmp_path / "log.parquet")
    with pytest.raises(CommitLogError, match=f"log.parquet: {message}"):
        message_log.files(tmp_path / "log.parquet")


def test_a_damaged_footer_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "log.parquet"
    pq.write_table(pa.table(columns_of(1)), file)
    content = bytearray(file.read_bytes())
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    content[footer + 5 : footer + 30] = b"\xff" * 25
    file.write_bytes(content)
    with pytest.raises(CommitLogError, match=r"log\.parquet is not a Parquet file; give JSON lines or Parquet$"):
        message_log.files(file)


def test_a_damaged_page_is_one_line(tmp_path: Path, run: Run) -> None:
    file = tmp_path / "log.parquet"
    pq.write_table(pa.table(columns_of(5_000)), file, compression="none", write_page_checksum=True)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0xFF
    file.write_bytes(content)
    code, out, error = run(ingest, "--store", file, "--warehouse", tmp_path / "w")
    assert (code, out, error.count("\n")) == (2, "", 1)
    assert error.startswith(f"mqsieve: {file} is damaged (")
    assert messages_in(tmp_path / "w") == []
    pq.write_table(pa.table(columns_of(5_000)), file)
    assert run(ingest, "--store", file, "--warehouse", tmp_path / "w").code == 0
    assert len(messages_in(tmp_path / "w")) == 5_000


def test_numbers_with_a_fraction_are_quarantined(tmp_path: Path) -> None:
    """Spark's cast would cut 1.5 to 1, and make true 1. pandas writes whole numbers with gaps as doubles: 3.0 is 3."""
    whole = pa.array([0, 1, 2]).cast(pa.decimal128(20, 0))
    flags = {
        "doubles": pa.array([1.5, 3.0, None]),
        "floats": pa.array([1.5, 3.0, None], pa.float32()),
        "decimals": pa.array([1.5, 3.0, None]).cast(pa.decimal128(5, 1)),
        "great": pa.array([1e300, 3.0, None]),
        "nan": pa.array([float("nan"), 3.0, None]),
        "booleans": pa.array([True, False, None]),
        "texts": pa.array(["1.5", "3.0", None]),
    }
    (tmp_path / "log").mkdir()
    for number, (name, values) in enumerate(flags.items()):
        table = pa.table(columns_of(3, 3 * number) | {"flag": values, "queue_offset": whole})
        pq.write_table(table, tmp_path / "log" / f"{name}.parquet")
    ingested(tmp_path / "log", tmp_path / "w")
    rejected = {name: [1, 2] if name in ("booleans", "texts") else [1] for name in flags}
    assert rejected_in(tmp_path / "w") == sorted(
        (f"{name}.parquet", row, "flag is not of type int") for name, rows in rejected.items() for row in rows
    )
    read = rows_of(tmp_path / "w", "commitlog", "queue_offset", "flag")
    assert Counter(row["flag"] for row in read) == {3: 5, None: 7}
    bytes_of = rows_of(tmp_path / "w", "quarantine", "source_file", "offset", "bytes")
    kept = {(row["source_file"], row["offset"]): json.loads(row["bytes"])["flag"] for row in bytes_of}
    assert kept["doubles.parquet", 1] == 1.5

    line = {name: values[0] for name, values in columns_of(1).items()}
    (tmp_path / "log.jsonl").write_text("\n".join(json.dumps(line | {"flag": flag}) for flag in (1.5, 3.0, True)))
    ingested(tmp_path / "log.jsonl", tmp_path / "json")
    assert messages_in(tmp_path / "json") == []


def test_texts_that_are_not_utf_8_are_quarantined(tmp_path: Path) -> None:
    """Some writers store texts as binary columns."""
    columns = columns_of(4) | {"topic": [b"T", b"T\xff", b"T", b"T"], "tags": [b"a", b"b", b"\xc3", None]}
    properties = pa.array([[(b"p", b"\xc3\xa9")], [], [], [(b"p", b"\xe9")]], pa.map_(pa.binary(), pa.binary()))
    pq.write_table(pa.table(columns | {"properties": properties}), tmp_path / "log.parquet")
    ingested(tmp_path / "log.parquet", tmp_path / "w")
    assert messages_in(tmp_path / "w") == [(0, TIME, "a")]
    assert rejected_in(tmp_path / "w") == [
        ("log.parquet", 2, "topic is not UTF-8"),
        ("log.parquet", 3, "tags is not UTF-8"),
        ("log.parquet", 4, "properties is not UTF-8"),
    ]


def test_values_of_other_types(tmp_path: Path) -> None:
    """Texts may be numbers or booleans, and a body may be a text."""
    columns = columns_of(3) | {"tags": [True, False, None], "keys": [7, -7, None], "body": ["\u00e9", "", None]}
    flags = pa.array([-(2**31), 2**31 - 1, None], pa.int64())
    properties = pa.array([[("n", 1.5), ("gone", None)], [], None], pa.map_(pa.string(), pa.float64()))
    pq.write_table(pa.table(columns | {"flag": flags, "properties": properties}), tmp_path / "log.parquet")
    ingested(tmp_path / "log.parquet", tmp_path / "w")
    assert rejected_in(tmp_path / "w") == []
    names = ("commitlog_offset", "tags", "keys", "body", "flag", "properties")
    read = sorted(rows_of(tmp_path / "w", "commitlog", *names), key=itemgetter("commitlog_offset"))
    assert [tuple(row.values())[1:] for row in read] == [
        ("true", "7", b"\xc3\xa9", -(2**31), {"TAGS": "true", "KEYS": "7", "n": "1.5"}),
        ("false", "-7", b"", 2**31 - 1, {"TAGS": "false", "KEYS": "-7"}),
        (None, None, None, None, None),
    ]


def test_a_rejected_row_is_kept_as_json(tmp_path: Path) -> None:
    """Without its nulls. What JSON has no form for is base64 or a text."""
    columns = columns_of(2) | {"flag": pa.array([2**31, -(2**31) - 1]), "body": [b"\xff", None], "other": [[1], []]}
    properties = pa.array([[("p", "\u00e9")], None], pa.map_(pa.string(), pa.string()))
    times = pa.array([TIME, None], pa.timestamp("ms"))
    pq.write_table(pa.table(columns | {"properties": properties, "at": times}), tmp_path / "log.parquet")
    ingested(tmp_path / "log.parquet", tmp_path / "w")
    assert [row[1:] for row in rejected_in(tmp_path / "w")] == [
        (1, "flag is not of type int"),
        (2, "flag is not of type int"),
    ]
    first, second = sorted(rows_of(tmp_path / "w", "quarantine", "offset", "bytes"), key=itemgetter("offset"))
    whole = {"body": "/w==", "other": [1], "properties": {"p": "\u00e9"}, "at": "2026-11-21 05:05:13.466000"}
    fields = json.loads(first["bytes"])
    assert {name: fields[name] for name in whole} == whole
    assert json.loads(second["bytes"])["other"] == []
    assert "body" not in json.loads(second["bytes"])


def test_columns_without_any_value_as_pandas_writes_them(tmp_path: Path) -> None:
    absent = {name: pa.nulls(1) for name in ("properties", "body", "flag", "tags")}
    pq.write_table(pa.table(columns_of(1) | absent), tmp_path / "log.parquet")
    ingested(tmp_path / "log.parquet", tmp_path / "w")
    assert messages_in(tmp_path / "w") == [(0, TIME, None)]
