"""The inputs and options of a night, and whether nothing is new or earlier nights must be repeated."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from filtering.broker_config import BrokerConfig, changed_switches
from filtering.consumption.plan import first_difference
from filtering.counted import counted
from filtering.frozen import frozen
from filtering.pops.modes import PopGroups
from filtering.sql92 import Expressions
from filtering.subscriptions.events import GroupTopic, InvalidSubscriptionEvent, SubscriptionEvent, event_line, in_order
from filtering.subscriptions.history import in_force_at
from jobs.night import Step
from jobs.night.inputs import Broker, FilterHook, StoreSnapshot, SubscriptionFile, text_of
from jobs.night.log import LogPlan
from jobs.night.past import BrokerState
from schemas import VERSION
from schemas.errors import UsageError, time_text
from schemas.messages.commitlog_rows import Bodies
from schemas.messages.message_log import files as message_log_files
from schemas.rocketmq_store.config_files import read_pop_groups
from schemas.rocketmq_store.not_replayed import NotReplayed
from schemas.run_ledger import (
    COMMITTED_AT,
    FIRST_SNAPSHOT,
    GIVEN,
    HOOKS,
    IN_DATABASE,
    IS_ESTIMATED,
    MESSAGE_LOG,
    MISREAD,
    NOT_REPLAYED,
    NUMBERED_LINES,
    OFFSET_FILES,
    POP_GROUPS,
    QUEUES,
    SOFTWARE,
    STORE,
    STORE_FOLDER,
    SUBSCRIPTION_FILE,
    SUBSCRIPTIONS_FROM,
    USER,
    VERSION_FROM,
    WATCHED_TO,
)
from schemas.subscription_files import differences, later_events, with_retry_topics

# The subscription events of a night: those that earlier nights applied, merged with those of a file.


@frozen
class NightEvents:
    """``events``: all events so far, in order. ``new``: those that no earlier night applied.

    ``late_from`` (ms): the time from which the new events change deliveries of earlier nights; None if they do not.
    ``retracted``: the number of events of earlier nights that the file does not have any more.
    """

    events: tuple[SubscriptionEvent, ...]
    new: tuple[SubscriptionEvent, ...]
    late_from: int | None = None
    retracted: int = 0


def night_events(
    state: BrokerState,
    file: SubscriptionFile | None,
    broker: BrokerConfig,
    expressions: Expressions,
    committed: Container[GroupTopic] = (),
) -> NightEvents:
    """Merges the events of a file, if one was given, with those of earlier nights.

    The file has the whole history, or only events that are later than all applied ones, or it is a snapshot. A snapshot
    is compared with the subscriptions in force at the end of the last night, or after the last applied event if that is
    later. ``committed``: the groups and topics with offsets in the night's snapshot of the store.
    """
    applied = state.events
    inputs = state.last.inputs if state.last is not None else {}
    if file is None or (inputs.get(SUBSCRIPTION_FILE) == file.digest and not file.events.is_snapshot):
        return NightEvents(applied, ())
    given, as_of = file.events, state.as_of
    if given.is_snapshot:
        # Without new messages, the end of the night stays, and the events of the last snapshot are later.
        since = max([as_of or 0, *(event.at for event in applied)])
        in_force = in_force_at(state.history(applied, broker, expressions), since)
        given = with_retry_topics(given, in_force, lambda key: key in committed or bool(state.offsets.committed(key)))
        if as_of is not None:
            new = differences(given, in_force, since, file.filters_only)
            return NightEvents(in_order((*applied, *new)), new)
    later = later_events(applied, given)
    if later is not None:
        return NightEvents((*applied, *later), later)
    known = {event_line(event) for event in applied}
    lines = [event_line(event) for event in given.events]
    new = tuple(event for event, line in zip(given.events, lines, strict=True) if line not in known)
    missing = known.difference(lines)
    retracted = [event for event in applied if event_line(event) in missing]
    if as_of is None or not any(event.at <= as_of for event in [*retracted, *new]):
        return NightEvents(given.events, new, retracted=len(retracted))
    changed = {event.group for event in [*retracted, *new] if event.at <= as_of}
    before, after = ([event for event in events if event.group in changed] for events in (applied, given.events))
    late_from = first_difference(before, after, as_of, broker, expressions)
    return NightEvents(given.events, new, late_from, len(retracted))


def seen_after_nights(
    file: SubscriptionFile | None, state: BrokerState, redo_from: int | None
) -> SubscriptionFile | None:
    """The file, in which what a recording saw too late for its own night begins just after that night.

    What a night decided stays; it counted what was stored after the last look as uncertain. Nights from ``redo_from``
    on (ms) are repeated.
    """
    if file is None or file.watched_to is None:
        return file
    ends = [night.as_of for night in state.nights if night.as_of is not None]
    ends = sorted(end for end in ends if redo_from is None or end < redo_from)
    known = {event_line(event) for event in state.events}

    def at_night(event: SubscriptionEvent) -> SubscriptionEvent:
        then = [event, *(replace(event, at=end + 1) for end in ends if end >= event.at)]
        return next((each for each in then if event_line(each) in known), then[-1])

    events = replace(file.events, entries=tuple(map(at_night, file.events.events)))
    return replace(file, events=events, digest=file.digest if redo_from is None else "repeated")


def events_until(events: Iterable[SubscriptionEvent], as_of: int) -> tuple[SubscriptionEvent, ...]:
    return in_order(event for event in events if event.at <= as_of)


_EVENT_INPUTS = (SUBSCRIPTION_FILE, SUBSCRIPTIONS_FROM, FIRST_SNAPSHOT)
_COMPARED_INPUTS = (OFFSET_FILES, SUBSCRIPTION_FILE, MESSAGE_LOG, SOFTWARE)


@frozen
class NightInputs:
    """What the user gives for a night of a broker: a snapshot of its store, or a message log, or no messages; and more.

    ``redo_from`` (ms): nights from then on are repeated.
    """

    broker: Broker
    snapshot: StoreSnapshot | None
    message_log: Path | None
    subscriptions: SubscriptionFile | None
    bodies: Bodies
    new_epoch: bool
    redo_from: int | None
    steps: frozenset[Step]
    hooks: Sequence[FilterHook]

    @property
    def rejected_subscriptions(self) -> dict[str, Sequence[InvalidSubscriptionEvent]]:
        """The rejected entries of the subscription files, by the name that they have in quarantine.

        A file of the message log may have the same name; quarantine must tell their lines apart.
        """
        messages = message_log_files(self.message_log) if self.message_log is not None else ()
        taken = {file.name for file in messages}
        rejected = self.subscriptions.rejected if self.subscriptions is not None else {}
        return {f"{name} (subscriptions)" if name in taken else name: lines for name, lines in rejected.items()}

    def ledger_texts(self, continued_state: BrokerState, events: NightEvents) -> dict[str, str]:
        """What the ledger keeps of the inputs, by its keys: fingerprints, and texts that later nights need.

        ``continued_state``: the state to which the night adds. ``events``: its subscription events, and those of the
        inputs.
        """
        inputs = {SOFTWARE: VERSION, VERSION_FROM: self.broker.version_from, HOOKS: text_of(self.hooks)}
        # After a cut, the ledger's entry continues an earlier one, but the subscription events stay.
        before = continued_state.last.inputs if continued_state.last is not None else {}
        inputs |= {name: before[name] for name in _EVENT_INPUTS if name in before}
        if self.message_log is not None:
            files = message_log_files(self.message_log)
            listed = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
            inputs[MESSAGE_LOG] = hashlib.sha256(repr(listed).encode()).hexdigest()
        if self.broker.is_given:
            inputs[MISREAD] = json.dumps(self.broker.misread)
        not_replayed = named = NotReplayed.from_text(before[NOT_REPLAYED]) if NOT_REPLAYED in before else NotReplayed()
        if self.snapshot is not None:
            min_offsets = self.snapshot.offsets.min_offsets
            queues = sum(map(len, min_offsets.values()))
            inputs[NUMBERED_LINES] = ""
            inputs[STORE_FOLDER] = self.snapshot.storage.root
            inputs |= {OFFSET_FILES: self.snapshot.fingerprint, QUEUES: str(queues)}
            not_replayed = NotReplayed.in_store(self.snapshot.storage)
            # Which version clients have is not known: they count as of the broker's.
            pop_groups = read_pop_groups(self.snapshot.storage, PopGroups.so_far(before.get(POP_GROUPS)))
            inputs[POP_GROUPS] = pop_groups.with_clients(self.broker.config.version).text
            not_replayed = not_replayed.with_broadcasting(named.broadcasting)
            at = self.snapshot.offsets.committed_at
            inputs[COMMITTED_AT] = "" if at is None else str(at)
            inputs[IS_ESTIMATED] = "true" if self.snapshot.offsets.is_estimated else ""
            inputs[IN_DATABASE] = "" if self.snapshot.offsets.in_files else "true"
        if self.subscriptions is not None:
            given = self.subscriptions.events
            earlier = () if given.is_snapshot else not_replayed.broadcasting
            not_replayed = not_replayed.with_broadcasting((*earlier, *given.broadcasting))
        if self.snapshot is not None or self.subscriptions is not None:
            inputs[NOT_REPLAYED] = not_replayed.text
        if self.subscriptions is not None:
            inputs[SUBSCRIPTION_FILE] = self.subscriptions.digest
            inputs[WATCHED_TO] = "" if self.subscriptions.watched_to is None else str(self.subscriptions.watched_to)
            given = self.subscriptions.events
            if given.entries:
                inputs[SUBSCRIPTIONS_FROM] = STORE if self.subscriptions.is_in_store else USER
            if not given.is_snapshot and given.first == events.events[:1]:
                inputs[FIRST_SNAPSHOT] = ""
            elif given.is_snapshot and len(events.new) == len(events.events):
                inputs[FIRST_SNAPSHOT] = "begins with a snapshot of subscriptions"
        return inputs


def redo_instant(inputs: NightInputs, state: BrokerState, events: NightEvents) -> int | None:
    """The time (ms) from which nights are repeated; None if no night is.

    Raises UsageError if earlier nights would have other results now, and the user did not say what to do.
    """
    given, broker, last = inputs.redo_from, inputs.broker, state.last
    if last is None or last.as_of is None:
        return None
    if events.late_from is not None and (given is None or given > events.late_from):
        rejected = inputs.subscriptions.rejected_lines if inputs.subscriptions is not None else []
        why = f" ({counted(len(rejected), 'entry', 'entries')} could not be read: {rejected[0]})" if rejected else ""
        raise UsageError(
            f"the subscriptions differ from those of earlier nights from {time_text(events.late_from)} on, which "
            f"changes earlier deliveries: give the earlier subscriptions{why}, or add --redo-from "
            f"{events.late_from} to repeat the nights from then on"
        )
    changed = changed_switches(last.broker, broker.config)
    if changed and given is None:
        why = "; ".join([*changed, *broker.misread])
        do = "add" if Step.REGISTER in inputs.steps else "first run register with"
        raise UsageError(
            f"the broker's switches are not those of the last run ({why}): {do} --redo-from 0 if they "
            f"always had the new values, or --redo-from {last.as_of + 1} if they changed after the last night"
        )
    return given


# What is new.


@frozen
class NightStart:
    """What the tables have, and what is new, when a night begins.

    ``state_before``: the state of the broker in the tables. ``continued_state``: the state to which the night is added:
    the same, or empty if a new epoch begins. ``redo_from``: the time (ms) from which nights are repeated first.
    ``is_compiled``: whether the tables have all predicates of this version of mqsieve.
    """

    inputs: NightInputs
    state_before: BrokerState
    continued_state: BrokerState
    log_plan: LogPlan | None
    events: NightEvents
    redo_from: int | None
    ledger_texts: Mapping[str, str]
    is_compiled: bool

    @property
    def is_nothing_new(self) -> bool:
        """Whether the tables have all of it, so that no night is run."""
        last, log, steps, broker = self.state_before.last, self.log_plan, self.inputs.steps, self.inputs.broker
        if last is None or self.redo_from is not None or self.events.new or broker.config != last.broker:
            return False
        if not last.has_windows or (last.version_is_assumed and broker.version_from == GIVEN):
            return False
        if log is not None and (log.ranges or log.recovered_ranges or log.recovered_bodies or log.cut is not None):
            return False
        if Step.REGISTER in steps and not self.is_compiled:
            return False
        if Step.DISPATCH in steps and last.dispatched_to != last.ingested_to:
            return False
        if Step.DELIVER in steps and last.delivered_to != last.dispatched_to:
            return False
        given = self.ledger_texts
        return all(given[name] == last.inputs.get(name) for name in _COMPARED_INPUTS if name in given)

    @property
    def has_windows(self) -> bool:
        """Whether pull_windows has the windows of all nights."""
        return self.state_before.last is None or self.state_before.last.has_windows

    @property
    def read_queues(self) -> Mapping[str, int]:
        """By topic, the numbers of queues now, which count where a night did not know them."""
        return self.inputs.snapshot.offsets.read_queues if self.inputs.snapshot is not None else {}

    @property
    def rewrites_subscriptions(self) -> bool:
        """Whether the rows of subscriptions may have changed even if the events are the same."""
        has_new_config = (
            self.continued_state.last is None or self.continued_state.last.broker != self.inputs.broker.config
        )
        return has_new_config or self.redo_from is not None or not self.is_compiled
