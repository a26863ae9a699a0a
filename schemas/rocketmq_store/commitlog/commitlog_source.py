"""``spark.read.format("rocketmq_commitlog").load(store)``: a broker's commit log as a Spark data source.

The schema given to ``read.schema`` selects the columns: those of message_decoder.SCHEMA, and ``broker_name`` if the
option ``brokerName`` is set. The format ``rocketmq_commitlog_damage`` gives the bytes that are not messages. Each
segment file is a partition, read in Arrow batches of bounded size. The path is a store folder or its commitlog folder.
Executors must be able to read it, and to import the packages ``schemas`` and ``filtering``.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from schemas.rocketmq_store.commitlog.commitlog_walk import CHUNK_BYTES, Damage, Records, scan
from schemas.rocketmq_store.commitlog.message_decoder import SCHEMA, decode
from schemas.rocketmq_store.commitlog.segments import Segment, segments
from schemas.storage import Storage

BROKER_NAME = pa.field("broker_name", pa.string())
DAMAGE_SCHEMA = pa.schema(
    {"source_file": pa.string(), "offset": pa.int64(), "reason": pa.string(), "bytes": pa.binary()}
)
PUSHED_COLUMNS = ("topic", "store_timestamp")
PUSHED_FILTERS: dict[type[Filter], Callable[..., Any]] = {
    EqualTo: pc.equal,
    GreaterThan: pc.greater,
    GreaterThanOrEqual: pc.greater_equal,
    LessThan: pc.less,
    LessThanOrEqual: pc.less_equal,
    In: lambda column, values: pc.is_in(column, pa.array(values, column.type)),
}


class CommitLogSchemaError(ValueError):
    """A schema that the data source cannot provide. The message names the column and the known ones."""


def register(spark: SparkSession) -> None:
    """Registers the formats ``rocketmq_commitlog`` and ``rocketmq_commitlog_damage`` with a session."""
    spark.dataSource.register(CommitLogDataSource)
    spark.dataSource.register(CommitLogDamageDataSource)
    # Spark refuses a Python data source that takes filters while this is off, as it is by default.
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")


@dataclass
class SegmentPartition(InputPartition):
    """A segment file, its size fixed at planning: what a broker appends later is not read."""

    segment: Segment


class CommitLogDataSource(DataSource):
    """The messages of a commit log, one row each."""

    @classmethod
    def name(cls) -> str:
        return "rocketmq_commitlog"

    def schema(self) -> StructType:
        return from_arrow_schema(self._available())

    def reader(self, schema: StructType) -> "CommitLogReader":
        return CommitLogReader(_storage(self), _projection(schema, self._available()), self.options.get("brokerName"))

    def _available(self) -> pa.Schema:
        return SCHEMA.insert(0, BROKER_NAME) if "brokerName" in self.options else SCHEMA


class CommitLogDamageDataSource(DataSource):
    """The bytes of a commit log that are not messages: rows of DAMAGE_SCHEMA, each of at most 1 MiB."""

    @classmethod
    def name(cls) -> str:
        return "rocketmq_commitlog_damage"

    def schema(self) -> StructType:
        return from_arrow_schema(DAMAGE_SCHEMA)

    def reader(self, schema: StructType) -> "CommitLogDamageReader":
        return CommitLogDamageReader(_storage(self), _projection(schema, DAMAGE_SCHEMA))


class SegmentReader(DataSourceReader):
    """Reads the segments of a store, one partition each."""

    def __init__(self, storage: Storage, schema: pa.Schema):
        self.storage = storage
        self.schema = schema

    def partitions(self) -> list[InputPartition]:
        return [SegmentPartition(segment) for segment in segments(self.storage)]


class CommitLogReader(SegmentReader):
    """Decodes messages; filters on PUSHED_COLUMNS are applied before anything else is decoded."""

    def __init__(self, storage: Storage, schema: pa.Schema, broker_name: str | None):
        super().__init__(storage, schema)
        self.broker_name = broker_name
        self.filters: list[Filter] = []

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Accepts the filters on PUSHED_COLUMNS that are in PUSHED_FILTERS; returns the rest."""
        for pushed in filters:
            if getattr(pushed, "attribute", ("",))[0] in PUSHED_COLUMNS and type(pushed) in PUSHED_FILTERS:
                self.filters.append(pushed)
            else:
                yield pushed

    def read(self, partition: SegmentPartition) -> Iterator[pa.RecordBatch]:  # type: ignore[override]
        for piece in scan(partition.segment):
            if isinstance(piece, Records):
                yield from self._batches(piece)

    def _batches(self, records: Records) -> Iterator[pa.RecordBatch]:
        for pushed in self.filters:
            column = decode(records, [pushed.attribute[0]]).column(0)  # type: ignore[attr-defined]
            keep = PUSHED_FILTERS[type(pushed)](column, pushed.value)  # type: ignore[attr-defined]
            records = records.where(keep.to_numpy(zero_copy_only=False))
        if not len(records):
            return
        messages = decode(records, [name for name in self.schema.names if name != BROKER_NAME.name])
        columns = [
            pa.repeat(self.broker_name, len(records)) if name == BROKER_NAME.name else messages.column(name)
            for name in self.schema.names
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=self.schema)


class CommitLogDamageReader(SegmentReader):
    """Reads the damage between messages."""

    def read(self, partition: SegmentPartition) -> Iterator[pa.RecordBatch]:  # type: ignore[override]
        pieces: list[Damage] = []
        for piece in scan(partition.segment):
            if isinstance(piece, Damage):
                pieces.append(replace(piece, source_file=f"{partition.segment.storage.root}/{partition.segment.path}"))
                if len(pieces) == CHUNK_BYTES >> 20:
                    yield self._batch(pieces)
                    pieces = []
        if pieces:
            yield self._batch(pieces)

    def _batch(self, pieces: list[Damage]) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist([vars(piece) for piece in pieces], schema=self.schema)


def _storage(source: DataSource) -> Storage:
    return Storage.at(source.options.get("path", ""))


def _projection(schema: StructType, available: pa.Schema) -> pa.Schema:
    """The Arrow schema of the requested columns, as Spark expects it. Raises CommitLogSchemaError."""
    known = {field.name: field.dataType for field in from_arrow_schema(available).fields}
    for field in schema.fields:
        if field.name not in known:
            hint = "; broker_name needs the option brokerName" if field.name == BROKER_NAME.name else ""
            raise CommitLogSchemaError(f"there is no column {field.name}, only {', '.join(known)}{hint}")
        if field.dataType.simpleString() != known[field.name].simpleString():
            raise CommitLogSchemaError(
                f"column {field.name} is {known[field.name].simpleString()}, not {field.dataType.simpleString()}"
            )
    return to_arrow_schema(schema, timezone="UTC")
