"""Reads the broker's record of pops from a chunk of its log: JSON bodies, and from them rows of POP_RECORDS.

A broker writes objects of whole numbers, texts, lists of whole numbers, and booleans (fastjson).
Source: PopCheckPoint, AckMsg, BatchAckMsg (org.apache.rocketmq.store.pop).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from filtering.frozen import frozen
from filtering.java import INT_MAX, LONG_MAX
from filtering.kernels.compile import Array, Int, compiled
from filtering.kernels.registers import HIGH_BITS, KEPT, json_marks, load_word
from filtering.matcher.column import Column
from filtering.names import ACK, BATCH_ACK, CHECKPOINT, REAL_TOPIC, REVIVE_TOPIC_PREFIX, TIMER_TOPIC, is_record_topic
from filtering.pops.handed_out import NONE
from schemas.arrow_batches import dictionary_column, repeated
from schemas.messages.commitlog_rows import Messages
from schemas.rocketmq_store.commitlog_walk import Damage, Records
from schemas.rocketmq_store.properties import Interner
from schemas.rocketmq_store.record_layout import Bytes, Positions, binary_array, lowest_byte
from schemas.rocketmq_store.segments import SLACK
from schemas.tables import POP_RECORDS

NUMBERS, TEXTS, LISTS = ("q", "n", "so", "pt", "it", "ao"), ("c", "t", "rp"), ("d", "aol")
"""The fields of bodies: queue id, number of messages, start offset, pop time, invisible time, acknowledged queue
offset; group, topic, how often the broker put the checkpoint again; what was handed out, as differences to the start
offset, and the acknowledged queue offsets."""
_FIELDS = (*NUMBERS, *TEXTS, *LISTS)


@frozen(eq=False)
class Bodies:
    """The values of some bodies, a column for each of the _FIELDS. ``_sizes``: the lengths of texts and lists."""

    _values: NDArray[np.int64]
    _sizes: NDArray[np.int64]
    listed: NDArray[np.int64]
    log: Bytes

    def of(self, name: str) -> NDArray[np.int64]:
        """Numbers; where texts begin in ``log``; where lists begin in ``listed``. NONE: there is none."""
        values: NDArray[np.int64] = self._values[:, _FIELDS.index(name)]
        return values

    def sizes(self, name: str) -> NDArray[np.int64]:
        """The lengths of texts (bytes) or lists; 0 also where there is none."""
        sizes: NDArray[np.int64] = self._sizes[:, _FIELDS.index(name)]
        return sizes

    def text(self, name: str, at: Positions) -> pa.DictionaryArray:
        """The texts of a name in some bodies, which all have one."""
        interner = Interner()
        numbers = interner.numbers(self.log, self.of(name)[at], self.sizes(name)[at])
        return pa.DictionaryArray.from_arrays(pa.array(numbers), binary_array(*interner.texts()).view(pa.string()))


def read_bodies(log: Bytes, starts: Positions, lengths: Positions) -> tuple[Bodies, NDArray[np.bool_]]:
    """The bodies at some positions of a log, and which of them are JSON objects with values of the fields' kinds.

    Of the others, all values are NONE; so is a number that 64 bits do not hold. A compiled loop reads what a broker
    writes: ASCII without blanks, escapes and nulls. Python's decoder reads what it leaves out, good or bad.
    """
    values = np.full((len(starts), len(_FIELDS)), NONE, np.int64)
    sizes, is_read = np.zeros_like(values), np.zeros(len(starts), bool)
    listed = np.empty(int(lengths.sum()) // 2, np.int64)
    used = _read(log, starts, lengths, values, sizes, listed, is_read)
    others = np.flatnonzero(~is_read)
    if not len(others):
        return Bodies(values, sizes, listed[:used], log), is_read
    values[others], sizes[others] = NONE, 0
    texts, lists = bytearray(), listed[:used].tolist()
    for row in others.tolist():
        fields = _decoded(log[starts[row] : starts[row] + lengths[row]].tobytes())
        is_read[row] = fields is not None
        for name, value in (fields or {}).items():
            at = row, _FIELDS.index(name)
            if isinstance(value, int):
                values[at] = value
            elif isinstance(value, bytes):
                values[at], sizes[at] = len(log) + len(texts), len(value)
                texts += value
            else:
                values[at], sizes[at] = len(lists), len(value)
                lists += value
    more = np.frombuffer(log.tobytes() + texts + bytes(SLACK), np.uint8)
    return Bodies(values, sizes, np.array(lists, np.int64), more), is_read


_DECODER = json.JSONDecoder(object_pairs_hook=tuple, parse_constant=int)  # NaN is not JSON, and int raises ValueError


def _decoded(body: bytes) -> dict[str, int | bytes | list[int]] | None:
    """The fields that are not null; texts as UTF-8. None if the body has other kinds of values, or a field twice."""
    try:
        pairs = _DECODER.decode(body.decode())
        if not isinstance(pairs, tuple):
            return None
        fields = [(name, _checked(name, value)) for name, value in pairs if name in _FIELDS and value is not None]
    except (ValueError, RecursionError):
        return None
    return dict(fields) if len(dict(fields)) == len(fields) else None


def _checked(name: str, value: Any) -> int | bytes | list[int]:
    """A value of the kind of its field, NONE for a number that 64 bits do not hold. Raises ValueError."""

    def whole(number: Any) -> int:
        if type(number) is not int:
            raise ValueError(f"{name}: {number} is no whole number")
        return number if abs(number) <= LONG_MAX else NONE

    if name in NUMBERS:
        return whole(value)
    if name in TEXTS and isinstance(value, str):
        return value.encode()
    if name in LISTS and isinstance(value, list):
        return list(map(whole, value))
    raise ValueError(f"{name} has another kind")


_QUOTE, _OPEN, _CLOSE, _OPEN_LIST, _CLOSE_LIST, _COLON, _COMMA, _MINUS, _ZERO, _NINE = b'"{}[]:,-09'
_NAMES = np.array([int.from_bytes(name.encode(), "little") for name in _FIELDS], np.uint64)
_NUMBER, _TEXT, _LIST, _UNKNOWN = range(4)
_KINDS = np.repeat([_NUMBER, _TEXT, _LIST, _UNKNOWN], [len(NUMBERS), len(TEXTS), len(LISTS), 1])
_MOST_DIGITS = 18
"""Of numbers that always fit into 64 bits."""


@compiled
def _read(
    log: Bytes, starts: Positions, lengths: Positions, values: Array, sizes: Array, listed: Array, is_read: Array
) -> Int:
    """Reads what it can of bodies. Returns how much of ``listed`` is used.

    One loop has one place for each kind of token: functions that it calls would take longer (see json_lines).
    """
    used: Int = np.int64(0)
    for row in range(len(starts)):
        at: Int = np.int64(starts[row])
        end: Int = at + np.int64(lengths[row])
        field: Int = np.int64(0)
        given: Int = np.int64(0)  # a bit for each field
        is_name = at < end and log[at] == _OPEN
        at += 1
        while at < end:
            byte = log[at]
            if byte == _QUOTE:
                begin: Int = at + 1
                at = begin
                while at < end:
                    word = load_word(log, at)
                    stops = json_marks(word) | word & HIGH_BITS  # a broker writes names in ASCII
                    if stops:
                        at += lowest_byte(stops)
                        break
                    at += 8
                if at >= end or log[at] != _QUOTE:
                    break
                size = at - begin
                at += 1
                if is_name:
                    name = load_word(log, begin) & KEPT[min(size, 8)]
                    field = np.int64(len(_NAMES))
                    for i in range(len(_NAMES)):
                        if name == _NAMES[i]:
                            field = np.int64(i)
                    kind = _KINDS[field]
                    if log[at] != _COLON or (kind != _UNKNOWN and given >> field & 1):
                        break
                    given |= 1 << field
                    is_name = False
                    at += 1
                    continue
                if kind == _TEXT:
                    values[row, field], sizes[row, field] = begin, size
                elif kind != _UNKNOWN:
                    break
            elif is_name:
                break
            elif byte <= _NINE or byte == _OPEN_LIST:
                is_list = byte == _OPEN_LIST
                first, value = used, np.int64(0)
                while True:
                    at += 1 if is_list else 0
                    is_negative = log[at] == _MINUS
                    at += 1 if is_negative else 0
                    begin, value = at, np.int64(0)
                    while at < end and 48 <= log[at] <= _NINE:
                        value = 10 * value + np.int64(log[at]) - 48
                        at += 1
                    is_right = 0 < at - begin <= _MOST_DIGITS and (at - begin == 1 or log[begin] != _ZERO)
                    value = -value if is_negative else value
                    if not is_list or not is_right:
                        break
                    listed[used] = value
                    used += 1
                    if log[at] != _COMMA:
                        is_right = log[at] == _CLOSE_LIST
                        at += 1
                        break
                if not is_right or kind not in (_UNKNOWN, _LIST if is_list else _NUMBER):
                    break
                if kind == _LIST:
                    values[row, field], sizes[row, field] = first, used - first
                elif kind == _NUMBER:
                    values[row, field] = value
            else:
                word = load_word(log, at)
                is_true, is_false = word & KEPT[4] == 0x65757274, word & KEPT[5] == 0x65736C6166
                if kind != _UNKNOWN or not (is_true or is_false):
                    break
                at += 4 if is_true else 5
            is_name = log[at] == _COMMA
            if not is_name:
                is_read[row] = at + 1 == end and log[at] == _CLOSE
                break
            at += 1
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
    columns = {
        "commitlog_offset": pa.array(records.physical_offsets()[at]),
        "kind": dictionary_column((CHECKPOINT, ACK, BATCH_ACK), kinds),
        "consumer_group": bodies.text("c", record_row),
        "topic": bodies.text("t", record_row),
        "queue_id": pa.array(bodies.of("q")[record_row], pa.int32()),
        "queue_offset": pa.array(offsets),
        "start_offset": pa.array(bodies.of("so")[record_row]),
        "popped_at": pa.array(bodies.of("pt")[record_row]),
        "invisible_time": pa.array(bodies.of("it")[record_row], mask=~is_checkpoint),
        "messages": pa.array(np.repeat(lengths, lengths), pa.int32()),
        "is_copy": pa.array(is_copy[record_row]),
        "is_put_again": pa.array(bodies.of("rp")[record_row] != NONE),
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
    is_checkpoint, is_ack = kinds == 0, kinds == 1
    complete = (bodies.sizes("c") > 0) & (bodies.sizes("t") > 0) & (~is_checkpoint | (bodies.of("it") >= 0))
    for name in ("q", "so", "pt"):
        complete &= bodies.of(name) >= 0
    complete &= bodies.of("q") <= INT_MAX
    listed, acknowledged = (bodies.sizes(name) for name in LISTS)
    consecutive = np.where(is_checkpoint & (listed == 0), np.clip(bodies.of("n"), 0, _LONGEST_POP), 0)
    lengths = np.where(is_checkpoint, np.where(listed > 0, listed, consecutive), np.where(is_ack, 1, acknowledged))
    complete &= (lengths > 0) & (lengths <= _LONGEST_POP)
    lengths = np.where(complete, lengths, 0)
    record = np.repeat(np.arange(len(kinds)), lengths)
    nth = np.arange(len(record)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    is_listed = (~is_ack & (consecutive == 0))[record]
    first = np.where(is_checkpoint, *(bodies.of(name) for name in LISTS))[record]
    offsets = np.where(is_ack, bodies.of("ao"), 0)[record]
    offsets[is_listed] = bodies.listed[(first + nth)[is_listed]]
    offsets[~is_listed & is_checkpoint[record]] = nth[~is_listed & is_checkpoint[record]]
    is_wrong = offsets < 0
    offsets += np.where(is_checkpoint, bodies.of("so"), 0)[record]
    complete[record[is_wrong | (offsets < 0)]] = False
    is_kept = complete[record]
    return offsets[is_kept], lengths[complete], complete


def _damage(records: Records, messages: Messages, rejected: NDArray[np.int64], reason: str) -> Iterator[Damage]:
    starts, lengths = records.at("body"), records.at("body_length")
    for row in rejected.tolist():
        body = records.log[starts[row] : starts[row] + lengths[row]].tobytes()
        topic = messages.shapes[messages.shape_of[row]].topic
        yield Damage(topic, int(records.physical_offsets()[row]), reason, body)
