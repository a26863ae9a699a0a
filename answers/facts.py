"""Reads what the tables store about one broker. Nothing here starts Spark."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from filtering.broker_config import BrokerConfig
from filtering.consumption.broadcasting import ClientStay, broadcasting_clients
from filtering.consumption.offsets import Offsets
from filtering.counted import did_you_mean
from filtering.delivery.pull_window import NO_END, OffsetRange
from filtering.frozen import frozen
from filtering.names import is_lmq, is_retry_topic
from filtering.pops.modes import NO_POPS, PopGroups, PopModes, Pops, as_consumed
from filtering.sql92 import Expressions
from filtering.subscription_data import ConsumerGroupInfo, new_subscription
from filtering.subscriptions.events import (
    BROADCASTING,
    REMOTING_POP,
    GroupTopic,
    Operation,
    SubscriptionEvent,
    with_offsets,
)
from filtering.subscriptions.history import in_force_at, states_by_key, subscription_history
from filtering.subscriptions.subscription_row import SubscriptionRow
from filtering.subscriptions.watch import NOBODY, Look, WatchedGroup, changes
from filtering.time_spans import FOREVER
from schemas.commitlog import COMMITLOG
from schemas.deliveries import RECORDED
from schemas.delta.table import Table
from schemas.delta.table_rows import (
    Condition,
    Key,
    Where,
    files_that_may_hold,
    one_of,
    present,
    row_groups,
    sums_of_parts,
    tuples,
)
from schemas.delta.warehouse import Warehouse
from schemas.errors import UsageError
from schemas.ledger_check import open_runs
from schemas.rocketmq_store.not_replayed import NotReplayed
from schemas.run_ledger import (
    FIRST_SNAPSHOT,
    NOT_REPLAYED,
    POP_GROUPS,
    POP_MODES,
    REPLAY,
    LedgerEntry,
    by_broker,
    earlier_configs,
    nights_of,
    unreplaced_runs,
)
from schemas.subscriptions import read_events, reuse_compiled
from schemas.tables import CURRENT_OFFSETS, DELIVERY_STATS, POPS, QUEUE_PROGRESS

if TYPE_CHECKING:
    from schemas.live_broker import LiveBroker

NO_SUBSCRIPTIONS = "no night had --subscriptions"
GroupQueue = tuple[str, str, int]
"""Consumer group, topic and queue id."""


@frozen
class NewerState:
    """The state of a broker after the last night: of a newer consumerOffset.json, or of the broker that runs.

    ``committed``: queue offsets by group and topic, then by queue id. ``at``: ms; None: unknown. Only of a broker that
    runs: ``ends``, by topic and queue id the offset after the last entry, and ``events``, which lead from the
    subscriptions of the last night to the present ones.
    """

    committed: Mapping[GroupTopic, Offsets]
    at: int | None = None
    ends: Mapping[tuple[str, int], int] | None = None
    events: Sequence[SubscriptionEvent] = ()


@frozen
class BrokerFacts:
    """The stored data of one broker. ``entries`` are its entries in the run ledger, in order; at least one.

    ``newer``: its state after the last night, where that is known. Answers then take offsets and subscriptions from it.
    ``compiles_anew``: what the stored subscriptions compiled to is not taken from their table, as audits need it.
    ``replayed``: the events and the history of subscriptions, if the last run is of this process and has replayed them.
    """

    warehouse: Warehouse
    entries: Sequence[LedgerEntry]
    expressions: Expressions = field(default_factory=Expressions)
    newer: NewerState | None = None
    compiles_anew: bool = False
    replayed: tuple[tuple[SubscriptionEvent, ...], Sequence[SubscriptionRow]] | None = None

    @property
    def last(self) -> LedgerEntry:
        return self.entries[-1]

    @property
    def name(self) -> str:
        return self.last.broker_name

    @cached_property
    def broker(self) -> BrokerConfig:
        """The configuration of the broker in the last run."""
        return self.last.broker

    @cached_property
    def nights(self) -> Sequence[LedgerEntry]:
        """The nights whose deliveries are in the tables, in order, each with the configuration that they came from."""
        return nights_of(unreplaced_runs(self.entries))

    @cached_property
    def counted_nights(self) -> Sequence[LedgerEntry]:
        """The nights that have rows in delivery_stats, in order."""
        files = self.warehouse.files(DELIVERY_STATS, self.name)
        files_of_several = [file for file in files if file.least.get("run") != file.greatest.get("run")]
        merged = self.warehouse.rows(DELIVERY_STATS, ["run"], files=files_of_several)["run"]
        counted = {file.least.get("run") for file in files} | set(pc.unique(merged).to_pylist())
        return [entry for entry in self.nights if entry.run in counted]

    @property
    def history_is_incomplete(self) -> bool:
        """Whether the history of subscriptions begins with a snapshot, so that earlier ones are unknown."""
        return bool(self.last.inputs.get(FIRST_SNAPSHOT))

    @property
    def was_recorded_late(self) -> bool:
        """Whether clients that the first look of a recording found came after the oldest message."""
        files = self.warehouse.files(COMMITLOG, self.name)
        oldest = min((file.least["store_timestamp"] for file in files), default=FOREVER)
        return any(event.since == 0 and event.at > oldest for event in self.events)

    @property
    def as_of(self) -> int:
        """The end of the last night, ms."""
        return self.last.as_of or 0

    @property
    def end(self) -> int:
        """The end of the last night, or the time of the last event if that is later, ms."""
        return max(self.as_of, self.events[-1].at if self.events else 0)

    @property
    def is_live(self) -> bool:
        """Whether the broker that runs was asked for its state."""
        return self.newer is not None and self.newer.ends is not None

    @property
    def asked_at(self) -> int:
        """When the broker was asked (ms); the end of the last night if it was not."""
        return self.newer.at or self.as_of if self.newer is not None and self.is_live else self.as_of

    @property
    def is_replay(self) -> bool:
        """Whether the warehouse holds a replay, which has deliveries but no messages."""
        return self.last.job == REPLAY

    def check_has_messages(self) -> None:
        """Raises UsageError if the warehouse holds a replay."""
        if self.is_replay:
            raise UsageError(
                f"{self.warehouse.location} holds a replay, which has no messages: ask the warehouse it was made from"
            )

    def check_has_windows(self) -> None:
        """Raises UsageError if an older mqsieve ran the nights, and did not store their windows."""
        if not self.last.has_windows:
            raise UsageError(
                f"{self.warehouse.location} was written by an older mqsieve, which stored no pull_windows: the next "
                "nightly adds them"
            )

    def rows(self, table: Table, columns: Sequence[str] | None = None, where: Where = ()) -> pa.Table:
        """The broker's rows of a table."""
        return self.warehouse.rows_of(self.name, table, columns, where)

    def row_groups(self, table: Table, columns: Sequence[str] | None = None, where: Where = ()) -> Iterator[pa.Table]:
        """The broker's rows of a table in parts, of which only one need be in memory."""
        storage, files = self.warehouse.log(table).storage, self.warehouse.files(table, self.name)
        for file in files_that_may_hold(files, where):
            yield from row_groups(table, storage, file.path, columns, where)

    def sums(
        self, table: Table, by: Sequence[str], columns: Sequence[str], runs: Sequence[str] | None = None
    ) -> dict[Key, dict[str, int]]:
        """By the values of ``by``, the sums of some integer columns. ``runs``: only of rows that these runs added."""
        where = [] if runs is None else [one_of("run", runs)]
        return sums_of_parts(self.row_groups(table, [*by, *columns], where), by, columns)

    @cached_property
    def events(self) -> tuple[SubscriptionEvent, ...]:
        """All subscription events, in order."""
        stored = read_events(self.warehouse, self.name) if self.replayed is None else self.replayed[0]
        return stored if self.newer is None else (*stored, *self.newer.events)

    @cached_property
    def resets(self) -> Mapping[GroupQueue, Sequence[tuple[int, int]]]:
        """The times (ms) and new offsets of offset resets, in order."""
        by_queue: defaultdict[GroupQueue, list[tuple[int, int]]] = defaultdict(list)
        for event in with_offsets(self.events, self.last.resets_by_time):
            if event.operation is Operation.RESET_OFFSET:
                queue = event.group, event.topic or "", event.queue_id or 0
                by_queue[queue].append((event.at, event.queue_offset or 0))
        return dict(by_queue)

    @cached_property
    def history(self) -> Sequence[SubscriptionRow]:
        if self.replayed is not None:
            return self.replayed[1]
        if not self.compiles_anew:
            reuse_compiled(self.warehouse, self.entries, self.expressions)
        return self.history_after(self.events)

    def history_after(self, events: Iterable[SubscriptionEvent]) -> list[SubscriptionRow]:
        """The history of the subscriptions that some events register."""
        return subscription_history(events, self.broker, self.expressions, earlier_configs(self.nights))

    def history_of_groups(self, groups: Collection[str]) -> list[SubscriptionRow]:
        """The history of the subscriptions of some groups. It does not depend on that of others."""
        return self.history_after(event for event in self.events if event.group in groups)

    @cached_property
    def in_force(self) -> list[SubscriptionRow]:
        """The subscriptions in force at :attr:`end`."""
        return in_force_at(self.history, self.end)

    def in_force_of(self, groups: Collection[str]) -> list[SubscriptionRow]:
        """The subscriptions of some groups in force at :attr:`end`."""
        return in_force_at(self.history_of_groups(groups), self.end)

    def subscriptions_of(self, consumer_group: str) -> list[SubscriptionRow]:
        """The history of one group. Raises UsageError if the group never subscribed."""
        rows = self.history_of_groups([consumer_group])
        if not rows:
            if any(group == consumer_group for group, _ in self.not_replayed.broadcasting):
                raise UsageError(f"{consumer_group} is not replayed: it is {BROADCASTING}")
            raise UsageError(
                f"{consumer_group} has no subscription in {self.warehouse.location}{self._hint(consumer_group)}"
            )
        return rows

    def only_topic_of(self, group: str) -> str:
        """The topic that a group subscribes to, besides its retry topic. Raises UsageError if there is not just one."""
        topics = {row.topic for row in self.subscriptions_of(group) if not is_retry_topic(row.topic)}
        if len(topics) != 1:
            raise UsageError(f"{group} subscribes to {', '.join(sorted(topics)) or 'no topic'}: say which with --topic")
        return topics.pop()

    def _hint(self, group: str) -> str:
        """What to do about a group without a subscription. Raises TypeError if its name is no text."""
        if not self.groups:
            return f": {NO_SUBSCRIPTIONS}"
        similar = did_you_mean(group, self.groups)
        if self.rows(CURRENT_OFFSETS, ["consumer_group"], [one_of("consumer_group", [group])]).num_rows:
            return (
                ", but committed offsets: give a night what it subscribes to and since when (at:), with "
                "--subscriptions and --redo-from (docs/SUBSCRIPTIONS.md)"
            )
        return similar

    def without_messages(self, rows: Iterable[SubscriptionRow]) -> list[SubscriptionRow]:
        """The rows whose topic has no message, but would have if its name were right. Empty if no topic has any."""
        return [
            row
            for row in (rows if self.topics else ())
            if row.topic not in self.topics and not is_retry_topic(row.topic) and not is_lmq(row.topic)
        ]

    def check_topic(self, topic: str) -> None:
        """Raises UsageError if the topic has no message, and no group ever subscribed to it."""
        if topic not in self.topics:
            known = sorted({*self.topics, *(row.topic for row in self.history)})
            check_known_topic(topic, known, self.warehouse)

    @cached_property
    def groups(self) -> list[str]:
        """The groups that ever subscribed."""
        return sorted({event.group for event in self.events if event.subscriptions})

    @property
    def misread_settings(self) -> Sequence[str]:
        """The texts on settings that the broker reads in another way than they seem, if the last night's count."""
        return self.last.misread_settings if self.broker == self.last.broker else ()

    @cached_property
    def not_replayed(self) -> NotReplayed:
        """What the last snapshot shows of consumption that is not replayed."""
        text = self.last.inputs.get(NOT_REPLAYED)
        return NotReplayed() if text is None else NotReplayed.from_text(text)

    @cached_property
    def broadcasting(self) -> Mapping[GroupTopic, Sequence[ClientStay]]:
        """The stays of the clients of groups that broadcast, by group and topic, where events name them."""
        return broadcasting_clients(self.events)

    @property
    def writes_down_pops(self) -> bool:
        """Whether the broker's own record says what groups popped."""
        text = self.last.inputs.get(POP_MODES)
        return text is not None and PopModes.from_text(text).are_written_down(self.broker)

    @cached_property
    def pops(self) -> Pops:
        """When groups popped topics."""
        text = self.last.inputs.get(POP_MODES)
        modes = PopModes() if text is None else PopModes.from_text(text)
        if not modes.may_pop(self.events):  # then the history of all groups need not be read
            return NO_POPS
        return modes.pops(states_by_key(self.history), self.events, self.pop_groups, self.broker)

    def as_consumed(self, row: SubscriptionRow) -> SubscriptionRow:
        """The subscription with which its group consumes. If the group pops, each pop brings its own."""
        return as_consumed(row, self.pops)

    def pops_by_remoting(self, key: GroupTopic) -> bool:
        """Whether the clients of a group that pops a topic are remoting ones, as far as it is known."""
        said = [event.protocol for event in self.events if event.group == key[0] and event.protocol is not None]
        return said[-1] == REMOTING_POP if said else key in self.pop_groups.set_to_pop

    def recorded_pops(self, columns: Sequence[str] | None = None, where: Where = ()) -> pa.Table:
        """The rows of pops that the broker wrote down."""
        return self.rows(POPS, columns, [one_of("source", [RECORDED]), *where])

    @cached_property
    def pop_groups(self) -> PopGroups:
        text = self.last.inputs.get(POP_GROUPS)
        return PopGroups() if text is None else PopGroups.from_text(text)

    @cached_property
    def offsets(self) -> pa.Table:
        """The rows of current_offsets."""
        return self.rows(CURRENT_OFFSETS)

    @cached_property
    def begins(self) -> Mapping[tuple[str, int], int]:
        """By topic and queue id, the physical offset with which a queue began again, if it did."""
        rows = self.rows(CURRENT_OFFSETS, ["topic", "queue_id", "begins_at"], [present("begins_at")])
        return {(topic, queue_id): begin for topic, queue_id, begin in tuples(rows, "topic", "queue_id", "begins_at")}

    @cached_property
    def all_begins(self) -> Mapping[tuple[str, int], Sequence[int]]:
        """The physical offsets with which queues began again, each time, by topic and queue id."""
        rows = self.rows(QUEUE_PROGRESS, ["topic", "queue_id", "begins_at"], [present("began_at")])
        begins: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
        for topic, queue_id, begin in tuples(rows, "topic", "queue_id", "begins_at"):
            begins[topic, queue_id].append(begin)
        return begins

    def physical_ranges(self, topic: str, queue_ids: Iterable[int]) -> dict[int, OffsetRange]:
        """By queue id, the physical offsets of the present entries of some queues, if they began again."""
        begins = {queue_id: self.begins.get((topic, queue_id)) for queue_id in queue_ids}
        return {queue_id: (begin, NO_END) for queue_id, begin in begins.items() if begin is not None}

    @cached_property
    def topics(self) -> list[str]:
        """The topics that have messages."""
        return sorted(pc.unique(self.rows(CURRENT_OFFSETS, ["topic"])["topic"]).to_pylist())


def in_queue(topic: str, queue_id: int) -> list[Condition]:
    """The condition of rows of one queue."""
    return [one_of("topic", [topic]), one_of("queue_id", [queue_id])]


def check_known_topic(topic: str, known: Sequence[str], warehouse: Warehouse) -> None:
    """Raises UsageError if the topic is not one of those known."""
    if topic not in known:
        raise UsageError(f"there is no topic {topic} in {warehouse.location}{did_you_mean(topic, known)}")


# Brokers of a warehouse.


def open_facts(
    warehouse: Warehouse, broker_name: str | None = None, expressions: Expressions | None = None
) -> BrokerFacts:
    """The stored data of a broker. Without a name, the warehouse must hold only one broker.

    ``expressions`` are already compiled filters. Raises UsageError if there is no such broker, or if there are several.
    """
    runs = by_broker(open_runs(warehouse))
    if broker_name is None:
        check_only_broker(list(runs))
    name = broker_name if broker_name is not None else next(iter(runs))
    check_broker(name, list(runs))
    return BrokerFacts(warehouse, runs[name], expressions or Expressions(), compiles_anew=expressions is not None)


def open_brokers(warehouse: Warehouse) -> list[BrokerFacts]:
    """The stored data of each broker of a warehouse, in the order of their names."""
    expressions = Expressions()
    return [BrokerFacts(warehouse, runs, expressions) for _, runs in sorted(by_broker(open_runs(warehouse)).items())]


def check_only_broker(names: Sequence[str]) -> None:
    """Raises UsageError if there are several brokers."""
    if len(names) > 1:
        known = ", ".join(names)
        raise UsageError(f"the warehouse holds the brokers {known}: say which (--broker NAME, in Python broker=NAME)")


def check_broker(name: str, known: Sequence[str]) -> None:
    """Raises UsageError if a warehouse with these brokers has none of this name."""
    if name not in known:
        raise UsageError(f"the warehouse has no broker {name}; it holds {', '.join(known)}")


# Brokers that run.


def with_present_state(facts: BrokerFacts, broker: LiveBroker) -> BrokerFacts:
    """The stored data with the state of the broker that runs.

    Raises RemotingError, OSError.
    """
    online = broker.online(broker.groups())
    # An offset is committed after its message is stored: none may be beyond an end that was asked before.
    committed, ends = broker.committed(), broker.queue_ends(_topics(facts, online.values()))
    at = max(time.time_ns() // 1_000_000, facts.end + 1)
    look = Look(at, at, before=None)
    offsets_of: defaultdict[str, dict[str, Offsets]] = defaultdict(dict)
    for (group, topic), queues in committed.items():
        offsets_of[group][topic] = queues
    registered: defaultdict[str, ConsumerGroupInfo] = defaultdict(ConsumerGroupInfo)
    for row in facts.in_force:
        known = new_subscription(row.topic, row.expression, row.expression_type, row.sub_version)
        registered[row.consumer_group].update_topic(known)
    events: list[SubscriptionEvent] = []
    for name, watched in online.items():
        if not watched.is_broadcasting:
            events += changes(name, NOBODY, watched, look, offsets_of[name], registered[name])
    for name in sorted({row.consumer_group for row in facts.in_force if row.is_consuming} - online.keys()):
        events.append(SubscriptionEvent(at, Operation.UNREGISTER, name, committed=offsets_of[name]))
    events = [replace(event, at=at, since=None) for event in events]
    return replace(facts, newer=NewerState(committed, at, ends, events))


def _topics(facts: BrokerFacts, online: Iterable[WatchedGroup]) -> list[str]:
    """The topics of which groups have an offset, or subscribe to now."""
    topics = (topic for group in online for topic in group.subscriptions)
    return sorted({*facts.topics, *topics})
