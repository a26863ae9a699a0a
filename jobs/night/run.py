"""Runs the nights of one or several brokers on one warehouse."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from filtering.broker_config import BrokerConfig
from filtering.consumption.offsets import BrokerOffsets
from filtering.sql92 import Expressions
from filtering.subscriptions.events import SubscriptionEvent
from filtering.subscriptions.subscription_row import SubscriptionRow
from jobs.night.commit.changes import Changes
from jobs.night.commit.compaction import compact
from jobs.night.commit.ledger import commit, next_run
from jobs.night.commit.ledger_entry import decided, last_stored, ledger_entry
from jobs.night.commit.remarks import input_remarks, log_remarks, outcome_remarks, version_remarks
from jobs.night.inputs.broker import Broker
from jobs.night.inputs.events import NightEvents, events_until, night_events
from jobs.night.inputs.hooks import FilterHook, text_of
from jobs.night.inputs.night_inputs import NightInputs, NightOptions, is_nothing_new, redo_instant
from jobs.night.inputs.steps import Step
from jobs.night.late_windows import plan_older_nights
from jobs.night.log.log_plan import plan_log
from jobs.night.night import Night, NightOutcome
from jobs.night.past.new_messages import NewMessages, forget_prepared_offsets, forget_undelivered, stored_before
from jobs.night.past.past_nights import PastNight, PastOffsets
from jobs.night.past.read_so_far import read_so_far
from jobs.night.past.redo import Redo, forget_unsettled, plan_redo
from jobs.night.past.state import BrokerState, read_state
from jobs.night.rows.subscription_rows import write_subscriptions
from jobs.night.tasks.message_log import IngestedLog, ingest_message_log
from schemas.delta.warehouse import Warehouse
from schemas.errors import UsageError
from schemas.ledger_check import open_warehouse, undo_unfinished_run, upgrade
from schemas.ledger_inputs import GIVEN, INPUTS_END, MESSAGE_LOG, NUMBERED_LINES, REPEATED_FROM
from schemas.run_ledger import REPLAY, RUN_LEDGER, LedgerEntry, by_broker, repeated_config
from schemas.spark_tasks import Session
from schemas.tables import APPENDED_TABLES


@dataclass(frozen=True)
class NightReport:
    """The result of a night, and its events. ``outcome`` and ``entry`` are None if nothing was new."""

    broker: Broker
    inputs: NightInputs
    events: NightEvents
    outcome: NightOutcome | None = None
    entry: LedgerEntry | None = None
    seconds: float = 0.0

    @property
    def rows(self) -> Mapping[str, int]:
        return self.entry.rows if self.entry else {}


@dataclass
class Run:
    """One run of nights on one warehouse. ``session`` starts the Spark session when it is needed.

    Modules that import Spark are imported where they are used: that takes 0.1 s, and most nights need none.
    """

    warehouse: Warehouse
    job: str
    session: Session
    expressions: Expressions = field(default_factory=Expressions)
    entries: list[LedgerEntry] = field(default_factory=list)

    def open(self) -> None:
        """Checks the tables, upgrades older ones, and undoes what an unfinished run committed. Raises UsageError."""
        upgrade(self.warehouse)
        self.entries = open_warehouse(self.warehouse)
        if any(entry.job == REPLAY for entry in self.entries):
            raise UsageError(
                f"{self.warehouse.location} holds a replay, to which nights cannot be added: give another folder"
            )
        undo_unfinished_run(self.warehouse, self.entries, next_run(self.entries))

    @property
    def last(self) -> dict[str, LedgerEntry]:
        """The last ledger entry of each broker, by name."""
        return {entry.broker_name: entry for entry in self.entries}

    def run_night(self, broker: Broker, inputs: NightInputs, options: NightOptions) -> NightReport:
        """Adds the new inputs of one broker to the tables. Each table gets one commit; the ledger is last.

        Raises UsageError if the inputs do not continue those of earlier nights.
        """
        begun = time.monotonic()
        state = read_state(self.warehouse, by_broker(self.entries).get(broker.name, ()))
        plan = None
        if inputs.snapshot is not None:
            if not state.has_queue_ids and not options.new_epoch:
                raise UsageError(
                    "earlier nights read a message log without queue ids and offsets, which a store has: give "
                    "--new-epoch to replace its messages, or a new --warehouse"
                )
            plan = plan_log(inputs.snapshot, read_so_far(state, self.warehouse), self.warehouse, options.new_epoch)
        is_new_epoch = plan is not None and plan.cut == 0
        continued = BrokerState(()) if is_new_epoch else state
        events = night_events(continued, inputs.subscriptions, broker.config, self.expressions)
        redo_from = redo_instant(continued, broker, events, inputs.subscriptions, options)
        fingerprints = inputs.fingerprints(options, continued, events, broker)
        nothing_new = is_nothing_new(state, plan, events, redo_from, fingerprints, broker, options.steps)
        if nothing_new and state.has_windows:
            return NightReport(broker, inputs, events, seconds=time.monotonic() - begun)
        changes = self._changes(broker)
        redo = plan_redo(state, plan.cut if plan else None, redo_from, text_of(options.hooks), changes)
        read_queues = inputs.snapshot.offsets.read_queues if inputs.snapshot is not None else {}
        if not state.has_windows:  # repeated nights may have late messages of earlier ones
            plan_older_nights(redo.state, events.events, read_queues, self.expressions, changes)
        state_before = self._redo_nights(redo, continued, broker, events.events, changes, options.hooks, read_queues)
        forget_unsettled(state_before, plan, changes)
        if Step.DELIVER in options.steps:
            forget_undelivered(state_before, changes)
        new = NewMessages(plan, options.bodies, redo.rest or stored_before(state_before, options.steps))
        log = IngestedLog(has_messages=False, new=None)
        if inputs.message_log is not None:
            log = ingest_message_log(inputs.message_log, options.bodies, state.last, changes, self.session)
            new = new.with_stored(log.new) if log.new is not None else new
        as_of = max(_end_of_night(inputs, events, changes, state_before.last), state_before.as_of or 0)
        offsets = _offsets(inputs, state_before, options.steps, changes)
        has_queue_ids = log.numbered is None and (inputs.snapshot is not None or state_before.has_queue_ids)
        known_queues = {**(state_before.last.read_queues if state_before.last else {}), **read_queues}
        offsets = replace(offsets, read_queues=known_queues, has_queue_ids=has_queue_ids)
        if Step.DELIVER in options.steps or inputs.snapshot is not None:
            forget_prepared_offsets(state_before, changes)
        night = Night(
            broker=broker.config, state=state_before, events=events_until(events.events, as_of), offsets=offsets,
            new=new, changes=changes, expressions=self.expressions, session=self.session, as_of=as_of,
            steps=options.steps, hooks=options.hooks,
        )  # fmt: skip
        outcome = night.run()
        outcome.result.damaged_bodies += log.damaged_bodies
        history: Sequence[SubscriptionRow] = night.history
        if len(night.events) < len(events.events):
            history = state_before.history(events.events, broker.config, self.expressions)
        if Step.REGISTER in options.steps:
            has_new_config = continued.last is None or continued.last.broker != broker.config
            write_subscriptions(events, history, continued, inputs, changes, has_new_config or redo_from is not None)
        had_hooks = bool(continued.nights and continued.nights[-1].hooks)
        remarks = [
            *version_remarks(broker, continued.nights[-1] if continued.nights else None),
            *log_remarks(broker, inputs.snapshot, plan, state.as_of),
            *input_remarks(broker, inputs, options, had_hooks, log.has_messages or not state.topics),
            *outcome_remarks(outcome, history, offsets),
        ]
        repeated_from = redo.nights[0].entry.run if redo.nights else ""
        if log.numbered is not None:
            fingerprints[NUMBERED_LINES] = log.numbered.text
        entry = ledger_entry(self.job, night, outcome, {**fingerprints, REPEATED_FROM: repeated_from}, remarks)
        entry = self._commit(changes, entry)
        return NightReport(broker, inputs, events, outcome, entry, time.monotonic() - begun)

    def _changes(self, broker: Broker) -> Changes:
        """The changes of a new run, still empty. The ledger exists from then on.

        With an empty ledger, a first run that died differs from a warehouse whose ledger was deleted.
        """
        if not self.warehouse.exists(RUN_LEDGER):
            self.warehouse.log(RUN_LEDGER).create()
        return Changes(self.warehouse, broker.name, next_run(self.entries))

    def _commit(self, changes: Changes, entry: LedgerEntry) -> LedgerEntry:
        """Merges small files, commits the tables and then the ledger. Returns the entry with their versions."""
        for table in APPENDED_TABLES:
            compact(table, changes)
        entry = commit(changes, entry)
        self.entries.append(entry)
        return entry

    def _redo_nights(
        self,
        redo: Redo,
        continued: BrokerState,
        broker: Broker,
        events: Sequence[SubscriptionEvent],
        changes: Changes,
        hooks: Sequence[FilterHook],
        read_queues: Mapping[str, int],
    ) -> BrokerState:
        """Repeats nights. ``continued``: the state to which ``broker`` adds a night. Returns the state after them.

        ``read_queues``: the numbers of queues now, which count where a night did not know them.
        """
        state = redo.state
        for past in redo.nights:
            known = {**read_queues, **past.offsets.read_queues}
            past = replace(past, offsets=replace(past.offsets, read_queues=known))
            config = past.entry.broker
            if continued.last is not None:
                before, is_given = continued.last.broker, broker.version_from == GIVEN
                config = repeated_config(past.entry, before, broker.config, is_given)
            state = self.redo_night(config, past, state, events, changes, hooks)
        return replace(state, entries=[*state.entries, *redo.prepared])

    def redo_night(
        self,
        config: BrokerConfig,
        past: PastNight,
        state: BrokerState,
        events: Sequence[SubscriptionEvent],
        changes: Changes,
        hooks: Sequence[FilterHook] = (),
    ) -> BrokerState:
        """Repeats a night with its own name and end, and with ``hooks`` if it had some. Returns the state after it."""
        as_of = past.entry.as_of or 0
        stored = past.stored if past.stored[0] < past.stored[1] else None
        night = Night(
            broker=config, state=state, events=events_until(events, as_of), offsets=past.offsets,
            new=NewMessages(stored=stored), changes=replace(changes, run=past.entry.run),
            expressions=self.expressions, session=self.session, as_of=as_of, hooks=hooks if past.entry.hooks else (),
        )  # fmt: skip
        outcome = night.run()
        rows = outcome.rows
        progress = pa.concat_tables([state.progress, pa.Table.from_batches([rows.progress])])
        inputs = {**past.entry.inputs, **decided(night, outcome)}
        entry = replace(past.entry, broker_config=config.changed, inputs=inputs)
        return BrokerState([*state.entries, entry], rows.topics, state.events, lambda: progress)


def _end_of_night(inputs: NightInputs, events: NightEvents, changes: Changes, last: LedgerEntry | None) -> int:
    """When the last snapshot was taken (ms), or without a snapshot the time of the last message or event."""
    if inputs.snapshot is not None:
        return inputs.snapshot.taken_at
    reads_messages = inputs.message_log is not None or (last is not None and MESSAGE_LOG in last.inputs)
    if not reads_messages and last is not None and INPUTS_END in last.inputs:
        return int(last.inputs[INPUTS_END])
    stored = last_stored(changes) or 0
    if not reads_messages or not events.events:
        return stored
    return max(stored, events.events[-1].at)


def _offsets(inputs: NightInputs, state: BrokerState, steps: frozenset[Step], changes: Changes) -> BrokerOffsets:
    """The offsets in the snapshot. For deliver without a store, those in the snapshot that ingest read."""
    if inputs.snapshot is not None:
        return inputs.snapshot.offsets
    if steps != {Step.DELIVER} or state.last is None:
        return BrokerOffsets()
    return PastOffsets(changes).of(replace(state.last, run=changes.run))
