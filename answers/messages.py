"""Finds messages of a broker: by id, key, property or place, with their entries, copies and deliveries.

A message may be stored several times: in its topic, and as copies in retry topics and in the broker's own topics.
Each is a StoredMessage of its own, and :func:`copies_of` finds the others.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from answers.facts import BrokerFacts, in_queue
from filtering.delivery import Outcome
from filtering.explanation import Entry
from filtering.frozen import frozen
from filtering.journey import (
    HALF_TOPICS,
    ORIGIN_GROUP,
    ORIGIN_MESSAGE_ID,
    Copy,
    ended_offsets,
    group_of_copy,
    is_copy,
    wait_of,
)
from filtering.matcher import Matcher
from filtering.matcher.column import columns as property_columns
from filtering.names import REAL_TOPIC, is_lmq, is_trace_topic
from filtering.sql92 import compile
from schemas.arrow_batches import as_dictionaries
from schemas.commitlog import COMMITLOG, file_columns, view
from schemas.deliveries import DELIVERY_BLOCKS
from schemas.delta.delta_log import OpenDataFile, open_data_file
from schemas.delta.table_rows import (
    files_that_may_hold,
    greatest,
    group_numbers,
    least,
    may_hold,
    one_of,
    within,
)
from schemas.errors import UsageError
from schemas.messages.stored_messages import PLACES, WHOLE_LOG, read_messages
from schemas.spark_tasks import run_in_threads
from schemas.storage import Storage
from schemas.tables import CONSUMEQUEUE, CONSUMPTIONS

# Deliveries of single messages.


@frozen
class Delivery:
    """The delivery of a message to a group: a row of deliveries. Times are ms."""

    consumer_group: str
    outcome: str
    subscription_from: int
    available_at: int
    run: str

    def is_alike(self, other: Delivery) -> bool:
        """Whether the group received another message in the same run, by the same subscription."""
        return replace(self, available_at=other.available_at) == other


def deliveries_of(
    facts: BrokerFacts, messages: Sequence[Mapping[str, int | str]]
) -> dict[tuple[str, int], list[Delivery]]:
    """The deliveries of some messages, by topic and physical offset, in the order of time.

    ``messages``: rows with the columns commitlog_offset, topic and store_timestamp; the topic may be an LMQ.
    """
    if not messages:
        return {}
    deliveries: defaultdict[tuple[str, int], list[Delivery]] = defaultdict(list)
    times = [int(row["store_timestamp"]) for row in messages]
    conditions = [
        one_of("topic", sorted({str(row["topic"]) for row in messages})),
        within("first_store_timestamp", below=max(times) + 1),
        within("last_store_timestamp", min(times)),
    ]
    wanted = np.array([row["commitlog_offset"] for row in messages], np.int64)
    storage = facts.warehouse.log(DELIVERY_BLOCKS).storage
    for file in files_that_may_hold(facts.warehouse.files(DELIVERY_BLOCKS, facts.name), conditions):
        with open_data_file(DELIVERY_BLOCKS, storage, file.path) as opened:
            for number, group in enumerate(opened.row_groups):
                if may_hold(group, conditions):
                    for place, delivery in _in_row_group(opened, number, wanted):
                        deliveries[place].append(delivery)
    return {place: sorted(each, key=lambda delivery: delivery.available_at) for place, each in deliveries.items()}


def not_taken_back(deliveries: Sequence[Delivery]) -> list[Delivery]:
    """The deliveries of a message to a group, without those that a DENIED one of a later night takes back."""
    denied = {(each.subscription_from, each.available_at) for each in deliveries if each.outcome == Outcome.DENIED}
    return [
        each
        for each in deliveries
        if each.outcome != Outcome.DELIVERED or (each.subscription_from, each.available_at) not in denied
    ]


def _in_row_group(opened: OpenDataFile, group: int, wanted: np.ndarray) -> Iterator[tuple[tuple[str, int], Delivery]]:
    """The topics and wanted physical offsets in a row group, each with its deliveries."""
    places = opened.read(group, ["topic", "commitlog_offset", "store_timestamp", "run"])
    positions = [np.flatnonzero(np.isin(np.asarray(offsets.values), wanted)) for offsets in places["commitlog_offset"]]
    if not any(len(block_positions) for block_positions in positions):
        return
    matches = opened.read(group, ["matches"])["matches"].combine_chunks()
    for row, block_positions in enumerate(positions):
        if len(block_positions):
            block = {name: places[name][row] for name in places.column_names}
            block_matches = matches.slice(row, 1).flatten()
            for offset, delivery in _in_block(block, block_matches, block_positions.tolist()):
                yield (block["topic"].as_py(), offset), delivery


def _in_block(
    block: Mapping[str, pa.Scalar], matches: pa.StructArray, positions: Sequence[int]
) -> Iterator[tuple[int, Delivery]]:
    """The physical offsets at some positions of a block, each with its deliveries.

    ``matches``: those of the block, as :mod:`filtering.delivery.delivery_blocks` describes them.
    """
    outcomes, recipients = matches.field("outcome"), matches.field("recipients")
    listed, bits = matches.field("positions"), matches.field("bits")
    lists, words = np.asarray(listed.offsets), np.asarray(bits.offsets)
    has_list, has_bits = (array.is_valid().to_numpy(zero_copy_only=False) for array in (listed, bits))
    listed_positions, bit_words = np.asarray(listed.values), np.asarray(bits.values)
    for position in positions:
        at = np.flatnonzero(listed_positions[lists[0] : lists[-1]] == position) + lists[0]
        hits = ~has_list & ~has_bits
        hits[np.searchsorted(lists, at, "right") - 1] = True
        word = bit_words[words[:-1][has_bits] + position // 64]
        hits[has_bits] = word >> (position % 64) & 1 == 1
        offset, stored = (block[name].values[position].as_py() for name in ("commitlog_offset", "store_timestamp"))
        for hit in np.flatnonzero(hits).tolist():
            for recipient in recipients[hit].as_py():
                group, since = recipient["consumer_group"], recipient["subscription_from"]
                available_at = stored if recipient["available_at"] is None else recipient["available_at"]
                yield offset, Delivery(group, outcomes[hit].as_py(), since, available_at, block["run"].as_py())


# Messages.


MOST_MESSAGES = 1000
"""Messages that a property may find."""
_MSG_ID = re.compile(r"[0-9A-F]{32}|[0-9A-F]{56}")


@frozen
class StoredMessage:
    """A stored message. ``deliveries`` are those to all groups.

    ``entry`` is its consume queue entry; None if it has none. ``in_lmqs``: the same message as each LMQ has it, with
    the LMQ as its topic, and its entry and deliveries there.
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
    deliveries: Sequence[Delivery]
    in_lmqs: Sequence[StoredMessage] = ()

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
        """The group that failed on it: this copy is in its retry topic or dead-letter queue, or waits for it."""
        return group_of_copy(self.topic, self.properties)


def as_copy(message: StoredMessage, facts: BrokerFacts) -> Copy:
    """What is known of a message as one of several copies."""
    return Copy(
        message.commitlog_offset,
        message.topic,
        message.queue_id,
        message.msg_id,
        message.properties.get(ORIGIN_MESSAGE_ID),
        wait_of(message.topic, message.properties, message.store_timestamp, facts.broker),
        message.sent_back_by,
    )


_ENTRY_FIELDS = ("entry", "deliveries", "in_lmqs")
_COLUMNS = [name for name in StoredMessage.__dataclass_fields__ if name not in _ENTRY_FIELDS]
"""The fields that are columns of commitlog."""


def find(facts: BrokerFacts, text: str) -> list[StoredMessage]:
    """The messages with this msgId or unique key, one of these KEYS or all of them, in the order of the log."""
    messages = [message for message in read(facts, _offsets_in(text)) if message.msg_id == text.upper()]
    messages = (
        messages or read(facts, _offsets_of(facts, text, with_keys=True)) or read(facts, _with_given_id(facts, text))
    )
    return messages if len(messages) < 2 else _without_traces(facts, messages) or messages


def _without_traces(facts: BrokerFacts, messages: Sequence[StoredMessage]) -> list[StoredMessage]:
    """The messages that are no traces. A trace has the ids and keys of all messages that it tells of as its KEYS."""
    traced = set(pc.unique(facts.rows(CONSUMPTIONS, ["trace_topic"])["trace_topic"]).to_pylist())
    return [message for message in messages if message.topic not in traced and not is_trace_topic(message.topic)]


def find_where(facts: BrokerFacts, expression: str) -> list[StoredMessage]:
    """The messages for which an SQL92 expression is true, in the order of the log.

    Raises InvalidExpression, and UsageError if they are more than MOST_MESSAGES.
    """
    matcher = Matcher([compile(expression).predicate])
    offsets: list[int] = []
    paths = [file.path for file in facts.warehouse.files(COMMITLOG, facts.name)]
    in_file = partial(_matching_in_file, facts.warehouse.log(COMMITLOG).storage, matcher=matcher)
    for matching in run_in_threads(paths, in_file):
        offsets += matching
        if len(offsets) > MOST_MESSAGES:
            raise UsageError(f"more than {MOST_MESSAGES} messages have {expression}: add a condition")
    return read(facts, offsets)


def _matching_in_file(storage: Storage, path: str, matcher: Matcher) -> list[int]:
    """The physical offsets of the messages in a file that a predicate matches."""
    offsets: list[int] = []
    for messages in read_messages(storage, [path], WHOLE_LOG, None, matcher.properties, PLACES):
        columns = messages.properties(matcher.properties, np.arange(len(messages)))
        _, matching = matcher.match_columns(columns, len(messages)).pairs()
        offsets += messages.commitlog_offset[matching].tolist()
    return offsets


def _with_given_id(facts: BrokerFacts, text: str) -> list[int]:
    """The physical offsets of the messages of a message log to which it gives this msgId."""
    rows = facts.rows(COMMITLOG, ["commitlog_offset"], [one_of("msg_id", [text, text.upper()])])
    offsets: list[int] = rows["commitlog_offset"].to_pylist()
    return offsets


def find_at(facts: BrokerFacts, topic: str, queue_id: int, queue_offset: int) -> list[StoredMessage]:
    """The message at a place of a queue, as a list; empty if there is none."""
    at_place = [*in_queue(topic, queue_id), one_of("queue_offset", [queue_offset])]
    rows = facts.rows(CONSUMEQUEUE, ["commitlog_offset"], at_place)
    messages = read(facts, rows["commitlog_offset"].to_pylist())
    places = (each for message in messages for each in (message, *message.in_lmqs))
    wanted = topic, queue_id, queue_offset
    return [each for each in places if (each.topic, each.queue_id, each.queue_offset) == wanted]


def kept_offsets(facts: BrokerFacts, topic: str) -> dict[int, tuple[int, int]]:
    """The first and last queue offset that has a message, for each queue of a topic that has any, in order."""
    rows = facts.rows(CONSUMEQUEUE, ["queue_id", "queue_offset"], [one_of("topic", [topic])])
    first, last = (extreme(rows, ["queue_id"], "queue_offset") for extreme in (least, greatest))
    return {queue: (first[queue,], last[queue,]) for (queue,) in sorted(first)}


def copies_of(facts: BrokerFacts, message: StoredMessage) -> list[StoredMessage]:
    """The other messages that are the same one: in its topic, in the schedule topic, in retry topics, and so on.

    They share its unique key or, if it has none, ORIGIN_MESSAGE_ID names the first of them.
    """
    if message.uniq_key is not None:
        offsets = _offsets_of(facts, message.uniq_key, with_keys=False)
    else:
        origin = message.properties.get(ORIGIN_MESSAGE_ID) or message.msg_id
        offsets = _without_unique_key(facts, origin) if origin else []
    return read(facts, [offset for offset in offsets if offset != message.commitlog_offset])


def copies_of_each(facts: BrokerFacts, messages: Sequence[StoredMessage]) -> list[list[StoredMessage]]:
    """The copies (:func:`copies_of`) of each message."""
    if not messages:
        return []
    keys = {message.uniq_key for message in messages if message.uniq_key is not None}
    rows = facts.rows(COMMITLOG, ["commitlog_offset"], [one_of("uniq_key", sorted(keys))])
    with_key: defaultdict[str | None, list[StoredMessage]] = defaultdict(list)
    for copy in read(facts, rows["commitlog_offset"].to_pylist()):
        with_key[copy.uniq_key].append(copy)
    return [
        copies_of(facts, message) if message.uniq_key is None
        else [copy for copy in with_key[message.uniq_key] if copy.commitlog_offset != message.commitlog_offset]
        for message in messages
    ]  # fmt: skip


def sent_back_by(facts: BrokerFacts, group: str) -> npt.NDArray[np.int64]:
    """The physical offsets of the messages that consumers of a group sent back, and of their copies."""
    keys, offsets = set[str](), set[int]()
    columns, names = ["topic", "uniq_key", "properties"], (REAL_TOPIC, ORIGIN_GROUP)
    copies = one_of("topic", [topic for topic in facts.topics if is_copy(topic)])
    for file in facts.warehouse.files(COMMITLOG, facts.name):
        rows = view(facts.warehouse.rows(COMMITLOG, file_columns(columns), [copies], [file]), columns)
        values = property_columns(rows["properties"].combine_chunks(), names)
        named = {name: values[name].text_of_each() for name in names}
        by_topic, numbers = group_numbers(pa.table({"topic": rows["topic"]} | named), ["topic", *names])
        is_own = [
            group_of_copy(topic, {name: value for name, value in zip(names, values, strict=True) if value is not None})
            == group
            for topic, *values in by_topic
        ]
        rows = rows.filter(pa.array(np.array(is_own, np.bool_)[numbers]))
        keys.update(rows["uniq_key"].drop_null().to_pylist())
        for properties in rows["properties"].to_pylist(maps_as_pydicts="strict"):
            offsets.update(_offsets_in((properties or {}).get(ORIGIN_MESSAGE_ID, "")))
    where = [one_of("uniq_key", sorted(keys))]
    offsets.update(facts.rows(COMMITLOG, ["commitlog_offset"], where)["commitlog_offset"].to_pylist())
    return np.array(sorted(offsets), np.int64)


def _without_unique_key(facts: BrokerFacts, origin: str) -> list[int]:
    """The physical offsets of the message with the msgId ``origin``, and of those that consumers sent back."""
    columns = ["commitlog_offset", "msg_id", "properties"]
    in_topics = one_of("topic", [topic for topic in facts.topics if is_copy(topic)])
    offsets: list[int] = []
    for where in ([one_of("commitlog_offset", _offsets_in(origin))], [in_topics]):
        rows = view(facts.rows(COMMITLOG, file_columns(columns), where), columns)
        for row in as_dictionaries(rows):
            if origin in (row["msg_id"], (row["properties"] or {}).get(ORIGIN_MESSAGE_ID)):
                offsets.append(row["commitlog_offset"])
    return offsets


def is_ended(facts: BrokerFacts, half: StoredMessage) -> bool | None:
    """Whether a message in the op topic says that a half message was committed or rolled back.

    None: it is not known, because the nights kept no bodies of these messages.
    """
    where = [*in_queue(HALF_TOPICS[half.topic], half.queue_id), within("commitlog_offset", half.commitlog_offset)]
    bodies = facts.rows(COMMITLOG, ["body"], where)["body"].to_pylist()
    if any(half.queue_offset in ended_offsets(body) for body in bodies if body is not None):
        return True
    return None if None in bodies else False


Deliveries = Mapping[tuple[str, int], Sequence[Delivery]]
"""Deliveries by topic and physical offset."""


def read(facts: BrokerFacts, offsets: Collection[int], deliveries: Deliveries | None = None) -> list[StoredMessage]:
    """The messages at some physical offsets, in the order of the log. ``deliveries``: those to read no more."""
    if not offsets:
        return []
    at_offsets = [one_of("commitlog_offset", offsets)]
    rows = view(facts.rows(COMMITLOG, file_columns(_COLUMNS), at_offsets), _COLUMNS)
    place = ["topic", "queue_id", "queue_offset"]
    wanted = [*place, "commitlog_offset", "tags_code", "filter_bit_map", "store_timestamp"]
    entries: defaultdict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in facts.rows(CONSUMEQUEUE, wanted, at_offsets).to_pylist():
        entries[row["commitlog_offset"]].append(row)
    messages = sorted(as_dictionaries(rows), key=lambda row: row["commitlog_offset"])
    in_lmqs = [entry for message_entries in entries.values() for entry in message_entries if is_lmq(entry["topic"])]
    if deliveries is None:
        deliveries = deliveries_of(facts, [*messages, *in_lmqs])

    def with_entry(message: dict[str, Any], entry: dict[str, Any] | None) -> StoredMessage:
        numbers = None if entry is None else (entry["tags_code"], entry["filter_bit_map"], entry["store_timestamp"])
        return StoredMessage(
            **message | {"properties": message["properties"] or {}},
            entry=None if numbers is None else Entry(*numbers),
            deliveries=deliveries.get((message["topic"], message["commitlog_offset"]), ()),
        )

    result = []
    for row in messages:
        message_entries = entries[row["commitlog_offset"]]
        own = next((entry for entry in message_entries if entry["topic"] == row["topic"]), None)
        others = sorted((entry for entry in message_entries if entry is not own), key=lambda entry: entry["topic"])
        lmqs = [with_entry(row | {name: entry[name] for name in place}, entry) for entry in others]
        result.append(replace(with_entry(row, own), in_lmqs=lmqs))
    return result


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
    paths = [file.path for file in facts.warehouse.files(COMMITLOG, facts.name)]
    in_file = partial(_offsets_in_file, facts.warehouse.log(COMMITLOG).storage, text=text, with_keys=with_keys)
    return [offset for offsets in run_in_threads(paths, in_file) for offset in offsets]


_LOOK_UP = {"uniq_key": pc.equal, "keys": pc.match_substring}


def _offsets_in_file(storage: Storage, path: str, text: str, with_keys: bool) -> list[int]:
    offsets: list[int] = []
    with open_data_file(COMMITLOG, storage, path) as file:
        keys = ["keys"] if with_keys and file.has("keys") else []
        for group in range(len(file.row_groups)):
            columns = [*(["uniq_key"] if file.may_have(group, "uniq_key", text) else []), *keys]
            if not columns:
                continue
            texts = file.read(group, columns)
            matches = [_LOOK_UP[name](texts[name], text).fill_null(False) for name in columns]
            rows = pc.indices_nonzero(reduce(pc.or_, matches))
            if not len(rows):
                continue
            places = file.read(group, ["commitlog_offset"])["commitlog_offset"].take(rows).to_pylist()
            for offset, row in zip(places, texts.take(rows).to_pylist(), strict=True):
                key_text = row.get("keys") or ""
                if text in (row.get("uniq_key"), key_text, *key_text.split(" ")):
                    offsets.append(offset)
    return offsets
