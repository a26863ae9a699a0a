"""Explains why a message reached a consumer group or did not, from the tables and the filters.

1. Find the message, with its entry, its deliveries and its copies in retry and system topics
   (:mod:`answers.messages`).
2. Was it delivered? Then the answer is the subscription in force when it was pulled.
3. Otherwise: which of the windows that nights planned covers it for the group (:mod:`answers.pull_history`)? If none
   does, the group has not pulled it: it will (pending), or never asked for it. For a group that pops, its pops say so.
4. If one does, ``decide`` applies the window's filters, stage by stage, and says which one stops the message, and which
   similar message would have passed (:mod:`filtering.explanation`).
5. What is not certain is added: a subscription that changed while the broker held a pull, clients that seem to
   disagree, pulls that a client may have lost. So are the journey through retry topics, and where the group began.

Explainer does this for a message and a group, and gives an Explanation. Why is the answer for a user: the messages that
were asked for, each explained to each group (:func:`why_on_brokers`, :func:`why_at`, :func:`why_where`). At the end,
how an explanation is shown, and as JSON (docs/JSON.md).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, field, replace
from functools import cache, cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from answers.facts import NO_SUBSCRIPTIONS, BrokerFacts, in_queue
from answers.lag import positions_in_queue
from answers.messages import (
    Delivery,
    StoredMessage,
    as_copy,
    copies_of,
    deliveries_of,
    find,
    find_at,
    find_where,
    is_ended,
    kept_offsets,
    not_taken_back,
    read,
)
from answers.pull_history import PopsOfMessages, Pulled, PullHistory, Start
from answers.rendering import Code, Fact, short, time
from answers.rendering import Table as ShownTable
from filtering.broker_config import BrokerConfig, why_property_filter_is_off
from filtering.consumption.broadcasting import clients_away, clients_that_pulled
from filtering.consumption.clients import ClientChecks, dropping_clients
from filtering.consumption.uncertainty import HELD_PULL_MS
from filtering.counted import counted, did_you_mean, listed
from filtering.delivery import Outcome
from filtering.delivery.entries import has_entry
from filtering.delivery.message_filter import delivers
from filtering.delivery.pull_window import RECEIPT_NOT_KNOWN, Reason, StartReason, WindowKind
from filtering.explanation import (
    Decision,
    Entry,
    NearestMiss,
    Stage,
    decide,
    dropped_by_other_client,
    leaf_values,
    nearest_miss,
    never_subscribed,
    overruled,
    without_subscription,
)
from filtering.findings import INFO, expression_findings, own_findings
from filtering.frozen import frozen
from filtering.journey import (
    CHECKED_TOO_OFTEN_TOPIC,
    HALF_TOPICS,
    TIMER_DELETES,
    Call,
    Copy,
    JourneyStep,
    JourneyStepKind,
    Wait,
    WaitKind,
    is_copy,
    removed_from,
    stored_after,
    way_to,
)
from filtering.names import DLQ_TOPIC_PREFIX, REAL_TOPIC, is_lmq, subscribed_topic
from filtering.predicate import FALSE, TRUE, Predicate, holds
from filtering.pulls import DEFAULT_BATCH, ResponseCode, is_pulling, refusal
from filtering.sql92 import InvalidExpression, compile
from filtering.sql92.nodes import named_properties
from filtering.sql92.reference import ExpressionPart, Result, trace
from filtering.subscriptions.events import BROADCASTING, ConsumeMode
from filtering.subscriptions.history import in_force_at, present_filter, state_at, states_by_key
from filtering.subscriptions.inconsistency import seeming_disagreements
from filtering.subscriptions.subscription_row import SubscriptionRow
from filtering.tags_code import tags_code
from filtering.time_spans import BEGINNING
from schemas.commitlog import COMMITLOG
from schemas.delta.table import Table
from schemas.delta.table_rows import (
    Condition,
    filtered,
    one_of,
    tuples,
    within,
)
from schemas.errors import UsageError, time_text
from schemas.messages.stored_messages import property_names
from schemas.tables import CONSUMEQUEUE, CONSUMPTIONS, client_name

# Explanations.


BY_THE_TABLES = (
    Outcome.DELIVERED, Outcome.DROPPED_BY_CLIENT, Outcome.DROPPED_BY_HOOK, Outcome.DEAD, Outcome.DENIED,
)  # fmt: skip
"""Outcomes that the table deliveries stores."""

VERDICTS = {
    Outcome.DELIVERED: "delivered",
    Outcome.DROPPED_BY_CLIENT: "returned by the broker, dropped by the client",
    Outcome.DEAD: "given up: popped once too often",
    Outcome.DROPPED_BY_HOOK: "returned by the broker, dropped by a filter hook of the client",
    Outcome.PENDING: "not yet pulled",
    Outcome.NOT_SUBSCRIBED: "never asked for",
    Outcome.WAITING: "waits in a system topic",
    Outcome.NEVER_STORED: "never stored in its topic",
}
"""What to call an outcome; the others are ``not delivered``."""
RESULTS = {
    1: "timed out", 2: "failed with an exception", 3: "failed: the listener returned null", 4: "asked for redelivery",
}  # fmt: skip
"""What the result codes of a trace mean, but for 0 (ConsumeReturnType)."""
AGAIN = {
    Outcome.DELIVERED: "delivered again",
    Outcome.PENDING: "not yet pulled again",
    Outcome.NOT_SUBSCRIBED: "stored again in its retry topic",
}


@frozen
class Explanation:
    """What happened to a message for a consumer group, and why.

    ``subscription`` filtered the message, or would filter it, at ``pulled_at`` (ms). It is None if the group had no
    subscription or did not pull. ``preview`` is what the filters would decide on a pending message. ``uncertain`` says
    why another subscription may have filtered it. ``client_checks`` are the clients' checks of tags by client id, if
    they differ. ``present`` is the first state with the filter in force now, if another filter decided. ``start`` is
    where the group began in the message's queue; None if that is not known. ``clients``: of a group that broadcasts,
    those that the broker returned the message to at ``pulled_at``; None: it does not broadcast.
    """

    message: StoredMessage
    consumer_group: str
    decision: Decision
    config: BrokerConfig
    subscription: SubscriptionRow | None = None
    others: Sequence[SubscriptionRow] = ()
    pulled_at: int | None = None
    received: Sequence[Delivery] = ()
    preview: Decision | None = None
    uncertain: str | None = None
    client_checks: Mapping[str, Predicate] = field(default_factory=dict)
    present: SubscriptionRow | None = None
    start: Start | None = None
    journey: Sequence[JourneyStep] = ()
    clients: Sequence[str] | None = None

    def with_headline(self, headline: str) -> Explanation:
        return replace(self, decision=replace(self.decision, headline=headline))

    @property
    def outcome(self) -> Outcome:
        return self.decision.outcome

    @property
    def filter_change(self) -> str | None:
        """The filter that decided, and since when another one is in force; None if the same one is in force."""
        if self.subscription is None or self.present is None:
            return None
        since = f"since {time_text(self.present.valid_from)}, {self.present.filter_text} is in force"
        return f"{self.subscription.filter_text}; {since}"

    @property
    def verdict(self) -> str:
        """What happened to the message, and after a consumer failed on it, in a few words."""
        is_dead = self.message.topic == f"{DLQ_TOPIC_PREFIX}{self.consumer_group}"
        first = None if is_dead else VERDICTS.get(self.outcome, "not delivered")
        if self.outcome is Outcome.NOT_SUBSCRIBED and any(step.attempt == 1 for step in self.journey):
            first = "popped for nobody"
        return ", ".join(filter(None, (first, self.uncertain and "uncertain", self.progress)))

    @property
    def summary(self) -> str:
        """The reason, what the filters would decide on a message that waits, and what happened later, on one line."""
        then = f"then it {self.forecast}" if self.outcome is Outcome.WAITING and self.preview is not None else None
        return "; ".join(filter(None, (self.decision.reason, then, self.progress)))

    @property
    def forecast(self) -> str | None:
        """What the filters would decide on a message that the group has not pulled; None if it has."""
        if self.preview is None:
            return None
        would = "would be delivered" if self.preview.outcome is Outcome.DELIVERED else "would not be delivered"
        return f"{would}: {self.preview.reason}"

    @property
    def progress(self) -> str | None:
        """What happened to the message after a consumer failed on it; None if none did."""
        back = [step for step in self.journey if step.kind is JourneyStepKind.SENT_BACK]
        ends = (JourneyStepKind.CONSUMED, JourneyStepKind.RENEWED, JourneyStepKind.ACKNOWLEDGED)
        last = next((step for step in reversed(self.journey) if step.kind not in ends), None)
        parts = [f"sent back {counted(len(back), 'time')}"] if back else []
        if last is not None and last.kind is JourneyStepKind.DEAD:
            parts.append(f"dead since {time_text(last.at or 0)}")
        elif last is not None and last.kind is JourneyStepKind.SENT_BACK and last.due is not None:
            parts.append(f"comes again at {time_text(last.due)}")
        elif last is not None and last.is_retry and last.outcome is not None:
            parts.append(AGAIN.get(Outcome(last.outcome), "not delivered again"))
        return ", ".join(parts) or None

    @property
    def is_from_before(self) -> bool:
        """Whether the message was stored before the group came."""
        return self.start is not None and self.message.store_timestamp < self.start.at

    @property
    def filters(self) -> Decision:
        """What the filters decide. For a pending message, what they would decide."""
        return self.preview or self.decision

    @cached_property
    def trace(self) -> ExpressionPart | None:
        """The evaluated expression; None for tags, and if nothing was evaluated."""
        expression = self.filters.expression
        return trace(expression, self.message.properties) if expression is not None else None

    @property
    def findings(self) -> Sequence[str]:
        """Why the filter that stopped the message means something other than it seems to; mostly none."""
        if self.filters.outcome is Outcome.STOPPED_BY_TAGS_CODE and self.subscription is not None:
            return [finding.text for finding in own_findings(self.subscription) if finding.severity != INFO]
        expression = self.filters.expression
        if expression is None or self.filters.outcome in BY_THE_TABLES:
            return ()
        return [text for severity, _, text in expression_findings(expression) if severity != INFO]

    @cached_property
    def nearest_miss(self) -> NearestMiss | None:
        """A small change that would have delivered the message; None if it was delivered or no change helps."""
        if self.subscription is None:
            return None
        checks, properties = self.client_checks.values(), self.message.properties
        return nearest_miss(self.filters, self.subscription, self.others, self.config, properties, checks)


def step_text(step: JourneyStep) -> str:
    """A step of a message's journey on one line."""
    place = f"({step.topic} {step.queue_id}/{step.queue_offset})"
    if step.kind is JourneyStepKind.FILTERED:
        outcome = Outcome(step.outcome or "")
        if step.is_retry and outcome is Outcome.NOT_SUBSCRIBED:
            return f"stored again, and no subscription to the retry topic is known {place}"
        at = f" {time_text(step.at)}" if step.at is not None else ""
        if step.attempt is not None:
            at += f", popped for {((step.due or 0) - (step.at or 0)) / 1000:g} s"
            at += f" (attempt {step.attempt})" if step.attempt > 1 else ""
            if outcome is Outcome.NOT_SUBSCRIBED:
                return f"handed out{at}, for nobody: the client was just leaving {place}"
        again = " again" if step.is_retry and outcome is Outcome.DELIVERED else ""
        return f"{VERDICTS.get(outcome, 'not delivered')}{again}{at} {place}"
    if step.kind is JourneyStepKind.CONSUMED and step.call is not None:
        return f"{_call_text(step.call, time_text(step.at or 0))} {place}"
    if step.kind is JourneyStepKind.RECALLED:
        return f"recalled {time_text(step.at or 0)} {place}"
    if step.kind is JourneyStepKind.ACKNOWLEDGED:
        return f"acknowledged {time_text(step.at or 0)} {place}"
    if step.kind is JourneyStepKind.RENEWED:
        return f"asked for more time {time_text(step.at or 0)}, until {time_text(step.due or 0)} {place}"
    if step.kind is JourneyStepKind.DEAD:
        return f"dead since {time_text(step.at or 0)} {place}"
    what = "sent back" if step.kind is JourneyStepKind.SENT_BACK else "waited" if step.is_over else "waits"
    level = f", level {step.level}" if step.level is not None else ""
    due = f", due {time_text(step.due)}" if step.due is not None else ""
    return f"{what} {time_text(step.at or 0)}{level}{due} {place}"


def pop_story(journey: Sequence[JourneyStep], as_of: int) -> str:
    """What became of a message that a group popped, on one line; empty if it did not. ``as_of``: the end of the log."""
    parts: list[str] = []
    waits_until: int | None = None
    """When it comes again if nobody acknowledges it (ms); None: it does not wait for that."""
    for step in journey:
        if step.kind is JourneyStepKind.RENEWED:
            parts.append(f"asked for more time {time_text(step.at or 0)}")
            waits_until = step.due
        elif step.kind is JourneyStepKind.ACKNOWLEDGED and waits_until is not None:
            parts.append(f"acknowledged {time_text(step.at or 0)}")
            waits_until = None
        elif step.kind is JourneyStepKind.FILTERED and (
            step.attempt is not None or (step.is_retry and waits_until is not None)
        ):
            if step.is_retry and waits_until is not None:
                parts.append("not acknowledged")
            parts += _popped_again(step) if step.is_retry else [_popped(step)]
            waits_until = step.due if step.outcome != Outcome.DEAD else None
    if waits_until is not None and waits_until > as_of:
        parts.append(f"not acknowledged yet, in flight until {time_text(waits_until)}")
    elif waits_until is not None:
        parts.append(f"not acknowledged until {time_text(waits_until)}, and not stored again yet")
    return ", ".join(parts)


def _popped(step: JourneyStep) -> str:
    return f"popped {time_text(step.at or 0)} for {((step.due or 0) - (step.at or 0)) / 1000:g} s"


def _popped_again(step: JourneyStep) -> list[str]:
    if step.attempt is None:
        is_stopped = step.outcome not in VERDICTS
        why = ": the subscription does not match it any more" if is_stopped else ""
        return [
            "stored again, and not popped yet" if step.outcome == Outcome.PENDING else f"stored again, not popped{why}"
        ]
    again = f"came again {time_text(step.at or 0)} on {step.topic} (attempt {step.attempt})"
    return [again, *([VERDICTS[Outcome.DEAD]] if step.outcome == Outcome.DEAD else [])]


def _call_text(call: Call, at: str) -> str:
    again = f", attempt {call.retry_times + 1}" if call.retry_times else ""
    if call.success is None:
        return f"handed to {call.client} {at}{again}, which has not returned in the log"
    result = RESULTS.get(call.code or 0, "" if call.success else "failed")
    return f"consumed {at} in {call.cost} ms by {call.client}{again}{result and f': {result}'}"


# Pulls: when a group pulled a message, and under which subscription, by the windows that nights planned.


@frozen
class NotPulled:
    """The group has not pulled the message, for the reason ``why``. ``is_pending``: it will pull it later.

    ``uncertain``: why it may have pulled it after all; mostly None.
    """

    why: str
    is_pending: bool = False
    uncertain: str | None = None


PASSED_BEFORE = "the group had committed a later offset when its first known subscription began"
NO_SUBSCRIPTION_THEN = (
    "the group was there before, and what it subscribed to then is not known: give it with at: and --redo-from "
    "(docs/SUBSCRIPTIONS.md)"
)


def why_pending(rows: Sequence[SubscriptionRow], config: BrokerConfig, as_of: int) -> str:
    """Why a group has not pulled a message that waits for it when the last night ends, at ``as_of`` (ms)."""
    row = state_at(rows, as_of)
    code = refusal(row, config) if row is not None and row.is_consuming else None
    if code is not None:
        return f"the broker refuses the group's pulls ({code.text}), so the group has not pulled it yet"
    why = "the group does not keep up"
    if row is None or not row.is_consuming:
        why = "the group comes after the end of the last night" if rows[-1].is_consuming else "the group is away"
    return f"{why}, and has not pulled it yet"


def comes_after(rows: Sequence[SubscriptionRow], config: BrokerConfig, stored_at: int) -> bool:
    """Whether the first known subscription with which a group pulls began after ``stored_at`` (ms)."""
    first = next((row for row in rows if is_pulling(row, config)), None)
    return first is not None and stored_at < first.valid_from


def why_not_pulled(rows: Sequence[SubscriptionRow], config: BrokerConfig, stored_at: int, is_passed: bool) -> str:
    """Why a group never pulls a message. ``is_passed``: the group goes on at a later message of the queue."""
    if comes_after(rows, config, stored_at):
        return "the group first came later, and began at a later message"
    if not is_passed:
        return str(Reason.DELETED)
    row = state_at(rows, stored_at)
    code = refusal(row, config) if row is not None and row.is_consuming else None
    why = "the group was away" if code is None else f"the broker refused the group's pulls ({code.text})"
    return f"the group's offset was moved past it while {why}"


# Says when it is not known which of two subscriptions filtered a message that was stored just after the change.


def after_change(
    facts: BrokerFacts, message: StoredMessage, before: SubscriptionRow, pull: Pulled, is_delivered: bool
) -> str | None:
    """Why an earlier pull may have had the message in its answer, and what that changes; None if it did not.

    The broker may have answered a pull from ``before`` the change with it, though the group pulled it in ``pull``. If
    the earlier one brought its own subscription, this one filtered the message, and the first message that matches it
    ends this pull. Otherwise the client drops what its old tags do not name, and the first message ends it that has one
    of these and passes the new subscription, too.
    """
    pulled_at = pull.at
    if not before.end <= pulled_at == message.store_timestamp:
        return None
    between = [
        *in_queue(message.topic, message.queue_id),
        within("queue_offset", below=message.queue_offset),
        within("store_timestamp", before.end),
    ]
    if before.sent_with_pull:
        then = _by_the_old_filter(facts, message, before, between, is_delivered)
    else:
        then = _by_the_old_tags(facts, message, before, pull.row, between) if is_delivered else None
    if then is None:
        return None
    seconds = (pulled_at - before.end) / 1000
    return (
        f"stored {seconds:.1f} s after the subscription changed: the broker may have answered an earlier pull with it, "
        f"and {then}"
    )


def in_lost_pull(facts: BrokerFacts, message: StoredMessage, pull: Pulled, delivery: Delivery) -> str | None:
    """Why the client may have lost the pull that brought the message; None if it did not.

    A Java client up to 5.2.0 fails on a message without a body, and its listener gets no message of the pull.
    """
    if pull.config.version.clients_take_empty_bodies:
        return None
    queue = in_queue(message.topic, message.queue_id)
    same_run, without_body = partial(_received_offsets, facts, delivery), one_of("body_length", [0])
    if is_lmq(message.topic):
        offsets = facts.rows(COMMITLOG, ["commitlog_offset"], [without_body])["commitlog_offset"].to_pylist()
        empty = same_run(CONSUMEQUEUE, [*queue, one_of("commitlog_offset", offsets)])
    else:
        empty = same_run(COMMITLOG, [*queue, without_body])
    others = (offset for offset in empty if offset != message.queue_offset)
    if message.queue_offset in empty:
        which = "it has no body"
    else:
        for offset in sorted(others, key=lambda each: abs(each - message.queue_offset)):
            low, high = sorted((offset, message.queue_offset))
            between = [*queue, within("queue_offset", low, high + 1)]
            if len(same_run(CONSUMEQUEUE, between)) <= DEFAULT_BATCH:
                which = f"offset {offset:,}, which may have been in the same pull, has no body"
                break
        else:
            return None
    return f"{which}: a Java client up to 5.2.0 fails on such a pull, and its listener gets no message of it"


def _received_offsets(facts: BrokerFacts, delivery: Delivery, table: Table, where: Sequence[Condition]) -> set[int]:
    """The queue offsets of some rows whose messages the group received as in ``delivery``."""
    columns = ["commitlog_offset", "topic", "queue_offset", "store_timestamp"]
    rows = facts.rows(table, columns, where).to_pylist()
    received = deliveries_of(facts, rows)
    alike = (
        row for row in rows if any(map(delivery.is_alike, received.get((row["topic"], row["commitlog_offset"]), ())))
    )
    return {row["queue_offset"] for row in alike}


def _by_the_old_filter(
    facts: BrokerFacts,
    message: StoredMessage,
    before: SubscriptionRow,
    between: Sequence[Condition],
    is_delivered: bool,
) -> str | None:
    # The broker does not notice an expression sent with a pull that does not compile, and lets every message pass.
    old = delivers(before) or TRUE
    if holds(old, message.properties) == is_delivered:
        return None
    offsets = facts.rows(CONSUMEQUEUE, ["commitlog_offset"], between)["commitlog_offset"].to_pylist()
    if any(holds(old, each.properties) for each in read(facts, offsets)):
        return None
    return f"{before.expression} then filtered it"


def _by_the_old_tags(
    facts: BrokerFacts,
    message: StoredMessage,
    before: SubscriptionRow,
    after: SubscriptionRow,
    between: Sequence[Condition],
) -> str | None:
    if message.tags in (before.tags_set or ()):
        return None
    codes = set(before.code_set or ())
    if after.tags_set:
        codes &= set(after.code_set or ())
    old = facts.rows(CONSUMEQUEUE, ["commitlog_offset"], [*between, one_of("tags_code", codes)])
    passes = after.compiled.expression.predicate if after.compiled.expression is not None else TRUE
    if any(holds(passes, each.properties) for each in read(facts, old["commitlog_offset"].to_pylist())):
        return None
    return f"the client then drops what {before.expression} does not name"


# The explainer.


NO_QUEUE_IDS = (
    "the clients of the group subscribe differently, and the messages have no queue ids: which client read this one, "
    "and whether it kept it, is not known"
)
READ_FOR_NOTHING = "passed over by a pop that handed out nothing, so that the broker wrote nothing down"
POP_NOT_COPIED = "its pop may be later than the copied log, or an operator moved the group's offset"
BY_POP = "the group pops the topic, and the broker did not write down what it got: this is inferred"


class Explainer:
    """Explains messages of one broker. ``groups``: the only groups to read; None: all."""

    def __init__(self, facts: BrokerFacts, groups: Collection[str] | None = None) -> None:
        self._facts = facts
        self._groups = groups
        history = facts.history if groups is None else facts.history_of_groups(groups)
        events = [event for event in facts.events if groups is None or event.group in groups]
        self._clients = ClientChecks(events)
        self._seeming = seeming_disagreements(history, events)
        self._positions = cache(partial(positions_in_queue, replace(facts, newer=None), groups))
        self._committed = cache(self._committed_in_queue)
        self._history = PullHistory(facts, groups)
        self._pops = PopsOfMessages(facts)
        self._traces = cache(self._read_traces)
        self._has_traces = bool(facts.warehouse.files(CONSUMPTIONS, facts.name))
        planned = facts.pops.planned
        self._rows = states_by_key(replace(row, mode=ConsumeMode.POP) if row.key in planned else row for row in history)
        self._rows_by_group: defaultdict[str, list[SubscriptionRow]] = defaultdict(list)
        for row in history:
            self._rows_by_group[row.consumer_group].append(row)

    def groups_of(self, message: StoredMessage, copies: Sequence[StoredMessage] = ()) -> list[str]:
        """The groups that ever subscribed to a message's topic, or sent it back. ``copies``: its other copies."""
        topics = {message.topic, message.properties.get(REAL_TOPIC, message.topic)}
        topics.update(each.topic for each in message.in_lmqs)
        subscribed = {group for group, topic in self._rows if topic in topics}
        sent_back = [each.sent_back_by for each in (message, *copies)]
        return sorted(subscribed.union(group for group in sent_back if group is not None))

    def explain(self, message: StoredMessage, consumer_group: str, others: Sequence[StoredMessage] = ()) -> Explanation:
        """Explains what happened to the message for the group. ``others``: its other copies.

        If the group subscribes to an LMQ that has the message, and not to the message's topic, that is explained.
        """
        if not self._rows[consumer_group, message.topic]:
            lmqs = (each for each in message.in_lmqs if self._rows[consumer_group, each.topic])
            message = next(lmqs, message)
        stored = sorted([message, *others], key=lambda each: each.commitlog_offset)
        copies = {each.commitlog_offset: as_copy(each, self._facts) for each in stored}
        if copies[message.commitlog_offset].wait is None:
            explanation = self._explained(message, consumer_group)
        else:
            explanation = self._waiting(message, consumer_group, stored, copies)
        explanation = replace(explanation, start=self._start(explanation.message, consumer_group), message=message)
        explanation = replace(explanation, journey=self._journey(explanation, stored, copies))
        if story := pop_story(explanation.journey, self._facts.as_of):
            explanation = explanation.with_headline("; ".join(filter(None, [story, explanation.decision.headline])))
        explanation = self._with_misread_setting(explanation)
        explanation = self._with_clients(explanation)
        return replace(explanation, uncertain=self._why_uncertain(explanation))

    def _why_uncertain(self, explanation: Explanation) -> str | None:
        """Why the explanation is not certain; None if it is. ``explanation.uncertain``: why its pull or pop is not.

        The first that is there counts: a trace, which decides; clients that seem to disagree; the pull; other evidence.
        """
        if trace := self._trace_of(explanation):
            return None if explanation.outcome is Outcome.DELIVERED else f"{trace}: the group received it"
        return self._seems_uncertain(explanation) or explanation.uncertain or self._other_evidence(explanation)

    def pull(self, message: StoredMessage, consumer_group: str) -> Pulled | None:
        """The pull that decides what became of a message without deliveries; None if the group did not pull it."""
        pulls = self._pulls(message, consumer_group, self._rows[consumer_group, message.topic])
        return None if isinstance(pulls, NotPulled) else pulls[-1]

    def pull_key(self, message: StoredMessage, pull: Pulled) -> Hashable:
        """What of a pull matters to the explanation of a message without deliveries that it filtered.

        The rest is what filters see of the message. Not for messages that :meth:`needs_each` or :meth:`pull_columns`
        say to explain each.
        """
        assert message.entry is not None
        row = pull.row
        is_live = message.entry.store_timestamp > (row.born_time or 0)
        reasons = {window.reason for _, window in self._history.windows(message, row.consumer_group)}
        return row.valid_from, id(pull.config), is_live, RECEIPT_NOT_KNOWN & reasons

    def states(self, consumer_group: str, topic: str) -> Sequence[SubscriptionRow]:
        """The states of a group's subscription to a topic, in the order of time."""
        return self._rows[consumer_group, topic]

    def needs_each(self, consumer_group: str, topic: str) -> bool:
        """Whether more than :meth:`pull_columns` decides about messages of a topic, so that each must be explained."""
        key = consumer_group, topic
        return (
            is_copy(topic) or is_lmq(topic) or self._facts.is_live
            or key in self._facts.pops.recorded or key in self._facts.pops.planned or key in self._facts.broadcasting
            or any(each.key == key for each in self._seeming) or self._clients.ever_differ(*key)
        )  # fmt: skip

    def pull_columns(
        self, consumer_group: str, topic: str, entries: pa.Table
    ) -> tuple[Sequence[npt.NDArray[np.int64]], npt.NDArray[np.bool_]]:
        """All that decides whether, when and how a group pulled messages, as columns of numbers.

        For messages without deliveries, with equal numbers, ``pull`` and what is said without filters are alike.
        ``entries``: their rows of CONSUMEQUEUE. Also returns which messages must be explained each.
        """
        windows, is_at_change = self._history.covering(consumer_group, topic, entries)
        queue_ids, queue_offsets, offsets, stored_at = (
            entries[name].to_numpy().astype(np.int64)
            for name in ("queue_id", "queue_offset", "commitlog_offset", "store_timestamp")
        )
        is_before, begins = np.zeros(len(entries), np.int64), np.zeros(len(entries), np.int64)
        for queue_id in np.unique(queue_ids).tolist():
            at = queue_ids == queue_id
            position = self._positions(topic, queue_id).get(consumer_group)
            is_before[at] = False if position is None else queue_offsets[at] < position
            begins[at] = self._facts.begins.get((topic, queue_id), 0)
        is_in_log = offsets >= np.maximum(begins, self._facts.last.log_start or 0)
        instants = self._history.instants(consumer_group, topic)
        for row in self._rows_by_group[consumer_group]:
            instants |= {each for each in (row.valid_from, row.valid_to, row.born_time) if each is not None}
        epochs = np.searchsorted(sorted(instants | {each + 1 for each in instants}), stored_at, "right")
        columns = [queue_ids, *windows, is_before, is_in_log, offsets >= begins, epochs]
        return [column.astype(np.int64) for column in columns], is_at_change

    def _with_clients(self, explanation: Explanation) -> Explanation:
        """Says which clients of a group that broadcasts pulled the message, and what is not known of their offsets."""
        message, group = explanation.message, explanation.consumer_group
        stays = self._facts.broadcasting.get((group, message.topic))
        if stays is None:
            return explanation
        windows = self._history.windows(message, group)
        has_own_offsets = any(window.reason is Reason.OWN_OFFSETS for _, window in windows)
        if has_own_offsets or explanation.outcome is Outcome.NOT_SUBSCRIBED:
            explanation = replace(explanation, uncertain=explanation.uncertain or str(Reason.OWN_OFFSETS))
        if explanation.pulled_at is None or explanation.outcome not in BY_THE_TABLES:
            return replace(explanation, clients=())
        clients = clients_that_pulled(stays, message.store_timestamp, explanation.pulled_at)
        said = f"broadcasting, counted once: {listed(clients, NAMED)} pulled it then"
        return replace(explanation.with_headline(f"{explanation.decision.headline}; {said}"), clients=clients)

    def _trace_of(self, explanation: Explanation) -> str | None:
        """What a client wrote that proves that the group received the message; None if none did."""
        offset = explanation.message.commitlog_offset
        traces = self._traces((offset,)).get((explanation.consumer_group, offset), ())
        consumed = next((trace for trace in traces if trace["records"] == 1), None)
        if consumed is None:
            return None
        at = time_text(consumed["consumed_at"] or consumed["traced_at"])
        return f"{client_name(consumed['client_process'])} wrote that it consumed it at {at}"

    def _read_traces(self, offsets: tuple[int, ...]) -> dict[tuple[str, int], list[dict[str, Any]]]:
        """By group and physical offset, what clients wrote of the messages at some offsets."""
        if not self._has_traces:
            return {}
        traces: defaultdict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
        for row in self._facts.rows(CONSUMPTIONS, where=[one_of("commitlog_offset", offsets)]).to_pylist():
            traces[row["consumer_group"], row["commitlog_offset"]].append(row)
        return dict(traces)

    def _with_misread_setting(self, explanation: Explanation) -> Explanation:
        """Says why the property filter is off, if the pulls are refused for it, and broker.conf seems to say on."""
        decision, preview = explanation.decision, explanation.preview
        why = why_property_filter_is_off(self._facts.misread_settings)
        if why is None:
            return explanation
        if ResponseCode.SYSTEM_ERROR.text in decision.headline:
            return explanation.with_headline(f"{decision.headline}; {why}")
        if preview is not None and ResponseCode.SYSTEM_ERROR.text in preview.headline:
            return replace(explanation, preview=replace(preview, headline=f"{preview.headline}; {why}"))
        return explanation

    def _other_evidence(self, explanation: Explanation) -> str | None:
        """Why something else than the subscriptions shows that the group may have received the message, or not."""
        key = explanation.consumer_group, explanation.message.topic
        is_delivered = explanation.outcome is Outcome.DELIVERED
        for _, window in self._history.windows(explanation.message, key[0]):
            why, at = window.reason, window.subscription_from
            if why not in RECEIPT_NOT_KNOWN:
                continue
            if why is Reason.IN_FLIGHT:
                applies = is_delivered and self._would_deliver(explanation.message, key[0], at - 1)
            elif why is Reason.HANDED_OVER:
                begin, end = at - 2 * HELD_PULL_MS, window.stored_to + HELD_PULL_MS
                around = [row for row in self._rows[key] if row.valid_from < end and row.end > begin]
                filters = [delivers(row) or FALSE for row in around if row.is_consuming]
                passes = {holds(each, explanation.message.properties) for each in filters}
                applies = len(passes) > 1
            elif why in (Reason.DELETED_TONIGHT, Reason.BEGAN_EARLIER):
                applies = self._would_deliver(explanation.message, key[0], at)
            elif why is Reason.LEFT_PULL:
                applies = not is_delivered and self._would_deliver(explanation.message, key[0], at)
            elif why is Reason.RESET_BY_CLIENTS:
                rows = self._rows[key[0], subscribed_topic(*key)]
                (row,) = in_force_at(rows, at)
                stays = any(after.is_consuming for after in in_force_at(rows, row.end))
                then = stays and self._would_deliver(explanation.message, key[0], row.end)
                applies = then is not self._would_deliver(explanation.message, key[0], at)
            else:
                applies = is_delivered or why not in (Reason.BEGAN_AT_END, Reason.HELD_IN_OLD_QUEUE)
            if applies:
                return str(why)
        if (key[0], subscribed_topic(*key)) in self._facts.pops.planned:
            return BY_POP
        back = next(
            (step for step in explanation.journey if step.kind is JourneyStepKind.SENT_BACK or step.is_retry), None
        )
        first = next((step for step in explanation.journey if step.kind is JourneyStepKind.FILTERED), None)
        if back is None or first is None or first.is_retry or first.outcome in BY_THE_TABLES:
            return None
        if first.attempt is not None:  # it came again because nobody acknowledged it
            return None
        return (
            f"it is in {back.topic} {back.queue_id}/{back.queue_offset}: the group sent it back, so it had received it"
        )

    def _would_deliver(self, message: StoredMessage, group: str, at: int) -> bool:
        """Whether the subscription in force at a time (ms) delivers the message. Of a group that is away, it may."""
        rows = in_force_at(self._rows[group, subscribed_topic(group, message.topic)], at)
        pulls = (Pulled(row, at, self._facts.broker) for row in rows if row.is_consuming)
        outcomes = [self._filtered(message, pull).outcome for pull in pulls]
        return not outcomes or Outcome.DELIVERED in outcomes

    def why_waiting(self, message: StoredMessage, others: Sequence[StoredMessage]) -> str | None:
        """What a message in a system topic waits for; None if it does not wait. ``others``: its other copies."""
        stored = sorted([message, *others], key=lambda each: each.commitlog_offset)
        copies = [as_copy(each, self._facts) for each in stored]
        copy = as_copy(message, self._facts)
        if copy.wait is None:
            return None
        after = stored_after(copy, copies)
        return self._why_waiting(message, copy.wait, after, stored)[1]

    def _waiting(
        self,
        message: StoredMessage,
        consumer_group: str,
        stored: Sequence[StoredMessage],
        copies: Mapping[int, Copy],
    ) -> Explanation:
        """Explains a message in a system topic, by the message that it becomes in its own topic, now or later."""
        copy = copies[message.commitlog_offset]
        wait = copy.wait
        assert wait is not None
        after = stored_after(copy, list(copies.values()))
        if after is not None and after.wait is None:
            became = next(each for each in stored if each.commitlog_offset == after.commitlog_offset)
            explanation = self._explained(became, consumer_group)
            stored_at = f"stored in {became.place} at {time_text(became.store_timestamp)}"
            return explanation.with_headline(f"{stored_at}; {explanation.decision.headline}")
        why = self._why_waiting(message, wait, after, stored)
        sent_back_by = message.sent_back_by
        rows = self._rows[consumer_group, wait.real_topic]
        if sent_back_by not in (None, consumer_group) or not rows:
            never = never_subscribed(wait.real_topic, consumer_group)
            never = f"{sent_back_by} sent it back" if sent_back_by not in (None, consumer_group) else never
            outcome = why[0] if sent_back_by == consumer_group else Outcome.NOT_SUBSCRIBED
            decision = Decision(outcome, Stage.SYSTEM_TOPIC, f"{why[1]}; {never}")
            return Explanation(message, consumer_group, decision, self._facts.broker)
        explanation = Explanation(
            message, consumer_group, Decision(why[0], Stage.SYSTEM_TOPIC, why[1]), self._facts.broker
        )
        if why[0] is not Outcome.WAITING:
            return explanation
        properties = {name: value for name, value in message.properties.items() if name not in removed_from(wait)}
        entry = Entry(tags_code(message.tags), None, max(wait.due or 0, self._facts.end))
        as_stored = replace(
            message, topic=wait.real_topic, queue_id=wait.real_queue_id, properties=properties, entry=entry
        )
        waiting = self._previewed(replace(explanation, message=as_stored), rows)
        assert waiting.preview is not None
        return replace(waiting, message=message, preview=replace(waiting.preview, bit_map=None))

    def _why_waiting(
        self, message: StoredMessage, wait: Wait, after: Copy | None, stored: Sequence[StoredMessage]
    ) -> tuple[Outcome, str]:
        """What a message in a system topic waits for, and whether it still does."""
        level = f" (level {wait.level})" if wait.level is not None else ""
        what = f"a {wait.kind}{level} for {wait.real_topic}"
        night_ended = f"the last night ended at {time_text(self._facts.as_of)}"
        if wait.deletes:
            return Outcome.NEVER_STORED, f"{what} that deletes another timer message, and is never delivered"
        if wait.kind is WaitKind.HALF:
            halves = [each for each in stored if each.topic == message.topic]
            if after is not None:
                return Outcome.WAITING, f"{what}: committed, and delayed: it waits in {after.topic}"
            # The broker writes down with a delay that one was ended, and may ask its producer again until then.
            ended = {is_ended(self._facts, half) for half in halves}
            if True in ended:
                return Outcome.NEVER_STORED, f"{what}: rolled back, so it is never delivered"
            if any(each.topic == CHECKED_TOO_OFTEN_TOPIC for each in stored):
                why = "given up, because no producer ended it, however often the broker asked"
                return Outcome.NEVER_STORED, f"{what}: {'rolled back, or ' if None in ended else ''}{why}"
            if None in ended:
                op_topic = HALF_TOPICS[message.topic]
                why = f"not committed; whether it was rolled back is not known without the bodies of {op_topic}"
                return Outcome.WAITING, f"{what}: {why}; {night_ended}"
            return Outcome.WAITING, f"{what}: neither committed nor rolled back; {night_ended}"
        if wait.due is None:
            return Outcome.WAITING, f"{what}, whose time is not a number"
        recalls = [each for each in stored if TIMER_DELETES in each.properties and each.store_timestamp < wait.due]
        if wait.kind is WaitKind.TIMER and recalls:
            at = time_text(recalls[0].store_timestamp)
            return Outcome.NEVER_STORED, f"{what}, due {time_text(wait.due)}: recalled {at}, so it is never delivered"
        overdue = f", overdue: {night_ended}" if wait.due < self._facts.as_of else ""
        return Outcome.WAITING, f"{what}, due {time_text(wait.due)}{overdue}"

    def _journey(
        self, explanation: Explanation, stored: Sequence[StoredMessage], copies: Mapping[int, Copy]
    ) -> list[JourneyStep]:
        """The message's way to the group, in the order of time."""
        group, message = explanation.consumer_group, explanation.message
        in_order = list(copies.values())
        way = {each.commitlog_offset for each in way_to(group, copies[message.commitlog_offset], in_order)}
        steps = []
        for each in stored:
            if each.commitlog_offset in way:
                copy = copies[each.commitlog_offset]
                steps += [
                    (step.at or each.store_timestamp, each.commitlog_offset, step)
                    for step in self._steps(each, group, copy, in_order, explanation)
                ]
        traces = self._traces(tuple(each.commitlog_offset for each in stored))
        for each in stored:
            for row in traces.get((group, each.commitlog_offset), ()):
                step = _consumed(each, row)
                steps.append((step.at or 0, each.commitlog_offset, step))
        return [step for _, _, step in sorted(steps, key=lambda each: each[:2])]

    def _steps(
        self, message: StoredMessage, group: str, copy: Copy, copies: Sequence[Copy], explained: Explanation
    ) -> Iterator[JourneyStep]:
        """What happened to one copy. ``explained``: the explanation that is already there, of this or another copy."""
        step = partial(JourneyStep, topic=message.topic, queue_id=message.queue_id, queue_offset=message.queue_offset)
        if copy.wait is not None:
            kind = JourneyStepKind.SENT_BACK if copy.group == group else JourneyStepKind.WAITS
            is_over = stored_after(copy, copies) is not None
            kind = JourneyStepKind.RECALLED if copy.wait.deletes else kind
            yield step(kind, message.store_timestamp, due=copy.wait.due, level=copy.wait.level, is_over=is_over)
        elif message.topic == f"{DLQ_TOPIC_PREFIX}{group}":
            yield step(JourneyStepKind.DEAD, message.store_timestamp)
        elif not is_copy(message.topic) or copy.group == group:
            pops = list(self._pops.steps(message, group)) if self._pops.are_recorded(message, group) else []
            yield from pops
            popped_at = {pop.at for pop in pops}
            explanation = explained if message is explained.message else self._explained(message, group)
            for delivery in explanation.received:
                if delivery.available_at not in popped_at:
                    yield step(JourneyStepKind.FILTERED, delivery.available_at, outcome=delivery.outcome)
            if not explanation.received and not pops:
                yield step(JourneyStepKind.FILTERED, explanation.pulled_at, outcome=str(explanation.outcome))

    def _start(self, message: StoredMessage, consumer_group: str) -> Start | None:
        """Where the group began in the message's queue; None if the queue began again since then."""
        queue = message.topic, message.queue_id
        if queue in self._facts.begins:
            return None
        return self._history.start(consumer_group, *queue)

    def _explained(self, message: StoredMessage, consumer_group: str) -> Explanation:
        if message.entry is None:
            return self._without_filters(message, consumer_group, Outcome.NOT_SUBSCRIBED, _no_entry(message))
        rows = self._rows[consumer_group, subscribed_topic(consumer_group, message.topic)]
        received = not_taken_back([each for each in message.deliveries if each.consumer_group == consumer_group])
        if self._pops.are_recorded(message, consumer_group):
            popped = self._popped(message, consumer_group, rows, received)
            if popped is not None:
                return popped
        if not rows:
            why = never_subscribed(message.topic, consumer_group)
            explanation = self._without_filters(message, consumer_group, Outcome.NOT_SUBSCRIBED, why)
            committed = self._committed(message.topic, message.queue_id).get(consumer_group, 0)
            was_there = message.queue_offset < committed
            return replace(explanation, uncertain=NO_SUBSCRIPTION_THEN if was_there else None)
        if received:
            return self._received(message, rows, received)
        pulls = self._pulls(message, consumer_group, rows)
        if isinstance(pulls, NotPulled):
            outcome, why = Outcome.PENDING if pulls.is_pending else Outcome.NOT_SUBSCRIBED, pulls.why
            refused = self._clients.without_subscription(consumer_group, message.topic, self._facts.end)
            if pulls.is_pending and refused is not None:
                why = without_subscription([client.client_id for client in refused.overruled], refused.absent)
            explanation = self._without_filters(message, consumer_group, outcome, why)
            explanation = replace(explanation, uncertain=pulls.uncertain)
            return self._previewed(explanation, rows) if pulls.is_pending else explanation
        explanation = self._filtered(message, pulls[-1])
        if explanation.outcome in BY_THE_TABLES:
            why = "the filters let it pass, and the group has not pulled it: it began later, or its offset was moved"
            return self._without_filters(message, consumer_group, Outcome.NOT_SUBSCRIBED, why)
        return self._with_uncertainty(explanation, rows, pulls[-1])

    def _popped(
        self, message: StoredMessage, group: str, rows: Sequence[SubscriptionRow], received: Sequence[Delivery]
    ) -> Explanation | None:
        """What the record says of a message and a group that pops; None if it says nothing."""
        # A pop brings its own subscription, and uses no bit map.
        carried = [replace(row, mode=ConsumeMode.POP) for row in rows]
        pops = list(self._pops.steps(message, group))
        why_uncertain = self._pops.uncertain(message, group, rows)
        if received and in_force_at(rows, received[-1].subscription_from):
            explanation = self._received(message, carried, received)
        elif received:
            explanation = self._without_filters(message, group, Outcome(received[-1].outcome), "")
            explanation = replace(explanation, received=received)
        elif pops:
            why = "popped for nobody: the client was just leaving"
            explanation = self._without_filters(message, group, Outcome.NOT_SUBSCRIBED, why)
        else:
            at = self._pops.passed_over_at(message, group)
            position = self._positions(message.topic, message.queue_id).get(group)
            if at is None and (position is None or message.queue_offset >= position):
                return None
            text = READ_FOR_NOTHING if at is None else f"passed over by the pop of {time_text(at)}"
            since = message.store_timestamp if at is None else at
            came_later = comes_after(rows, self._facts.broker, since)
            may_wait = at is None and (not came_later or self._came_last_night(message, group, rows))
            row = next((row for row in carried if row.is_consuming and since < row.end), None)
            if row is None or (since < row.valid_from and not may_wait):
                return None
            explanation = self._filtered(message, Pulled(row, max(since, row.valid_from), self._facts.broker))
            if explanation.outcome in BY_THE_TABLES:
                if at is not None or self._history.windows(message, group):
                    return None
                why = "the group's offset is past it, and the record has no pop of it"
                explanation = self._without_filters(message, group, Outcome.NOT_SUBSCRIBED, why)
                return replace(explanation, uncertain=POP_NOT_COPIED)
            if at is None and came_later:
                return None
            explanation = explanation.with_headline(f"{text}; {explanation.decision.headline}")
        return replace(explanation, uncertain=why_uncertain or explanation.uncertain)

    def _came_last_night(self, message: StoredMessage, group: str, rows: Sequence[SubscriptionRow]) -> bool:
        """Whether a group that pops came in the last night, and the copied log has no pop of the message's queue."""
        nights = self._facts.nights
        before = (nights[-2].as_of or BEGINNING) if len(nights) > 1 else BEGINNING
        return comes_after(rows, self._facts.broker, before) and not self._pops.has_popped(message, group)

    def _seems_uncertain(self, explanation: Explanation) -> str | None:
        """What is not known, if clients of the group seem to disagree about the message; None if they do not."""
        message, pulled_at = explanation.message, explanation.pulled_at
        if pulled_at is None:
            return None
        key = explanation.consumer_group, message.topic
        is_returned_to_any = explanation.outcome in BY_THE_TABLES and not self._facts.last.has_queue_ids
        if is_returned_to_any and self._clients.disagreeing(*key, pulled_at, message.properties):
            return NO_QUEUE_IDS
        for each in self._seeming:
            if each.key == key and each.holds_at(pulled_at):
                passes = {holds(delivers(row) or FALSE, message.properties) for row in each.rows}
                if len(passes) > 1:
                    return each.text
        return None

    def _pulls(
        self, message: StoredMessage, consumer_group: str, rows: Sequence[SubscriptionRow]
    ) -> Sequence[Pulled] | NotPulled:
        """The pulls of the message by the group, in order. It is pending if the group goes on at it or before it."""
        if not self._history.is_filtered(message):
            return NotPulled("deliver has not run yet", is_pending=True)
        queue = message.topic, message.queue_id
        begin = self._facts.begins.get(queue, 0)
        is_deleted = message.commitlog_offset < max(begin, self._facts.last.log_start or 0)
        position = self._positions(*queue).get(consumer_group)
        is_before = position is not None and message.queue_offset < position
        pulls = self._history.pulls(message, consumer_group, rows)
        if not pulls and (is_before or position is None) and self._came_before(message, consumer_group, rows):
            return NotPulled(PASSED_BEFORE, uncertain=NO_SUBSCRIPTION_THEN)
        if not is_before and not is_deleted:
            again = f"the group goes on at offset {position:,}, and pulls the message again" if pulls else None
            why = again or self._why_pending(message, rows)
            return NotPulled(why, is_pending=True)
        if pulls:
            return pulls
        if (stays := self._facts.broadcasting.get((consumer_group, message.topic))) is not None:
            away = clients_away(stays, message.store_timestamp)
            then = (
                f"{listed(away, NAMED)} will pull it after a return" if away else "those that came began at later ones"
            )
            return NotPulled(f"no client of the group was online when it was stored; {then}", is_pending=bool(away))
        if any(window.kind is WindowKind.LOST for _, window in self._history.windows(message, consumer_group)):
            return NotPulled(str(Reason.DELETED))
        is_passed = is_before and message.commitlog_offset >= begin
        return NotPulled(why_not_pulled(rows, self._facts.broker, message.store_timestamp, is_passed))

    def _committed_in_queue(self, topic: str, queue_id: int) -> Mapping[str, int]:
        """By group, the offset that it has committed in a queue."""
        rows = filtered(self._facts.offsets, in_queue(topic, queue_id))
        return dict(tuples(rows.filter(rows["committed"].is_valid()), "consumer_group", "committed"))

    def _came_before(self, message: StoredMessage, consumer_group: str, rows: Sequence[SubscriptionRow]) -> bool:
        """Whether the group had committed a later offset when its first known subscription began."""
        if not comes_after(rows, self._facts.broker, message.store_timestamp):
            return False
        if self._positions(message.topic, message.queue_id).get(consumer_group) is None:
            return self._committed(message.topic, message.queue_id).get(consumer_group, 0) > message.queue_offset
        start = self._start(message, consumer_group)
        return start is not None and start.reason is StartReason.COMMITTED and message.queue_offset < start.queue_offset

    def _why_pending(self, message: StoredMessage, rows: Sequence[SubscriptionRow]) -> str:
        """Why a group did not pull a message by the end of the last night, or by now if the broker was asked."""
        facts = self._facts
        if facts.newer is None or facts.newer.ends is None:
            return why_pending(rows, facts.broker, facts.as_of)
        committed = facts.newer.committed.get(rows[-1].key, {}).get(message.queue_id)
        at = time_text(facts.asked_at)
        if committed is None:
            return f"{why_pending(rows, facts.broker, facts.end)}: by {at} it has committed no offset in this queue"
        if committed <= message.queue_offset:
            return f"{why_pending(rows, facts.broker, facts.end)}: by {at} it has committed offset {committed:,}"
        return (
            f"the group has passed it since the last night: by {at} it has committed offset {committed:,}. The next "
            "night tells which filter the message met"
        )

    def _without_filters(self, message: StoredMessage, group: str, outcome: Outcome, why: str) -> Explanation:
        stage = Stage.SUBSCRIPTION if not self._rows[group, message.topic] else Stage.PULL
        return Explanation(message, group, Decision(outcome, stage, why), self._facts.broker)

    def _received(
        self, message: StoredMessage, rows: Sequence[SubscriptionRow], received: Sequence[Delivery]
    ) -> Explanation:
        delivered = [delivery for delivery in received if delivery.outcome == Outcome.DELIVERED]
        last = (delivered or received)[-1]
        (row,) = in_force_at(rows, last.subscription_from)
        config = next(night.broker for night in self._facts.nights if night.run == last.run)
        pull = Pulled(row, max(last.available_at, row.valid_from), config)
        explanation = self._filtered(message, pull)
        decision, outcome = explanation.decision, Outcome(last.outcome)
        if decision.outcome is not outcome:
            headline = _otherwise(outcome, explanation)
            decision = replace(decision, outcome=outcome, stage=Stage.CLIENT, headline=headline, detail="")
        why = None
        if delivered:
            why = self._before_change(explanation, rows, pull)
            why = why or self._after_change(message, rows, pull, is_delivered=True)
            why = why or in_lost_pull(self._facts, message, pull, last)
        return replace(explanation, decision=decision, received=received, pulled_at=last.available_at, uncertain=why)

    def _filtered(self, message: StoredMessage, pull: Pulled) -> Explanation:
        assert message.entry is not None
        row = pull.row
        others = in_force_at(self._rows_by_group[row.consumer_group], pull.at)
        decision = decide(row, others, pull.config, message.entry, message.properties)
        checks = self._clients.at(row.consumer_group, row.topic, pull.at)
        if decision.outcome not in BY_THE_TABLES:
            others_would = self._clients.subscribing(row.consumer_group, row.topic, pull.at, message.properties)
            if others_would:
                decision = replace(decision, headline=f"{decision.headline}; {overruled(others_would)}")
        present = present_filter(self._rows[row.key], self._facts.end)
        if present is not None and present.filter == row.filter:
            present = None
        return Explanation(
            message, row.consumer_group, decision, pull.config, row, others, pull.at,
            client_checks=checks, present=present,
        )  # fmt: skip

    def _previewed(self, explanation: Explanation, rows: Sequence[SubscriptionRow]) -> Explanation:
        """Adds what the last subscription would decide on a pending message."""
        (row,) = in_force_at(rows, self._facts.end)
        pull = Pulled(row, max(self._facts.as_of, row.valid_from), self._facts.broker)
        forecast = self._filtered(explanation.message, pull)
        return replace(explanation, subscription=row, others=forecast.others, preview=forecast.decision)

    def _with_uncertainty(self, explanation: Explanation, rows: Sequence[SubscriptionRow], pull: Pulled) -> Explanation:
        """``explanation`` is that of a message which the group pulled and did not get."""
        why = self._before_change(explanation, rows, pull)
        why = why or self._after_change(explanation.message, rows, pull, is_delivered=False)
        return replace(explanation, uncertain=why)

    def _before_change(self, explanation: Explanation, rows: Sequence[SubscriptionRow], pull: Pulled) -> str | None:
        """Why a subscription from after a change may have filtered the message; None if none did otherwise."""
        for changed_at in self._history.changes(explanation.message, explanation.consumer_group):
            before, other = (in_force_at(rows, at)[0] for at in (changed_at - 1, changed_at))
            if changed_at <= pull.at or before.filter != pull.row.filter:
                continue
            later = self._filtered(explanation.message, replace(pull, row=other, at=changed_at))
            if (later.outcome is Outcome.DELIVERED) is not (explanation.outcome is Outcome.DELIVERED):
                seconds = (changed_at - pull.at) / 1000
                return (
                    f"stored {seconds:.1f} s before the subscription changed: {other.expression} may have filtered it"
                )
        return None

    def _after_change(
        self, message: StoredMessage, rows: Sequence[SubscriptionRow], pull: Pulled, is_delivered: bool
    ) -> str | None:
        """Why a pull from before a change may have had the message in its answer; None if none had.

        A group that left since then has no such pull any more.
        """
        changes = self._history.changes(message, pull.row.consumer_group)
        for before in reversed(rows):
            since = [row for row in rows if before.valid_from < row.valid_from <= pull.at]
            if before.valid_to in changes and all(is_pulling(row, pull.config) for row in since):
                why = after_change(self._facts, message, before, pull, is_delivered)
                if why is not None:
                    return why
        return None


def _no_entry(message: StoredMessage) -> str:
    if not has_entry(message.sys_flag):
        return "it has no consume queue entry: a prepared or rolled-back transaction message"
    return "it has no consume queue entry yet: dispatch has not run"


def _otherwise(outcome: Outcome, explanation: Explanation) -> str:
    """Why the stored outcome differs from what the filters of the subscription decide."""
    if outcome is Outcome.DEAD:
        return "given up: it was popped once too often"
    if outcome is Outcome.DENIED:
        return "the client traced the messages just before and after it, and not this one"
    if outcome is Outcome.DROPPED_BY_HOOK:
        return "a filter hook of the client drops it"
    if outcome is Outcome.DROPPED_BY_CLIENT:
        return dropped_by_other_client(dropping_clients(explanation.client_checks, explanation.message.properties))
    return "delivered"


def _consumed(message: StoredMessage, trace: Mapping[str, Any]) -> JourneyStep:
    """The step that a client wrote of a copy: a row of CONSUMPTIONS."""
    client = client_name(trace["client_process"])
    call = Call(client, trace["retry_times"], trace["cost"], trace["success"], trace["code"])
    place = message.topic, message.queue_id, message.queue_offset
    return JourneyStep(JourneyStepKind.CONSUMED, trace["consumed_at"] or trace["traced_at"], *place, call=call)


# The answer to "why did this message not arrive?": finds the messages, and explains each to each group.


NAMED = 3


@frozen
class Why:
    """The explanations of some messages. ``messages`` does not include their copies.

    ``group``: the only group to explain; None: all. ``text``: how the user named the messages that were ``found``, with
    their copies. If it is a unique key, these are all messages with it.
    """

    facts: BrokerFacts
    messages: Sequence[StoredMessage]
    group: str | None
    found: Sequence[StoredMessage] = ()
    text: str | None = None

    @cached_property
    def _explainer(self) -> Explainer:
        return Explainer(self.facts, [self.group] if self.group is not None else None)

    def __iter__(self) -> Iterator[Explanation]:
        """An explanation for each message and group; without a group, for all that ever subscribed to the topic."""
        for message in self.messages:
            copies = self.copies(message)
            groups = [self.group] if self.group is not None else self._explainer.groups_of(message, copies)
            for group in groups:
                yield self._explainer.explain(message, group, copies)

    @property
    def nobody(self) -> str:
        """Why there is no explanation for any group."""
        topics = {message.properties.get(REAL_TOPIC, message.topic) for message in self.messages}
        broadcasting = sorted({group for group, topic in self.facts.not_replayed.broadcasting if topic in topics})
        if broadcasting:
            return f"not replayed: {listed(broadcasting, NAMED)}, {BROADCASTING}"
        waits = [self._explainer.why_waiting(message, self.copies(message)) for message in self.messages]
        nobody = "no group ever subscribed to the topic" + ("" if self.facts.groups else f": {NO_SUBSCRIPTIONS}")
        return "; ".join([*filter(None, waits), nobody])

    def copies(self, message: StoredMessage) -> list[StoredMessage]:
        """The message's copies in the schedule topic, retry topics and the dead-letter queue."""
        if message.uniq_key is not None and message.uniq_key == self.text:
            return [copy for copy in self.found if copy.uniq_key == self.text and copy is not message]
        return copies_of(self.facts, message)


def why_where(brokers: Sequence[BrokerFacts], expression: str, group: str | None = None) -> list[Why]:
    """As :func:`why_on_brokers`, of the messages for which an SQL92 expression is true.

    Raises UsageError if it does not compile, or is true for no message or for too many.
    """
    on_brokers = [(facts, messages) for facts in brokers if (messages := _find_where(facts, expression))]
    if not on_brokers:
        unknown = _unknown_property(brokers, expression)
        raise UsageError(f"{brokers[0].warehouse.location} has no message with {expression}{unknown}")
    return _whys(brokers, on_brokers, "", group)


def _unknown_property(brokers: Sequence[BrokerFacts], text: str) -> str:
    """Names the first property of an expression that no message has, if there is one, with what may be meant by it."""
    from answers.lint import meant_by

    expression = compile(text)
    names = named_properties(expression.syntax_tree)
    topics = (property_names(facts.warehouse, facts.name, dict.fromkeys(facts.topics, names)) for facts in brokers)
    known = {name for by_topic in topics for of_topic in by_topic.values() for name in of_topic}
    unknown = next((name for name in names if name not in known), None)
    return "" if unknown is None else f": none has {unknown}{meant_by(unknown, expression, known)}"


def _find_where(facts: BrokerFacts, expression: str) -> list[StoredMessage]:
    facts.check_has_messages()
    try:
        return find_where(facts, expression)
    except InvalidExpression as error:
        raise UsageError(f"--where: {error}") from None


def why_on_brokers(brokers: Sequence[BrokerFacts], text: str, group: str | None = None) -> list[Why]:
    """The messages that ``text`` names, of each broker that has some and knows the group.

    ``text`` is a msgId, a unique key, or one of KEYS. Raises UsageError if no message has it.
    """
    on_brokers = [(facts, messages) for facts in brokers if (messages := _find(facts, text))]
    if not on_brokers:
        raise _no_message(brokers, text)
    return _whys(brokers, on_brokers, text, group)


def _whys(
    brokers: Sequence[BrokerFacts],
    on_brokers: Sequence[tuple[BrokerFacts, list[StoredMessage]]],
    text: str,
    group: str | None,
) -> list[Why]:
    if len(brokers) == 1:
        ((facts, with_copies),) = on_brokers
        _check_group(facts, group)
        return [Why(facts, _originals(with_copies, group), group, with_copies, text)]
    knowing = [(facts, with_copies) for facts, with_copies in on_brokers if group is None or _knows(facts, group)]
    if not knowing:
        names = ", ".join(facts.name for facts, _ in on_brokers)
        known = {name for facts in brokers for name in facts.groups}
        hint = "" if group in known else did_you_mean(group or "", sorted(known))
        raise UsageError(f"the message is on {names}, where {group} never subscribed{hint}")
    sent = {message.uniq_key for _, with_copies in knowing for message in with_copies if not is_copy(message.topic)} - {
        None
    }
    # A client that cannot send a message back to its broker sends it to another one.
    originals = [
        [
            message
            for message in _originals(with_copies, group)
            if not (is_copy(message.topic) and message.uniq_key in sent)
        ]
        for _, with_copies in knowing
    ]
    return [
        Why(facts, messages, group, with_copies, text)
        for (facts, with_copies), messages in zip(knowing, originals, strict=True)
        if messages
    ]


def _find(facts: BrokerFacts, text: str) -> list[StoredMessage]:
    if not isinstance(text, str):
        raise TypeError(f"a message is named by a text, not by {type(text).__name__}")
    if not text:
        raise UsageError("the message is an empty text: give a msgId, a unique key or a key")
    facts.check_has_messages()
    return find(facts, text)


def _no_message(brokers: Sequence[BrokerFacts], text: str) -> UsageError:
    oldest = min(brokers, key=lambda facts: facts.as_of)
    whose = f" of {oldest.name}" if len(brokers) > 1 else ""
    ended = f"; the last night{whose} ended at {time_text(oldest.as_of)}" if oldest.as_of else ""
    if "/" in text:
        ended = "; of a place such as Orders 0/1, give --topic, --queue and --offset"
    return UsageError(f"{oldest.warehouse.location} has no message with the id or key {text}{ended}")


def only_broker_with(
    brokers: Sequence[BrokerFacts], topic: str, queue_id: int, queue_offset: int
) -> BrokerFacts | None:
    """The broker with a message at a place of a queue; None if there are none or several, and it must be named.

    One that is alone is the broker in any case.
    """
    if len(brokers) == 1:
        return brokers[0]
    with_message = [facts for facts in brokers if find_at(facts, topic, queue_id, queue_offset)]
    return with_message[0] if len(with_message) == 1 else None


def why_at(facts: BrokerFacts, topic: str, queue_id: int, queue_offset: int, group: str | None = None) -> Why:
    """The message at a place of a queue. Raises UsageError if there is none."""
    facts.check_has_messages()
    messages = find_at(facts, topic, queue_id, queue_offset)
    if not messages:
        facts.check_topic(topic)
        place = f"{topic} {queue_id}/{queue_offset}"
        raise UsageError(f"{facts.warehouse.location} has no message at {place}: {_places(facts, topic, queue_id)}")
    _check_group(facts, group)
    return Why(facts, messages, group)


def _places(facts: BrokerFacts, topic: str, queue_id: int) -> str:
    """Where a queue, or else a topic, has messages."""
    kept = kept_offsets(facts, topic)
    if not kept:
        return f"there is none of this topic{did_you_mean(topic, facts.topics)}"
    if queue_id not in kept:
        return f"the topic has them in {counted(len(kept), 'queue')}, {min(kept)} to {max(kept)}"
    first, last = kept[queue_id]
    ends = facts.newer.ends if facts.newer is not None else None
    end = (ends or {}).get((topic, queue_id), 0)
    later = f", and those up to {end - 1} since then: run nightly with a new copy of the store"
    return f"the queue has those from offset {first} to {last}{later if end > last + 1 else ''}"


def _check_group(facts: BrokerFacts, group: str | None) -> None:
    """Raises UsageError if the group never subscribed."""
    if group is not None and not _knows(facts, group):
        facts.subscriptions_of(group)


def _knows(facts: BrokerFacts, group: str) -> bool:
    """Whether the group ever subscribed."""
    return any(event.group == group for event in facts.events)


def _originals(messages: Sequence[StoredMessage], group: str | None) -> list[StoredMessage]:
    """Of messages with one unique key, the one that was sent; the others are copies that the broker made.

    If it is not there any more, the first copy for the group.
    """
    by_key: dict[str, list[StoredMessage]] = {}
    for message in messages:
        by_key.setdefault(message.uniq_key or message.msg_id or message.place, []).append(message)
    originals = []
    for same in by_key.values():
        sent = [message for message in same if not is_copy(message.topic)]
        sent_back = [message for message in same if group is not None and message.sent_back_by == group]
        originals += sent or sent_back[:1] or same[:1]
    return originals


# How an explanation is shown: as facts, which become text or HTML, and as JSON (docs/JSON.md).


MARKS = {
    Result.TRUE: "✓", Result.FALSE: "✗", Result.NULL: "∅", Result.ERROR: "!", Result.NOT_EVALUATED: "·",
}  # fmt: skip
STAGES = {
    Stage.TAGS_CODE: "stage 1, tags code",
    Stage.BIT_MAP: "stage 1, filter bit map",
    Stage.EXPRESSION: "stage 2, expression",
}
SHOWN_LEAVES = 8
LONGEST_LEAF = 44


def title(explanation: Explanation, broker: str | None = None) -> str:
    """The message, the group and what happened. ``broker``: its name, where there are several."""
    name, place = short(explanation.message.name), place_on(explanation.message, broker)
    return f"{name}  {place} → {explanation.consumer_group}: {explanation.verdict}"


def place_on(message: StoredMessage, broker: str | None) -> str:
    return message.place if broker is None else f"{message.place} on {broker}"


def explanation_facts(explanation: Explanation, full: bool = False) -> Iterator[Fact]:
    """Why the group received the message or not, below the :func:`title`; ``full`` adds all details."""
    decision, trace = explanation.decision, explanation.trace
    if full:
        yield from _details(explanation)
    stopped = explanation.outcome not in VERDICTS
    if stopped:
        why = decision.reason if trace is None else decision.headline
        yield "stopped at", f"{STAGES.get(decision.stage, str(decision.stage))}: {why}"
    else:
        yield "because", decision.reason
    if explanation.start is not None and (full or explanation.is_from_before):
        yield "began", explanation.start.text
    if explanation.filter_change is not None:
        yield "filter", explanation.filter_change
    if (forecast := explanation.forecast) is not None:
        yield "then" if explanation.outcome is Outcome.WAITING else "today", forecast
    if trace is not None and full:
        yield from _labelled("expression", _tree(trace))
    elif trace is not None and stopped:
        yield from _decisive(trace)
    yield from (("lint", finding) for finding in explanation.findings)
    if explanation.uncertain is not None:
        yield "uncertain", explanation.uncertain
    if explanation.nearest_miss is not None:
        preposition, _, change = explanation.nearest_miss.would_match.partition(" ")
        yield "would match", (f"{preposition} ", Code(change))
    if len(explanation.journey) > 1:
        yield from _labelled("journey", map(step_text, explanation.journey))


def _labelled(label: str, lines: Iterable[str]) -> Iterator[Fact]:
    return (("" if number else label, line) for number, line in enumerate(lines))


def _details(explanation: Explanation) -> Iterator[Fact]:
    message, row, bit_map = explanation.message, explanation.subscription, explanation.filters.bit_map
    yield "message", f"msgId {message.msg_id or '-'}, unique key {message.uniq_key or '-'}, keys {message.keys or '-'}"
    yield "stored", f"{time(message.store_timestamp)} UTC, at physical offset {message.commitlog_offset:,}"
    if row is not None:
        born = f", filter born {time(row.born_time)}" if row.born_time else ""
        since = time(row.valid_from) if row.valid_from > 0 else "the beginning"
        yield "subscribed", f"{row.filter_text} (version {row.sub_version}{born})"
        yield "in force", f"{since} – {time(row.valid_to)}, {'online' if row.is_consuming else 'away'}"
    if explanation.pulled_at is not None:
        yield "pulled", time(explanation.pulled_at)
    for delivery in explanation.received:
        yield "received", f"{delivery.outcome} at {time(delivery.available_at)}"
    if message.entry is not None:
        yield "entry", f"tags code {message.entry.tags_code}"
    if bit_map is not None:
        asked = bit_map.not_asked or (f"unset {list(bit_map.unset)}" if bit_map.unset else "all set")
        yield "bit map", f"positions {list(bit_map.positions)}: {asked}"


def _decisive(trace: ExpressionPart) -> Iterator[Fact]:
    """A row for each leaf, or for the first leaves that decide the result if there are many."""
    leaves = list(trace.leaves())
    decisive = [leaf for leaf in leaves if leaf.decides]
    shown = leaves if len(leaves) <= SHOWN_LEAVES else decisive[:SHOWN_LEAVES]
    rows = [(short(leaf.text, LONGEST_LEAF), MARKS[leaf.result], leaf_values(leaf)) for leaf in shown]
    yield "because", ShownTable((), rows)
    if len(shown) < len(leaves):
        yield "", f"… {len(leaves) - len(shown):,} more parts; --full shows all"


def _tree(part: ExpressionPart, depth: int = 0) -> Iterator[str]:
    pad = "  " * depth
    arrow = "  ←" if part.decides and not part.parts else ""
    if not part.parts:
        yield f"{pad}{part.text}  {MARKS[part.result]} {part.result.value}  {leaf_values(part)}{arrow}"
        return
    yield f"{pad}{part.text}  {MARKS[part.result]} {part.result.value}"
    for child in part.parts:
        yield from _tree(child, depth + 1)


# JSON.


def explanation_json(explanation: Explanation) -> dict[str, Any]:
    """An explanation as a JSON object, without the message's copies."""
    bit_map, trace, miss = explanation.filters.bit_map, explanation.trace, explanation.nearest_miss
    row = explanation.subscription
    preview = explanation.preview
    return {
        "message": message_json(explanation.message),
        "consumer_group": explanation.consumer_group,
        "outcome": str(explanation.outcome),
        "stage": str(explanation.decision.stage),
        "reason": explanation.decision.reason,
        "pulled_at": explanation.pulled_at,
        "would_be": None if preview is None else {"outcome": str(preview.outcome), "reason": preview.reason},
        "lint": list(explanation.findings),
        "uncertain": explanation.uncertain,
        "subscription": None if row is None else _subscription(row),
        "present": None if explanation.present is None else _present(explanation.present),
        "journey": [asdict(step) for step in explanation.journey],
        "start": None if explanation.start is None else asdict(explanation.start),
        "clients": None if explanation.clients is None else list(explanation.clients),
        "bit_map": None if bit_map is None else asdict(bit_map),
        "expression": None if trace is None else part_json(trace),
        "nearest_miss": None if miss is None else _nearest_miss(miss),
        "deliveries": [asdict(delivery) for delivery in explanation.received],
    }


def message_json(message: StoredMessage) -> dict[str, Any]:
    """A message as a JSON object, without its consume queue entry and deliveries."""
    names = (
        "topic", "queue_id", "queue_offset", "commitlog_offset", "msg_id", "uniq_key", "keys", "tags",
        "born_timestamp", "store_timestamp",
    )  # fmt: skip
    return {name: getattr(message, name) for name in names} | {"properties": dict(message.properties)}


def part_json(part: ExpressionPart) -> dict[str, Any]:
    """A part of an evaluated expression as a JSON object, with its nested parts."""
    return {
        "kind": part.kind,
        "text": part.text,
        "result": part.result.value,
        "decides": part.decides,
        "error": part.error,
        "values": dict(part.values),
        "parts": [part_json(child) for child in part.parts],
    }


def _subscription(row: SubscriptionRow) -> dict[str, Any]:
    names = (
        "expression", "expression_type", "sub_version", "valid_from", "valid_to", "born_time", "is_consuming",
        "sent_with_pull",
    )  # fmt: skip
    return {name: getattr(row, name) for name in names}


def _present(row: SubscriptionRow) -> dict[str, Any]:
    return {"expression": row.expression, "expression_type": row.expression_type, "since": row.valid_from}


def _nearest_miss(miss: NearestMiss) -> dict[str, Any]:
    return {"text": miss.text, "properties": dict(miss.values), "expression": miss.expression}
