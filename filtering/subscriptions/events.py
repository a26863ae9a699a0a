"""Subscription events: clients register, leave, or send a subscription with their pulls; operators set offsets.

They are read from JSON lines, from RocketMQ's own consumerFilter.json, and from YAML lists (both
in :mod:`schemas.subscription_files`).
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from enum import Enum, StrEnum
from functools import cached_property
from typing import Any, TypeAlias

from filtering.counted import did_you_mean
from filtering.frozen import frozen
from filtering.java import LONG_MAX, has_half_a_pair
from filtering.subscription_data import TAG, Subscription, new_subscription
from filtering.time_spans import AFTER_YEAR_9999

# Times in files and options of users.


SECONDS = range(10**9, 10**10)
"""Times that are between 2001 and 2286 as seconds, and in 1970 as milliseconds."""
DIGITS_OF_A_DATE = range(10**13, 10**14)
"""Dates and times written as yyyyMMddHHmmss, like RocketMQ's consumeTimestamp. As milliseconds they are after 2286."""


def instant(text: str) -> int:
    """An instant in ms since 1970, from ms or an ISO date or time (UTC by default). Raises ValueError otherwise."""
    if re.fullmatch(r"[0-9]{1,18}", text):
        return in_milliseconds(int(text))
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a time; write milliseconds or 2026-11-21T06:00:00Z") from None
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    return checked(round(time.timestamp() * 1000))


def in_milliseconds(number: int) -> int:
    """The argument, a time that a user wrote. Raises ValueError if it must be seconds, or digits of a date."""
    if number in SECONDS:
        raise ValueError(f"{number} is before RocketMQ, and looks like seconds; write milliseconds, as in {number}000")
    if number in DIGITS_OF_A_DATE:
        raise ValueError(f"{number} has no time zone; write 2026-11-26T01:30:00+08:00")
    return checked(number)


def checked(milliseconds: int) -> int:
    """The argument. Raises ValueError if it is so great that it cannot be milliseconds since 1970."""
    if milliseconds >= AFTER_YEAR_9999:
        raise ValueError(f"{milliseconds} is after the year 9999; write milliseconds since 1970")
    return milliseconds


GroupTopic = tuple[str, str]
"""A consumer group and a topic."""


BROADCASTING = "broadcasting, where each client gets every message and keeps its own offsets"
"""What groups do whose message model is BROADCASTING. It is replayed only if events name the clients."""


class Operation(Enum):
    """What happens to a group, with the name that an event line has for it."""

    REGISTER = "register"
    """The group subscribes to one topic; its other topics do not change."""
    HEARTBEAT = "heartbeat"
    """A client of the group sends the whole list of its subscriptions."""
    UNREGISTER = "unregister"
    """The group leaves all topics or one, or a client leaves the group."""
    PULL_SUBSCRIPTION = "pull_subscription"
    """Until it leaves, the group sends this subscription with its pulls of the topic, even if it is not registered."""
    POP_SUBSCRIPTION = "pop_subscription"
    """The same for a group that pops: from then on its requests carry this subscription."""
    RESET_OFFSET = "reset_offset"
    """An operator sets the group's offset in one queue, or to a time: it consumes messages again, or skips some."""


SENT_WITH_REQUESTS = (Operation.PULL_SUBSCRIPTION, Operation.POP_SUBSCRIPTION)
"""A subscription that the group sends with each request. No bit map is used."""
GRPC_SIMPLE, GRPC_PUSH, REMOTING_POP = "grpc_simple", "grpc_push", "remoting_pop"
POPPING_PROTOCOLS = (GRPC_SIMPLE, GRPC_PUSH, REMOTING_POP)
PROTOCOLS = (*POPPING_PROTOCOLS, "remoting")
"""How a client consumes: a SimpleConsumer or a PushConsumer through a proxy, a push consumer whose group was switched
to POP, or a consumer that pulls."""


class ConsumeMode(StrEnum):
    """How a group gets messages, as ``mode`` of pull_windows."""

    PULL = "PULL"
    POP = "POP"


class ConsumeFrom(Enum):
    """Where a group begins in a queue if it has no offset there (ConsumeFromWhere)."""

    FIRST = "first"
    LAST = "last"


ConsumeStart: TypeAlias = ConsumeFrom | int
"""Where a group begins; an int is the store time (ms) of its first messages (CONSUME_FROM_TIMESTAMP)."""


def parse_consume_from(value: object) -> ConsumeStart:
    """``first``, ``last``, or a time: ms since 1970, or an ISO time (UTC by default). Raises ValueError otherwise.

    RocketMQ's consumeTimestamp (20261126013000) is a time of the client's time zone, which no event has.
    """
    text = str(value)
    if text in ("first", "last"):
        return ConsumeFrom(text)
    try:
        return instant(text)
    except ValueError as error:
        raise ValueError(f"consume_from must be first, last or a time: {error}") from None


def consume_from_value(start: ConsumeStart) -> str | int:
    """What :func:`parse_consume_from` reads as this start."""
    return start.value if isinstance(start, ConsumeFrom) else start


@frozen(slots=True)
class SubscriptionEvent:
    """A change of a group's subscriptions. It applies to messages stored at ``at`` (ms) or later.

    ``subscriptions`` has one entry for a register or a pull_subscription and the whole list for a heartbeat; otherwise
    it is empty. In an unregister, ``topic`` None means all topics of the group. ``client_id`` is None if the source
    does not have client ids. ``consume_from`` is what the clients ask for at their first start. ``queue_id`` and
    ``queue_offset`` belong to a reset_offset; one by time has ``reset_to`` (ms) instead of the offset, and without a
    queue is of all queues of the topic. ``protocol`` is one of PROTOCOLS, or None if it is not known. ``since`` (ms):
    from then on until ``at``, it is not known what the group subscribed to; None: it is. ``committed``: by topic and
    queue id, the offsets that the group had when it left or came; None: not known.
    ``is_broadcasting``: the client broadcasts, and so does its group. ``other_until`` (ms) of a pop_subscription: when
    a request carried the former one for the last time; None: not known.
    """

    at: int
    operation: Operation
    group: str
    subscriptions: tuple[Subscription, ...] = ()
    topic: str | None = None
    client_id: str | None = None
    consume_from: ConsumeStart = ConsumeFrom.LAST
    queue_id: int | None = None
    queue_offset: int | None = None
    reset_to: int | None = None
    since: int | None = None
    committed: Mapping[str, Mapping[int, int]] | None = None
    protocol: str | None = None
    is_broadcasting: bool = False
    other_until: int | None = None

    @property
    def pops(self) -> bool | None:
        """Whether the client pops; None if the event does not say."""
        if self.operation is Operation.POP_SUBSCRIPTION:
            return True
        return None if self.protocol is None else self.protocol in POPPING_PROTOCOLS


class InvalidSubscriptionEvent(ValueError):
    """An entry that is not a valid event, with its first line (from 1), its text and the reason.

    ``is_replaced``: it is one, but a later entry for the same subscription counts instead.
    """

    def __init__(self, line: int, text: str, reason: str, is_replaced: bool = False) -> None:
        super().__init__(f"line {line}: {reason}")
        self.line = line
        self.text = text
        self.reason = reason
        self.is_replaced = is_replaced


@frozen
class SubscriptionEvents:
    """The ``entries`` of a source in its own order, with versions only where it has them, and the ``rejected`` ones.

    A snapshot has the subscriptions at one time, without the changes before: see
    :mod:`schemas.subscription_files`. ``broadcasting``: groups that broadcast, with their topics; they have no
    entries, since their clients are not known. ``not_watched``: the times (ms) from which and up to which nobody
    watched the broker.
    """

    entries: tuple[SubscriptionEvent, ...]
    rejected: tuple[InvalidSubscriptionEvent, ...]
    is_snapshot: bool = False
    broadcasting: tuple[GroupTopic, ...] = ()
    not_watched: tuple[tuple[int, int], ...] = ()

    @cached_property
    def events(self) -> tuple[SubscriptionEvent, ...]:
        """The events by time (in the order of the file if the time is the same), with versions."""
        return in_order(self.entries)

    @property
    def first(self) -> tuple[SubscriptionEvent, ...]:
        """The first of ``events``, without putting all in order; empty if there is none."""
        return in_order([min(self.entries, key=lambda event: event.at)]) if self.entries else ()


UNVERSIONED = -1
"""The version of a subscription from a source without versions. :func:`in_order` replaces it."""


def in_order(
    events: Iterable[SubscriptionEvent], after: Iterable[SubscriptionEvent] = ()
) -> tuple[SubscriptionEvent, ...]:
    """Sorts events by time, and gives unversioned subscriptions a version. The sort is stable.

    A client's version is the time of its last change. The version given here is the time of the event, but at least
    one more than the last version of the same group and topic, in these events or in those ``after`` which they come.
    """
    latest: dict[GroupTopic, int] = {}
    for event in after:
        for subscription in event.subscriptions:
            key = event.group, subscription["topic"]
            latest[key] = max(subscription["version"], latest.get(key, -1))
    ordered = []
    for event in sorted(events, key=lambda event: event.at):
        subscriptions = []
        for subscription in event.subscriptions:
            key = event.group, subscription["topic"]
            if subscription["version"] == UNVERSIONED:
                subscription = subscription | {"version": min(max(event.at, latest.get(key, -1) + 1), LONG_MAX)}
            latest[key] = max(subscription["version"], latest.get(key, -1))
            subscriptions.append(subscription)
        is_unversioned = any(subscription["version"] == UNVERSIONED for subscription in event.subscriptions)
        ordered.append(replace(event, subscriptions=tuple(subscriptions)) if is_unversioned else event)
    return tuple(ordered)


def resets_and_first_starts(
    events: Iterable[SubscriptionEvent],
) -> tuple[Mapping[GroupTopic, Sequence[SubscriptionEvent]], Mapping[GroupTopic, SubscriptionEvent]]:
    """By group and topic, the offset resets, and the event of the group's first start, which says where it begins.

    Of several resets of a queue in one millisecond, only the last is listed.
    """
    resets: defaultdict[GroupTopic, dict[tuple[int, int | None], SubscriptionEvent]] = defaultdict(dict)
    first_starts: dict[GroupTopic, SubscriptionEvent] = {}
    for event in events:
        if event.operation is Operation.RESET_OFFSET:
            resets[event.group, event.topic or ""][event.at, event.queue_id] = event
        elif event.operation not in SENT_WITH_REQUESTS:
            for subscription in event.subscriptions:
                first_starts.setdefault((event.group, subscription["topic"]), event)
    return {key: list(topic_resets.values()) for key, topic_resets in resets.items()}, first_starts


# Reads fields of JSON from users, with limits on size and depth.


LONGEST_LINE = 1 << 20
"""The greatest length of a line in characters."""


def parse_json(text: str, longest: int) -> Any:
    """The value of a JSON text. Raises ValueError if it is not JSON, longer than ``longest`` or nested too deep."""
    if len(text) > longest:
        raise ValueError(f"longer than {longest:,} characters")
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error}") from None
    except ValueError:  # sys.set_int_max_str_digits
        raise ValueError("not JSON that can be read: a number is too long") from None
    except RecursionError:
        raise ValueError("not JSON that can be read: nested too deep") from None


def check_encoding(source: str) -> None:
    """Raises ValueError if a part of a file was not UTF-8. Such bytes are halves of surrogate pairs in the text."""
    if has_half_a_pair(source):
        raise ValueError("not UTF-8")


def text_field(row: Mapping[str, Any], key: str, may_be_empty: bool = False) -> str:
    """A text. Raises ValueError if the field is missing, not a text, or not encodable as UTF-8."""
    value = row.get(key)
    if not isinstance(value, str) or not (value or may_be_empty):
        raise ValueError(f"{key} must be a text, not {_short(value)}")
    if has_half_a_pair(value):
        raise ValueError(f"{key} contains half of a surrogate pair, which is not valid text")
    return value


def whole_number(row: Mapping[str, Any], key: str) -> int | None:
    """A whole number of 64 bits; None if the field is missing. Raises ValueError if it is something else."""
    value = row.get(key)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) > LONG_MAX:
        raise ValueError(f"{key} must be a whole number of 64 bits, not {_short(value)}")
    return value


def _short(value: Any) -> str:
    text = repr(value) if not isinstance(value, int) or abs(value) <= LONG_MAX else "a longer one"
    return text if len(text) <= 60 else f"{text[:60]}…"


# Subscription events as JSON lines: one event per line, in any order. docs/SUBSCRIPTIONS.md describes the fields.


MISSPELT = 0.8
"""The similarity (difflib) of a name to a known one from which on it counts as misspelt."""
_SUBSCRIPTION_FIELDS = ("topic", "type", "expression", "sub_version", "class_filter_mode")
_FIELDS = (
    "at", "op", "group", *_SUBSCRIPTION_FIELDS, "client_id", "consume_from", "subscriptions", "queue_id", "offset",
    "to", "timestamp", "protocol", "since", "offsets", "message_model", "other_until",
)  # fmt: skip
NOT_WATCHED = "not_watched"


def parse_event_lines(text: str) -> SubscriptionEvents:
    """The events of all lines. Blank lines are skipped; a line that is not an event is among the rejected."""
    events, rejected, broadcasting, not_watched = [], [], [], []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            if gap := _gap(line):
                not_watched.append(gap)
                continue
            event = parse_event(line)
            in_milliseconds(event.at)
            _check_unregister(event)
            if event.is_broadcasting and event.client_id is None and event.subscriptions:
                broadcasting += [(event.group, subscription["topic"]) for subscription in event.subscriptions]
            else:
                events.append(event)
        except ValueError as error:
            rejected.append(InvalidSubscriptionEvent(number, line[:LONGEST_LINE], str(error)))
    named = {event.group for event in events if event.is_broadcasting and event.client_id is not None}
    return SubscriptionEvents(
        tuple(event for event in events if event.client_id or not event.is_broadcasting or event.group in named),
        tuple(rejected),
        broadcasting=tuple(dict.fromkeys(broadcasting)),
        not_watched=tuple(not_watched),
    )


def _gap(line: str) -> tuple[int, int] | None:
    """When nobody watched, of a line that says so; None of other lines. Raises ValueError if a time is missing."""
    row = parse_json(line, LONGEST_LINE) if NOT_WATCHED in line else None
    if not isinstance(row, dict) or row.get("op") != NOT_WATCHED:
        return None
    since, at = whole_number(row, "since"), whole_number(row, "at")
    if since is None or at is None or since > at:
        raise ValueError("not_watched needs since and at, two times in milliseconds in this order")
    return checked(since), checked(at)


def _broadcasts(row: Mapping[str, Any]) -> bool:
    """Whether a client broadcasts. Raises ValueError if its message model is neither of the two."""
    model = row.get("message_model", "clustering")
    if model not in ("clustering", "broadcasting"):
        raise ValueError(f"message_model must be clustering or broadcasting, not {model!r}")
    return bool(model == "broadcasting")


_OPERATIONS = {operation.value: operation for operation in Operation}


def parse_event(line: str, longest: int = LONGEST_LINE) -> SubscriptionEvent:
    """One event. Raises ValueError with the reason if the line is not an event, or has more characters."""
    row = parse_json(line, longest)
    check_encoding(line)
    if not isinstance(row, dict):
        raise ValueError("an event must be a JSON object")
    name = row.get("op")
    operation = _OPERATIONS.get(name) if isinstance(name, str) else None
    if operation is None:
        raise ValueError(f"op must be one of {', '.join(_OPERATIONS)}, not {name!r}")
    _check_fields(row, _FIELDS)
    at = whole_number(row, "at")
    if at is None:
        raise ValueError("at is missing; write the time in milliseconds")
    checked(at)
    resets = operation is Operation.RESET_OFFSET
    has_topic = resets or (operation is Operation.UNREGISTER and "topic" in row)
    return SubscriptionEvent(
        at=at,
        operation=operation,
        group=text_field(row, "group"),
        subscriptions=_subscriptions(row, operation),
        topic=text_field(row, "topic") if has_topic else None,
        client_id=text_field(row, "client_id") if "client_id" in row else None,
        consume_from=parse_consume_from(row.get("consume_from", ConsumeFrom.LAST.value)),
        protocol=_protocol(row, operation),
        since=_since(row, at),
        committed=_committed(row, operation),
        is_broadcasting=_broadcasts(row),
        other_until=_other_until(row, at) if operation is Operation.POP_SUBSCRIPTION else None,
        **(_reset(row) if resets else {}),
    )


def event_line(event: SubscriptionEvent) -> str:
    """The line that :func:`parse_event` reads as this event."""
    row: dict[str, Any] = {"at": event.at, "op": event.operation.value, "group": event.group}
    if event.topic is not None:
        row["topic"] = event.topic
    if event.client_id is not None:
        row["client_id"] = event.client_id
    if event.consume_from is not ConsumeFrom.LAST:
        row["consume_from"] = consume_from_value(event.consume_from)
    if event.protocol is not None:
        row["protocol"] = event.protocol
    if event.is_broadcasting:
        row["message_model"] = "broadcasting"
    if event.operation is Operation.RESET_OFFSET:
        fields = {"queue_id": event.queue_id, "offset": event.queue_offset, "to": event.reset_to}
        row |= {name: value for name, value in fields.items() if value is not None}
    if event.since is not None:
        row["since"] = event.since
    if event.other_until is not None:
        row["other_until"] = event.other_until
    if event.committed is not None:
        row["offsets"] = {
            topic: {str(queue_id): offset for queue_id, offset in queues.items()}
            for topic, queues in event.committed.items()
        }
    listed = [_subscription_fields(subscription) for subscription in event.subscriptions]
    if event.operation is Operation.HEARTBEAT:
        row["subscriptions"] = listed
    for fields in listed if event.operation is not Operation.HEARTBEAT else ():
        row |= fields
    return json.dumps(row, ensure_ascii=False)


def _subscription_fields(subscription: Subscription) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "topic": subscription["topic"],
        "type": subscription["type"],
        "expression": subscription["expression"],
        "sub_version": subscription["version"],
    }
    if subscription.get("class_filter_mode"):
        fields["class_filter_mode"] = True
    return fields


def _subscriptions(row: Mapping[str, Any], operation: Operation) -> tuple[Subscription, ...]:
    if operation in (Operation.UNREGISTER, Operation.RESET_OFFSET):
        return ()
    if operation is Operation.HEARTBEAT:
        listed = row.get("subscriptions")
        if not isinstance(listed, list) or not all(isinstance(entry, dict) for entry in listed):
            raise ValueError("subscriptions of a heartbeat must be a list of objects with topic and expression")
        for entry in listed:
            _check_fields(entry, _SUBSCRIPTION_FIELDS)
        return tuple(_subscription(entry) for entry in listed)
    subscription = _subscription(row)
    if operation in SENT_WITH_REQUESTS and "class_filter_mode" in subscription:
        raise ValueError("a client in class_filter_mode sends no subscription with its pulls; register it")
    return (subscription,)


def _check_unregister(event: SubscriptionEvent) -> None:
    """Raises ValueError if a client leaves one topic: to the broker, it leaves the group or sends a shorter list."""
    if event.operation is Operation.UNREGISTER and event.client_id is not None and event.topic is not None:
        raise ValueError(
            "an unregister has a client_id or a topic, not both; a client that leaves one topic sends a heartbeat "
            "without it"
        )


def _check_fields(row: Mapping[str, Any], known: Sequence[str]) -> None:
    """Raises ValueError if a field looks like a misspelt one. Other unknown fields are ignored."""
    for name in row:
        if name not in known and (hint := did_you_mean(name, known, MISSPELT)):
            raise ValueError(f"{name} is not known{hint}")


def _subscription(row: Mapping[str, Any]) -> Subscription:
    if "expression" not in row:
        raise ValueError('expression is missing; "*" takes every message')
    version = whole_number(row, "sub_version")
    class_filter_mode = row.get("class_filter_mode", False)
    if not isinstance(class_filter_mode, bool):
        raise ValueError(f"class_filter_mode must be true or false, not {class_filter_mode!r}")
    expression_type = _optional_text(row, "type")
    return new_subscription(
        text_field(row, "topic"),
        _optional_text(row, "expression"),
        TAG if expression_type is None else expression_type,
        UNVERSIONED if version is None else version,
        class_filter_mode,
    )


def _reset(row: Mapping[str, Any]) -> dict[str, int]:
    """The fields of a reset_offset. Raises ValueError if it has neither an offset nor a time, or both."""
    times = [name for name in ("to", "timestamp") if name in row]
    if len(times) + ("offset" in row) > 1:
        raise ValueError(f"a reset_offset has offset or {' or '.join(times)}, not both")
    if not times and "offset" not in row and "queue_id" not in row:
        raise ValueError("a reset_offset needs queue_id and offset, or to: a time in milliseconds")
    if not times:
        return {"queue_id": _offset(row, "queue_id"), "queue_offset": _offset(row, "offset")}
    queue = {"queue_id": _offset(row, "queue_id")} if "queue_id" in row else {}
    return queue | {"reset_to": checked(_offset(row, times[0]))}


def _since(row: Mapping[str, Any], at: int) -> int | None:
    since = whole_number(row, "since")
    if since is not None and since > at:
        raise ValueError("since must not be later than at")
    return since if since is None else checked(since)


def _other_until(row: Mapping[str, Any], at: int) -> int | None:
    until = whole_number(row, "other_until")
    if until is not None and until > at:
        raise ValueError("other_until must not be later than at")
    return until if until is None else checked(until)


def _committed(row: Mapping[str, Any], operation: Operation) -> dict[str, dict[int, int]] | None:
    """The committed offsets by topic and queue id. Raises ValueError if they are something else."""
    listed = row.get("offsets")
    if listed is None:
        return None
    if operation not in (Operation.UNREGISTER, Operation.HEARTBEAT):
        raise ValueError("offsets are those of a group that leaves: of an unregister or a heartbeat")
    committed: dict[str, dict[int, int]] = {}
    for topic, queues in listed.items() if isinstance(listed, dict) else [("", None)]:
        if not isinstance(queues, dict) or not all(queue_id.isdecimal() for queue_id in queues):
            raise ValueError("offsets must be an object with an object of queue ids and offsets for each topic")
        committed[topic] = {int(queue_id): _offset(queues, queue_id) for queue_id in queues}
    return committed


def _offset(row: Mapping[str, Any], key: str) -> int:
    value = whole_number(row, key)
    if value is None or value < 0:
        raise ValueError(f"{key} of a reset_offset must be 0 or more, not {value!r}")
    return value


def _protocol(row: Mapping[str, Any], operation: Operation) -> str | None:
    """How the client consumes. Raises ValueError if it is none of PROTOCOLS."""
    if operation not in (Operation.REGISTER, Operation.HEARTBEAT) or row.get("protocol") is None:
        return None
    if row["protocol"] not in PROTOCOLS:
        raise ValueError(f"protocol must be one of {', '.join(PROTOCOLS)}, not {row['protocol']!r}")
    return text_field(row, "protocol")


def _optional_text(row: Mapping[str, Any], key: str) -> str | None:
    return None if row.get(key) is None else text_field(row, key, may_be_empty=True)


def with_offsets(
    events: Iterable[SubscriptionEvent], offsets: Mapping[str, Mapping[int, int]]
) -> Iterator[SubscriptionEvent]:
    """The events, with a reset of each queue instead of a reset by time. ``offsets``: by its line, by queue id."""
    for event in events:
        if event.reset_to is None:
            yield event
        else:
            for queue_id, offset in offsets.get(event_line(event), {}).items():
                yield replace(event, queue_id=queue_id, queue_offset=offset, reset_to=None)
