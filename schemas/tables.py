"""The tables of a warehouse, except its ledger: those without a module of their own, and the lists of all.

Entries of consume queues, offsets and their history, counts of the filters, input that could not be decoded, how far
each queue grew, what was popped, and what clients wrote of their own consumption. The other tables are defined beside
the code that reads and writes their rows.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from filtering.names import LMQ_PREFIX, is_record_topic
from schemas.commitlog import COMMITLOG
from schemas.deliveries import DELIVERY_BLOCKS
from schemas.delta.table import Table, column
from schemas.delta.table_rows import within
from schemas.pull_windows import PULL_WINDOWS
from schemas.rocketmq_store.segments import is_mapped_file
from schemas.subscriptions import SUBSCRIPTION_EVENTS, SUBSCRIPTIONS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# The results of audits. Each audit adds its rows in one commit, which nights and the ledger ignore.


QUALITY_RESULTS = Table(
    "quality_results",
    "Results of audits. Key: run, audited_at, audit.",
    [
        column("run", pa.string(), "the last run of the ledger that was audited", nullable=False),
        column("first_run", pa.string(), "the first run that was audited", nullable=False),
        column("audited_at", pa.int64(), "ms since the epoch", nullable=False),
        column("audit", pa.string(), "name of the audit", nullable=False),
        column("severity", pa.string(), "ok, skipped, warn or error", nullable=False),
        column("bad_rows", pa.int64(), "rows that break its rule", nullable=False),
        column("rows", pa.int64(), "rows that the audit checked", nullable=False),
        column("cause", pa.string(), "the failed audit that explains this failure"),
        column("known", pa.bool_(), "whether the baseline has this failure", nullable=False),
        column("sample", pa.string(), "some bad rows as JSON lines, without values of messages"),
        column("query", pa.string(), "SQL that returns the bad rows", nullable=False),
        column("passed", pa.bool_(), "whether all audits of conf/audits.yaml ran and passed", nullable=False),
        column("versions", pa.map_(pa.string(), pa.int64()), "Delta versions of the tables that were audited"),
    ],
    partition_by=(),
    statistics_on=("run", "audited_at"),
    dictionary_encoded=("run", "first_run", "audited_at", "severity", "cause"),
)


CONSUMEQUEUE = Table(
    "consumequeue",
    "Consume queue entries with their extension. Key: broker_name, topic, queue_id, queue_offset.",
    [
        column("broker_name", pa.string(), nullable=False),
        column("topic", pa.string(), nullable=False),
        column("queue_id", pa.int32(), nullable=False),
        column("queue_offset", pa.int64(), nullable=False),
        column("commitlog_offset", pa.int64(), nullable=False),
        column("size", pa.int32(), "bytes of the record in the commitlog", nullable=False),
        column(
            "tags_code",
            pa.int64(),
            "hash of the tag; in SCHEDULE_TOPIC_XXXX the delivery time in ms",
            nullable=False,
        ),
        column("store_timestamp", pa.int64(), "ms since the epoch", nullable=False),
        column(
            "filter_bit_map",
            pa.binary(),
            "Bloom filter over the groups whose expression matched; null without filter data",
        ),
        column("store_date", pa.date32(), "day of store_timestamp, UTC"),
        column("run", pa.string(), "the run that wrote the entry", nullable=False),
    ],
    constraints={"queue_offset_not_negative": "queue_offset >= 0"},
    statistics_on=("topic", "queue_id", "queue_offset", "commitlog_offset", "store_timestamp", "run"),
    dictionary_encoded=("topic", "queue_id", "size", "tags_code", "store_date", "run"),
    delta_encoded=("queue_offset", "commitlog_offset", "store_timestamp"),
)

IN_LMQS = within("topic", LMQ_PREFIX, f"{LMQ_PREFIX[:-1]}&")
"""The entries in LMQs: & is the character after %."""

QUEUE_PROGRESS = Table(
    "queue_progress",
    "The entries added to queues, one row per night. Key: broker_name, topic, queue_id, run.",
    [
        column("broker_name", pa.string(), nullable=False),
        column("topic", pa.string(), nullable=False),
        column("queue_id", pa.int32(), nullable=False),
        column(
            "from_offset",
            pa.int64(),
            "queue offset of the night's first entry in the present queue",
            nullable=False,
        ),
        column("to_offset", pa.int64(), "queue offset after its last entry", nullable=False),
        column(
            "entries",
            pa.int64(),
            "number of entries, also of an old queue; fewer than there are offsets if records were not decodable",
            nullable=False,
        ),
        column("begins_at", pa.int64()),
        column(
            "began_at",
            pa.int64(),
            "if the queue began again in this night: when that message was stored, ms since the epoch; else null",
        ),
        column(
            "ended_at",
            pa.int64(),
            "if the queue began again in this night: queue offset at which the old one ended; else null",
        ),
        column("run", pa.string(), nullable=False),
    ],
    statistics_on=("run",),
    dictionary_encoded=("topic", "queue_id", "run"),
)

CONSUMER_OFFSETS = Table(
    "consumer_offsets",
    "Offsets of groups in queues, one row per change. Key: broker_name, consumer_group, topic, queue_id, as_of.",
    [
        column("broker_name", pa.string(), nullable=False),
        column("consumer_group", pa.string(), nullable=False),
        column("topic", pa.string(), nullable=False),
        column("queue_id", pa.int32(), nullable=False),
        column("as_of", pa.int64(), "end of the night, ms since the epoch", nullable=False),
        column("decided_to", pa.int64()),
        column("committed", pa.int64()),
        column("run", pa.string(), "the run that saw the change", nullable=False),
    ],
    statistics_on=("as_of", "run"),
    dictionary_encoded=("consumer_group", "topic", "queue_id", "as_of", "run"),
    delta_encoded=("decided_to", "committed"),
)

CURRENT_OFFSETS = Table(
    "current_offsets",
    "Offsets after the last night. Key: broker_name, topic, queue_id, consumer_group.",
    [
        column("broker_name", pa.string(), nullable=False),
        column("consumer_group", pa.string(), "null: no group has subscribed to the topic of this queue"),
        column("topic", pa.string(), nullable=False),
        column("queue_id", pa.int32(), nullable=False),
        column("queue_end", pa.int64(), "queue offset after the last entry", nullable=False),
        column("begins_at", pa.int64()),
        column("decided_to", pa.int64()),
        column("committed", pa.int64()),
        column("run", pa.string(), nullable=False),
    ],
    statistics_on=("topic",),
    dictionary_encoded=("consumer_group", "topic", "queue_id", "run"),
    delta_encoded=("queue_end", "begins_at", "decided_to", "committed"),
)

COUNTS = (
    "scanned", "passed_stage1", "passed_stage2", "delivered", "dropped_by_hook", "bit_map_false_positives",
    "hash_collisions", "evaluation_errors", "uncertain", "repeated", "skipped", "lost", "stored", "pending",
)  # fmt: skip
MEANINGS = {
    "scanned": "entries that the group's pulls went past, and the filters judged",
    "passed_stage1": "passed the filter on the consume queue entry: tags code or filter bit map",
    "passed_stage2": "also passed the filter on the message, and returned by the broker",
    "delivered": "messages that also passed the client's tag check and its filter hooks",
    "proven": "deliveries that a client's own traces prove",
    "client_drops": "stopped by the client's tag check",
    "dropped_by_hook": "passed the client's tag check, and dropped by its filter hook",
    "bit_map_false_positives": "passed stage 1 by the filter bit map, not stage 2",
    "hash_collisions": "passed by the hash of their tag, and dropped by a client with the same tags",
    "evaluation_errors": "the expression fails on the message, which counts as no match",
    "uncertain": "not known which of several filters counted, or whether the group got it: explain says why",
    "repeated": "scanned again after an offset reset",
    "skipped": "never pulled: before the group's first start, or jumped over by a reset",
    "lost": "deleted by the broker before the group pulled them, or waiting in a queue that began again",
    "stored": "added to the queue in this night",
    "pending": "not pulled yet at the end of the night",
}
"""What each of COUNTS, ``proven`` and ``client_drops`` counts."""


def client_drops(counts: Mapping[str, int]) -> int:
    """The messages that the client's tag check dropped: hash collisions, and those that clients disagree about."""
    return counts["passed_stage2"] - counts["delivered"] - counts["dropped_by_hook"]


DELIVERY_STATS = Table(
    "delivery_stats",
    "Counts of one night. Key: run, broker_name, consumer_group, topic, queue_id.",
    [
        column("run", pa.string(), nullable=False),
        column("broker_name", pa.string(), nullable=False),
        column("consumer_group", pa.string(), nullable=False),
        column("topic", pa.string(), nullable=False),
        column("queue_id", pa.int32(), nullable=False),
        *(column(name, pa.int64(), MEANINGS[name], nullable=False) for name in COUNTS),
    ],
    statistics_on=("run", "topic"),
    dictionary_encoded=("run", "consumer_group", "topic", "queue_id", *COUNTS),
)

TRACE_SOURCE = " (trace)"
"""What follows the topic in ``source_file`` of what is in a trace."""

QUARANTINE = Table(
    "quarantine",
    "Input that could not be decoded. Key: broker_name, source_file, offset.",
    [
        column("broker_name", pa.string(), nullable=False),
        column(
            "source_file",
            pa.string(),
            "name of the file; of a record of pops, its topic; of what is in a trace, TOPIC (trace)",
            nullable=False,
        ),
        column("offset", pa.int64(), "physical offset in a commitlog, or line of a text file", nullable=False),
        column("reason", pa.string(), "why it could not be decoded", nullable=False),
        column("bytes", pa.binary(), "the input itself"),
        column("run", pa.string(), "the run that first read it", nullable=False),
    ],
    statistics_on=("source_file", "offset", "run"),
    dictionary_encoded=("source_file", "reason", "run"),
)


def is_of_log(source_file: str) -> bool:
    """Whether it was in a broker's log: bytes of a segment, a record of pops or a trace. Others are lines of files."""
    return is_mapped_file(source_file) or is_record_topic(source_file) or source_file.endswith(TRACE_SOURCE)


# What consumers popped: the broker's own record of it, and each message that a pop handed out.
#
# ``pop_records`` has the record as the broker wrote it into its log (filtering.names), a row for each message that a
# checkpoint or an acknowledgement names. ``pops`` follows from it: a row for each message that a pop handed out. A
# night adds the rows of new pops, and completes those of earlier pops that were acknowledged, renewed or redelivered
# since. Where the broker writes nothing down, a night adds a row for each delivery that it infers: of these, only the
# message, the attempt and when it could first be popped are known.


POP_RECORDS = Table(
    "pop_records",
    "What brokers wrote down of pops, a row for each message in a record. Key: broker_name, commitlog_offset, "
    "queue_offset.",
    [
        column("broker_name", pa.string(), nullable=False),
        column("commitlog_offset", pa.int64(), "physical offset of the record, bytes", nullable=False),
        column("kind", pa.string(), "ck: handed out by a pop; ack, bAck: acknowledged", nullable=False),
        column("consumer_group", pa.string(), nullable=False),
        column("topic", pa.string(), "the topic popped from, which may be a retry topic", nullable=False),
        column("queue_id", pa.int32(), nullable=False),
        column("queue_offset", pa.int64(), nullable=False),
        column("start_offset", pa.int64(), "queue offset at which the pop began to read", nullable=False),
        column("popped_at", pa.int64(), "time of the pop, ms since the epoch", nullable=False),
        column("invisible_time", pa.int64(), "ms for which no other pop gets the message; null in acknowledgements"),
        column("messages", pa.int32(), "number of messages in the record", nullable=False),
        column("is_copy", pa.bool_(), "the broker appended the record again when it was due", nullable=False),
        column("is_put_again", pa.bool_(), "the broker put the checkpoint again because revival failed"),
        column("store_timestamp", pa.int64(), "of the record, ms since the epoch", nullable=False),
        column("run", pa.string(), "the run that read the record", nullable=False),
    ],
    statistics_on=("commitlog_offset", "popped_at", "run"),
    dictionary_encoded=(
        "kind", "consumer_group", "topic", "queue_id", "invisible_time", "messages", "is_copy", "is_put_again", "run",
    ),
    delta_encoded=("commitlog_offset", "queue_offset", "start_offset", "popped_at", "store_timestamp"),
)  # fmt: skip

POPS = Table(
    "pops",
    "The messages that pops handed out, one row for each time. Key: broker_name, consumer_group, topic, queue_id, "
    "queue_offset, popped_at.",
    [
        column("broker_name", pa.string(), nullable=False),
        column("consumer_group", pa.string(), nullable=False),
        column("topic", pa.string(), "the topic popped from, which may be a retry topic", nullable=False),
        column("queue_id", pa.int32(), nullable=False),
        column("queue_offset", pa.int64(), nullable=False),
        column("commitlog_offset", pa.int64(), "physical offset of the message; null if it is in no table"),
        column("popped_at", pa.int64(), "time of the pop, or PLANNED: the first possible one, ms", nullable=False),
        column("invisible_time", pa.int64(), "ms for which no other pop gets the message"),
        column("start_offset", pa.int64(), "queue offset at which the pop began to read"),
        column("attempt", pa.int32(), "1 for the first delivery, 2 for the first redelivery, …"),
        column("renewed_at", pa.int64(), "when the client last changed the invisible time, ms; null: never"),
        column(
            "visible_at",
            pa.int64(),
            "when it can be popped again if not acknowledged, ms; PLANNED: not known, popped_at",
            nullable=False,
        ),
        column("acknowledged_at", pa.int64(), "ms since the epoch; null: not acknowledged"),
        column("redelivered_as", pa.int64(), "physical offset of the redelivery on the retry topic; null: none"),
        column(
            "source",
            pa.string(),
            "RECORDED: the broker wrote it down; PLANNED: inferred, and what is not known is null",
            nullable=False,
        ),
        column("record_offset", pa.int64(), "physical offset of the checkpoint"),
        column("is_open", pa.bool_(), "RECORDED, and neither acknowledged nor redelivered", nullable=False),
        column("run", pa.string(), "the run that decided the delivery", nullable=False),
    ],
    statistics_on=("popped_at", "visible_at", "run"),
    dictionary_encoded=(
        "consumer_group", "topic", "queue_id", "invisible_time", "attempt", "source", "is_open", "run",
    ),
    delta_encoded=(
        "queue_offset", "commitlog_offset", "popped_at", "start_offset", "visible_at", "acknowledged_at",
        "record_offset",
    ),
)  # fmt: skip


# What clients wrote of their own consumption: the traces in the broker's log.


CONSUMPTIONS = Table(
    "consumptions",
    "What clients with message tracing wrote of their own consumption: one row each time that one was handed a "
    "message. Key: broker_name, trace_offset, trace_number.",
    [
        column("broker_name", pa.string(), nullable=False),
        column("consumer_group", pa.string(), "full name; null: the client wrote only the end of the call, without it"),
        column("topic", pa.string(), "topic of the message; null: it is not in commitlog"),
        column("queue_id", pa.int32()),
        column("queue_offset", pa.int64()),
        column("commitlog_offset", pa.int64()),
        column("message_id", pa.string(), "UNIQ_KEY of the message, or its msg_id if it has none", nullable=False),
        column(
            "records",
            pa.int32(),
            "messages of the log that message_id and retry_times may mean; if more than one, the row has one of them",
            nullable=False,
        ),
        column("retry_times", pa.int32(), "how often the message came again; in order also in the client's memory"),
        column("consumed_at", pa.int64(), "when the listener was called, ms since the epoch, client clock"),
        column("returned_at", pa.int64(), "when it returned; null: not known, or it did not yet; clients before 4.8.0"),
        column("cost", pa.int32(), "ms of the call, divided by the number of its messages"),
        column("success", pa.bool_(), "whether the call, not the message, succeeded; null: it did not return yet"),
        column("code", pa.int32(), "0 success, 1 time-out, 2 exception, 3 null returned, 4 asked for redelivery"),
        column("client_process", pa.string(), "hex of the client's address, process id mod 65536 and class loader"),
        column("request_id", pa.string(), "of the call: its messages share it", nullable=False),
        column("trace_topic", pa.string(), "topic of the trace", nullable=False),
        column("trace_offset", pa.int64(), "physical offset of the trace in the commitlog, bytes", nullable=False),
        column("trace_number", pa.int32(), "number of the line in the trace, from 0", nullable=False),
        column("traced_at", pa.int64(), "when the trace was stored, ms since the epoch", nullable=False),
        column("run", pa.string(), "the run that read the trace, or the end of the call", nullable=False),
    ],
    statistics_on=("topic", "queue_offset", "commitlog_offset", "consumed_at", "trace_offset", "run"),
    dictionary_encoded=(
        "consumer_group", "topic", "queue_id", "records", "retry_times", "cost", "success", "code", "client_process",
        "trace_topic", "run",
    ),
    delta_encoded=(
        "queue_offset", "commitlog_offset", "consumed_at", "returned_at", "trace_offset", "trace_number", "traced_at",
    ),
)  # fmt: skip


_IPV4_OCTETS = 10
"""Of a client_process with an IPv4 address: that, the process id and the hash of the class loader."""


def client_name(process: str | None) -> str:
    """``10.0.0.7 (process 1)``: the client of a ``client_process``. Source: MessageClientIDSetter."""
    if process is None:
        return "a client"
    octets = bytes.fromhex(process)
    family = socket.AF_INET6 if len(octets) > _IPV4_OCTETS else socket.AF_INET
    address, number = octets[:-6], int.from_bytes(octets[-6:-4], "big")
    return f"{socket.inet_ntop(family, address)} (process {number})"


# All tables.


TABLES = (
    COMMITLOG, POP_RECORDS, CONSUMEQUEUE, DELIVERY_BLOCKS, POPS, DELIVERY_STATS, PULL_WINDOWS, CONSUMER_OFFSETS,
    CURRENT_OFFSETS, QUEUE_PROGRESS, SUBSCRIPTIONS, SUBSCRIPTION_EVENTS, QUARANTINE, CONSUMPTIONS,
)  # fmt: skip
APPENDED_TABLES = (
    COMMITLOG, POP_RECORDS, CONSUMEQUEUE, DELIVERY_BLOCKS, POPS, DELIVERY_STATS, PULL_WINDOWS, CONSUMER_OFFSETS,
    QUEUE_PROGRESS, SUBSCRIPTION_EVENTS, QUARANTINE, CONSUMPTIONS,
)  # fmt: skip
"""Tables to which every night adds files."""
DERIVED_TABLES = (
    CONSUMEQUEUE, DELIVERY_BLOCKS, POPS, DELIVERY_STATS, PULL_WINDOWS, CONSUMER_OFFSETS, CURRENT_OFFSETS,
    QUEUE_PROGRESS,
)  # fmt: skip
"""Tables whose rows follow from messages and subscriptions. Repeated nights make them again."""
REBUILT_TABLES = (
    CONSUMEQUEUE, DELIVERY_BLOCKS, POPS, DELIVERY_STATS, PULL_WINDOWS, CURRENT_OFFSETS, QUEUE_PROGRESS, SUBSCRIPTIONS,
)  # fmt: skip
"""Tables that can be rebuilt if they are lost. consumer_offsets has offsets of snapshots, which are nowhere else."""
TRIMMED_TABLES = (COMMITLOG, POP_RECORDS, CONSUMEQUEUE, DELIVERY_BLOCKS, POPS, CONSUMPTIONS)
"""Tables from which maintenance removes all rows of old nights. From quarantine it removes those of the log."""
UNLEDGERED_TABLES = (QUALITY_RESULTS,)
"""Tables that no night reads. Their commits are independent, and the ledger does not list them."""


# Times as timestamps (UTC) beside their milliseconds: ``available_at_utc`` beside ``available_at``.


ArrowRows = TypeVar("ArrowRows", pa.Table, pa.RecordBatch)
UTC_SUFFIX = "_utc"
TIMES = frozenset(
    {
        "acknowledged_at", "as_of", "at", "audited_at", "available_at", "began_at", "born_time", "born_timestamp",
        "consumed_at", "dead_time", "filter_version", "first_store_timestamp", "last_store_timestamp", "popped_at",
        "renewed_at", "returned_at", "store_timestamp", "stored_from", "stored_to", "sub_version", "subscription_from",
        "traced_at", "valid_from", "valid_to", "visible_at",
    }
)  # fmt: skip
"""The columns of tables that are milliseconds since the epoch."""
TIMESTAMP = pa.timestamp("ms", "UTC")


def with_times_schema(schema: pa.Schema) -> pa.Schema:
    """The columns, and after them a timestamp for each time."""
    return pa.schema([*schema, *(pa.field(name + UTC_SUFFIX, TIMESTAMP) for name in schema.names if name in TIMES)])


def with_times(rows: ArrowRows) -> ArrowRows:
    """The rows with the columns of :func:`with_times_schema`."""
    for name in [name for name in rows.schema.names if name in TIMES]:
        rows = rows.append_column(name + UTC_SUFFIX, rows[name].cast(TIMESTAMP))
    return rows


def with_times_in_spark(rows: DataFrame) -> DataFrame:
    """The same for Spark's rows."""
    from pyspark.sql import functions as F

    times = {name + UTC_SUFFIX: F.timestamp_millis(F.col(name)) for name in rows.columns if name in TIMES}
    return rows.withColumns(times) if times else rows
