"""The way of a message through the broker's own topics, on which a group gets it later, again, or not at all.

A message that is not to be consumed yet waits in a system topic, with its own topic in REAL_TOPIC: a delayed one in
SCHEDULE_TOPIC_XXXX, a timer message in rmq_sys_wheel_timer, and the half message of a transaction in
RMQ_SYS_TRANS_HALF_TOPIC. When it is due or committed, the broker stores it once more, in its topic. A message that a
consumer sends back waits likewise, for %RETRY%group; after too many times it is stored in %DLQ%group. A message that
was popped and not acknowledged in time is stored in a retry topic of its group and topic
(:mod:`filtering.names`). All these copies keep UNIQ_KEY; those that were sent back name the first one in
ORIGIN_MESSAGE_ID, and redeliveries of pops their group in ORIGIN_GROUP.

Sources: HookUtils, ScheduleMessageService.messageTimeUp, TimerMessageStore.convertMessage,
TransactionalMessageServiceImpl, EndTransactionProcessor, AbstractSendMessageProcessor.consumerSendMsgBack,
PopReviveService.reviveRetry.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum

from filtering.broker_config import BrokerConfig
from filtering.frozen import frozen
from filtering.java import parse_int, parse_long
from filtering.names import (
    DLQ_TOPIC_PREFIX,
    REAL_TOPIC,
    RETRY_TOPIC_PREFIX,
    SYSTEM_PREFIXES,
    SYSTEM_TOPICS,
    TIMER_TOPIC,
    group_of_topic,
    is_retry_topic,
)
from filtering.tags_code import DELAY_PROPERTY, SCHEDULE_TOPIC, delay_of

HALF_TOPICS = {
    "RMQ_SYS_TRANS_HALF_TOPIC": "RMQ_SYS_TRANS_OP_HALF_TOPIC",
    "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC": "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC",
}
"""The topics of half messages, each with the topic of the messages that end them: committed or rolled back."""
CHECKED_TOO_OFTEN_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
"""Of half messages that no producer ended, however often the broker asked."""
REAL_QUEUE_ID = "REAL_QID"
ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
ORIGIN_GROUP = "ORIGIN_GROUP"
TIMER_OUT, TIMER_DELETES = "TIMER_OUT_MS", "TIMER_DEL_UNIQKEY"
TIMER_PRECISION = 1_000
"""ms: the broker rounds the time of a timer message down to it, and delivers one step later (timerPrecisionMs)."""


class WaitKind(StrEnum):
    """Why a message waits in a system topic."""

    DELAYED = "delayed message"
    TIMER = "timer message"
    HALF = "half message of a transaction"


@frozen
class Wait:
    """A message waits in a system topic for its own topic, ``real_topic``, and the queue ``real_queue_id`` of it.

    ``due``: when the broker stores it there (ms); None: a half message, which it stores when it is committed, or one
    whose time is not a number. ``level``: its delay level. ``deletes``: it is a timer message that only deletes another
    one, and is never delivered.
    """

    kind: WaitKind
    real_topic: str
    real_queue_id: int
    due: int | None = None
    level: int | None = None
    deletes: bool = False


def wait_of(topic: str, properties: Mapping[str, str], store_timestamp: int, config: BrokerConfig) -> Wait | None:
    """Why a stored message waits, and for which topic. None if it is not one that waits."""
    real_topic = properties.get(REAL_TOPIC)
    if real_topic is None:
        return None
    queue_id = parse_int(properties.get(REAL_QUEUE_ID, "")) or 0
    if topic == SCHEDULE_TOPIC:
        text = properties.get(DELAY_PROPERTY)
        delay = delay_of(text, config.delay_levels)
        level = None if delay is None else min(parse_int(text or "") or 0, len(config.delay_levels))
        due = None if delay is None else store_timestamp + delay
        return Wait(WaitKind.DELAYED, real_topic, queue_id, due, level)
    if topic == TIMER_TOPIC:
        out = parse_long(properties.get(TIMER_OUT, ""))
        due = None if out is None else out + TIMER_PRECISION
        return Wait(WaitKind.TIMER, real_topic, queue_id, due, deletes=TIMER_DELETES in properties)
    return Wait(WaitKind.HALF, real_topic, queue_id) if topic in HALF_TOPICS else None


def removed_from(wait: Wait) -> Collection[str]:
    """The properties that the broker takes away when it stores a message in its topic."""
    return (REAL_TOPIC, REAL_QUEUE_ID) if wait.kind is WaitKind.HALF else ()


def is_copy(topic: str) -> bool:
    """Whether the broker's own copies of messages are in a topic: system topics, retry topics, dead-letter queues."""
    return topic in SYSTEM_TOPICS or topic.startswith((RETRY_TOPIC_PREFIX, DLQ_TOPIC_PREFIX, *SYSTEM_PREFIXES))


def group_of_copy(topic: str, properties: Mapping[str, str]) -> str | None:
    """The group whose retry topic or dead-letter queue a message is in, or waits for; None if it is no such copy.

    The retry topic of a group that pops ends with a topic.
    """
    in_topic = topic if group_of_topic(topic) is not None else properties.get(REAL_TOPIC, "")
    popping = properties.get(ORIGIN_GROUP)
    is_popping = popping is not None and in_topic.startswith(f"{RETRY_TOPIC_PREFIX}{popping}")
    return popping if is_popping else group_of_topic(in_topic)


def ended_offsets(body: bytes) -> list[int]:
    """The queue offsets of the half messages that a message of the op topic ends: ``7``, or ``7,8,9,``."""
    numbers = (parse_long(text) for text in body.decode("latin-1").split(","))
    return [number for number in numbers if number is not None]


class JourneyStepKind(StrEnum):
    """What happens to a message on its way."""

    WAITS = "WAITS"
    """It was stored in a system topic, to be stored in its topic later."""
    FILTERED = "FILTERED"
    """The group pulled or popped it, or did not: the outcome says what the filters decided."""
    SENT_BACK = "SENT_BACK"
    """A consumer of the group failed on it: it waits for the group's retry topic."""
    RECALLED = "RECALLED"
    """A producer recalled it: the broker deletes the timer message when it is due."""
    RENEWED = "RENEWED"
    """A client that popped it asked for more time, or for a later redelivery."""
    ACKNOWLEDGED = "ACKNOWLEDGED"
    """A client that popped it acknowledged it."""
    CONSUMED = "CONSUMED"
    """A client of the group wrote in a trace that its listener was called with it."""
    DEAD = "DEAD"
    """It is in the group's dead-letter queue: nothing delivers it from there."""


@frozen
class Call:
    """A call of a client's listener: ``cost`` in ms, and ``code`` of ConsumeReturnType; None: it did not return yet.

    ``success`` is that of the whole call, which may have had several messages. ``client``: where it ran.
    """

    client: str
    retry_times: int | None
    cost: int | None
    success: bool | None
    code: int | None


@frozen
class JourneyStep:
    """A step of a message's way to a group, at ``at`` (ms; None: it has not happened), with the place of the copy.

    ``due`` (ms) and ``level`` are those of a WAITS or SENT_BACK; ``outcome`` is that of a FILTERED, ``call`` that of a
    CONSUMED. ``is_over``: a WAITS or SENT_BACK has ended, because the message was stored where it waited to be stored.
    ``attempt``: of a FILTERED, the pop that handed it out was the first, second, … one; None: it was not popped. Such a
    step and a RENEWED are ``due`` when the message comes again if nobody acknowledges it.
    """

    kind: JourneyStepKind
    at: int | None
    topic: str
    queue_id: int
    queue_offset: int
    due: int | None = None
    level: int | None = None
    outcome: str | None = None
    is_over: bool = False
    call: Call | None = None
    attempt: int | None = None

    @property
    def is_retry(self) -> bool:
        return is_retry_topic(self.topic)


@frozen
class Copy:
    """A stored message, as one of several copies. ``wait``: why it waits, if it does.

    ``group``: it is in this group's retry topic or dead-letter queue, or waits for it.
    """

    commitlog_offset: int
    topic: str
    queue_id: int
    msg_id: str | None
    origin_id: str | None
    wait: Wait | None
    group: str | None


def origin_of(copy: Copy, copies: Sequence[Copy]) -> Copy | None:
    """The message that was sent, of which ``copy`` is one: itself, if it is no copy; None if it is not among them.

    Messages that a producer sent twice share a unique key; ORIGIN_MESSAGE_ID then names one of them.
    """
    if not is_copy(copy.topic):
        return copy
    sent = [message for message in copies if not is_copy(message.topic)]
    named = [message for message in sent if copy.origin_id is not None and message.msg_id == copy.origin_id]
    if named:
        return named[0]
    if copy.wait is not None and copy.group is None:
        topic, offset = copy.wait.real_topic, copy.commitlog_offset
        return next((message for message in sent if message.topic == topic and message.commitlog_offset > offset), None)
    return sent[0] if len(sent) == 1 else None


def way_to(group: str, copy: Copy, copies: Sequence[Copy]) -> list[Copy]:
    """Of the ``copies`` of one unique key, in the order of the log, those on the way of ``copy`` to a group.

    These are the message itself, what waited to become it, and what the group's consumers sent back. If it was sent
    to another message's retry topic, that is not on its way.
    """
    origin = origin_of(copy, copies)
    others = {message.msg_id for message in copies if not is_copy(message.topic) and message != origin} - {None}
    way = []
    for message in copies:
        topic = message.topic if message.wait is None else message.wait.real_topic
        if message in (origin, copy):
            way.append(message)
        elif message.group == group:
            way += [] if message.origin_id in others else [message]
        elif message.wait is not None and origin is not None and topic == origin.topic:
            way += [message] if message.commitlog_offset < origin.commitlog_offset else []
        elif message.wait is not None and copy.wait is not None and topic == copy.wait.real_topic:
            way.append(message)
    return way


def stored_after(copy: Copy, copies: Sequence[Copy]) -> Copy | None:
    """The copy that the broker stored in its topic when ``copy``, which waits, was due or committed; None: not yet.

    The copies wait and leave in order: the first that waits becomes the first in the topic. The half message of a
    transaction that is asked for again, or a timer message that is rolled on, is stored in its system topic again: all
    of these become one.
    """
    if copy.wait is None:
        return None
    topic = copy.wait.real_topic
    taken: set[int] = set()
    for each in copies:
        if each.wait is None or each.topic != copy.topic or each.wait.real_topic != topic:
            continue
        later = [
            other
            for other in copies
            if other.commitlog_offset > each.commitlog_offset and other.commitlog_offset not in taken
        ]
        stored = [other for other in later if other.topic == topic]
        # A committed message that is delayed, too, waits once more.
        waiting = [other for other in later if other.wait and other.wait.real_topic == topic != other.topic]
        next_copy = next(iter([*stored, *(other for other in waiting if other.topic != copy.topic)]), None)
        if each == copy:
            return next_copy
        if next_copy is not None and each.wait.kind is WaitKind.DELAYED:
            taken.add(next_copy.commitlog_offset)
    return None
