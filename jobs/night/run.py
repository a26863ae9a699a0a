"""Runs the nights of one or several brokers on one warehouse.

A NightRunner opens a warehouse: it upgrades older tables, and undoes what a run that died has committed.
:meth:`NightRunner.run_night` then adds what the user gave for a night of one broker (NightInputs), in this order:

1. ``_start``: what earlier nights left (BrokerState), what is new in the log (LogPlan), and which subscription events
   are new (NightStart). If nothing is new, that is all.
2. ``_repeat_nights``: nights are repeated if the broker cut its log, or from ``--redo-from`` on (Repeat). Each is a
   Night with its own name and end.
3. A message log is read into commitlog now (IngestedLog), the broker's log by the tasks of the night.
4. The night itself (:mod:`jobs.night.night`).
5. Subscriptions and events are written. Remarks tell the user what is odd (:mod:`jobs.night.remarks`).
6. ``_commit``: small files are merged, each table gets one commit, and the ledger is last, with its LedgerEntry.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from filtering.broker_config import BrokerConfig
from filtering.consumption.offsets import BrokerOffsets
from filtering.frozen import frozen
from filtering.pops.modes import PopGroups
from filtering.sql92 import Expressions
from filtering.subscriptions.events import GroupTopic, SubscriptionEvent
from filtering.subscriptions.subscription_row import SubscriptionRow
from jobs.night import Step
from jobs.night.commit import Changes, commit, compact, next_run
from jobs.night.inputs import Broker, FilterHook, text_of
from jobs.night.log import LogPlan, MessagesToRead, last_message, plan_log, read_so_far, unsettled_fingerprint
from jobs.night.message_log_task import IngestedLog, ingest_message_log
from jobs.night.night import Night, NightOutcome
from jobs.night.night_inputs import (
    NightEvents,
    NightInputs,
    NightStart,
    events_until,
    night_events,
    redo_instant,
    seen_after_nights,
)
from jobs.night.past import BrokerState, PastNight, PastOffsets, plan_older_nights, read_state, vanished_text
from jobs.night.remarks import remarks_of_night
from jobs.night.repeat import (
    Repeat,
    forget_undelivered,
    forget_undelivered_offsets,
    forget_unsettled,
    plan_repeat,
    unfinished_range,
)
from jobs.night.rows import write_subscriptions
from schemas.commitlog import COMMITLOG
from schemas.delta.table_rows import one_of, within
from schemas.delta.warehouse import Warehouse
from schemas.errors import UsageError
from schemas.ledger_check import open_warehouse, undo_unfinished_run, upgrade, withdrawals_text
from schemas.messages.stored_messages import PhysicalRange
from schemas.run_ledger import (
    CUT,
    DAMAGED_BODIES,
    GIVEN,
    INPUTS_END,
    LAST_MESSAGE,
    LAST_STORED,
    MESSAGE_LOG,
    NOT_COMMITTED,
    NUMBERED_LINES,
    POP_GROUPS,
    READ_QUEUES,
    REPEATED_FROM,
    REPLAY,
    RUN_LEDGER,
    WITHDRAWN,
    LedgerEntry,
    Remark,
    by_broker,
    repeated_config,
)
from schemas.spark_tasks import Session, Worker
from schemas.subscriptions import reuse_compiled
from schemas.tables import APPENDED_TABLES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@frozen
class NightReport:
    """The result of a night, its events, and the ``history`` of all subscriptions after it.

    ``outcome`` and ``entry`` are None if nothing was new. ``in_spark``: whether Spark's workers ran tasks. ``workers``:
    the processes that filtered messages.
    """

    inputs: NightInputs
    events: NightEvents
    history: Sequence[SubscriptionRow]
    outcome: NightOutcome | None = None
    entry: LedgerEntry | None = None
    seconds: float = 0.0
    in_spark: bool = False
    workers: Collection[Worker] = ()

    @property
    def broker(self) -> Broker:
        return self.inputs.broker

    @property
    def rows(self) -> Mapping[str, int]:
        return self.entry.rows if self.entry else {}


@dataclass
class NightRunner:
    """Runs nights on one warehouse. ``session`` starts the Spark session when it is needed.

    Modules that import Spark are imported where they are used: that takes 0.1 s, and most nights need none.
    """

    warehouse: Warehouse
    job: str
    session: Session
    expressions: Expressions = field(default_factory=Expressions)
    entries: list[LedgerEntry] = field(default_factory=list)
    _in_spark: bool = field(init=False, default=False)

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

    def run_night(self, inputs: NightInputs) -> NightReport:
        """Adds the new inputs of one broker to the tables. Each table gets one commit; the ledger is last.

        Raises UsageError if the inputs do not continue those of earlier nights.
        """
        begun = time.monotonic()
        self._in_spark = False
        start = self._start(inputs)
        config, events = inputs.broker.config, start.events.events
        if start.is_nothing_new:
            history = start.state_before.history(events, config, self.expressions)
            return NightReport(inputs, start.events, history, seconds=time.monotonic() - begun)
        changes = self._changes(inputs.broker.name)
        cut = start.log_plan.cut if start.log_plan else None
        repeat = plan_repeat(start.state_before, cut, start.redo_from, text_of(inputs.hooks), changes)
        state = self._repeat_nights(start, repeat, changes)
        ingested = IngestedLog(has_messages=False, new=None)
        if inputs.message_log is not None:
            last = start.state_before.last
            ingested = ingest_message_log(inputs.message_log, inputs.bodies, last, changes, self._spark)
        night = self._night(start, state, repeat.rest, ingested, changes)
        if Step.DELIVER in inputs.steps or inputs.snapshot is not None:
            forget_undelivered_offsets(state, changes)  # the night has them, or those of a later snapshot
        outcome = night.run()
        history = list(night.history)
        if len(night.events) < len(events):  # some are after the end of the night
            history = state.history(events, config, self.expressions)
        if Step.REGISTER in inputs.steps:
            write_subscriptions(start, history, changes)
        remarks = remarks_of_night(start, ingested, outcome, history, night.offsets)
        ledger_texts = {**start.ledger_texts, REPEATED_FROM: repeat.nights[0].entry.run if repeat.nights else ""}
        if ingested.numbered is not None:
            ledger_texts[NUMBERED_LINES] = ingested.numbered.text
        entry = self._commit(changes, ledger_entry(self.job, night, outcome, ledger_texts, remarks))
        seconds, workers = time.monotonic() - begun, outcome.result.workers
        return NightReport(inputs, start.events, history, outcome, entry, seconds, self._in_spark, workers)

    def _start(self, inputs: NightInputs) -> NightStart:
        """Compares the inputs with the tables. Raises UsageError if they do not continue those of earlier nights."""
        before = read_state(self.warehouse, by_broker(self.entries).get(inputs.broker.name, ()))
        is_compiled = reuse_compiled(self.warehouse, before.entries, self.expressions)
        log_plan = self._plan_log(inputs, before)
        begins_anew = log_plan is not None and log_plan.cut == 0
        continued = BrokerState(()) if begins_anew else before
        given = seen_after_nights(inputs.subscriptions, continued, inputs.redo_from)
        committed = self._committed(inputs, continued)
        events = night_events(continued, given, inputs.broker.config, self.expressions, committed)
        redo_from = redo_instant(inputs, continued, events)
        ledger_texts = inputs.ledger_texts(continued, events)
        return NightStart(inputs, before, continued, log_plan, events, redo_from, ledger_texts, is_compiled)

    def _committed(self, inputs: NightInputs, state: BrokerState) -> Container[GroupTopic]:
        """The groups and topics with offsets in the snapshot. Without a store, it is that of ingest."""
        if inputs.snapshot is not None:
            return inputs.snapshot.offsets.committed
        if state.last is None or inputs.subscriptions is None or not inputs.subscriptions.events.is_snapshot:
            return ()
        return PastOffsets(self._changes(inputs.broker.name)).committed(state.last)

    def _night(
        self, start: NightStart, state: BrokerState, rest: PhysicalRange | None, ingested: IngestedLog, changes: Changes
    ) -> Night:
        """The night after ``state``. ``rest``: where stored messages are of repeated nights that it must filter, too.

        ``ingested``: what was read of a message log.
        """
        inputs, steps = start.inputs, start.inputs.steps
        messages = MessagesToRead(start.log_plan, inputs.bodies, rest or unfinished_range(state, steps))
        if ingested.new is not None:
            messages = messages.with_ingested(ingested.new, ingested.damaged_bodies)
        as_of = max(_end_of_night(inputs, start.events, changes, state.last), state.as_of or 0)
        offsets = _offsets(inputs, state, changes)
        has_queue_ids = ingested.numbered is None and (inputs.snapshot is not None or state.has_queue_ids)
        known_queues = {**(state.last.read_queues if state.last else {}), **start.read_queues}
        offsets = replace(offsets, read_queues=known_queues, has_queue_ids=has_queue_ids)
        return Night(
            broker=inputs.broker.config, state=state, events=events_until(start.events.events, as_of), offsets=offsets,
            messages=messages, pop_groups=_pop_groups(start.ledger_texts, state.last), changes=changes,
            expressions=self.expressions, session=self._spark, as_of=as_of, steps=steps, hooks=inputs.hooks,
        )  # fmt: skip

    def _plan_log(self, inputs: NightInputs, state: BrokerState) -> LogPlan | None:
        """What is new in the log of a store. Raises UsageError if the tables have messages without queue ids."""
        if inputs.snapshot is None:
            return None
        if not state.has_queue_ids and not inputs.new_epoch:
            raise UsageError(
                "earlier nights read a message log without queue ids and offsets, which a store has: give "
                "--new-epoch to replace its messages, or a new --warehouse"
            )
        return plan_log(inputs.snapshot, read_so_far(state, self.warehouse), inputs.new_epoch)

    def _spark(self) -> SparkSession:
        """The session, for tasks that go to Spark."""
        self._in_spark = True
        return self.session()

    def _changes(self, broker_name: str) -> Changes:
        """The changes of a new run, still empty. The ledger exists from then on.

        With an empty ledger, a first run that died differs from a warehouse whose ledger was deleted.
        """
        if not self.warehouse.exists(RUN_LEDGER):
            self.warehouse.log(RUN_LEDGER).create()
        return Changes(self.warehouse, broker_name, next_run(self.entries))

    def _commit(self, changes: Changes, entry: LedgerEntry) -> LedgerEntry:
        """Merges small files, commits the tables and then the ledger. Returns the entry with their versions."""
        for table in APPENDED_TABLES:
            compact(table, changes)
        entry = commit(changes, entry)
        self.entries.append(entry)
        return entry

    def _repeat_nights(self, start: NightStart, repeat: Repeat, changes: Changes) -> BrokerState:
        """Repeats nights, and removes what the new night makes again. Returns the state after them."""
        events, inputs, broker, last = (
            start.events.events,
            start.inputs,
            start.inputs.broker,
            start.continued_state.last,
        )
        if not start.has_windows:  # repeated nights may have late messages of earlier ones
            plan_older_nights(repeat.state, events, start.read_queues, self.expressions, changes)
        state = repeat.state
        for past in repeat.nights:
            known = {**start.read_queues, **past.offsets.read_queues}
            past = replace(past, offsets=replace(past.offsets, read_queues=known))
            config = past.entry.broker
            if last is not None:
                config = repeated_config(past.entry, last.broker, broker.config, broker.version_from == GIVEN)
            state = self.repeat_night(config, past, state, events, changes, inputs.hooks)
        state = replace(state, entries=[*state.entries, *repeat.undelivered])
        forget_unsettled(state, start.log_plan, changes)
        if Step.DELIVER in inputs.steps:
            forget_undelivered(state, changes)
        return state

    def repeat_night(
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
        stored_range = past.stored_range if past.stored_range[0] < past.stored_range[1] else None
        night = Night(
            broker=config, state=state, events=events_until(events, as_of), offsets=past.offsets,
            messages=MessagesToRead(stored_range=stored_range), pop_groups=_pop_groups(past.entry.inputs, state.last),
            changes=replace(changes, run=past.entry.run), expressions=self.expressions, session=self._spark,
            as_of=as_of, hooks=hooks if past.entry.hooks else (),
        )  # fmt: skip
        outcome = night.run()
        rows = outcome.rows
        progress = pa.concat_tables([state.progress, pa.Table.from_batches([rows.progress])])
        inputs = {**past.entry.inputs, **outcome.ledger_texts}
        entry = replace(past.entry, broker_config=config.changed, inputs=inputs)
        return BrokerState([*state.entries, entry], rows.topics, state.events, lambda: progress)


def _pop_groups(inputs: Mapping[str, str], last: LedgerEntry | None) -> PopGroups:
    """What the configuration says of groups that pop: in the snapshot of a night, or in the last one before."""
    text = inputs.get(POP_GROUPS) or (last.inputs.get(POP_GROUPS) if last is not None else None)
    return PopGroups.from_text(text) if text else PopGroups()


def _end_of_night(inputs: NightInputs, events: NightEvents, changes: Changes, last: LedgerEntry | None) -> int:
    """When the last snapshot was taken (ms), or without a snapshot the time of the last message or event."""
    if inputs.snapshot is not None:
        return inputs.snapshot.taken_at
    reads_messages = inputs.message_log is not None or (last is not None and MESSAGE_LOG in last.inputs)
    if not reads_messages and last is not None and INPUTS_END in last.inputs:
        return int(last.inputs[INPUTS_END])
    last_stored_at = last_stored(changes) or 0
    if not reads_messages or not events.events:
        return last_stored_at
    return max(last_stored_at, events.events[-1].at)


def _offsets(inputs: NightInputs, state: BrokerState, changes: Changes) -> BrokerOffsets:
    """The offsets in the snapshot. For deliver without a store, those in the snapshot that ingest read."""
    if inputs.snapshot is not None:
        watched_to = inputs.subscriptions.watched_to if inputs.subscriptions is not None else None
        return replace(inputs.snapshot.offsets, watched_to=watched_to)
    if inputs.steps != {Step.DELIVER} or state.last is None:
        return BrokerOffsets()
    return PastOffsets(changes).of(state.last)


# The ledger entry.


def ledger_entry(
    job: str, night: Night, outcome: NightOutcome, ledger_texts: Mapping[str, str], remarks: Sequence[Remark]
) -> LedgerEntry:
    """The ledger entry of a night, without the states of tables, and with the ``ledger_texts`` of what it read."""
    state, steps, messages, changes = night.state, night.steps, night.messages, night.changes
    log_plan, last = messages.log_plan, state.last
    ingested_to = _ingested_to(state, log_plan, MESSAGE_LOG in ledger_texts, outcome, changes)
    dispatched_to, delivered_to = (last.dispatched_to, last.delivered_to) if last else (None, None)
    if Step.DISPATCH in steps:
        dispatched_to = ingested_to
    elif Step.DELIVER not in steps:
        dispatched_to = _not_beyond(messages, dispatched_to)
    delivered_to = dispatched_to if Step.DELIVER in steps else _not_beyond(messages, delivered_to)
    cut = "" if log_plan is None or log_plan.cut is None else str(log_plan.cut)
    inputs = {**(last.inputs if last else {}), **ledger_texts, CUT: cut, INPUTS_END: str(night.as_of)}
    if Step.DELIVER in steps:
        last_stored_at = last_stored(changes)
        inputs[LAST_STORED] = "" if last_stored_at is None else str(last_stored_at)
        inputs |= outcome.ledger_texts
    topics = outcome.rows.topics if night.delivers else night.offsets.read_queues
    inputs[READ_QUEUES] = json.dumps({topic: n for topic, n in night.offsets.read_queues.items() if topic in topics})
    inputs[WITHDRAWN] = withdrawals_text(changes.withdrawn)
    if log_plan is None:
        log_start, fingerprint = (last.log_start, last.unsettled) if last else (None, None)
    else:
        log_start = log_plan.log.start
        inputs[NOT_COMMITTED] = vanished_text(state.topics, night.offsets.committed)
        inputs[DAMAGED_BODIES] = str(_damaged_bodies(state, log_plan, outcome, changes))
        last_offset = max((file.greatest["commitlog_offset"] for file in changes.files(COMMITLOG)), default=-1)
        if ingested_to is not None and log_plan.ranges and log_plan.ranges[0].start <= last_offset < ingested_to:
            inputs[LAST_MESSAGE] = last_message(log_plan.log, last_offset, ingested_to)
        fingerprint = unsettled_fingerprint(log_plan.log, ingested_to) if ingested_to is not None else None
    return LedgerEntry(
        changes.run,
        changes.broker_name,
        job,
        night.broker.changed,
        inputs,
        log_start=log_start,
        ingested_to=ingested_to,
        dispatched_to=dispatched_to,
        delivered_to=delivered_to,
        unsettled=fingerprint,
        as_of=night.as_of if Step.DELIVER in steps else (last.as_of if last else None),
        remarks=tuple(remarks),
    )


def _not_beyond(messages: MessagesToRead, offset: int | None) -> int | None:
    """The physical offset up to which a step is done that this run leaves out. Its next run begins there.

    ``offset``: where it was before. New messages may be before it.
    """
    if offset is None:
        return None
    offsets: list[int] = [offset, *(part.start for part in messages.recovered_ranges), *(messages.stored_range or ())]
    return min(offsets)


def _damaged_bodies(state: BrokerState, log_plan: LogPlan, outcome: NightOutcome, changes: Changes) -> int:
    """The number of stored messages in the log whose body is damaged."""
    before = state.last.inputs.get(DAMAGED_BODIES) if state.last else "0"
    if before == "0" and not log_plan.cut and not outcome.result.damaged_bodies:
        return 0
    damaged = [one_of("body_is_damaged", [True]), within("commitlog_offset", log_plan.log.start)]
    return len(changes.rows(COMMITLOG, ["commitlog_offset"], damaged))


def last_stored(changes: Changes) -> int | None:
    """When the last message in commitlog was stored (ms); None if there is none."""
    return max((file.greatest["store_timestamp"] for file in changes.files(COMMITLOG)), default=None)


def _ingested_to(
    state: BrokerState, log_plan: LogPlan | None, reads_message_log: bool, outcome: NightOutcome, changes: Changes
) -> int | None:
    """The physical offset up to which the log is in commitlog."""
    before = state.last.ingested_to if state.last else None
    if outcome.settled_to is not None:
        return outcome.settled_to
    if log_plan is not None and log_plan.cut:
        return log_plan.cut
    if log_plan is not None:
        return log_plan.log.start if before is None else before
    if not reads_message_log:
        return before
    ends = (file.greatest["commitlog_offset"] + 1 for file in changes.files(COMMITLOG))
    return max((end for end in (before, *ends) if end is not None), default=None)
