"""The engines that the benchmark of the matcher compares. Each filters a batch of messages for all groups."""

from collections.abc import Callable, Iterator
from time import perf_counter

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from benchmarks import workload
from benchmarks.filter_bench import NUMBERS, FilterBench, Result, mixed
from filtering.matcher import Matcher
from filtering.sql92 import compile

BATCH_ROWS = 16_384


class Ours:
    def __init__(self, batch: pa.RecordBatch, expressions: list[str]) -> None:
        self._batch = batch
        self._matcher = Matcher([compile(expression).predicate for expression in expressions])

    def _pairs(self) -> Iterator[tuple[int, npt.NDArray[np.int64], npt.NDArray[np.int32]]]:
        for start in range(0, len(self._batch), BATCH_ROWS):
            yield start, *self._matcher.match(self._batch.slice(start, BATCH_ROWS)).pairs()

    def seconds(self) -> float:
        begin = perf_counter()
        for _ in self._pairs():
            pass
        return perf_counter() - begin

    def check(self) -> Result:
        counts, sums = [], []
        for start, indptr, rows in self._pairs():
            total = np.concatenate([[0], np.cumsum(mixed(rows.astype(np.int64) + start))])
            counts.append(np.diff(indptr))
            sums.append(np.diff(total[indptr]))
        return np.sum(counts, axis=0), np.sum(sums, axis=0)


class Polars:
    def __init__(self, batch: pa.RecordBatch, expressions: list[str]) -> None:
        import polars as pl

        self._frame = pl.DataFrame(pa.Table.from_batches([batch]))
        self._columns = [
            *(pl.col(name).cast(pl.Float64 if type == "DOUBLE" else pl.Int32) for name, type in NUMBERS.items()),
            *(pl.col(name).cast(pl.Categorical) for name in workload.TEXTS),
            pl.col("flag") == "true",
        ]
        self._pairs = [
            pl.sql_expr(expression).arg_true().implode().alias(str(i)) for i, expression in enumerate(expressions)
        ]

    def seconds(self) -> float:
        begin = perf_counter()
        self._frame.with_columns(self._columns).select(self._pairs)
        return perf_counter() - begin

    def check(self) -> Result:
        lists = [column[0] for column in self._frame.with_columns(self._columns).select(self._pairs)]
        return np.array([len(rows) for rows in lists]), np.array(
            [mixed(rows.to_numpy()).sum() for rows in lists], np.int64
        )


class DuckDB:
    """A thousand groups a query: ten thousand in one take more than 9 GB."""

    def __init__(self, batch: pa.RecordBatch, expressions: list[str]) -> None:
        import duckdb

        self._connection = duckdb.connect(config={"threads": 1, "memory_limit": "4GB"})
        self._connection.register("messages", pa.Table.from_batches([batch]))
        self._queries = range(0, len(expressions), 1_000)
        casts = ", ".join(f"CAST({name} AS {type}) AS {name}" for name, type in NUMBERS.items())
        typed = f"SELECT * REPLACE ({casts}, flag = 'true' AS flag) FROM messages"
        for first in self._queries:
            counts = (f"count(*) FILTER (WHERE {expression})" for expression in expressions[first : first + 1_000])
            self._connection.execute(f"PREPARE counts_{first} AS SELECT {', '.join(counts)} FROM ({typed})")

    def _counts(self) -> list[int]:
        rows = [self._connection.execute(f"EXECUTE counts_{first}").fetchall() for first in self._queries]
        return [count for [row] in rows for count in row]

    def seconds(self) -> float:
        begin = perf_counter()
        self._counts()
        return perf_counter() - begin

    def check(self) -> Result:
        counts = np.array(self._counts(), np.int64)
        return counts, np.full(len(counts), -1)


Engine = Ours | Polars | DuckDB | FilterBench

ENGINES: dict[str, Callable[[pa.RecordBatch, list[str]], Engine]] = {
    "RocketMQ": lambda batch, expressions: FilterBench("rocketmq", batch, expressions),
    "event-ruler": lambda batch, expressions: FilterBench("ruler", batch, expressions),
    "DuckDB": DuckDB,
    "Polars": Polars,
    "mqsieve": Ours,
}
