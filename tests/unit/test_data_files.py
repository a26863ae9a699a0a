"""Data files: the rows in them, and the statistics by which readers skip files."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from schemas.commitlog import COMMITLOG, view
from schemas.delta.delta_log import DataFileDamaged, open_data_file, verify_file
from schemas.delta.table import DataFileWriter, StoredFile, Table, column
from schemas.delta.table_rows import files_that_may_hold, one_of, read_rows, within
from schemas.messages.commitlog_rows import Bodies, CommitlogRows, Messages, concat
from schemas.messages.stored_messages import WHOLE_LOG, read_messages
from schemas.rocketmq_store.commitlog_walk import Records, scan
from schemas.rocketmq_store.message_decoder import decode
from schemas.rocketmq_store.segments import Segment
from schemas.storage import Storage
from tests.depth import examples
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


def chunks(
    folder: Path, log: bytes, rows: CommitlogRows, columns: list[str], chunk_bytes: int = 1 << 20
) -> Iterator[tuple[pa.RecordBatch, Messages, pa.RecordBatch]]:
    """Of each chunk of a log: the rows to store, the messages to filter, and what RocketMQ's decoder reads."""
    (folder / "log").write_bytes(log)
    for piece in scan(Segment(0, "log", len(log), Storage.at(str(folder))), chunk_bytes):
        assert isinstance(piece, Records)
        yield *rows.rows(piece), decode(piece, columns)


def may_have(file: StoredFile, topic: str) -> bool:
    return files_that_may_hold([file], [one_of("topic", [topic])]) == [file]


@pytest.mark.parametrize("row_groups", [(["T"], [LONG]), ([LONG], ["T"]), (["T", LONG],), ([LONG],)])
def test_a_file_with_a_long_text_may_have_any(tmp_path: Path, row_groups: list[list[str | None]]) -> None:
    assert may_have(written(tmp_path, *row_groups), LONG)


def test_a_row_group_without_values_does_not_count(tmp_path: Path) -> None:
    file = written(tmp_path, ["b", None], [None], ["c"])
    assert [topic for topic in "abcd" if may_have(file, topic)] == ["b", "c"]


ROWS = Table(
    "rows",
    "Rows.",
    [column("number", pa.int64()), column("text", pa.string()), column("rest", pa.string())],
    (),
    statistics_on=("number",),
    dictionary_encoded=("text",),
)


Row = tuple[int | None, str | None, str | None]


def stored_rows(folder: Path, *row_groups: list[Row]) -> tuple[list[Row], list[str]]:
    """The rows that readers see, and the columns of each file."""
    writer, storage = DataFileWriter(ROWS, Storage.at(str(folder))), Storage.at(str(folder))
    for rows in row_groups:
        writer.write([ROWS.rows_batch([dict(zip(ROWS.schema.names, row, strict=True)) for row in rows])])
    files = writer.close()
    paths = [file.path for file in files]
    assert [file.rows for file in files] == [pq.read_metadata(folder / path).num_rows for path in paths]
    columns = [",".join(pq.read_schema(folder / path).names) for path in paths]
    result = read_rows(ROWS, storage, paths).to_pylist()
    return [(row["number"], row["text"], row["rest"]) for row in result], columns


def test_columns_without_values_are_left_out_until_they_have_some(tmp_path: Path) -> None:
    groups: list[list[Row]] = [
        [(1, "a", None), (2, "b", None)],
        [(3, "c", None)],
        [(4, "d", "x")],
        [(None, None, None)],
        [(5, None, "y")],
        [(6, "e", None)],
    ]
    rows, columns = stored_rows(tmp_path, *groups)
    assert rows == [row for group in groups for row in group]
    assert columns == ["number,text", "number,text,rest", "number,text,rest"]


def test_no_column_has_values(tmp_path: Path) -> None:
    assert stored_rows(tmp_path, [(None, None, None)] * 3) == ([(None, None, None)] * 3, ["number"])


def test_readers_get_the_rows_for_which_all_conditions_hold(tmp_path: Path) -> None:
    """Row groups are skipped by their statistics. A row without a value is in no range."""
    rng, storage = random.Random(1), Storage.at(str(tmp_path))
    numbers = [[rng.choice([None, *range(least, least + 4)]) for _ in range(3)] for least in (0, 3, 3, 8, 20)]
    writer = DataFileWriter(ROWS, storage)
    for group in [*numbers, [None]]:
        writer.write([ROWS.rows_batch([{"number": number, "text": str(number)} for number in group])])
    paths = [file.path for file in writer.close()]
    for _ in range(100):
        low, below = (rng.choice([None, *range(-1, 26)]) for _ in range(2))
        listed = rng.sample(range(-1, 26), rng.randrange(12))
        where = [within("number", low, below)] + [one_of("number", listed)] * rng.randrange(2)
        texts = read_rows(ROWS, storage, paths, ["text"], where)["text"].to_pylist()
        assert texts == [
            str(number)
            for number in chain(*numbers)
            if number is not None
            and (low is None or low <= number)
            and (below is None or number < below)
            and (len(where) == 1 or number in listed)
        ]


def test_no_row_meets_a_condition_on_a_column_that_its_file_leaves_out(tmp_path: Path) -> None:
    storage = Storage.at(str(tmp_path))
    writer = DataFileWriter(ROWS, storage)
    writer.write([ROWS.rows_batch([{"number": 1, "rest": None}, {"number": 2, "rest": None}])])
    (file,) = writer.close()
    for where in ([one_of("rest", ["x"])], [within("number", 1), within("rest")]):
        assert read_rows(ROWS, storage, [file.path], ["number"], where).to_pylist() == []


LOOKED_UP = Table("texts", "Texts.", [column("text", pa.string())], (), bloom_filtered=("text",))


def test_a_text_is_found_without_reading_most_row_groups(tmp_path: Path) -> None:
    rng, storage = random.Random(1), Storage.at(str(tmp_path))
    groups = [["".join(rng.choices("abcäö€", k=length)) for length in range(100)] for _ in range(50)]
    writer = DataFileWriter(LOOKED_UP, storage)
    for texts in groups:
        writer.write([LOOKED_UP.rows_batch([{"text": text} for text in texts])])
    (file,) = writer.close()
    with open_data_file(LOOKED_UP, storage, file.path) as opened:
        for number, texts in enumerate(groups):
            assert all(opened.may_have(number, "text", text) for text in texts)
        others = [text for texts in groups[1:] for text in texts[20:]]
        assert sum(opened.may_have(0, "text", text) for text in others) < len(others) / 5


def test_a_flipped_bit_of_a_bloom_filter_is_damage(tmp_path: Path) -> None:
    writer = DataFileWriter(LOOKED_UP, Storage.at(str(tmp_path)))
    writer.write([LOOKED_UP.rows_batch([{"text": text} for text in [*map(str, range(100)), None, ""]])])
    (file,) = writer.close()
    stored, storage = StoredFile.from_data_file(file, None), Storage.at(str(tmp_path))
    verify_file(LOOKED_UP, storage, stored)
    chunk = pq.read_metadata(tmp_path / file.path).row_group(0).column(0)
    octets = bytearray((tmp_path / file.path).read_bytes())
    last = chunk.bloom_filter_offset + chunk.bloom_filter_length - 1
    octets[last] &= octets[last] - 1
    (tmp_path / file.path).write_bytes(octets)
    with pytest.raises(DataFileDamaged, match="a Bloom filter lacks a value"):
        verify_file(LOOKED_UP, storage, stored)


def test_a_row_group_without_a_bloom_filter_may_have_any_text(tmp_path: Path) -> None:
    file = written(tmp_path, ["b"])
    with open_data_file(TABLE, Storage.at(str(tmp_path)), file.path) as opened:
        assert opened.may_have(0, "topic", "a")


@pytest.mark.parametrize("seed", range(examples(1, deep=4)))
def test_stored_messages_are_those_of_the_log(tmp_path: Path, seed: int) -> None:
    """Properties have few or many values, long and short, or begin late; some are not UTF-8."""
    rng = random.Random(seed)
    long_values = [f"{'x' * 20}{number:03}{'y' * 20}".encode() for number in range(300)]

    def properties(number: int) -> bytes:
        values = {
            b"few": rng.choice([b"", b"a", b"bb", "\u00e9".encode(), b"123456789", b"1234567890123456"]),
            b"many": str(rng.randrange(10**9)).encode(),
            b"long": rng.choice(long_values),
            b"late": rng.choice([b"u", b"v"]) if number > 3_000 else b"",
            b"TAGS": rng.choice([b"t1", b"t2", b""]),
            b"bytes": rng.choice([b"\xff", b"ok", b"\xed\xa0\x80"]) if number % 1_500 == 7 else b"z",
            f"n{number % 40}".encode(): b"w",
        }
        names = rng.sample(list(values), rng.randrange(len(values) + 1))
        return b"".join(name + b"\1" + values[name] + b"\2" for name in names)

    records = [{"topic": rng.choice([b"A", b"B"]), "properties": properties(number)} for number in range(6_000)]
    storage = Storage.at(str(tmp_path))
    rows, writer = CommitlogRows("run", Bodies.NONE, {}), DataFileWriter(COMMITLOG, storage)
    waiting: list[pa.RecordBatch] = []
    parts, decoded = [], []
    columns = ["commitlog_offset", "topic", "properties"]
    for batch, messages, expected in chunks(tmp_path, log_of(*records), rows, columns, chunk_bytes=1 << 15):
        waiting.append(batch)
        parts.append(messages)
        decoded.append(expected)
        if rng.random() < 0.2:
            writer.write(waiting)
            waiting = []
    if waiting:
        writer.write(waiting)
    stored = read_rows(COMMITLOG, storage, [file.path for file in writer.close()])
    row_dicts = view(stored, columns).to_pylist(maps_as_pydicts="strict")
    assert row_dicts == pa.Table.from_batches(decoded).to_pylist(maps_as_pydicts="strict")
    assert_filters_read(concat(parts), [row["properties"] or {} for row in row_dicts])


def check_properties(folder: Path, texts: list[bytes], wanted: list[str] | None = None, chunk_bytes: int = 1) -> None:
    """Records with these property texts are stored, and filtered, with the properties that RocketMQ's decoder reads.

    Each is a chunk of its own, unless ``chunk_bytes`` is greater. ``wanted``: names that filters read.
    """
    log = log_of(*({"topic": b"T", "properties": text} for text in texts))
    storage = Storage.at(str(folder))
    rows, writer = CommitlogRows("run", Bodies.NONE, {"T": wanted or []}), DataFileWriter(COMMITLOG, storage)
    batches, parts, decoded = zip(*chunks(folder, log, rows, ["properties"], chunk_bytes), strict=True)
    expected = pa.Table.from_batches(decoded)["properties"].to_pylist(maps_as_pydicts="strict")
    writer.write(batches)
    paths = [file.path for file in writer.close()]
    column = view(read_rows(COMMITLOG, storage, paths), ["properties"])["properties"]
    assert column.to_pylist(maps_as_pydicts="strict") == expected
    properties = [row or {} for row in expected]
    assert_filters_read(concat(parts), properties)
    (stored,) = read_messages(storage, paths, WHOLE_LOG, None, {name for row in properties for name in row})
    assert_filters_read(stored, properties)


@pytest.mark.parametrize("seed", range(examples(1, deep=4)))
def test_nights_that_give_a_property_other_columns_are_read_together(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    storage = Storage.at(str(tmp_path))
    topics: list[str] = []
    properties: list[dict[str, str]] = []
    parts: list[Messages] = []
    paths = []
    for night in range(4):
        names = rng.sample("abcdef", 4)
        records = []
        for number in range(200):
            values = {name: f"{name} {night} {number % 7}" for name in rng.sample(names, rng.randrange(4))}
            properties.append(values)
            topics.append(rng.choice("AB"))
            text = "".join(f"{name}\1{value}\2" for name, value in values.items())
            records.append({"topic": topics[-1].encode(), "properties": text.encode()})
        rows, writer = CommitlogRows("run", Bodies.NONE, {}), DataFileWriter(COMMITLOG, storage)
        for batch, messages, _ in chunks(tmp_path, log_of(*records), rows, ["topic"], chunk_bytes=1 << 12):
            assert_filters_read(messages, properties[-200:][sum(len(part) for part in parts) - 200 * night :])
            writer.write([batch])
            parts.append(messages)
        paths += [file.path for file in writer.close()]
    assert_filters_read(concat(parts), properties)
    assert_filters_read(concat(list(read_messages(storage, paths, WHOLE_LOG, None, set("abcdef")))), properties)
    properties_of_b = [
        message_properties for topic, message_properties in zip(topics, properties, strict=True) if topic == "B"
    ]
    assert_filters_read(concat(list(read_messages(storage, paths, WHOLE_LOG, {"B"}, set("abcdef")))), properties_of_b)


SEPARATED = [b"\1", b"\2"]
ALIKE = [b"a", b"abcdefgh", b"abcdefghi", b"abcdefghj", b"abcdefg", b"abcdefgx"]
LONG_NAMES = [b"x" * 247, b"x" * 248, b"x" * 249, b"x" * 248 + b"y", b"x" * 255, b"x" * 256, b"x" * 257, b"y" * 300]
NOT_UTF8 = [b"\xff", b"\xed\xa0\x80", b"\xc3", b"a\xff"]


@pytest.mark.parametrize("chunk_bytes", [1, 1 << 12])
@pytest.mark.parametrize("names", [ALIKE, [*ALIKE, *LONG_NAMES], [*ALIKE, *NOT_UTF8], [*LONG_NAMES, *NOT_UTF8]])
def test_odd_property_texts_are_stored_as_the_decoder_reads_them(
    tmp_path: Path, names: list[bytes], chunk_bytes: int
) -> None:
    """Names and values may be missing, repeated, or cut; names may be alike, too long for a column, or not UTF-8."""
    rng = random.Random(len(names))
    pieces = [*names, *SEPARATED * len(names)]
    pairs = [name + b"\1" + rng.choice([b"", b"1", b"\1", b"12345678", *names]) + b"\2" for name in names * 4]
    texts = [b"".join(rng.choices(pieces, k=rng.randrange(12))) for _ in range(80)]
    texts += [b"".join(rng.choices(pairs, k=rng.randrange(5)))[: -1 if rng.random() < 0.3 else None] for _ in range(80)]
    rng.shuffle(texts)
    check_properties(tmp_path, texts, chunk_bytes=chunk_bytes)


@pytest.mark.parametrize("wanted", [[], ["n50", "n3", "w" * 248, "w" * 300], [f"n{number}" for number in range(60)]])
@pytest.mark.parametrize("value", [b"1", b"\xff"])
def test_more_property_names_than_columns(tmp_path: Path, wanted: list[str], value: bytes) -> None:
    def text(*numbers: int) -> bytes:
        return b"".join(b"n%d\1%d\2" % (number, number) for number in numbers)

    long_names = b"w" * 248 + b"\1a\2" + b"w" * 300 + b"\1b\2"
    texts = [text(*range(first, first + 5)) for first in range(22)]
    texts += [
        text(27, 3, 25, 27),
        b"n30\1" + value + b"\2n3\1x",
        text(50, 51) + b"n50\1" + value,
        long_names,
        text(3, 26),
    ]
    check_properties(tmp_path, texts, wanted)
    check_properties(tmp_path, texts, wanted, chunk_bytes=1 << 20)


def test_no_message_has_a_property(tmp_path: Path) -> None:
    storage = Storage.at(str(tmp_path))
    rows, writer = CommitlogRows("run", Bodies.KEEP, {}), DataFileWriter(COMMITLOG, storage)
    ((batch, *_),) = chunks(tmp_path, log_of({"topic": b"A"}, {"topic": b"B"}), rows, ["topic"])
    writer.write([batch])
    paths = [file.path for file in writer.close()]
    (messages,) = read_messages(storage, paths, WHOLE_LOG, None, {"a"})
    assert [shape.topic for shape in messages.shapes] == ["A", "B"]
    assert_filters_read(messages, [{}, {}])


def assert_filters_read(messages: Messages, properties: list[dict[str, str]]) -> None:
    """The filters of each topic read these properties."""
    names = {name for row in properties for name in row} | {"absent"}
    for _, rows in messages.rows_by_topic(np.ones(len(messages), bool)):
        columns = messages.properties(names, rows)
        for name in names:
            read = columns[name].text_of_each().to_pylist() if name in columns else [None] * len(rows)
            assert read == [properties[row].get(name) for row in rows.tolist()], name


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
    rows, writer = CommitlogRows("run", Bodies.NONE, {}), DataFileWriter(COMMITLOG, Storage.at(str(tmp_path)))
    columns = ["topic", "born_host", "store_host", "commitlog_offset"]
    batches, _, decoded = zip(*chunks(tmp_path, log, rows, columns, chunk_bytes=1 << 12), strict=True)
    writer.write(batches[:1])
    writer.write(batches[1:])
    (file,) = writer.close()
    table = pq.read_table(tmp_path / file.path)
    assert len(batches) > 3
    assert table.select(columns).to_pylist() == pa.Table.from_batches(decoded).to_pylist()
    assert table["property_names"].to_pylist() == [None if number % 3 == 0 else "a" for number in range(120)]
    stored = StoredFile.from_data_file(file, None)
    assert [topic for topic in ("T", "T0", "T2", "T3") if may_have(stored, topic)] == ["T0", "T2"]
