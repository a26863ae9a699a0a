"""Looks up messages in the tables by id, by key or by place, with their entries and deliveries."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import pyarrow.compute as pc

from filtering.explanation.decision import Entry
from filtering.explanation.journey import (
    HALF_TOPICS,
    ORIGIN_MESSAGE_ID,
    REAL_TOPIC,
    Copy,
    ended_offsets,
    group_of_topic,
    is_copy,
    wait_of,
)
from schemas.answers.explanation.message_deliveries import Delivery, deliveries_of
from schemas.answers.facts import BrokerFacts
from schemas.commitlog import COMMITLOG
from schemas.consumequeue import CONSUMEQUEUE
from schemas.delta.aggregates import greatest, least
from schemas.delta.table_rows import one_of, within
from schemas.messages.message_view import file_columns, view

_MSG_ID = re.compile(r"[0-9A-F]{32}|[0-9A-F]{56}")


@dataclass(frozen=True)
class FoundMessage:
    """A stored message. ``deliveries`` are those to all groups.

    ``entry`` is its consume queue entry, made by the run ``dispatched_by``; both are None if it has none.
    """

    commitlog_offset: int
    topic: str
    queue_id: int
    queue_offset: int
    msg_id: str | None
    uniq_key: str | None
    keys: str | None
    tags: str | None
    properties: Mapping[str, str]
    born_timestamp: int | None
    store_timestamp: int
    sys_flag: int
    run: str
    entry: Entry | None
    dispatched_by: str | None
    deliveries: Sequence[Delivery]

    @property
    def place(self) -> str:
        """``OrderEvents 0/3``: topic, queue id and queue offset."""
        return f"{self.topic} {self.queue_id}/{self.queue_offset}"

    @property
    def name(self) -> str:
        """A name for people: the message's keys, or else an id."""
        return self.keys or self.uniq_key or self.msg_id or self.place

    @property
    def sent_back_by(self) -> str | None:
        """The group that sent it back: this copy is in its retry topic or dead-letter queue, or waits for it."""
        return group_of_topic(self.topic) or group_of_topic(self.properties.get(REAL_TOPIC, ""))


def as_copy(message: FoundMessage, facts: BrokerFacts) -> Copy:
    """What is known of a message as one of several copies."""
    return Copy(
        message.commitlog_offset,
        message.topic,
        message.queue_id,
        message.msg_id,
        message.properties.get(ORIGIN_MESSAGE_ID),
        wait_of(message.topic, message.properties, message.store_timestamp, facts.broker),
    )


_COLUMNS = [name for name in FoundMessage.__dataclass_fields__ if name not in ("entry", "dispatched_by", "deliveries")]
"""The fields that are columns of commitlog."""


def find(facts: BrokerFacts, text: str) -> list[FoundMessage]:
    """The messages with this msgId or unique key, one of these KEYS or all of them, in the order of the log."""
    found = [message for message in read(facts, _offsets_in(text)) if message.msg_id == text.upper()]
    return found or read(facts, _offsets_of(facts, text, with_keys=True)) or read(facts, _with_given_id(facts, text))


def _with_given_id(facts: BrokerFacts, text: str) -> list[int]:
    """The physical offsets of the messages of a message log to which it gives this msgId."""
    rows = facts.rows(COMMITLOG, ["commitlog_offset"], [one_of("msg_id", [text, text.upper()])])
    offsets: list[int] = rows["commitlog_offset"].to_pylist()
    return offsets


def find_at(facts: BrokerFacts, topic: str, queue_id: int, queue_offset: int) -> list[FoundMessage]:
    """The message at a place of a queue, as a list; empty if there is none."""
    conditions = [one_of("topic", [topic]), one_of("queue_id", [queue_id]), one_of("queue_offset", [queue_offset])]
    rows = facts.rows(CONSUMEQUEUE, ["commitlog_offset"], conditions)
    return read(facts, rows["commitlog_offset"].to_pylist())


def kept_offsets(facts: BrokerFacts, topic: str) -> dict[int, tuple[int, int]]:
    """The first and last queue offset that has a message, for each queue of a topic that has any, in order."""
    rows = facts.rows(CONSUMEQUEUE, ["queue_id", "queue_offset"], [one_of("topic", [topic])])
    first, last = (extreme(rows, ["queue_id"], "queue_offset") for extreme in (least, greatest))
    return {queue: (first[queue,], last[queue,]) for (queue,) in sorted(first)}


def copies_of(facts: BrokerFacts, message: FoundMessage) -> list[FoundMessage]:
    """The other messages that are the same one: in its topic, in the schedule topic, in retry topics, and so on.

    They share its unique key or, if it has none, ORIGIN_MESSAGE_ID names the first of them.
    """
    if message.uniq_key is not None:
        offsets = _offsets_of(facts, message.uniq_key, with_keys=False)
    else:
        origin = message.properties.get(ORIGIN_MESSAGE_ID) or message.msg_id
        offsets = _without_unique_key(facts, origin) if origin else []
    return read(facts, [offset for offset in offsets if offset != message.commitlog_offset])


def _without_unique_key(facts: BrokerFacts, origin: str) -> list[int]:
    """The physical offsets of the message with the msgId ``origin``, and of those that consumers sent back."""
    columns = ["commitlog_offset", "msg_id", "properties"]
    in_topics = one_of("topic", [topic for topic in facts.topics if is_copy(topic)])
    found: list[int] = []
    for where in ([one_of("commitlog_offset", _offsets_in(origin))], [in_topics]):
        rows = view(facts.rows(COMMITLOG, file_columns(columns), where), columns)
        for row in rows.to_pylist(maps_as_pydicts="strict"):
            if origin in (row["msg_id"], (row["properties"] or {}).get(ORIGIN_MESSAGE_ID)):
                found.append(row["commitlog_offset"])
    return found


def is_ended(facts: BrokerFacts, half: FoundMessage) -> bool:
    """Whether a message in the op topic says that a half message was committed or rolled back."""
    where = [
        one_of("topic", [HALF_TOPICS[half.topic]]),
        one_of("queue_id", [half.queue_id]),
        within("commitlog_offset", half.commitlog_offset),
    ]
    bodies = facts.rows(COMMITLOG, ["body"], where)["body"].to_pylist()
    return any(half.queue_offset in ended_offsets(body) for body in bodies if body is not None)


def read(facts: BrokerFacts, offsets: Collection[int]) -> list[FoundMessage]:
    """The messages at some physical offsets, in the order of the log."""
    if not offsets:
        return []
    at_offsets = [one_of("commitlog_offset", offsets)]
    rows = view(facts.rows(COMMITLOG, file_columns(_COLUMNS), at_offsets), _COLUMNS)
    wanted = ["commitlog_offset", "tags_code", "filter_bit_map", "store_timestamp", "run"]
    entries, runs = {}, {}
    for row in facts.rows(CONSUMEQUEUE, wanted, at_offsets).to_pylist():
        offset = row["commitlog_offset"]
        entries[offset] = Entry(row["tags_code"], row["filter_bit_map"], row["store_timestamp"])
        runs[offset] = row["run"]
    messages = sorted(rows.to_pylist(maps_as_pydicts="strict"), key=lambda row: row["commitlog_offset"])
    deliveries = deliveries_of(facts, messages)
    return [
        FoundMessage(
            **row | {"properties": row["properties"] or {}},
            entry=entries.get(row["commitlog_offset"]),
            dispatched_by=runs.get(row["commitlog_offset"]),
            deliveries=deliveries.get(row["commitlog_offset"], ()),
        )
        for row in messages
    ]


def _offsets_in(text: str) -> list[int]:
    """The physical offset in a msgId: after 8 bytes of an IPv4 host, or 20 of an IPv6 host; both if it may be either.

    A message that is marked as stored by an IPv6 host may have an IPv4 one; zeros fill its msgId.
    """
    if _MSG_ID.fullmatch(text.upper()) is None:
        return []
    offsets = (int(text[start : start + 16], 16) for start in (16, 40) if start < len(text))
    return [offset for offset in offsets if offset < 2**63]


def _offsets_of(facts: BrokerFacts, text: str, with_keys: bool) -> list[int]:
    """The physical offsets of the messages with a unique key, or a key among their KEYS."""
    found: list[int] = []
    columns = ["commitlog_offset", "uniq_key", *(["keys"] if with_keys else [])]
    for file in facts.warehouse.files(COMMITLOG, facts.name):
        rows = facts.warehouse.rows(COMMITLOG, columns, files=[file])
        mask = pc.equal(rows["uniq_key"], text).fill_null(False)
        if with_keys:
            mask = pc.or_(mask, pc.match_substring(rows["keys"], text).fill_null(False))
        for row in rows.filter(mask).to_pylist():
            keys = row.get("keys") or ""
            if text in (row["uniq_key"], keys, *keys.split(" ")):
                found.append(row["commitlog_offset"])
    return found
