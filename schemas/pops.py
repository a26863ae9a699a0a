"""What consumers popped: the broker's own record of it, and each message that a pop handed out.

``pop_records`` has the record as the broker wrote it into its log (:mod:`filtering.names`), a row for each
message that a checkpoint or an acknowledgement names. ``pops`` follows from it: a row for each message that a pop
handed out. A night adds the rows of new pops, and completes those of earlier pops that were acknowledged, renewed or
redelivered since. Where the broker writes nothing down, a night adds a row for each delivery that it infers: of these,
only the message, the attempt and when it could first be popped are known.
"""

from __future__ import annotations

import pyarrow as pa

from schemas.delta.table import Table, column

RECORDED, PLANNED, TRACED = "RECORDED", "PLANNED", "TRACED"
"""How a pop or a delivery is known: the broker wrote it down, it follows from subscriptions and offsets, or these leave
it uncertain, and a trace of the client decides it."""

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
