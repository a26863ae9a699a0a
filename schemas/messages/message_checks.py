"""Which lines or rows of a message log are messages: values that a broker's log may hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from filtering.java import LONG_MAX
from filtering.time_spans import AFTER_YEAR_9999
from schemas.rocketmq_store.record_layout import GREATEST_QUEUE_OFFSET

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
_NOT_NEGATIVE = ("commitlog_offset", "queue_offset", "store_timestamp")
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


def fits(numbers: Mapping[str, NDArray[np.int64]], given: Mapping[str, NDArray[np.bool_]], form: LogForm) -> Any:
    """For each message, whether :func:`checked` takes it as far as its numbers and missing columns go (bool).

    ``numbers`` have the integer columns, ``given`` which messages have a column; those that none has may be absent.
    """
    rows = len(given["topic"])
    nothing = np.zeros(rows, bool)

    def has(name: str) -> NDArray[np.bool_]:
        return given.get(name, nothing)

    def number(name: str, default: int) -> NDArray[np.int64]:
        if name not in numbers:
            return np.full(rows, default)
        return np.where(has(name), numbers[name], default)

    time = number("store_timestamp", -1)
    time = np.where(has("store_timestamp"), time, number("born_timestamp", -1))
    fit = has("topic") & (time >= 0) & (time < AFTER_YEAR_9999) & ~((time >= SECONDS[0]) & (time < SECONDS[1]))
    for name in POSITION:
        fit &= has(name) if form.has_positions else ~has(name)
    size = number("store_size", 1)
    fit &= size >= 1
    if form.has_positions:
        offset, queue_offset = number("commitlog_offset", 0), number("queue_offset", 0)
        fit &= (offset >= 0) & (offset <= LONG_MAX - size)
        fit &= (queue_offset >= 0) & (queue_offset <= GREATEST_QUEUE_OFFSET)
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
    for name in _NOT_NEGATIVE:
        if values.get(name, 0) < 0:
            raise NotAMessage(f"{name} is negative")
    size = values.get("store_size", 1)
    if size < 1:
        raise NotAMessage("store_size is not 1 or more")
    if values.get("queue_offset", 0) > GREATEST_QUEUE_OFFSET:
        raise NotAMessage(f"queue_offset is over {GREATEST_QUEUE_OFFSET}")
    if values.get("commitlog_offset", 0) > LONG_MAX - size:
        raise NotAMessage("the message ends beyond the last physical offset")
    if values["store_timestamp"] >= AFTER_YEAR_9999:
        raise NotAMessage("store_timestamp is after the year 9999; write milliseconds since 1970")
    if SECONDS[0] <= values["store_timestamp"] < SECONDS[1]:
        raise NotAMessage("store_timestamp is in seconds; write milliseconds since 1970")
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
    return _EMPTY | values | {"store_size": size, "properties": properties or None}
