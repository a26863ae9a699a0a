"""Which groups pop, and since when: groups may pull at first and pop later, or the other way round.

No file of a broker names them all. A group pops a topic if the broker's record has a pop of it, if
config/messageRequestMode.json says so (PopGroups), or if an event names a protocol that pops. It counts from the
start before. An event with a protocol that pulls ends it.

An operator may switch remoting clients while they are online. Often no event has it. A group that did not pop when the
night began pops from a time in the night on (PopModes.with_mode_changes) by the first line that holds:

| before | in the night | it pops from |
|---|---|---|
| it pulled | the record has pops of it | its first pop |
| it pulled | an event has a request of it to pop | this request |
| it pulled | the configuration says that it pops | its start in the night, or else the end of the night |
| it is new | the record has pops of it, and the configuration names it, or no event says that it pops | its first pop |
| it is new | only the configuration says that it pops, and the record has all pops | as in the third line |

A group that popped, and that the configuration says to pull again, does so after its last pop. A group may pull before
its first pop in its first night, too: a pop comes after its message in the log, so what the group popped is in the
record, and what it read before was pulled. The record also has how far it had come in each queue. So what it pulled is
what it did not pop: what its filter matches before the first pop began to read, and after what the last one read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import pairwise
from typing import Any

from filtering.broker_config import BrokerConfig
from filtering.consumption.offsets import Offsets
from filtering.frozen import frozen
from filtering.rocketmq_version import RocketMQVersion
from filtering.subscriptions.events import (
    GRPC_PUSH,
    REMOTING_POP,
    ConsumeMode,
    GroupTopic,
    Operation,
    SubscriptionEvent,
)
from filtering.subscriptions.subscription_row import SubscriptionRow
from filtering.time_spans import BEGINNING, FOREVER

Interval = tuple[int, int]
"""[from, to), ms."""
ModeChange = tuple[int, bool]
"""A time (ms), and whether the group pops from then on."""
RETRY_MAX_TIMES = 16
"""How often a group's message is redelivered, if its configuration does not say (SubscriptionGroupConfig)."""
NEVER_TOO_OFTEN = (1 << 31) - 2
"""As ``retry_max_times``: of clients that never give a message up."""


@frozen
class PopGroups:
    """From config/messageRequestMode.json, config/subscriptionGroup.json and abort.bak.

    ``set_to_pop``: remoting groups that were switched to POP, by topic. ``retry_max_times``: by group, where it is not
    RETRY_MAX_TIMES. ``in_order``: groups with consumeMessageOrderly, whose pops in order the broker does not write
    down. ``set_to_pull``: groups that were switched back to pulls, by topic. ``handed_out`` is from
    config/consumerOrderInfo.json: of groups in order, by queue id, the offset after the last message that they popped.
    ``restarted_at``: when the broker started after it had been killed (ms); None: it was not. ``configs_are_known``:
    this or an earlier snapshot had config/subscriptionGroup.json.
    """

    set_to_pop: frozenset[GroupTopic] = frozenset()
    retry_max_times: Mapping[str, int] = field(default_factory=dict)
    in_order: frozenset[str] = frozenset()
    set_to_pull: frozenset[GroupTopic] = frozenset()
    handed_out: Mapping[GroupTopic, Offsets] = field(default_factory=dict)
    restarted_at: int | None = None
    configs_are_known: bool = True

    def most_attempts(self, consumer_group: str) -> int:
        """How often the group's clients get a message. The proxy moves it to the dead letter queue at the next pop.

        A remoting client gives up after its own maxReconsumeTimes, which no store has; it counts as the same.
        """
        return self.retry_max_times.get(consumer_group, RETRY_MAX_TIMES) + 1

    def knows_most_attempts(self, consumer_group: str) -> bool:
        """Whether :meth:`most_attempts` is more than a default."""
        return self.configs_are_known or consumer_group in self.retry_max_times

    def with_clients(self, version: RocketMQVersion) -> PopGroups:
        """The same, with remoting clients of this version: older ones never give up a message that they pop."""
        if version.pop_clients_give_up:
            return self
        remoting = sorted({group for group, _ in self.set_to_pop | self.set_to_pull})
        return replace(self, retry_max_times={**self.retry_max_times, **dict.fromkeys(remoting, NEVER_TOO_OFTEN)})

    @property
    def text(self) -> str:
        """As JSON."""
        modes = {"popping": sorted(self.set_to_pop), "pulling": sorted(self.set_to_pull)}
        handed_out = [[*key, sorted(offsets.items())] for key, offsets in sorted(self.handed_out.items())]
        more = {
            "retry_max_times": dict(self.retry_max_times), "in_order": sorted(self.in_order), "handed_out": handed_out,
            "restarted_at": self.restarted_at, "configs_are_known": self.configs_are_known,
        }  # fmt: skip
        return json.dumps(modes | more)

    @classmethod
    def from_text(cls, text: str) -> PopGroups:
        """The reverse of ``text``."""
        values = json.loads(text)
        set_to_pop, set_to_pull = (
            frozenset((group, topic) for group, topic in values.get(name, ())) for name in ("popping", "pulling")
        )
        handed_out = {(group, topic): dict(offsets) for group, topic, offsets in values.get("handed_out", ())}
        in_order, restarted_at = frozenset(values["in_order"]), values.get("restarted_at")
        configs_are_known = values.get("configs_are_known", True)
        return cls(
            set_to_pop, values["retry_max_times"], in_order, set_to_pull, handed_out, restarted_at, configs_are_known
        )

    @classmethod
    def so_far(cls, text: str | None) -> PopGroups:
        """What the snapshots before a night said. ``text``: that of the last one; None if there was none.

        An older mqsieve did not write down whether it read config/subscriptionGroup.json: only what is listed shows it.
        """
        if text is None:
            return NOTHING_READ
        groups = cls.from_text(text)
        if "configs_are_known" in json.loads(text):
            return groups
        return replace(groups, configs_are_known=bool(groups.retry_max_times or groups.in_order))


@frozen
class Pops:
    """When groups pop topics. The broker writes down those of ``recorded``; those of ``planned`` are inferred.

    ``offsets_at_mode_change``: by the time (ms) at which a group of ``recorded`` begins or ceases to pop in a night,
    the offsets to which it had come then, as far as its pops show them.
    """

    recorded: Mapping[GroupTopic, Sequence[Interval]] = field(default_factory=dict)
    planned: Mapping[GroupTopic, Sequence[Interval]] = field(default_factory=dict)
    offsets_at_mode_change: Mapping[GroupTopic, Mapping[int, Offsets]] = field(default_factory=dict)


NO_POPS, NO_POP_GROUPS = Pops(), PopGroups()
NOTHING_READ = PopGroups(configs_are_known=False)
"""Before the first snapshot."""


@frozen
class PopModes:
    """When groups were first known to pop topics (ms), by group and topic: by the record, and by the configuration.

    ``mode_changes``: when groups were switched while they were online (ms), and whether they popped then.
    ``unordered``: those of groups in order that the record of the last night has: remoting clients may pop such a group
    out of order.
    """

    recorded: Mapping[GroupTopic, int] = field(default_factory=dict)
    configured: Mapping[GroupTopic, int] = field(default_factory=dict)
    mode_changes: Mapping[GroupTopic, Sequence[ModeChange]] = field(default_factory=dict)
    unordered: frozenset[GroupTopic] = frozenset()

    def are_written_down(self, broker: BrokerConfig, expects_record: bool = False) -> bool:
        """Whether the broker writes pops down, and all of them: a record shows it, or is expected.

        With enablePopBufferMerge some are only in memory, and with popConsumerKVServiceEnable all are in a database,
        which forgets them.
        """
        return (bool(self.recorded) or expects_record) and not (
            broker.enable_pop_buffer_merge or broker.pop_consumer_kv_service_enable
        )

    def with_pops(self, popped: Mapping[GroupTopic, int], groups: PopGroups) -> PopModes:
        """The same, and what the record of a night says: the time (ms) of the first pop by group and topic."""
        known = dict(self.recorded)
        for key, at in popped.items():
            known[key] = min(at, known.get(key, at))
        unordered = frozenset(key for key in popped if key[0] in groups.in_order)
        return replace(self, recorded=known, unordered=unordered)

    def with_configuration(self, groups: PopGroups, at: int) -> PopModes:
        """The same, and what the configuration of a snapshot says, which was taken at ``at`` (ms)."""
        return replace(self, configured={**dict.fromkeys(groups.set_to_pop, at), **self.configured})

    def with_mode_changes(
        self,
        popped: Mapping[GroupTopic, Interval],
        rows: Mapping[GroupTopic, Sequence[SubscriptionRow]],
        events: Sequence[SubscriptionEvent],
        groups: PopGroups,
        night: Interval,
        are_written_down: bool = True,
    ) -> PopModes:
        """The same, and which groups were switched in a night.

        ``popped``: the times (ms) of their first and last pops in the night, which began after ``night[0]`` and
        ended at ``night[1]`` (ms). ``groups``: as its snapshot has them. ``are_written_down``: whether ``popped`` are
        all pops. Then a new group that its snapshot tells to pop, and that did not, pulled.
        """
        before, end = night
        known, asked = self._intervals(rows, events, before), _requests(events)
        asked = {key: at for key, at in asked.items() if before < at <= end}
        mode_changes = dict(self.mode_changes)
        # Remoting clients that were switched back to pulls send heartbeats without a protocol.
        fixed = _said(event for event in events if event.protocol != REMOTING_POP)
        said = _said(event for event in events if event.protocol == REMOTING_POP)
        in_file = groups.set_to_pop | groups.set_to_pull
        for key in sorted((popped.keys() | asked.keys() | in_file) - fixed.keys()):
            states = rows.get(key, ())
            popped_before = any(since <= before < until for since, until in known.get(key, ()))
            pulled_before = any(row.is_consuming and row.valid_from <= before for row in states)
            is_said = key in said or key in asked
            if popped_before:
                begins = False
            elif pulled_before:
                begins = key in popped or key in asked or key in groups.set_to_pop
            elif key in popped:
                begins = key in in_file or not is_said
            else:
                begins = key in groups.set_to_pop and are_written_down and not is_said
            started = _start(states, end)
            first, last = popped.get(key, (asked.get(key, started if started > before else end), before))
            marks = []
            if begins:
                marks.append((max(first, before + 1), True))
            if key in groups.set_to_pull and (popped_before or key in popped):
                marks.append((max(last, before) + 1, False))
            if marks:
                mode_changes[key] = (*self.mode_changes.get(key, ()), *marks)
        return replace(self, mode_changes=mode_changes)

    @property
    def text(self) -> str:
        """As JSON."""
        both = [[[*key, at] for key, at in sorted(known.items())] for known in (self.recorded, self.configured)]
        mode_changes = [[*key, marks] for key, marks in sorted(self.mode_changes.items())]
        return json.dumps([*both, mode_changes, sorted(self.unordered)])

    @classmethod
    def from_text(cls, text: str) -> PopModes:
        """The reverse of ``text``."""
        known: list[Any] = json.loads(text)
        recorded, configured, mode_changes, unordered = [*known, [], []][:4]  # older ones have fewer
        return cls(
            {(group, topic): at for group, topic, at in recorded},
            {(group, topic): at for group, topic, at in configured},
            {(group, topic): [(at, pops) for at, pops in marks] for group, topic, marks in mode_changes},
            frozenset((group, topic) for group, topic in unordered),
        )

    def may_pop(self, events: Iterable[SubscriptionEvent]) -> bool:
        """Whether any group is known to pop."""
        return bool(self.recorded or self.configured) or any(event.pops for event in events)

    def pops(
        self,
        rows: Mapping[GroupTopic, Sequence[SubscriptionRow]],
        events: Sequence[SubscriptionEvent],
        groups: PopGroups,
        broker: BrokerConfig,
        expects_record: bool = False,
    ) -> Pops:
        """When groups pop, and for which groups the broker writes it down. ``rows``: the history by group and topic.

        ``expects_record``: no record was read yet, and there may be one. If it is not known which groups pop in order,
        those that were never in a record may.
        """
        intervals = self._intervals(rows, events)
        writes = self.are_written_down(broker, expects_record)
        in_record = {group for group, _ in self.recorded}
        recorded = {
            key: pops
            for key, pops in intervals.items()
            if writes
            and (key[0] not in groups.in_order or key in self.unordered)
            and (groups.configs_are_known or expects_record or key[0] in in_record)
        }
        return Pops(recorded, {key: pops for key, pops in intervals.items() if key not in recorded})

    def _intervals(
        self,
        rows: Mapping[GroupTopic, Sequence[SubscriptionRow]],
        events: Sequence[SubscriptionEvent],
        known_to: int = FOREVER,
    ) -> dict[GroupTopic, list[Interval]]:
        """When groups pop, by what was known up to ``known_to`` (ms)."""
        said, known = _said(events), {**self.configured, **self.recorded}
        remoting = _said(event for event in events if event.protocol == REMOTING_POP)
        for key, at in _requests(events).items():
            known[key] = min(at, known.get(key, at))
        known = {key: at for key, at in known.items() if at <= known_to}
        by_key = {}
        for key in said.keys() | known.keys():
            marks, mode_changes = said.get(key, []), self.mode_changes.get(key, ())
            since = known.get(key)
            if marks and marks[0][1]:
                at, began = marks[0][0], BEGINNING
                was_consuming = any(row.is_consuming and row.valid_from < at for row in rows.get(key, ()))
                if since is not None and key in self.recorded and key in remoting and was_consuming:
                    began = min(since, at)
                marks = sorted([(began, True), *marks[1:], *mode_changes])
            if not marks and mode_changes and (mode_changes[0][1] or since is None):
                marks = [*mode_changes]
            elif since is not None and not any(time <= since and pops for time, pops in marks):
                marks = sorted([*(marks or mode_changes), (_start(rows.get(key, ()), since), True)])
            by_key[key] = _intervals(marks)
        return {key: intervals for key, intervals in by_key.items() if intervals}


def _said(events: Iterable[SubscriptionEvent]) -> dict[GroupTopic, list[ModeChange]]:
    """What the protocols of clients say."""
    said: dict[GroupTopic, list[ModeChange]] = {}
    for event in events:
        if event.protocol is not None and event.pops is not None:
            for subscription in event.subscriptions:
                said.setdefault((event.group, subscription["topic"]), []).append((event.at, event.pops))
    return said


def _requests(events: Iterable[SubscriptionEvent]) -> dict[GroupTopic, int]:
    """When requests to pop were first seen (ms), by group and topic."""
    asked: dict[GroupTopic, int] = {}
    for event in events:
        if event.operation is Operation.POP_SUBSCRIPTION:
            for subscription in event.subscriptions:
                asked.setdefault((event.group, subscription["topic"]), event.at)
    return asked


def _start(rows: Sequence[SubscriptionRow], at: int) -> int:
    """When the group, which popped at ``at`` (ms), started before; BEGINNING at its first start."""
    starts = [
        row.valid_from
        for before, row in zip([None, *rows], rows, strict=False)
        if row.is_consuming and (before is None or not before.is_consuming) and row.valid_from <= at
    ]
    return starts[-1] if len(starts) > 1 else BEGINNING


def _intervals(marks: Sequence[tuple[int, bool]]) -> list[Interval]:
    intervals: list[Interval] = []
    since: int | None = None
    for at, pops in marks:
        if pops and since is None:
            since = at
        elif not pops and since is not None:
            intervals.append((since, at))
            since = None
    return intervals if since is None else [*intervals, (since, FOREVER)]


def pulled_rows(rows: Sequence[SubscriptionRow], pops: Sequence[Interval]) -> list[SubscriptionRow]:
    """The states of a group and topic, in which it does not consume while it pops."""
    return [
        replace(row, is_consuming=row.is_consuming and mode is ConsumeMode.PULL) for row, mode in _parts(rows, pops)
    ]


def as_consumed(row: SubscriptionRow, pops: Pops) -> SubscriptionRow:
    """A subscription as its group consumes by it: each pop of one that pops brings its own."""
    known = pops.recorded.get(row.key, pops.planned.get(row.key, ()))
    pops_then = any(since < row.end <= until for since, until in known)
    return replace(row, mode=ConsumeMode.POP if pops_then else ConsumeMode.PULL)


def popped_rows(
    rows: Sequence[SubscriptionRow], pops: Sequence[Interval], requests: Mapping[int, SubscriptionEvent]
) -> list[SubscriptionRow]:
    """The states of a group and topic, of which those in which it pops are marked, as its requests carry them.

    ``requests``: by their time (ms), the events that name the subscription. If a request is the first to carry what its
    client has just registered, the group does not consume before it. A gRPC PushConsumer that registers another
    subscription asks with the former one until it restarts.
    """
    states: list[SubscriptionRow] = []
    for part, mode in _parts(rows, pops):
        row = replace(part, mode=mode)
        before = states[-1] if states and states[-1].valid_to == row.valid_from else None
        event = requests.get(row.valid_from)
        if before is not None and before.is_consuming and before.pops and row.is_consuming and row.pops:
            if row.sent_with_pull and not before.sent_with_pull and row.filter == before.filter:
                states[-1] = replace(before, is_consuming=False)
            elif event is not None and event.protocol == GRPC_PUSH and row.filter != before.filter:
                states[-1] = replace(before, valid_to=row.valid_to)
                continue
        states.append(row)
    return states


def _parts(rows: Iterable[SubscriptionRow], pops: Sequence[Interval]) -> Iterator[tuple[SubscriptionRow, ConsumeMode]]:
    """The states, cut where the group begins or ends to pop, each with its mode."""
    for row in rows:
        cuts = {at for interval in pops for at in interval if row.valid_from < at < row.end}
        bounds = [row.valid_from, *sorted(cuts), row.end]
        for begin, stop in pairwise(bounds):
            part = replace(row, valid_from=begin, valid_to=None if stop == FOREVER else stop)
            pops_then = any(since <= begin < until for since, until in pops)
            yield part, ConsumeMode.POP if pops_then else ConsumeMode.PULL
