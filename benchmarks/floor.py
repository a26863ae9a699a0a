"""The floor of a night: its bytes decoded, and PyArrow writing what the night stores. Nothing is filtered or sorted."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter

import pyarrow as pa

from benchmarks.broker_store import BROKER
from jobs.night.inputs import StoreSnapshot
from jobs.night.log import plan_log
from schemas.commitlog import COMMITLOG
from schemas.deliveries import DELIVERY_BLOCKS
from schemas.delta.table import DataFileWriter, Table
from schemas.delta.warehouse import Warehouse
from schemas.messages.commitlog_rows import MESSAGES_AT_ONCE, Bodies, CommitlogRows
from schemas.rocketmq_store.commitlog_walk import Records, Walk
from schemas.rocketmq_store.segments import LogRange
from schemas.storage import Storage
from schemas.tables import CONSUMEQUEUE


@dataclass(frozen=True)
class Floor:
    """Seconds on all cores, if they shared the work evenly."""

    decode: float
    write: float

    @property
    def seconds(self) -> float:
        return self.decode + self.write


def floor(store: Path, warehouse: Path, cores: int) -> Floor:
    """``warehouse`` is that of the night: its rows are written once more. A first range warms each process up."""
    with tempfile.TemporaryDirectory(dir=warehouse.parent) as folder:
        target = Storage.at(folder)
        opened = Warehouse.at(str(warehouse))
        ranges = plan_log(StoreSnapshot(Storage.at(str(store))), None, False).ranges
        files = [
            (table, file.path) for table in (CONSUMEQUEUE, DELIVERY_BLOCKS) for file in opened.files(table, BROKER)
        ]
        with ProcessPoolExecutor(cores, get_context("spawn")) as pool:
            list(pool.map(partial(_decode, target=target), [ranges[0]] * cores, chunksize=1))
            decoded = list(pool.map(partial(_decode, target=target), ranges))
            written = list(pool.map(partial(_write_again, warehouse=warehouse, target=target), files))
    decode = sum(seconds for seconds, _ in decoded)
    write = sum(seconds for _, seconds in decoded) + sum(written)
    return Floor(decode / cores, write / cores)


def _decode(part: LogRange, target: Storage) -> tuple[float, float]:
    """Seconds of decoding a range into rows of commitlog, and of writing them."""
    rows = CommitlogRows("floor", Bodies.KEEP, {})
    writer = DataFileWriter(COMMITLOG, target)
    begin = perf_counter()
    writing, waiting = 0.0, 0
    batches: list[pa.RecordBatch] = []

    def flush() -> float:
        start = perf_counter()
        if batches:
            writer.write(batches)
        batches.clear()
        return perf_counter() - start

    for piece in Walk(part.segment, part.start, part.stop, part.data_end, part.synchronise):
        assert isinstance(piece, Records)
        batches.append(rows.rows(piece)[0])
        waiting += len(piece)
        if waiting >= MESSAGES_AT_ONCE:
            writing, waiting = writing + flush(), 0
    writing += flush()
    decoding = perf_counter() - begin - writing
    start = perf_counter()
    writer.close()
    return decoding, writing + perf_counter() - start


def _write_again(of: tuple[Table, str], warehouse: Path, target: Storage) -> float:
    table, path = of
    opened = Warehouse.at(str(warehouse))
    files = [file for file in opened.files(table, BROKER) if file.path == path]
    rows = opened.rows(table, files=files)
    batches: Sequence[pa.RecordBatch] = [
        table.batch({name: batch[name] for name in batch.schema.names if name in table.file_schema.names}, len(batch))
        for batch in rows.combine_chunks().to_batches(max_chunksize=MESSAGES_AT_ONCE)
    ]
    start = perf_counter()
    writer = DataFileWriter(table, target)
    for batch in batches:
        writer.write([batch])
    writer.close()
    return perf_counter() - start
