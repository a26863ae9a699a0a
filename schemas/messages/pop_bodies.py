"""Reads the broker's record of pops from the bodies of its messages, which are JSON: all bodies of a chunk at once.

Source: PopCheckPoint, AckMsg, BatchAckMsg (org.apache.rocketmq.store.pop), as fastjson writes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import json

from filtering.pops.record import ACK, BATCH_ACK, CHECKPOINT, REAL_TOPIC, TIMER_TOPIC, is_record_topic
from filtering.subscriptions.namespace import REVIVE_TOPIC_PREFIX
from schemas.arrow_batches import decoded, numbered, repeated
from schemas.messages.commitlog_rows import Messages
from schemas.pops import POP_RECORDS
from schemas.rocketmq_store import record_layout
from schemas.rocketmq_store.commitlog_walk import Damage, Records, body_crcs

_BODY = pa.schema(
    [
        ("c", pa.string()),  # group
        ("t", pa.string()),  # topic
        ("q", pa.int32()),  # queue id
        ("so", pa.int64()),  # start offset
        ("pt", pa.int64()),  # pop time
        ("it", pa.int64()),  # invisible time
        ("d", pa.list_(pa.int64())),  # what was handed out, as differences to the start offset
        ("n", pa.int32()),  # the number of messages
        ("rp", pa.string()),  # how often the checkpoint was put again
        ("ao", pa.int64()),  # the acknowledged queue offset
        ("aol", pa.list_(pa.int64())),  # the acknowledged queue offsets
    ]
)
_PARSE = json.ParseOptions(explicit_schema=_BODY, unexpected_field_behavior="ignore")
_NEWLINE, _CARRIAGE_RETURN, _SPACE = b"\n\r "
_OPEN, _CLOSE = b"{}"
NOT_A_RECORD = "a message among records of pops, whose tag is neither ck, ack nor bAck"
DAMAGED_BODY = "a record of pops whose body is damaged"
NOT_JSON = "a record of pops whose body is not the JSON object that a broker writes"
INCOMPLETE = "a record of pops whose body lacks a value, or has one that cannot be"
_LONGEST_POP = 1 << 10
"""A checkpoint with more messages is not a broker's: a pop returns at most 32."""


def pop_records(records: Records, messages: Messages, run: str) -> tuple[pa.RecordBatch | None, Sequence[Damage]]:
    """Rows of POP_RECORDS for the records of pops among some messages of a log, and those that cannot be read.

    ``messages`` are those of ``records``, in the same order. The source of damage is the topic of the message.
    """
    at, is_copy = _positions(messages)
    if not len(at):
        return None, ()
    damage: list[Damage] = []

    def reject(rejected: NDArray[np.int64], reason: str) -> None:
        damage.extend(_damage(records, messages, rejected, reason))

    tags = decoded(messages.named["TAGS"].take(pa.array(at)))
    kinds = pc.index_in(tags, value_set=pa.array([CHECKPOINT, ACK, BATCH_ACK])).fill_null(-1).to_numpy()
    reject(at[kinds < 0], NOT_A_RECORD)
    computed = body_crcs(records.log, records.at("body")[at], records.at("body_length")[at])
    is_damaged = computed != records.numbers("body_crc")[at]
    reject(at[is_damaged & (kinds >= 0)], DAMAGED_BODY)
    readable = (kinds >= 0) & ~is_damaged
    at, is_copy, kinds = at[readable], is_copy[readable], kinds[readable]
    bodies, parsed = _parse(records, at)
    reject(at[~parsed], NOT_JSON)
    at, is_copy, kinds = at[parsed], is_copy[parsed], kinds[parsed]
    offsets, lengths, complete = _queue_offsets(bodies, kinds)
    reject(at[~complete], INCOMPLETE)
    if not complete.any():
        return None, damage
    bodies = bodies.filter(pa.array(complete))
    at, is_copy, kinds = at[complete], is_copy[complete], kinds[complete]
    record_row = np.repeat(np.arange(len(at)), lengths)
    index = pa.array(record_row)
    columns = {
        "commitlog_offset": pa.array(records.physical_offsets()[at][record_row]),
        "kind": numbered((CHECKPOINT, ACK, BATCH_ACK), kinds[record_row]),
        "consumer_group": bodies["c"].dictionary_encode().combine_chunks().take(index),
        "topic": bodies["t"].dictionary_encode().combine_chunks().take(index),
        "queue_id": bodies["q"].combine_chunks().take(index),
        "queue_offset": pa.array(offsets),
        "start_offset": bodies["so"].combine_chunks().take(index),
        "popped_at": bodies["pt"].combine_chunks().take(index),
        "invisible_time": pc.if_else(pa.array(kinds == 0), bodies["it"], None).combine_chunks().take(index),
        "messages": pa.array(lengths[record_row], pa.int32()),
        "is_copy": pa.array(is_copy[record_row]),
        "is_put_again": pc.is_valid(bodies["rp"]).combine_chunks().take(index),
        "store_timestamp": pa.array(messages.store_timestamp[at][record_row]),
        "run": repeated(run, len(record_row)),
    }
    return POP_RECORDS.batch(columns, len(record_row)), damage


def _positions(messages: Messages) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Where records of pops are among messages, and which of them the broker appended again when they were due."""
    is_record_shape = np.array([is_record_topic(shape.topic) for shape in messages.shapes], bool)
    at = np.flatnonzero(is_record_shape[messages.shape_of]) if is_record_shape.any() else np.empty(0, np.int64)
    if not len(at):
        return at, np.empty(0, bool)
    is_timer = np.array([shape.topic == TIMER_TOPIC for shape in messages.shapes], bool)[messages.shape_of[at]]
    real_topic = messages.properties([REAL_TOPIC], at).get(REAL_TOPIC)
    if real_topic is None:
        return at[~is_timer], np.zeros(int((~is_timer).sum()), bool)
    texts = real_topic.text_of_each()
    has_revive_topic = pc.starts_with(texts, REVIVE_TOPIC_PREFIX).fill_null(False).to_numpy(zero_copy_only=False)
    is_record = ~is_timer | has_revive_topic
    return at[is_record], (~is_timer & has_revive_topic)[is_record]


def _parse(records: Records, at: NDArray[np.int64]) -> tuple[pa.Table, NDArray[np.bool_]]:
    """The bodies of some records as columns of _BODY, and which of the records have a row there."""
    starts, lengths = records.at("body")[at], records.at("body_length")[at]
    last = starts + np.maximum(lengths, 1) - 1
    parsed = (lengths > 1) & (records.log[starts] == _OPEN) & (records.log[last] == _CLOSE)
    good = np.flatnonzero(parsed)
    # A line for each body: the byte after it becomes the end of the line.
    offsets, data = record_layout.spans(records.log, starts[good], lengths[good] + 1)
    data[(data == _NEWLINE) | (data == _CARRIAGE_RETURN)] = _SPACE
    data[offsets[1:] - 1] = _NEWLINE
    tables, first = [_BODY.empty_table()], 0
    for count, table in _parsed_lines(data, offsets.astype(np.int64)):
        if table is None:
            parsed[good[first : first + count]] = False
        else:
            tables.append(table)
        first += count
    return pa.concat_tables(tables), parsed


def _parsed_lines(data: record_layout.Bytes, bounds: NDArray[np.int64]) -> Iterator[tuple[int, pa.Table | None]]:
    """Numbers of lines, in order, each with their rows; None for a line that cannot be parsed."""
    count = len(bounds) - 1
    if not count:
        return
    lines = data[bounds[0] : bounds[-1]]
    read = json.ReadOptions(use_threads=False, block_size=len(lines) + 1)
    try:
        table = json.read_json(pa.py_buffer(lines), read, _PARSE)
    except pa.ArrowInvalid:
        table = None
    if table is not None and len(table) == count:
        yield count, table
    elif count == 1:
        yield 1, None
    else:
        yield from _parsed_lines(data, bounds[: count // 2 + 1])
        yield from _parsed_lines(data, bounds[count // 2 :])


def _queue_offsets(
    bodies: pa.Table, kinds: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """The queue offsets of all bodies, one after another; the number of each body's; which bodies have all values.

    The offsets and numbers are only of those bodies. Without ``d``, a checkpoint is of consecutive offsets
    (PopCheckPoint.ackOffsetByIndex).
    """
    rows = len(kinds)
    has_names = pc.and_(pc.greater(pc.binary_length(bodies["c"]), 0), pc.greater(pc.binary_length(bodies["t"]), 0))
    complete = np.array(has_names.fill_null(False))
    for name in ("q", "so", "pt"):
        complete &= np.array(pc.greater_equal(bodies[name], 0).fill_null(False))
    start, number = _numbers(bodies, "so"), _numbers(bodies, "n")
    first, lengths = np.zeros(rows, np.int64), np.zeros(rows, np.int64)
    values: list[NDArray[np.int64]] = []
    for kind, (name, single) in enumerate((("d", None), ("aol", "ao"), ("aol", None))):
        rows_of_kind = np.flatnonzero(kinds == kind)
        lists = bodies[name].combine_chunks().take(pa.array(rows_of_kind))
        sizes = np.array(pc.list_value_length(lists).fill_null(0))
        listed = np.array(lists.flatten().fill_null(-1), np.int64)
        if kind == 0:
            listed = np.where(listed < 0, -1, listed + np.repeat(start[rows_of_kind], sizes))
            given = np.where(sizes > 0, sizes, np.clip(number[rows_of_kind], 0, _LONGEST_POP))
            complete[rows_of_kind] &= np.array(pc.greater_equal(bodies["it"], 0).fill_null(False))[rows_of_kind]
            listed = _with_consecutive(listed, sizes, given, start[rows_of_kind])
            sizes = given
        elif single is not None:
            listed, sizes = _numbers(bodies, single)[rows_of_kind], np.ones(len(rows_of_kind), np.int64)
        first[rows_of_kind] = sum(len(array) for array in values) + np.cumsum(sizes) - sizes
        lengths[rows_of_kind] = sizes
        values.append(listed)
    offsets = np.concatenate(values)
    negative = np.append(0, np.cumsum(offsets < 0))
    complete &= (lengths > 0) & (lengths <= _LONGEST_POP) & (negative[first + lengths] == negative[first])
    lengths = lengths[complete]
    within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return offsets[np.repeat(first[complete], lengths) + within], lengths, complete


def _with_consecutive(
    listed: NDArray[np.int64], sizes: NDArray[np.int64], given: NDArray[np.int64], start: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The offsets of each checkpoint: those that are listed, or consecutive ones from its start."""
    if np.array_equal(sizes, given):
        return listed
    within = np.arange(given.sum()) - np.repeat(np.cumsum(given) - given, given)
    offsets: NDArray[np.int64] = np.repeat(start, given) + within
    offsets[np.repeat(sizes > 0, given)] = listed
    return offsets


def _numbers(bodies: pa.Table, name: str) -> NDArray[np.int64]:
    """A column of whole numbers; -1 where there is none."""
    return np.array(bodies[name].fill_null(-1), np.int64)


def _damage(records: Records, messages: Messages, rejected: NDArray[np.int64], reason: str) -> Iterator[Damage]:
    starts, lengths = records.at("body"), records.at("body_length")
    for row in rejected.tolist():
        body = records.log[starts[row] : starts[row] + lengths[row]].tobytes()
        topic = messages.shapes[messages.shape_of[row]].topic
        yield Damage(topic, int(records.physical_offsets()[row]), reason, body)
