"""Exported rows: JSON lines as Python's own encoder writes them, and CSV that readers take apart again."""

from __future__ import annotations

import csv
import io
import json
from datetime import date
from typing import Any

import pyarrow as pa
import pytest

from jobs.cli import batch_writers
from jobs.cli.batch_writers import json_lines, json_texts, write_batches

ROWS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "text": (pa.string(), ["a", None, 'q"\\\n\r\x00\x7f\u2028 é港', "", "a", "x,y"]),
    "int": (pa.int64(), [1, None, -3, 2**63 - 1, 0, -(2**63)]),
    "bool": (pa.bool_(), [True, None, False, True, False, None]),
    "date": (pa.date32(), [date(2026, 1, 2), None, date(9999, 12, 31), date(1970, 1, 1), None, None]),
    "octets": (pa.binary(), [b"\x00\xff", None, b"", b"ab", bytes(range(256)), b"z"]),
    "map": (pa.map_(pa.string(), pa.string()), [[("a", '1"'), ("é", None)], None, [], [("k", "v")], [("", "")], []]),
    "counts": (pa.map_(pa.string(), pa.int64()), [[("a", 1), ("b", None)], [], None, [("c", 3)], None, []]),
    "texts": (pa.list_(pa.string()), [["a", None], None, [], ['"', "\n"], ["u"], []]),
    "ints": (pa.list_(pa.int32()), [[1], None, [], [None, 2], [3, 4], None]),
}
BATCH = pa.record_batch({name: pa.array(values, kind) for name, (kind, values) in ROWS.items()})


def plain(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else value.isoformat()


def written(kind: str, *batches: pa.RecordBatch) -> bytes:
    file = io.BytesIO()
    assert write_batches(kind, file, batches, BATCH.schema) == sum(batch.num_rows for batch in batches)
    return file.getvalue()


def expected_lines(batch: pa.RecordBatch) -> bytes:
    rows = batch.to_pylist(maps_as_pydicts="strict")
    return "".join(json.dumps(row, ensure_ascii=False, default=plain) + "\n" for row in rows).encode()


@pytest.mark.parametrize("start", range(len(BATCH) + 1))
def test_json_is_that_of_pythons_encoder(start: int) -> None:
    for rows in range(len(BATCH) - start + 1):
        part = BATCH.slice(start, rows)
        assert written("jsonl", part) == expected_lines(part)


def test_rows_that_are_too_many_or_too_large_are_written_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = pa.concat_batches([BATCH] * 15)
    for name, limit in (("ROWS_AT_ONCE", 7), ("BYTES_AT_ONCE", 500)):
        monkeypatch.setattr(batch_writers, name, limit)
        assert len(list(json_lines(batch))) > 10
        assert written("jsonl", BATCH, batch) == expected_lines(BATCH) + expected_lines(batch)
        assert len(list(csv.reader(io.StringIO(written("csv", batch).decode(), newline="")))) == len(batch) + 1


def test_a_type_without_json_is_refused() -> None:
    with pytest.raises(TypeError, match="no JSON for columns of double"):
        json_texts(pa.array([1.5]))


def test_readers_of_csv_find_each_cell_again() -> None:
    """Also with line ends, commas and quotation marks in texts. An empty text is quoted, null is not."""
    text = written("csv", BATCH).decode()
    titles, *rows = csv.reader(io.StringIO(text, newline=""))
    assert titles == BATCH.schema.names
    cells = dict(zip(titles, zip(*rows, strict=True), strict=True))
    assert cells["text"] == tuple(value or "" for value in BATCH["text"].to_pylist())
    assert cells["int"] == tuple("" if value is None else str(value) for value in BATCH["int"].to_pylist())
    assert cells["bool"] == ("true", "", "false", "true", "false", "")
    assert cells["date"][:3] == ("2026-01-02", "", "9999-12-31")
    assert cells["octets"][:4] == ("00ff", "", "", "6162")
    assert json.loads(cells["map"][0]) == {"a": '1"', "é": None}
    assert [json.loads(cell) if cell else None for cell in cells["texts"]] == BATCH["texts"].to_pylist()
    assert text.splitlines()[2].startswith(",,")
    assert '\n"",9223372036854775807' in text
