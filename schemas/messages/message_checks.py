"""Which rows of a message log are messages: values that a broker's log may hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from filtering.java.numbers import LONG_MAX
from filtering.time_spans import AFTER_YEAR_9999
from schemas.rocketmq_store.commitlog.record_layout import GREATEST_QUEUE_OFFSET

NEEDED = {
    "topic": "string", "queue_id": "int", "queue_offset": "bigint", "commitlog_offset": "bigint",
    "store_timestamp": "bigint",
}  # fmt: skip
KNOWN = NEEDED | {
    "store_size": "int", "msg_id": "string", "tags": "string", "keys": "string", "properties": "map<string, string>",
    "born_timestamp": "bigint", "sys_flag": "int", "flag": "int", "body_crc": "int", "reconsume_times": "int",
    "prepared_transaction_offset": "bigint", "born_host": "string", "store_host": "string", "magic_code": "int",
    "body_length": "int", "body": "binary",
}  # fmt: skip
"""The columns of a message log, and their types as Spark names them."""
ENDS = {"int": 1 << 31, "bigint": 1 << 63}
"""The first number that a type does not hold."""
_NOT_NEGATIVE = ("commitlog_offset", "queue_offset", "store_timestamp")
_EMPTY: dict[str, Any] = dict.fromkeys(KNOWN)


class NotAMessage(Exception):
    """A line or row is not a message. The text is the reason."""


class LogRow(NamedTuple):
    """A line or row of a message log: its number in the file, from 1, and its bytes (a row's as JSON).

    ``values``: those that are not null, by column of KNOWN, or why it is not a message. Properties are pairs of texts,
    the second of which may be None.
    """

    number: int
    values: dict[str, Any] | NotAMessage
    bytes: Callable[[], bytes]


def other_spelling(name: str, given: Iterable[str]) -> str | None:
    """The one of the ``given`` names that is a needed one in another spelling, as ``queueId`` is ``queue_id``."""
    return next((other for other in given if other not in KNOWN and _plain(other) == _plain(name)), None)


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


def checked(values: dict[str, Any]) -> dict[str, Any]:
    """A message with all columns of KNOWN. Its properties are a dictionary, or None if it has none.

    ``values`` are those of a LogRow. Of properties with one name, the last with a value counts. Raises NotAMessage.
    """
    for name in NEEDED:
        if name not in values:
            raise NotAMessage(f"no {name}")
    for name in _NOT_NEGATIVE:
        if values[name] < 0:
            raise NotAMessage(f"{name} is negative")
    size = values.get("store_size", 1)
    if size < 1:
        raise NotAMessage("store_size is not 1 or more")
    if values["queue_offset"] > GREATEST_QUEUE_OFFSET:
        raise NotAMessage(f"queue_offset is over {GREATEST_QUEUE_OFFSET}")
    if values["commitlog_offset"] > LONG_MAX - size:
        raise NotAMessage("the message ends beyond the last physical offset")
    if values["store_timestamp"] >= AFTER_YEAR_9999:
        raise NotAMessage("store_timestamp is after the year 9999; write milliseconds since 1970")
    properties = {}
    for name, value in values.get("properties") or ():
        # RocketMQ would decode another property (MessageDecoder.messageProperties2String does not escape).
        if "\u0001" in name or "\u0002" in name or (value and "\u0002" in value):
            raise NotAMessage("a property has U+0001 in its name, or U+0002: RocketMQ ends names and values there")
        # RocketMQ drops a property without a name or value (MessageDecoder.string2messageProperties).
        if name and value:
            properties[name] = value
    return _EMPTY | values | {"store_size": size, "properties": properties or None}
