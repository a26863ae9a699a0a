"""The plan of a night: the pull windows of each group on each topic, for new messages and for backlogs.

A *pull window* says which messages a subscription filters for a group: a range of store times and of queue offsets
(:mod:`filtering.delivery.pull_window`). A plan needs no messages, only:

- the history of subscriptions: from when to when each was in force, and whether the group was online;
- how far each group came in earlier nights (OffsetsSoFar), and the offsets in tonight's snapshot (BrokerOffsets);
- the broker's configuration.

:func:`plan_night` plans group by group, topic by topic (GroupPlanner in :mod:`filtering.consumption.group`). A group
that is online pulls a message when it is stored: that makes the windows ``online``. When it comes back, the
subscription then in force filters the messages from its committed offset on: these windows (``backlog``) are also for
messages of earlier nights. Then the plan says what is not certain: messages that may have met the old or the new
subscription (``uncertain_ranges``), and queues that clients of a group with different tags shared (``allocated``,
``assumed``). Times in which a group pops are left out where the broker wrote down what it got; elsewhere they are
planned as pulls are, under other rules (:mod:`filtering.pops.modes`), and so are its retry topics.
Groups whose clients broadcast have a plan of their own (:mod:`filtering.consumption.broadcasting`).

The rules agree message by message with a running broker (docs/CONSUMPTION.md). Which queues began again is known only
when the new messages have been read; then the night is planned once more (:mod:`jobs.night.night`).

:func:`first_difference` compares two lists of events: it says from when on a group may get other messages by one
than by the other.
Sources: RebalancePushImpl.computePullFromWhereWithException, ConsumerManageProcessor, PullMessageProcessor.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence, Set
from dataclasses import field, replace
from functools import cache, cached_property, partial

import numpy as np

from filtering.broker_config import BrokerConfig
from filtering.consumption.broadcasting import BroadcastPlanner, broadcasting_clients
from filtering.consumption.clients import disagreeing_states, drop_differently, tag_disagreements
from filtering.consumption.group import (
    GroupEvents,
    GroupPlanner,
    GroupStart,
    Moment,
    Timeline,
    TimelineStep,
    online_and_backlog,
    timeline,
)
from filtering.consumption.offsets import BrokerOffsets, GroupProgress, Offsets, OffsetsSoFar
from filtering.consumption.uncertainty import GroupUncertainty, outside
from filtering.delivery.entries import Int64s
from filtering.delivery.message_filter import FiltersInForce
from filtering.delivery.pull_window import PullWindow, Reason, UncertainRange
from filtering.frozen import frozen
from filtering.names import retry_topics, subscribed_topic
from filtering.pops.modes import NO_POP_GROUPS, NO_POPS, PopGroups, Pops, popped_rows, pulled_rows
from filtering.predicate import FALSE
from filtering.pulls import is_pulling
from filtering.sql92 import Expressions
from filtering.subscriptions.events import (
    ConsumeFrom,
    ConsumeMode,
    GroupTopic,
    SubscriptionEvent,
    event_line,
    resets_and_first_starts,
)
from filtering.subscriptions.history import states_by_key, subscription_history
from filtering.subscriptions.inconsistency import (
    SeemingDisagreement,
    client_states,
    differing_states,
    group_clients,
    seeming_disagreements,
)
from filtering.subscriptions.subscription_row import SubscriptionRow
from filtering.time_spans import FOREVER


@frozen
class NightPlan:
    """The pull windows of a night: ``online`` for new messages only, ``backlog`` also for those of earlier nights.

    ``uncertain_ranges``: messages that count as uncertain, such as those that held pulls may have met. ``groups``: the
    progress of each group on each topic. ``lost``: the messages that were gone before groups could pull them.
    ``allocated``: the queues that clients of a group with different tags shared in the night. ``assumed``: the number
    of those with messages, where the topic's is not known; 0: messages have no queue ids.
    """

    online: Sequence[PullWindow]
    backlog: Sequence[PullWindow]
    uncertain_ranges: Sequence[UncertainRange]
    groups: Sequence[GroupProgress]
    lost: Sequence[PullWindow] = ()
    allocated: Mapping[GroupTopic, Set[int]] = field(default_factory=dict)
    assumed: Mapping[GroupTopic, int] = field(default_factory=dict)

    @cached_property
    def instants(self) -> Mapping[str, Int64s]:
        """By topic, the times (ms) at which groups left, ascending. How far queues came then is noted while reading."""
        left_at: defaultdict[str, set[int]] = defaultdict(set)
        for group in self.groups:
            if group.stopped_at is not None:
                left_at[group.key[1]].add(group.stopped_at)
        return {topic: np.array(sorted(times), np.int64) for topic, times in left_at.items()}


NOTHING_PLANNED = NightPlan((), (), (), ())
"""Of a run that does not deliver."""


def plan_night(
    history: Iterable[SubscriptionRow],
    events: Iterable[SubscriptionEvent],
    offsets_so_far: OffsetsSoFar,
    broker_offsets: BrokerOffsets,
    config: BrokerConfig,
    config_before: BrokerConfig | None = None,
    pops: Pops = NO_POPS,
    pop_groups: PopGroups = NO_POP_GROUPS,
) -> NightPlan:
    """The plan of the night after ``offsets_so_far.as_of``.

    ``history`` is the subscription history of ``events``, which are all events so far. ``config_before``: the broker's
    configuration in the night before; None: there was none. ``pops``: when groups pop topics. Of those that are
    recorded, the broker's record says what they got.
    """
    planner = _NightPlanner(
        list(history), list(events), offsets_so_far, broker_offsets, config, config_before, pops, pop_groups
    )
    return planner.plan()


class _NightPlanner:
    """What the plans of all groups need, by group and topic; and the windows that were planned so far."""

    def __init__(
        self,
        history: Sequence[SubscriptionRow],
        events: Sequence[SubscriptionEvent],
        offsets_so_far: OffsetsSoFar,
        broker_offsets: BrokerOffsets,
        config: BrokerConfig,
        config_before: BrokerConfig | None,
        pops: Pops,
        pop_groups: PopGroups,
    ) -> None:
        self._offsets_so_far = offsets_so_far
        self._broker_offsets = broker_offsets
        self._as_of = offsets_so_far.as_of
        self._config, self._config_before = config, config_before
        self._pops, self._pop_groups = pops, pop_groups
        self._requests = _requests(events, pops.planned)
        self._states = states_by_key(history)
        self._rows = _rows_of_plans(self._states, pops, self._requests, offsets_so_far, broker_offsets)
        self._rows_by_group: defaultdict[str, list[SubscriptionRow]] = defaultdict(list)
        for (group, _), rows in self._rows.items():
            self._rows_by_group[group] += rows
        self._resets, self._first_starts = resets_and_first_starts(events)
        self._commits, self._unseen = _commits(events), _unseen(events)
        self._broadcasting = broadcasting_clients(events)
        popping_or_broadcasting = {*pops.recorded, *pops.planned, *self._broadcasting}
        self._disagreeing = [state for state in disagreeing_states(events) if state.key not in popping_or_broadcasting]
        self._queue_ids = cache(partial(_queue_ids, offsets_so_far=offsets_so_far, broker_offsets=broker_offsets))
        self._client_tags = tag_disagreements(self._disagreeing, self._queue_ids, broker_offsets.has_queue_ids)
        self._differing_pop_clients = states_by_key(differing_states(events if pops.planned else ()))
        is_recorded = broker_offsets.watched_to is not None
        self._watched_clients = states_by_key(client_states(events) if is_recorded else ())
        self._seeming: defaultdict[GroupTopic, list[SeemingDisagreement]] = defaultdict(list)
        for disagreement in seeming_disagreements(history, events):
            self._seeming[disagreement.key].append(disagreement)
        self._windows: list[PullWindow] = []
        self._uncertain_ranges: list[UncertainRange] = []
        self._groups: list[GroupProgress] = []
        self._lost: list[PullWindow] = []

    def plan(self) -> NightPlan:
        """Plans group by group, topic by topic."""
        for key, rows in self._rows.items():
            consumer_group, _ = key
            most_attempts = self._pop_groups.most_attempts(consumer_group)
            filters = FiltersInForce(self._rows_by_group[consumer_group], self._config, most_attempts)
            if key in self._broadcasting:
                self._broadcast(key, rows, filters)
            else:
                self._consume(key, rows, filters)
        for key in self._pops.recorded:
            # If no event names the group, its topic is like those of redeliveries.
            topics = [topic for topic in (*retry_topics(*key), key[1]) if (key[0], topic) not in self._rows]
            self._groups += _popped_groups(key[0], topics, self._offsets_so_far, self._broker_offsets)
        allocated, assumed = self._shared_queues()
        return NightPlan(
            *online_and_backlog(self._windows), self._uncertain_ranges, self._groups, self._lost, allocated, assumed
        )

    def _broadcast(self, key: GroupTopic, rows: Sequence[SubscriptionRow], filters: FiltersInForce) -> None:
        """Plans a group of which each client gets all messages."""
        clients = self._broadcasting[key]
        planner = BroadcastPlanner(key, rows, clients, filters, self._offsets_so_far, self._broker_offsets)
        self._windows += planner.windows
        self._uncertain_ranges += planner.uncertain_ranges
        self._groups.append(planner.group)

    def _consume(self, key: GroupTopic, rows: Sequence[SubscriptionRow], filters: FiltersInForce) -> None:
        """Plans a group whose clients share the messages: they pull them, or pop them."""
        planner = GroupPlanner(
            self._group_start(key, rows), self._timeline(key, rows, filters), filters, self._client_tags.get(key, ())
        )
        planner.run(_gap(rows, self._resets.get(key, ()), self._offsets_so_far, filters))
        self._windows += planner.windows
        self._uncertain_ranges += self._uncertain(key, rows, planner.uncertain)
        self._uncertain_ranges += planner.uncertain.in_windows
        if self._config_decides(key):
            self._uncertain_ranges += [
                UncertainRange.in_window(window, FALSE, window.message_filter.delivered, Reason.CONFIG_NOT_KNOWN)
                for window in planner.windows
            ]
        self._lost += planner.lost
        self._groups.append(planner.group)
        recorded = self._pops.recorded.get((key[0], subscribed_topic(*key)))
        if recorded and recorded[-1][1] == FOREVER:
            _set_popped(planner.group, self._offsets_so_far, self._broker_offsets)

    def _group_start(self, key: GroupTopic, rows: Sequence[SubscriptionRow]) -> GroupStart:
        consume_from = self._first_starts[key].consume_from if key in self._first_starts else ConsumeFrom.LAST
        start = GroupStart(key, consume_from, self._offsets_so_far, self._broker_offsets)
        if not any(row.pops for row in rows):
            return start
        is_in_order = key[0] in self._pop_groups.in_order or self._may_pop_in_order(key)
        return replace(
            start,
            mode=ConsumeMode.POP,
            from_first_message=self._config.init_pop_offset_by_check_msg_in_mem,
            commits_at_pop=not (is_in_order or self._config.enable_pop_buffer_merge),
            handed_out=self._pop_groups.handed_out.get(key, {}) if is_in_order else {},
            is_in_order=is_in_order,
        )

    def _may_pop_in_order(self, key: GroupTopic) -> bool:
        """Whether a group, whose configuration is not known, pops in order or not at all: others are in the record."""
        if self._pop_groups.configs_are_known or not self._pops.recorded:
            return False
        return (key[0], subscribed_topic(*key)) in self._pops.planned

    def _config_decides(self, key: GroupTopic) -> bool:
        """Whether it depends on the group's configuration, which is not known, if it gets what is planned."""
        if self._may_pop_in_order(key):
            return True
        if self._pop_groups.knows_most_attempts(key[0]):
            return False
        subscribed = key[0], subscribed_topic(*key)
        return subscribed != key and subscribed in self._pops.planned

    def _timeline(self, key: GroupTopic, rows: Sequence[SubscriptionRow], filters: FiltersInForce) -> Timeline:
        offsets_at_mode_change = self._pops.offsets_at_mode_change.get(key, {})
        events = GroupEvents(
            resets=self._resets.get(key, ()),
            restarts=self._broker_offsets.restarts.get(key[1], ()),
            commits={**self._commits.get(key, {}), **offsets_at_mode_change},
            mode_changed_at=offsets_at_mode_change,
            unseen=self._unseen.get(key[0], {}),
            requests=self._requests.get((key[0], subscribed_topic(*key)), {}),
        )
        line = timeline(rows, events, self._as_of, filters.is_pulling)
        if self._config_before is not None and self._config_before != self._config:
            line = _with_new_switches(line, self._as_of, self._config_before)
        return line

    def _uncertain(
        self, key: GroupTopic, rows: Sequence[SubscriptionRow], uncertain: GroupUncertainty
    ) -> list[UncertainRange]:
        """What is uncertain of a group and topic in the night. ``uncertain``: what its planner found to be.

        Where more is uncertain than a change of subscriptions makes so, as between two looks at a broker, that counts
        instead.
        """
        uncertain_ranges: Sequence[UncertainRange] = uncertain.around_events
        handed = uncertain.handed_over(self._watched_clients.get(key, ()), rows)
        for more in (*handed, *uncertain.unseen):
            uncertain_ranges = [*outside(uncertain_ranges, more.stored_from, more.stored_to), more]
        for part in self._client_tags.get(key, ()):
            if part.possible:
                uncertain_ranges = outside(uncertain_ranges, part.valid_from, part.valid_to)
        subscribed = key[0], subscribed_topic(*key)
        if subscribed in self._pops.planned:
            either = [
                *uncertain.read_by_any(self._differing_pop_clients.get(subscribed, ()), rows),
                *uncertain.registered_only(self._states[subscribed], rows),
                *uncertain.not_registered_yet(rows, self._requests.get(subscribed, {}), self._broker_offsets.taken_at),
            ]
            for more in either:
                uncertain_ranges = outside(uncertain_ranges, more.stored_from, more.stored_to)
            again = uncertain.popped_again(rows, self._killed_at)
            uncertain_ranges = [replace(each, mode=ConsumeMode.POP) for each in (*uncertain_ranges, *either, *again)]
        return uncertain.with_seeming(uncertain_ranges, self._seeming.get(key, ()))

    @cached_property
    def _killed_at(self) -> int | None:
        """When the broker was killed in the night (ms), at the earliest: when the last message was stored."""
        restarted_at, offsets = self._pop_groups.restarted_at, self._broker_offsets
        if restarted_at is None or not (self._as_of or 0) < restarted_at <= (offsets.taken_at or 0):
            return None
        topics = {topic for key in self._pops.planned for topic in (key[1], *retry_topics(*key))}
        return offsets.last_stored(topics, restarted_at)

    def _shared_queues(self) -> tuple[Mapping[GroupTopic, Set[int]], Mapping[GroupTopic, int]]:
        """``allocated`` and ``assumed`` of the plan."""
        since = self._as_of or 0
        shared = [state for state in self._disagreeing if state.end > since]
        if not self._broker_offsets.has_queue_ids:
            return {}, {state.key: 0 for state in shared if drop_differently(state)}
        allocated = {state.key: self._queue_ids(state.topic) for state in shared}
        known = self._broker_offsets.read_queues
        return allocated, {key: len(queues) for key, queues in allocated.items() if queues and key[1] not in known}


def _requests(
    events: Iterable[SubscriptionEvent], planned_pops: Container[GroupTopic]
) -> Mapping[GroupTopic, Mapping[int, SubscriptionEvent]]:
    """By group and topic, and by their time (ms), the events that name the subscriptions of groups that pop."""
    requests: defaultdict[GroupTopic, dict[int, SubscriptionEvent]] = defaultdict(dict)
    for event in events:
        for subscription in event.subscriptions:
            if (event.group, subscription["topic"]) in planned_pops:
                requests[event.group, subscription["topic"]][event.at] = event
    return requests


def _rows_of_plans(
    states_of: Mapping[GroupTopic, Sequence[SubscriptionRow]],
    pops: Pops,
    requests: Mapping[GroupTopic, Mapping[int, SubscriptionEvent]],
    offsets_so_far: OffsetsSoFar,
    broker_offsets: BrokerOffsets,
) -> dict[GroupTopic, Sequence[SubscriptionRow]]:
    """The states by group and topic, in which groups do not consume while the broker writes down what they pop.

    A group that pops, or once did, reads its retry topics, if there are any.
    """
    rows_by_key: dict[GroupTopic, Sequence[SubscriptionRow]] = {}
    known = broker_offsets.min_offsets.keys() | offsets_so_far.topics.keys()
    for key, rows in states_of.items():
        rows_by_key[key] = rows
        if key in pops.recorded:
            rows_by_key[key] = pulled_rows(rows, pops.recorded[key])
        elif key in pops.planned:
            rows_by_key[key] = popped_rows(rows, pops.planned[key], requests.get(key, {}))
        else:
            continue
        for topic in retry_topics(*key):
            retry_rows = [row.of_retry_topic(topic) for row in rows_by_key[key]]
            is_read = any(row.is_consuming for row in retry_rows) and (key[0], topic) not in states_of
            if is_read and (topic in known or not broker_offsets.min_offsets):
                rows_by_key[key[0], topic] = retry_rows
    return rows_by_key


def _set_popped(group: GroupProgress, offsets_so_far: OffsetsSoFar, broker_offsets: BrokerOffsets) -> None:
    """Of a group that pops, the broker has the offset after the last message that a pop read."""
    group.decided_to = {**offsets_so_far.of(group.key), **broker_offsets.committed.get(group.key, {})}


def _popped_groups(
    consumer_group: str, topics: Iterable[str], offsets_so_far: OffsetsSoFar, broker_offsets: BrokerOffsets
) -> list[GroupProgress]:
    """The progress of a group that pops on some topics, as far as it is known."""
    groups = []
    for topic in topics:
        group = GroupProgress((consumer_group, topic))
        _set_popped(group, offsets_so_far, broker_offsets)
        if group.decided_to:
            groups.append(group)
    return groups


def _commits(events: Iterable[SubscriptionEvent]) -> Mapping[GroupTopic, Mapping[int, Offsets]]:
    """By group and topic, and by the time at which the group left or came (ms), the offsets that it had then."""
    commits: defaultdict[GroupTopic, dict[int, Offsets]] = defaultdict(dict)
    for event in events:
        for topic, offsets in (event.committed or {}).items():
            commits[event.group, topic][event.at] = offsets
    return commits


def _unseen(events: Iterable[SubscriptionEvent]) -> Mapping[str, Mapping[int, int]]:
    """By group, and by the time at which a change was seen (ms), since when it is not known what it subscribed to."""
    unseen: defaultdict[str, dict[int, int]] = defaultdict(dict)
    for event in events:
        if event.since is not None:
            unseen[event.group][event.at] = min(event.since, unseen[event.group].get(event.at, event.since))
    return unseen


def _queue_ids(topic: str, offsets_so_far: OffsetsSoFar, broker_offsets: BrokerOffsets) -> frozenset[int]:
    """The queues of a topic that the clients of a group share.

    Without the topic's number of queues, those that ever had messages count: there may be more.
    """
    if topic in broker_offsets.read_queues:
        numbered: Iterable[int] = range(broker_offsets.read_queues[topic])
    else:
        numbered = (queue_id for queue_id, end in offsets_so_far.topic_offsets(topic).ends_by_queue.items() if end > 0)
    with_messages = broker_offsets.min_offsets.get(topic, ()), broker_offsets.new_queues.get(topic, ())
    return frozenset(numbered).union(*with_messages)


def _with_new_switches(line: Timeline, as_of: int | None, config_before: BrokerConfig) -> Timeline:
    """The broker's switches changed after ``as_of`` (ms): a group whose pulls it refused before starts then."""
    if as_of is None or line.first is None or not line.pulls_at_first or is_pulling(line.first, config_before):
        return line
    start = TimelineStep(as_of + 1, Moment.START, line.first, line.first)
    return replace(line, pulls_at_first=False, steps=[start, *line.steps])


def _gap(
    rows: Sequence[SubscriptionRow],
    resets: Iterable[SubscriptionEvent],
    offsets_so_far: OffsetsSoFar,
    filters: FiltersInForce,
) -> Timeline | None:
    """What happened to the group in the gap: in the last night after the last message that it read; None if nothing."""
    begin, end = offsets_so_far.last_stored, offsets_so_far.as_of
    if begin is None or end is None or begin >= end:
        return None
    known = [row for row in rows if row.valid_from <= end]
    events = GroupEvents(resets=[reset for reset in resets if reset.at <= end])
    line = timeline(known, events, begin, filters.is_pulling)
    return line if line.steps else None


# The first difference of two lists of events.


States = set[tuple[GroupTopic, int, str]]
"""Each state of a group and topic: when it began (ms), and its content."""


def first_difference(
    one: Sequence[SubscriptionEvent],
    other: Sequence[SubscriptionEvent],
    as_of: int,
    broker: BrokerConfig,
    expressions: Expressions,
) -> int | None:
    """The first time (ms) up to ``as_of`` from which a group may get other messages by one list than by the other.

    None if there is no such time. Both lists are in order of time.
    """
    sides = [[event for event in events if event.at <= as_of] for events in (one, other)]
    subscriptions = [_subscription_states(events, as_of, broker, expressions) for events in sides]
    clients = [_client_states(events) for events in sides]
    offsets = [_offset_states(events) for events in sides]
    broadcasting = [_broadcasting_states(events) for events in sides]
    pairs = (subscriptions, clients, offsets, broadcasting)
    return min((at for before, after in pairs for _, at, _ in before ^ after), default=None)


def _subscription_states(
    events: Iterable[SubscriptionEvent], as_of: int, broker: BrokerConfig, expressions: Expressions
) -> States:
    states: States = set()
    for row in subscription_history(events, broker, expressions):
        if row.valid_from <= as_of:
            state = (
                row.expression, row.expression_type, row.sub_version, row.registered, row.sent_with_pull,
                row.is_consuming, row.class_filter_mode, row.filter_expression, row.filter_version, row.born_time,
                row.dead_time,
            )  # fmt: skip
            states.add((row.key, row.valid_from, repr(state)))
    return states


def _client_states(events: Iterable[SubscriptionEvent]) -> States:
    """What each client checks, while clients of a group disagree. Clients that agree read the same messages."""
    states: States = set()
    for state in group_clients(events):
        if not state.is_consistent:
            states.add((state.key, state.valid_from, repr(replace(state, valid_from=0, valid_to=None))))
            if state.valid_to is not None:
                states.add((state.key, state.valid_to, "the end of the state before"))
    return states


def _broadcasting_states(events: Iterable[SubscriptionEvent]) -> States:
    """When clients of groups that broadcast come and leave."""
    return {
        (key, at, f"{what} {stay.client_id} {stay.consume_from}")
        for key, stays in broadcasting_clients(events).items()
        for stay in stays
        for at, what in ((stay.begin, "comes"), (stay.end, "leaves"))
        if at != FOREVER
    }


def _offset_states(events: Iterable[SubscriptionEvent]) -> States:
    """Offset resets, and where groups start in a queue without an offset."""
    resets, first_starts = resets_and_first_starts(events)
    states = {(key, event.at, event_line(event)) for key, listed in resets.items() for event in listed}
    return states | {(key, event.at, str(event.consume_from)) for key, event in first_starts.items()}
