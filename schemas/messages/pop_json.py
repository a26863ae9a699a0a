"""Reads the broker's record of pops from a chunk of its log: JSON bodies, and from them rows of POP_RECORDS.

A broker writes objects of whole numbers, texts, lists of whole numbers, and booleans (fastjson).
Source: PopCheckPoint, AckMsg, BatchAckMsg (org.apache.rocketmq.store.pop).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from filtering.frozen import frozen
from filtering.kernels.compile import Array, Int, compiled
from filtering.matcher.column import Column
from filtering.names import ACK, BATCH_ACK, CHECKPOINT, REAL_TOPIC, REVIVE_TOPIC_PREFIX, TIMER_TOPIC, is_record_topic
from filtering.pops.handed_out import NONE
from schemas.arrow_batches import dictionary_column, repeated
from schemas.messages.commitlog_rows import Messages
from schemas.messages.json_lines import POPS, REGULAR, REGULAR_NOT_ASCII, Lines, integer, scan
from schemas.pops import POP_RECORDS
from schemas.rocketmq_store.commitlog_walk import Damage, Records
from schemas.rocketmq_store.properties import Interner
from schemas.rocketmq_store.record_layout import Bytes, Positions, binary_array, find_two, spans

# The fields of bodies, of which json_lines has the kinds: queue id (q), start offset (so), pop time (pt), invisible
# time (it), number of messages (n), acknowledged queue offset (ao); group (c), topic (t); what was handed out, as
# differences to the start offset (d), and the acknowledged queue offsets (aol); how often it was put again (rp).

TEXTS, LISTS = ("c", "t"), ("d", "aol")
_NEW_LINE, _SPACE = b"\n "


@frozen(eq=False)
class Bodies:
    """The values of some bodies, NONE where there is none.

    ``numbers``: by name. ``texts``: by name, the number of each text in ``known_texts``, NONE also for an empty one.
    ``lists``: by name, where each list begins in ``listed``, and its length.
    """

    numbers: dict[str, NDArray[np.int64]]
    texts: dict[str, NDArray[np.int32]]
    known_texts: dict[str, pa.StringArray]
    lists: dict[str, tuple[NDArray[np.int64], NDArray[np.int64]]]
    listed: NDArray[np.int64]
    is_put_again: NDArray[np.bool_]

    def text(self, name: str, at: Positions) -> pa.DictionaryArray:
        """The texts of a name in some bodies, as a column."""
        numbers = self.texts[name][at]
        return pa.DictionaryArray.from_arrays(pa.array(numbers, mask=numbers == NONE), self.known_texts[name])


def read_bodies(log: Bytes, starts: Positions, lengths: Positions) -> tuple[Bodies, NDArray[np.bool_]]:
    """The bodies at some positions of a log, and which of them are JSON objects with values of the fields' kinds.

    Of the others, all values are NONE.
    """
    offsets, data = spans(log, starts, lengths + 1)
    data[data == _NEW_LINE] = _SPACE
    data[offsets[1:] - 1] = _NEW_LINE  # a line for each body: the byte after it becomes the end of the line
    read = scan(data.tobytes(), 0, POPS)
    good = _good(read)
    body = read.lines[0, good]
    is_read = np.zeros(len(starts), bool)
    is_read[body] = True

    def of_bodies(values: NDArray[Any], nothing: int) -> NDArray[Any]:
        of_each = np.full(len(starts), nothing, values.dtype)
        of_each[body] = values[good]
        return of_each

    def places(name: str) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        begins, sizes = (of_bodies(part, 0) for part in read.places[name])
        return begins, sizes

    texts = {name: _numbered(read.texts, *places(name)) for name in TEXTS}
    lists: dict[str, tuple[Positions, Positions]] = {}
    listed = np.empty(len(data) // 2 + 1, np.int64)
    used = 0
    for name in LISTS:
        first, count = np.zeros(len(starts), np.int64), np.zeros(len(starts), np.int64)
        used = _read_lists(read.texts, *places(name), first, count, listed, used)
        lists[name] = first, count
    bodies = Bodies(
        {name: of_bodies(np.where(read.given[name], values, NONE), NONE) for name, values in read.numbers.items()},
        {name: numbers for name, (numbers, _) in texts.items()},
        {name: known for name, (_, known) in texts.items()},
        lists,
        listed[:used],
        of_bodies(read.given["rp"], False),
    )
    return bodies, is_read


def _good(read: Lines) -> Positions:
    """The rows of lines that are right."""
    good = read.states == REGULAR
    for row in np.flatnonzero(read.states == REGULAR_NOT_ASCII):
        ((_, line),) = read.at(np.array([row]))
        with suppress(UnicodeDecodeError):
            line.decode()
            good[row] = True
    return np.flatnonzero(good)


def _numbered(
    log: Bytes, starts: NDArray[np.int32], lengths: NDArray[np.int32]
) -> tuple[NDArray[np.int32], pa.StringArray]:
    """The number of each text, NONE for an empty one, and the texts."""
    interner = Interner()
    numbers = interner.numbers(log, starts, lengths)
    assert numbers is not None
    numbers[lengths == 0] = NONE
    return numbers, binary_array(*interner.texts()).view(pa.string())


@compiled
def _read_lists(
    texts: Bytes, starts: Array, lengths: Array, first: Array, count: Array, listed: Array, used: Int
) -> Int:
    """Reads the lists at some places into ``listed`` from ``used`` on: where each begins there, and its length.

    Returns how much of ``listed`` is used.
    """
    for row in range(len(starts)):
        at, end = starts[row], starts[row] + lengths[row]
        first[row] = used
        while at < end:
            stop = find_two(texts, at, end)
            listed[used] = integer(texts, at, stop)
            used += 1
            at = stop + 1
        count[row] = used - first[row]
    return used


# Rows of POP_RECORDS.


NOT_A_RECORD = "a message among records of pops, whose tag is neither ck, ack nor bAck"
DAMAGED_BODY = "a record of pops whose body is damaged"
NOT_JSON = "a record of pops whose body is not the JSON object that a broker writes"
INCOMPLETE = "a record of pops whose body lacks a value, or has one that cannot be"
_LONGEST_POP = 1 << 10
"""A checkpoint with more messages is not a broker's: a pop returns at most 32."""


def pop_records(
    records: Records, messages: Messages, is_damaged: NDArray[np.bool_], run: str
) -> tuple[pa.RecordBatch | None, Sequence[Damage]]:
    """Rows of POP_RECORDS for the records of pops among some messages of a log, and those that cannot be read.

    The checkpoints are first. ``messages`` are those of ``records``, in the same order; ``is_damaged``: whose body is
    damaged. The source of damage is the topic of the message.
    """
    at, is_copy = _positions(messages)
    if not len(at):
        return None, ()
    damage: list[Damage] = []

    def reject(rejected: NDArray[np.int64], reason: str) -> None:
        damage.extend(_damage(records, messages, rejected, reason))

    kinds = messages.properties(["TAGS"], at)["TAGS"].answer(_kinds, NONE)
    reject(at[kinds < 0], NOT_A_RECORD)
    reject(at[is_damaged[at] & (kinds >= 0)], DAMAGED_BODY)
    readable = np.flatnonzero((kinds >= 0) & ~is_damaged[at])
    by_kind = readable[np.argsort(kinds[readable].astype(np.int8), kind="stable")]
    at, is_copy, kinds = at[by_kind], is_copy[by_kind], kinds[by_kind]
    bodies, parsed = read_bodies(records.log, records.at("body")[at], records.at("body_length")[at])
    reject(at[~parsed], NOT_JSON)
    offsets, lengths, complete = _queue_offsets(bodies, kinds)
    reject(at[parsed & ~complete], INCOMPLETE)
    if not complete.any():
        return None, damage
    record_row = np.repeat(np.flatnonzero(complete), lengths)
    at, kinds = at[record_row], kinds[record_row]
    is_checkpoint = kinds == 0
    numbers = {name: values[record_row] for name, values in bodies.numbers.items()}
    columns = {
        "commitlog_offset": pa.array(records.physical_offsets()[at]),
        "kind": dictionary_column((CHECKPOINT, ACK, BATCH_ACK), kinds),
        "consumer_group": bodies.text("c", record_row),
        "topic": bodies.text("t", record_row),
        "queue_id": pa.array(numbers["q"], pa.int32()),
        "queue_offset": pa.array(offsets),
        "start_offset": pa.array(numbers["so"]),
        "popped_at": pa.array(numbers["pt"]),
        "invisible_time": pa.array(numbers["it"], mask=~is_checkpoint),
        "messages": pa.array(np.repeat(lengths, lengths), pa.int32()),
        "is_copy": pa.array(is_copy[record_row]),
        "is_put_again": pa.array(bodies.is_put_again[record_row]),
        "store_timestamp": pa.array(messages.store_timestamp[at]),
        "run": repeated(run, len(at)),
    }
    return POP_RECORDS.batch(columns, len(at)), damage


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
    has_revive_topic = real_topic.answer(_are_revive_topics, False)
    is_record = ~is_timer | has_revive_topic
    return at[is_record], (~is_timer & has_revive_topic)[is_record]


def _are_revive_topics(topics: Column) -> NDArray[np.bool_]:
    is_revive_topic = pc.starts_with(topics.text_of_each(), REVIVE_TOPIC_PREFIX).fill_null(False)
    return np.array(is_revive_topic)


def _kinds(tags: Column) -> NDArray[np.int32]:
    """The number of the kind of record with each tag, NONE if there is none with it."""
    numbers = pc.index_in(tags.text_of_each(), value_set=pa.array([CHECKPOINT, ACK, BATCH_ACK]))
    return np.array(numbers.fill_null(NONE))


def _queue_offsets(
    bodies: Bodies, kinds: NDArray[np.int32]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """The queue offsets of all bodies, one after another; the number of each body's; which bodies have all values.

    The offsets and numbers are only of those bodies. Without ``d``, a checkpoint is of consecutive offsets
    (PopCheckPoint.ackOffsetByIndex).
    """
    numbers = bodies.numbers
    is_checkpoint, is_ack = kinds == 0, kinds == 1
    complete = (bodies.texts["c"] >= 0) & (bodies.texts["t"] >= 0) & (~is_checkpoint | (numbers["it"] >= 0))
    for name in ("q", "so", "pt"):
        complete &= numbers[name] >= 0
    (first_listed, listed), (first_acknowledged, acknowledged) = (bodies.lists[name] for name in LISTS)
    consecutive = np.where(is_checkpoint & (listed == 0), np.clip(numbers["n"], 0, _LONGEST_POP), 0)
    lengths = np.where(is_checkpoint, np.where(listed > 0, listed, consecutive), np.where(is_ack, 1, acknowledged))
    complete &= (lengths > 0) & (lengths <= _LONGEST_POP)
    lengths = np.where(complete, lengths, 0)
    record = np.repeat(np.arange(len(kinds)), lengths)
    nth = np.arange(len(record)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    is_listed = (~is_ack & (consecutive == 0))[record]
    first = np.where(is_checkpoint, first_listed, first_acknowledged)[record]
    offsets = np.where(is_ack, numbers["ao"], 0)[record]
    offsets[is_listed] = bodies.listed[(first + nth)[is_listed]]
    offsets[~is_listed & is_checkpoint[record]] = nth[~is_listed & is_checkpoint[record]]
    is_negative = offsets < 0
    offsets += np.where(is_checkpoint, numbers["so"], 0)[record]
    complete[record[is_negative]] = False
    is_kept = complete[record]
    return offsets[is_kept], lengths[complete], complete


def _damage(records: Records, messages: Messages, rejected: NDArray[np.int64], reason: str) -> Iterator[Damage]:
    starts, lengths = records.at("body"), records.at("body_length")
    for row in rejected.tolist():
        body = records.log[starts[row] : starts[row] + lengths[row]].tobytes()
        topic = messages.shapes[messages.shape_of[row]].topic
        yield Damage(topic, int(records.physical_offsets()[row]), reason, body)
