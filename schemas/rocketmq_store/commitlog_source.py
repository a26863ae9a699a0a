"""``spark.read.format("rocketmq_commitlog").load(store)``: a broker's commit log as a Spark data source.

The schema given to ``read.schema`` selects the columns: those of message_decoder.SCHEMA, and ``broker_name`` if the
option ``brokerName`` is set. The format ``rocketmq_commitlog_damage`` gives the bytes that are not messages. Each
segment file is a partition, read in Arrow batches of bounded size. The path is a store folder or its commitlog folder.
Executors must be able to read it, and to import the packages ``schemas`` and ``filtering``.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from schemas.rocketmq_store.commitlog_walk import CHUNK_BYTES, Damage, Records, scan
from schemas.rocketmq_store.message_decoder import SCHEMA, decode
from schemas.rocketmq_store.segments import Segment, segments
from schemas.storage import Storage

BROKER_NAME = pa.field("broker_name", pa.string())
DAMAGE_SCHEMA = pa.schema(
    {"source_file": pa.string(), "offset": pa.int64(), "reason": pa.string(), "bytes": pa.binary()}
)


class CommitLogSchemaError(ValueError):
    """A schema that the data source cannot provide. The message names the column and the known ones."""


def register(spark: SparkSession) -> None:
    """Registers the formats ``rocketmq_commitlog`` and ``rocketmq_commitlog_damage`` with a session."""
    spark.dataSource.register(CommitLogDataSource)
    spark.dataSource.register(CommitLogDamageDataSource)


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
    """Decodes messages.

    It has no ``pushFilters``: Spark 4.2 keeps the filters of a query with the loaded DataFrame, and applies them in
    other queries on it, and in both sides of a union (PythonDataSourceV2.setReadInfo).
    """

    def __init__(self, storage: Storage, schema: pa.Schema, broker_name: str | None):
        super().__init__(storage, schema)
        self.broker_name = broker_name

    def read(self, partition: SegmentPartition) -> Iterator[pa.RecordBatch]:  # type: ignore[override]
        for piece in scan(partition.segment):
            if isinstance(piece, Records):
                yield self._batch(piece)

    def _batch(self, records: Records) -> pa.RecordBatch:
        messages = decode(records, [name for name in self.schema.names if name != BROKER_NAME.name])
        columns = [
            pa.repeat(self.broker_name, len(records)) if name == BROKER_NAME.name else messages.column(name)
            for name in self.schema.names
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


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
