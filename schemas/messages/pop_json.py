"""Reads the broker's record of pops from a chunk of its log: JSON bodies, and from them rows of POP_RECORDS.

A broker writes plain bodies: objects of whole numbers, ASCII texts without escapes, lists of whole numbers, and
booleans, without spaces (fastjson). One loop reads them. Arrow reads all others, which are rare.
Source: PopCheckPoint, AckMsg, BatchAckMsg (org.apache.rocketmq.store.pop).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import json

from filtering.frozen import frozen
from filtering.kernels.compile import Int, compiled
from filtering.matcher.column import Column
from filtering.pops.handed_out import NONE
from filtering.pops.record import ACK, BATCH_ACK, CHECKPOINT, REAL_TOPIC, TIMER_TOPIC, is_record_topic
from filtering.subscriptions.namespace import REVIVE_TOPIC_PREFIX
from schemas.arrow_batches import dictionary_column, repeated
from schemas.messages.commitlog_rows import Messages
from schemas.pops import POP_RECORDS
from schemas.rocketmq_store.commitlog_walk import Damage, Records
from schemas.rocketmq_store.property_columns import Interner
from schemas.rocketmq_store.record_layout import Bytes, Positions, binary_array, spans

NUMBERS = "q", "so", "pt", "it", "n", "ao"
"""Queue id, start offset, pop time, invisible time, number of messages, acknowledged queue offset."""
TEXTS = "c", "t"
"""Group and topic."""
LISTS = "d", "aol"
"""What was handed out, as differences to the start offset; the acknowledged queue offsets."""
PUT_AGAIN = "rp"
"""How often the checkpoint was put again: a text."""


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
    """The bodies at some positions of a log, and which of them are JSON objects.

    Of the others, all values are NONE.
    """
    rows = len(starts)
    numbers = np.full((len(NUMBERS), rows), NONE, np.int64)
    places = np.zeros((len(TEXTS), 2, rows), np.int32)
    lists = np.zeros((len(LISTS), 2, rows), np.int64)
    listed = np.empty(int(lengths.sum()) // 2 + rows + 1, np.int64)
    is_put_again = np.zeros(rows, bool)
    is_read = np.zeros(rows, bool)
    used = _read_plain(log, starts, lengths, numbers, places, lists, listed, is_put_again, is_read)
    texts, known_texts = {}, {}
    for name, (begins, sizes) in zip(TEXTS, places, strict=True):
        texts[name], known_texts[name] = _numbered(log, begins, sizes)
    parts = [listed[:used]]
    if not is_read.all():
        others = np.flatnonzero(~is_read)
        table, is_object = _read_others(log, starts[others], lengths[others])
        others = others[is_object]
        is_read[others] = True
        for name in TEXTS:
            other_texts = table[name].combine_chunks()
            texts[name][others] = len(known_texts[name]) + np.arange(len(others))
            texts[name][others[np.array(pc.equal(pc.binary_length(other_texts), 0).fill_null(True))]] = NONE
            known_texts[name] = pa.concat_arrays([known_texts[name], other_texts])
        for values, name in zip(numbers, NUMBERS, strict=True):
            values[others] = table[name].fill_null(NONE).to_numpy()
        for (begins, sizes), name in zip(lists, LISTS, strict=True):
            values = table[name].combine_chunks()
            sizes[others] = values.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
            begins[others] = sum(map(len, parts)) + np.cumsum(sizes[others]) - sizes[others]
            parts.append(values.flatten().fill_null(NONE).to_numpy())
        is_put_again[others] = np.array(pc.is_valid(table[PUT_AGAIN]))
    by_name = {name: (begins, sizes) for name, (begins, sizes) in zip(LISTS, lists, strict=True)}
    return (
        Bodies(
            dict(zip(NUMBERS, numbers, strict=True)), texts, known_texts, by_name, np.concatenate(parts), is_put_again
        ),
        is_read,
    )


def _numbered(
    log: Bytes, starts: NDArray[np.int32], lengths: NDArray[np.int32]
) -> tuple[NDArray[np.int32], pa.StringArray]:
    """The number of each text, NONE for an empty one, and the texts."""
    interner = Interner()
    numbers = interner.numbers(log, starts, lengths)
    assert numbers is not None
    numbers[lengths == 0] = NONE
    return numbers, binary_array(*interner.texts()).view(pa.string())


# Plain bodies.


_QUOTE, _COMMA, _COLON, _OPEN_LIST, _CLOSE_LIST, _OPEN, _CLOSE, _BACKSLASH = b'",:[]{}\\'
_ZERO, _NINE, _SPACE, _DELETE, _T, _F = b"09 \x7ftf"
_LONGEST_NUMBER = 18
"""Digits that always fit into 64 bits."""
_GREATEST_INT = (1 << 31) - 1
_LONGEST_NAME = 7


def _code(name: str) -> int:
    return int.from_bytes(name.encode(), "big")


_NAMES = np.array([_code(name) for name in (*NUMBERS, *TEXTS, *LISTS, PUT_AGAIN)], np.int64)
_FIRST_TEXT = len(NUMBERS)
_FIRST_LIST = _FIRST_TEXT + len(TEXTS)
_PUT_AGAIN = _FIRST_LIST + len(LISTS)
_QUEUE_ID, _MESSAGES = NUMBERS.index("q"), NUMBERS.index("n")
_OTHER = -1
"""Another name. Its value does not count."""


@compiled
def _read_plain(
    log: Bytes,
    starts: Positions,
    lengths: Positions,
    numbers: NDArray[np.int64],
    places: NDArray[np.int32],
    lists: NDArray[np.int64],
    listed: NDArray[np.int64],
    is_put_again: NDArray[np.bool_],
    is_read: NDArray[np.bool_],
) -> Int:
    """Reads the plain bodies, and sets ``is_read`` of them. Returns how much of ``listed`` is used.

    The values of other bodies are as they were.
    """
    used: Int = np.int64(0)
    for row in range(len(starts)):
        read = _read_one(log, int(starts[row]), int(lengths[row]), row, numbers, places, lists, listed, used)
        if read >= 0:
            is_read[row] = True
            is_put_again[row] = read & 1 << _PUT_AGAIN != 0
            used += lists[0, 1, row] + lists[1, 1, row]
        else:
            numbers[:, row] = NONE
            places[:, :, row] = 0
            lists[:, :, row] = 0
    return used


@compiled
def _read_one(
    log: Bytes,
    start: int,
    length: int,
    row: int,
    numbers: NDArray[np.int64],
    places: NDArray[np.int32],
    lists: NDArray[np.int64],
    listed: NDArray[np.int64],
    used: Int,
) -> Int:
    """Reads a body into a row. Returns the names that it has, as bits; -1 if it is not plain."""
    last = start + length - 1
    if length < 2 or log[start] != _OPEN or log[last] != _CLOSE:
        return -1
    names: Int = np.int64(0)
    at: Int = np.int64(start + 1)
    while at < last:
        if log[at] != _QUOTE:
            return -1
        at += 1
        begin = at
        name: Int = np.int64(0)
        while at < last and log[at] != _QUOTE:
            if log[at] < _SPACE or log[at] >= _DELETE or log[at] == _BACKSLASH:
                return -1
            name = name << 8 | np.int64(log[at])
            at += 1
        if at - begin > _LONGEST_NAME:
            name = 0
        if at + 2 >= last or log[at + 1] != _COLON:
            return -1
        at += 2
        which: Int = np.int64(_OTHER)
        for i in range(len(_NAMES)):
            if _NAMES[i] == name:
                which = i
        if which != _OTHER:
            if names >> which & 1:
                return -1
            names |= np.int64(1) << which
        if log[at] == _QUOTE:
            begin = at + 1
            at = begin
            while at < last and log[at] != _QUOTE:
                if log[at] < _SPACE or log[at] >= _DELETE or log[at] == _BACKSLASH:
                    return -1
                at += 1
            if at == last or (which != _OTHER and which < _FIRST_TEXT) or _FIRST_LIST <= which < _PUT_AGAIN:
                return -1
            if _FIRST_TEXT <= which < _FIRST_LIST:
                places[which - _FIRST_TEXT, 0, row] = begin
                places[which - _FIRST_TEXT, 1, row] = at - begin
            at += 1
        elif log[at] == _OPEN_LIST:
            if not _FIRST_LIST <= which < _PUT_AGAIN:
                return -1
            count: Int = np.int64(0)
            at += 1
            if log[at] == _CLOSE_LIST:
                at += 1
            else:
                while True:
                    end, value = _number_at(log, at, last)
                    if end < 0 or (log[end] != _COMMA and log[end] != _CLOSE_LIST):
                        return -1
                    listed[used + count] = value
                    count += 1
                    at = end + 1
                    if log[end] == _CLOSE_LIST:
                        break
            lists[which - _FIRST_LIST, 0, row] = used
            lists[which - _FIRST_LIST, 1, row] = count
            used += count
        elif log[at] == _T or log[at] == _F:
            if which != _OTHER:
                return -1
            end = at + (4 if log[at] == _T else 5)
            if end > last or not _is_boolean(log, at):
                return -1
            at = end
        else:
            end, value = _number_at(log, at, last)
            if end < 0 or which >= _FIRST_TEXT:
                return -1
            if which != _OTHER:
                if which in (_QUEUE_ID, _MESSAGES) and value > _GREATEST_INT:
                    return -1
                numbers[which, row] = value
            at = end
        if at == last:
            return names
        if at > last or log[at] != _COMMA:
            return -1
        at += 1
    return -1


@compiled
def _is_boolean(log: Bytes, at: int) -> bool:
    text = b"true" if log[at] == _T else b"false"
    for i in range(len(text)):  # noqa: SIM110  Numba is slow on all()
        if log[at + i] != text[i]:
            return False
    return True


@compiled
def _number_at(log: Bytes, at: int, last: int) -> tuple[int, int]:
    """Where a whole number of at most 18 digits ends, or -1 if there is none, and the number."""
    value: Int = np.int64(0)
    end: Int = np.int64(at)
    while end < last and _ZERO <= log[end] <= _NINE:
        value = value * 10 + np.int64(log[end] - _ZERO)
        end += 1
        if end - at > _LONGEST_NUMBER:
            return -1, value
    if end == at or (log[at] == _ZERO and end > at + 1):
        return -1, value
    return end, value


# Other bodies.


_BODY = pa.schema(
    [(name, pa.string()) for name in (*TEXTS, PUT_AGAIN)]
    + [(name, pa.int32() if name in ("q", "n") else pa.int64()) for name in NUMBERS]
    + [(name, pa.list_(pa.int64())) for name in LISTS]
)
_PARSE = json.ParseOptions(explicit_schema=_BODY, unexpected_field_behavior="ignore")
_NEWLINE, _CARRIAGE_RETURN = b"\n\r"


def _read_others(log: Bytes, starts: Positions, lengths: Positions) -> tuple[pa.Table, NDArray[np.bool_]]:
    """The bodies as columns of _BODY, and which of them have a row there."""
    last = starts + np.maximum(lengths, 1) - 1
    is_object = (lengths > 1) & (log[starts] == _OPEN) & (log[last] == _CLOSE)
    good = np.flatnonzero(is_object)
    # A line for each body: the byte after it becomes the end of the line.
    offsets, data = spans(log, starts[good], lengths[good] + 1)
    data[(data == _NEWLINE) | (data == _CARRIAGE_RETURN)] = _SPACE
    data[offsets[1:] - 1] = _NEWLINE
    tables, first = [_BODY.empty_table()], 0
    for count, table in _parsed_lines(data, offsets.astype(np.int64)):
        if table is None:
            is_object[good[first : first + count]] = False
        else:
            tables.append(table)
        first += count
    return pa.concat_tables(tables), is_object


def _parsed_lines(data: Bytes, bounds: Positions) -> Iterator[tuple[int, pa.Table | None]]:
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
