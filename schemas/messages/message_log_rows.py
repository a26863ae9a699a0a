"""Messages of a message log: which columns they may have and what is checked of them, and their rows of commitlog."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from filtering.delivery.entries import has_entry
from filtering.frozen import frozen
from filtering.java import LONG_MAX
from filtering.time_spans import AFTER_YEAR_9999
from schemas.arrow_batches import decoded, repeated
from schemas.commitlog import COMMITLOG, NAME_SEPARATOR, NAMED_PROPERTIES, PROPERTY_COLUMNS, SLOTS
from schemas.messages.commitlog_rows import Bodies, store_dates
from schemas.rocketmq_store.commitlog_walk import body_crcs
from schemas.rocketmq_store.properties import PropertyColumns, Texts
from schemas.rocketmq_store.record_layout import GREATEST_QUEUE_OFFSET, Bytes

POSITION = ("queue_id", "queue_offset", "commitlog_offset")
"""The columns that say where a message is. A log has all of them, or none: then they follow the order of its lines."""
NEEDED = ("topic", "store_timestamp")
KNOWN = {
    "topic": "string", "queue_id": "int", "queue_offset": "bigint", "commitlog_offset": "bigint",
    "store_timestamp": "bigint", "store_size": "int", "msg_id": "string", "tags": "string", "keys": "string",
    "properties": "map<string, string>", "born_timestamp": "bigint", "sys_flag": "int", "flag": "int",
    "body_crc": "int", "reconsume_times": "int", "prepared_transaction_offset": "bigint", "born_host": "string",
    "store_host": "string", "magic_code": "int", "body_length": "int", "body": "binary", "message_body": "binary",
}  # fmt: skip
"""The columns of a message log, and their types as Spark names them. ``message_body`` is a text."""
TIMES = ("store_timestamp", "born_timestamp")
ENDS = {"int": 1 << 31, "bigint": 1 << 63}
"""The first number that a type does not hold."""
SECONDS = (1_000_000_000, 10_000_000_000)
"""Times in seconds from 2001 to 2286. As milliseconds they would be of 1970, before RocketMQ."""
_EMPTY: dict[str, Any] = dict.fromkeys(KNOWN)


def _camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


SPELLINGS = {
    **{name: name for name in KNOWN},
    **{_camel_case(name): name for name in KNOWN},
    "commitLogOffset": "commitlog_offset", "bodyCRC": "body_crc", "timestamp": "store_timestamp",
    "time": "store_timestamp",
}  # fmt: skip
"""The columns by each of their names: ours, and those of RocketMQ's MessageExt and of its dashboard.

If a message has several names of a column, the first of them here counts.
"""
_RANK = {name: rank for rank, name in enumerate(SPELLINGS)}


Row = TypeVar("Row")


class NotAMessage(Exception):
    """A line or row is not a message. The text is the reason."""


class LogForm(NamedTuple):
    """What all messages of a log share. ``body``: how JSON lines write it, ``hex``, ``base64`` or ``text``."""

    has_positions: bool = True
    body: str = "hex"


class RejectedRow(NamedTuple):
    """A line or row that is not a message: its number in the file, from 1, why, and its bytes (a row's as JSON)."""

    number: int
    reason: str
    bytes: bytes


def column_names(given: Iterable[str]) -> dict[str, str]:
    """The name of each column among the ``given`` ones: column to name."""
    names: dict[str, str] = {}
    for name in given:
        if name in SPELLINGS and _RANK[name] <= _RANK[names.get(SPELLINGS[name], name)]:
            names[SPELLINGS[name]] = name
    return names


def other_spelling(name: str, given: Iterable[str]) -> str | None:
    """The one of the ``given`` names that is a needed one in another spelling, as ``Queue_ID`` is ``queue_id``."""
    return next((other for other in given if other not in SPELLINGS and _plain(other) == _plain(name)), None)


def _plain(name: str) -> str:
    return name.replace("_", "").replace(" ", "").lower()


def time_in_ms(name: str, text: str) -> int:
    """An ISO 8601 text with its time zone as milliseconds since 1970. Raises NotAMessage."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        raise NotAMessage(
            f"{name} is not a time: write milliseconds since 1970, or a text with its time zone such as "
            "2026-11-21T05:05:13.466Z"
        )
    since = time - datetime.fromisoformat("1970-01-01T00:00:00Z")
    return (since.days * 86_400 + since.seconds) * 1_000 + since.microseconds // 1_000


_DEFAULTS = {"store_timestamp": -1, "store_size": 1, "queue_offset": 0, "commitlog_offset": 0}
_WRONG: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "commitlog_offset is negative": lambda message: message["commitlog_offset"] < 0,
    "queue_offset is negative": lambda message: message["queue_offset"] < 0,
    "store_timestamp is negative": lambda message: message["store_timestamp"] < 0,
    "store_size is not 1 or more": lambda message: message["store_size"] < 1,
    f"queue_offset is over {GREATEST_QUEUE_OFFSET}": lambda message: message["queue_offset"] > GREATEST_QUEUE_OFFSET,
    "the message ends beyond the last physical offset": lambda message: (
        message["commitlog_offset"] > LONG_MAX - message["store_size"]
    ),
    "store_timestamp is after the year 9999; write milliseconds since 1970": lambda message: (
        message["store_timestamp"] >= AFTER_YEAR_9999
    ),
    "store_timestamp is in seconds; write milliseconds since 1970": lambda message: (
        (message["store_timestamp"] >= SECONDS[0]) & (message["store_timestamp"] < SECONDS[1])
    ),
}
"""What numbers make of a message no message, the first reason first. Of the numbers of one, or of columns of them."""


def fits(numbers: Mapping[str, NDArray[np.int64]], given: Mapping[str, NDArray[np.bool_]], form: LogForm) -> Any:
    """For each message, whether :func:`checked` takes it as far as its numbers and missing columns go (bool).

    ``numbers`` have the integer columns, ``given`` which messages have a column; those that none has may be absent.
    """
    nothing = np.zeros(len(given["topic"]), bool)

    def column(name: str, default: Any) -> NDArray[np.int64]:
        return np.where(given.get(name, nothing), numbers.get(name, 0), default)

    columns = {name: column(name, default) for name, default in _DEFAULTS.items()}
    columns["store_timestamp"] = column("store_timestamp", column("born_timestamp", -1))
    fit = given["topic"].copy()
    for name in POSITION:
        fit &= given.get(name, nothing) == form.has_positions
    for is_wrong in _WRONG.values():
        fit &= ~is_wrong(columns)
    return fit


def checked(values: dict[str, Any], form: LogForm) -> dict[str, Any]:
    """A message with all columns of KNOWN. Its properties are a dictionary, or None if it has none.

    ``values``: those that are not null, by column; properties are pairs of texts, the second of which may be None. Of
    properties with one name, the last with a value counts. Without ``store_timestamp``, it is ``born_timestamp``.
    Raises NotAMessage.
    """
    values = {"store_timestamp": values.get("born_timestamp")} | values
    for name in NEEDED:
        if values.get(name) in (None, ""):
            raise NotAMessage(f"no {name}")
    for name in POSITION:
        if (name in values) != form.has_positions:
            if form.has_positions:
                raise NotAMessage(f"no {name}")
            raise NotAMessage(f"{name} is given, but the log's first messages have none")
    numbers = _DEFAULTS | values
    for reason, is_wrong in _WRONG.items():
        if is_wrong(numbers):
            raise NotAMessage(reason)
    properties = {}
    others = [(name, values[name]) for name in ("tags", "keys") if name in values]
    for name, value in [*(values.get("properties") or ()), *others]:
        # RocketMQ would decode another property (MessageDecoder.messageProperties2String does not escape).
        if "\u0001" in name or "\u0002" in name or (value and "\u0002" in value):
            raise NotAMessage("a property has U+0001 in its name, or U+0002: RocketMQ ends names and values there")
    for name, value in values.get("properties") or ():
        # RocketMQ drops a property without a name or value (MessageDecoder.string2messageProperties).
        if name and value:
            properties[name] = value
    return _EMPTY | values | {"store_size": numbers["store_size"], "properties": properties or None}


_SAME = (
    "commitlog_offset", "queue_id", "queue_offset", "store_size", "born_timestamp", "store_timestamp", "sys_flag",
    "flag", "reconsume_times", "prepared_transaction_offset", "born_host", "store_host", "msg_id", "magic_code",
    "body_length",
)  # fmt: skip
_MARGIN = 16
"""Zero bytes after property texts, which loops may read."""


@frozen(eq=False)
class MessageBatch:
    """n messages of a message log.

    ``lines``: the numbers of their lines or rows, of which ``bytes_of`` returns the bytes. ``columns``: those of KNOWN
    that some message has, but not the properties. Message i has the property text (name 0x01 value 0x02 …) that begins
    at ``starts[i]`` of ``texts`` and has ``lengths[i]`` bytes.
    """

    lines: NDArray[np.int64]
    columns: Mapping[str, pa.Array]
    texts: Bytes
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]
    bytes_of: Callable[[int], bytes]

    @classmethod
    def of(
        cls, lines: NDArray[np.int64], messages: Sequence[Mapping[str, Any]], bytes_of: Callable[[int], bytes]
    ) -> MessageBatch:
        """Messages with all columns of KNOWN, of which the properties are dictionaries, or None."""
        columns = {}
        for name in KNOWN:
            if name != "properties":
                kind = pa.binary() if KNOWN[name] == "binary" else COMMITLOG.schema.field(name).type
                columns[name] = pa.array([message[name] for message in messages], kind)
        texts = [
            "".join(f"{name}\u0001{value}\u0002" for name, value in (message["properties"] or {}).items()).encode()
            for message in messages
        ]
        lengths = np.array(list(map(len, texts)), np.int64)
        joined = np.frombuffer(b"".join(texts) + bytes(_MARGIN), np.uint8)
        return cls(lines, columns, joined, np.cumsum(lengths) - lengths, lengths, bytes_of)

    def __len__(self) -> int:
        return len(self.lines)

    def numbers(self, name: str) -> NDArray[np.int64]:
        """A column of integers that all messages have."""
        return self.columns[name].cast(pa.int64()).to_numpy()  # type: ignore[no-any-return]  # PyArrow has no types

    def with_columns(self, columns: Mapping[str, pa.Array]) -> MessageBatch:
        """The same messages with some columns replaced."""
        return replace(self, columns={**self.columns, **columns})

    def take(self, rows: NDArray[np.int64]) -> MessageBatch:
        """Some of the messages, by their row numbers."""
        wanted = pa.array(rows)
        return replace(
            self,
            lines=self.lines[rows],
            columns={name: column.take(wanted) for name, column in self.columns.items()},
            starts=self.starts[rows],
            lengths=self.lengths[rows],
        )

    def topics(self) -> tuple[NDArray[np.int32], list[str]]:
        """The topic of each message, as a number, and the topics."""
        topics = self.columns["topic"]
        if not pa.types.is_dictionary(topics.type):
            topics = topics.dictionary_encode()
        return topics.indices.to_numpy().astype(np.int32), topics.dictionary.to_pylist()

    def has_entry(self) -> NDArray[np.bool_]:
        """Whether each message gets a consume queue entry."""
        flags = self.columns.get("sys_flag")
        return np.ones(len(self), bool) if flags is None else has_entry(flags.fill_null(0).to_numpy())


def read_each(
    rows: Iterable[tuple[int, Row]],
    values: Callable[[Row], dict[str, Any]],
    bytes_of: Callable[[int], bytes],
    form: LogForm,
) -> tuple[MessageBatch, list[RejectedRow]]:
    """The messages in numbered lines or rows, one by one, and those that are none. This defines what they say.

    ``values``: those of :func:`checked` in a line or row. It may raise NotAMessage, too.
    """
    taken: list[int] = []
    messages: list[dict[str, Any]] = []
    rejected: list[RejectedRow] = []
    for number, row in rows:
        try:
            messages.append(checked(values(row), form))
        except NotAMessage as reason:
            rejected.append(RejectedRow(number, str(reason), bytes_of(number)))
        else:
            taken.append(number)
    return MessageBatch.of(np.array(taken, np.int64), messages, bytes_of), rejected


class MessageLogRows:
    """Converts batches of messages. A property name of a topic keeps its column from batch to batch."""

    def __init__(self, run: str, bodies: Bodies) -> None:
        self._run = run
        self._bodies = bodies
        self._topics: dict[str, int] = {}
        self._properties = PropertyColumns(PROPERTY_COLUMNS, list(NAMED_PROPERTIES), {})

    def rows(self, batch: MessageBatch) -> pa.RecordBatch:
        """Rows of commitlog in the order of the messages, which have all of POSITION.

        Without tags or keys, those are TAGS and KEYS of the properties. A body is damaged if it does not match its
        body_crc. If only its text is known, that cannot be said.
        """
        count = len(batch)
        columns = {name: batch.columns[name] for name in _SAME if name in batch.columns}
        if "store_timestamp" not in columns:
            columns["store_timestamp"] = columns["born_timestamp"]
        elif columns["store_timestamp"].null_count:
            columns["store_timestamp"] = pc.coalesce(columns["store_timestamp"], columns["born_timestamp"])
        sizes = columns.get("store_size", pa.nulls(count, pa.int32()))
        columns["store_size"] = sizes.fill_null(1) if sizes.null_count else sizes
        columns |= self._property_columns(batch) | self._body_columns(batch)
        columns["store_date"] = store_dates(columns["store_timestamp"].to_numpy())
        columns["run"] = repeated(self._run, count)
        return COMMITLOG.batch(columns, count)

    def _property_columns(self, batch: MessageBatch) -> dict[str, pa.Array]:
        topics, names = batch.topics()
        numbers = np.array([self._topics.setdefault(name, len(self._topics)) for name in names], np.int32)
        topic_of = numbers[topics] if len(names) else topics
        known = list(self._topics)
        cut, others = self._properties.cut(batch.texts, batch.starts, batch.lengths, topic_of, known)
        named = len(NAMED_PROPERTIES)
        columns: dict[str, pa.Array] = {
            name: column for name, column in zip((*NAMED_PROPERTIES.values(), *SLOTS), cut, strict=True)
            if column is not None
        }  # fmt: skip
        has_no_properties = batch.lengths == 0
        for name in ("tags", "keys"):
            given = batch.columns.get(name)
            if given is not None and given.null_count < len(given):
                has_no_properties &= given.is_null().to_numpy(zero_copy_only=False)
                columns[name] = _first_of(given, columns.get(name))
        if others is not None:
            columns["more_properties"] = others
        columns["topic"] = pa.DictionaryArray.from_arrays(pa.array(topic_of), pa.array(known, pa.string()))
        slot_names = [NAME_SEPARATOR.join(self._properties.names(code)[named:]) for code in range(len(known))]
        columns["property_names"] = pa.DictionaryArray.from_arrays(
            pa.array(topic_of, mask=has_no_properties if has_no_properties.any() else None),
            pa.array(slot_names, pa.string()),
        )
        return columns

    def _body_columns(self, batch: MessageBatch) -> dict[str, pa.Array]:
        count = len(batch)
        no_body = pa.nulls(count, pa.binary())
        stored, text = batch.columns.get("body", no_body), batch.columns.get("message_body", no_body)
        claimed = batch.columns.get("body_crc", pa.nulls(count, pa.int32()))
        computed = _crcs(stored)
        is_damaged = pc.not_equal(claimed, computed).fill_null(False)
        body = pc.coalesce(stored, text) if text.null_count < count else stored
        columns = {"body_is_damaged": is_damaged, "body_crc": claimed, "body": body}
        if self._bodies is not Bodies.KEEP:
            columns["body_crc"] = pc.coalesce(claimed, computed)
            kept = is_damaged if self._bodies is Bodies.DAMAGED else pa.scalar(False)
            columns["body"] = pc.if_else(kept, body, pa.scalar(None, pa.binary()))
        return columns


def _first_of(given: Texts, other: Texts | None) -> Texts:
    """The ``given`` texts, and the ``other`` ones where they are null."""
    if given.null_count == 0 or other is None:
        return given
    return pc.coalesce(decoded(given), decoded(other))


def _crcs(bodies: pa.BinaryArray) -> pa.Int32Array:
    if bodies.null_count == len(bodies):
        return pa.nulls(len(bodies), pa.int32())
    _, offsets, data = bodies.buffers()
    bounds = np.frombuffer(offsets, np.int32)[bodies.offset : bodies.offset + len(bodies) + 1].astype(np.int64)
    octets = np.frombuffer(data if data is not None else b"", np.uint8)
    octets.flags.writeable = False  # as the bytes of a log: the same compiled loop reads both
    crcs = body_crcs(octets, bounds[:-1], np.diff(bounds))
    return pa.array(crcs, mask=bodies.is_null().to_numpy(zero_copy_only=False))
