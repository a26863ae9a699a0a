"""Explains why a message reached a consumer group or did not, from the tables and the filters."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial

from filtering.broker_config import why_property_filter_is_off
from filtering.consumption.allocation import ClientChecks, dropping_clients
from filtering.consumption.group_night import DELETED
from filtering.delivery.entries import has_entry
from filtering.delivery.message_filter import delivers
from filtering.explanation.decision import Decision, Entry, Outcome, Stage, decide
from filtering.explanation.journey import (
    CHECKED_TOO_OFTEN_TOPIC,
    REAL_TOPIC,
    Copy,
    Step,
    StepKind,
    Wait,
    WaitKind,
    group_of_topic,
    is_copy,
    removed_from,
    stored_after,
    way_to,
)
from filtering.explanation.reasons import dropped_by_other_client, never_subscribed, overruled, without_subscription
from filtering.predicate import FALSE
from filtering.predicate_value import holds
from filtering.pulls.pull import ResponseCode
from filtering.subscriptions.in_force import in_force_at, present_filter
from filtering.subscriptions.inconsistency import seeming_disagreements
from filtering.subscriptions.namespace import DLQ_TOPIC_PREFIX
from filtering.subscriptions.states import states_by_key
from filtering.subscriptions.subscription_row import SubscriptionRow
from filtering.tags_code import tags_code
from schemas.answers.explanation.explanation import BY_THE_TABLES, Explanation
from schemas.answers.explanation.found_messages import FoundMessage, as_copy, is_ended
from schemas.answers.explanation.message_deliveries import Delivery
from schemas.answers.explanation.pulls_of_message import (
    NotPulled,
    Pulled,
    WindowsOfMessages,
    later_filter,
    why_not_pulled,
    why_pending,
)
from schemas.answers.explanation.uncertainty import after_change, in_lost_pull
from schemas.answers.facts import BrokerFacts
from schemas.answers.first_starts import FirstStarts, Start
from schemas.answers.lag.standings import positions_in_queue
from schemas.delta.table_rows import one_of
from schemas.time_text import time_text

NO_QUEUE_IDS = (
    "the clients of the group subscribe differently, and the messages have no queue ids: which client read this one, "
    "and whether it kept it, is not known"
)
BY_POP = "the group consumes the topic by POP, which is not replayed: this is what a group that pulls would receive"


class Explainer:
    """Explains messages of one broker. ``groups``: the only groups to read; None: all."""

    def __init__(self, facts: BrokerFacts, groups: Collection[str] | None = None) -> None:
        self._facts = facts
        self._groups = groups
        history = facts.history if groups is None else facts.history_of_groups(groups)
        events = [event for event in facts.events if groups is None or event.group in groups]
        self._clients = ClientChecks(events)
        self._seeming = seeming_disagreements(history, events)
        self._positions = cache(partial(positions_in_queue, facts, groups))
        self._windows = WindowsOfMessages(facts, groups)
        self._first_starts = cache(self._read_first_starts)
        self._rows = states_by_key(history)
        self._rows_by_group: defaultdict[str, list[SubscriptionRow]] = defaultdict(list)
        for row in history:
            self._rows_by_group[row.consumer_group].append(row)

    def groups_of(self, message: FoundMessage, copies: Sequence[FoundMessage] = ()) -> list[str]:
        """The groups that ever subscribed to a message's topic, or sent it back. ``copies``: its other copies."""
        topics = {message.topic, message.properties.get(REAL_TOPIC, message.topic)}
        subscribed = {group for group, topic in self._rows if topic in topics}
        sent_back = [each.sent_back_by for each in (message, *copies)]
        return sorted(subscribed.union(group for group in sent_back if group is not None))

    def explain(self, message: FoundMessage, consumer_group: str, others: Sequence[FoundMessage] = ()) -> Explanation:
        """Explains what happened to the message for the group. ``others``: its other copies."""
        stored = sorted([message, *others], key=lambda each: each.commitlog_offset)
        copies = {each.commitlog_offset: as_copy(each, self._facts) for each in stored}
        if copies[message.commitlog_offset].wait is None:
            explanation = self._explained(message, consumer_group)
        else:
            explanation = self._waiting(message, consumer_group, stored, copies)
        explanation = replace(explanation, start=self._start(explanation.message, consumer_group), message=message)
        explanation = replace(explanation, journey=self._journey(explanation, stored, copies))
        explanation = self._with_misread_setting(explanation)
        if why := self._seems_uncertain(explanation):
            return replace(explanation, uncertain=why)
        if explanation.uncertain is None:
            explanation = replace(explanation, uncertain=self._other_evidence(explanation))
        return explanation

    def _with_misread_setting(self, explanation: Explanation) -> Explanation:
        """Says why the property filter is off, if the pulls are refused for it, and broker.conf seems to say on."""
        decision, preview = explanation.decision, explanation.preview
        why = why_property_filter_is_off(self._facts.misread_settings)
        if why is None:
            return explanation
        if ResponseCode.SYSTEM_ERROR.text in decision.headline:
            return replace(explanation, decision=replace(decision, headline=f"{decision.headline}; {why}"))
        if preview is not None and ResponseCode.SYSTEM_ERROR.text in preview.headline:
            return replace(explanation, preview=replace(preview, headline=f"{preview.headline}; {why}"))
        return explanation

    def _other_evidence(self, explanation: Explanation) -> str | None:
        """Why something else than the subscriptions shows that the group may have received the message."""
        if (explanation.consumer_group, explanation.message.topic) in self._facts.not_replayed.pop:
            return BY_POP
        back = next((step for step in explanation.journey if step.kind is StepKind.SENT_BACK or step.is_retry), None)
        first = next((step for step in explanation.journey if step.kind is StepKind.FILTERED), None)
        if back is None or first is None or first.is_retry or first.outcome in BY_THE_TABLES:
            return None
        return (
            f"it is in {back.topic} {back.queue_id}/{back.queue_offset}: the group sent it back, so it had received it"
        )

    def _waiting(
        self,
        message: FoundMessage,
        consumer_group: str,
        stored: Sequence[FoundMessage],
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
            headline = (
                f"stored in {became.place} at {time_text(became.store_timestamp)}; {explanation.decision.headline}"
            )
            return replace(explanation, decision=replace(explanation.decision, headline=headline))
        why = self._why_waiting(message, wait, after, stored)
        sent_back_by = group_of_topic(wait.real_topic)
        rows = self._rows[consumer_group, wait.real_topic]
        if sent_back_by not in (None, consumer_group) or not rows:
            never = never_subscribed(wait.real_topic, consumer_group)
            never = f"{sent_back_by} sent it back" if sent_back_by not in (None, consumer_group) else never
            decision = Decision(Outcome.NOT_SUBSCRIBED, Stage.SYSTEM_TOPIC, f"{why[1]}; {never}")
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
        found = self._previewed(replace(explanation, message=as_stored), rows)
        assert found.preview is not None
        return replace(found, message=message, preview=replace(found.preview, bit_map=None))

    def _why_waiting(
        self, message: FoundMessage, wait: Wait, after: Copy | None, stored: Sequence[FoundMessage]
    ) -> tuple[Outcome, str]:
        """What a message in a system topic waits for, and whether it still does."""
        level = f" (level {wait.level})" if wait.level is not None else ""
        what = f"a {wait.kind}{level} for {wait.real_topic}"
        ended = f"the last night ended at {time_text(self._facts.as_of)}"
        if wait.deletes:
            return Outcome.NEVER_STORED, f"{what} that deletes another timer message, and is never delivered"
        if wait.kind is WaitKind.HALF:
            halves = [each for each in stored if each.topic == message.topic]
            if after is not None:
                return Outcome.WAITING, f"{what}: committed, and delayed: it waits in {after.topic}"
            if any(each.topic == CHECKED_TOO_OFTEN_TOPIC for each in stored):
                return (
                    Outcome.NEVER_STORED,
                    f"{what}: given up, because no producer ended it, often as the broker asked",
                )
            if any(is_ended(self._facts, half) for half in halves):
                return Outcome.NEVER_STORED, f"{what}: rolled back, so it is never delivered"
            return Outcome.WAITING, f"{what}: neither committed nor rolled back; {ended}"
        if wait.due is None:
            return Outcome.WAITING, f"{what}, whose time is not a number"
        overdue = f", overdue: {ended}" if wait.due < self._facts.as_of else ""
        return Outcome.WAITING, f"{what}, due {time_text(wait.due)}{overdue}"

    def _journey(
        self, explanation: Explanation, stored: Sequence[FoundMessage], copies: Mapping[int, Copy]
    ) -> list[Step]:
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
        return [step for _, _, step in sorted(steps, key=lambda each: each[:2])]

    def _steps(
        self, message: FoundMessage, group: str, copy: Copy, copies: Sequence[Copy], explained: Explanation
    ) -> Iterator[Step]:
        """What happened to one copy. ``explained``: the explanation that is already there, of this or another copy."""
        step = partial(Step, topic=message.topic, queue_id=message.queue_id, queue_offset=message.queue_offset)
        if copy.wait is not None:
            kind = StepKind.SENT_BACK if group_of_topic(copy.wait.real_topic) == group else StepKind.WAITS
            is_over = stored_after(copy, copies) is not None
            yield step(kind, message.store_timestamp, due=copy.wait.due, level=copy.wait.level, is_over=is_over)
        elif message.topic == f"{DLQ_TOPIC_PREFIX}{group}":
            yield step(StepKind.DEAD, message.store_timestamp)
        elif not is_copy(message.topic) or group_of_topic(message.topic) == group:
            found = explained if message is explained.message else self._explained(message, group)
            for delivery in found.received:
                yield step(StepKind.FILTERED, delivery.available_at, outcome=delivery.outcome)
            if not found.received:
                yield step(StepKind.FILTERED, found.pulled_at, outcome=str(found.outcome))

    def _start(self, message: FoundMessage, consumer_group: str) -> Start | None:
        """Where the group began in the message's queue; None if the queue began again since then."""
        queue = message.topic, message.queue_id
        return None if queue in self._facts.begins else self._first_starts(*queue).start((consumer_group, *queue))

    def _read_first_starts(self, topic: str, queue_id: int) -> FirstStarts:
        of_groups = [one_of("consumer_group", self._groups)] if self._groups is not None else []
        where = [one_of("topic", [topic]), one_of("queue_id", [queue_id]), *of_groups]
        return FirstStarts(self._facts, self._rows, where)

    def _explained(self, message: FoundMessage, consumer_group: str) -> Explanation:
        if message.entry is None:
            return self._without_filters(message, consumer_group, Outcome.NOT_SUBSCRIBED, _no_entry(message))
        rows = self._rows[consumer_group, message.topic]
        if not rows:
            why = never_subscribed(message.topic, consumer_group)
            return self._without_filters(message, consumer_group, Outcome.NOT_SUBSCRIBED, why)
        received = [delivery for delivery in message.deliveries if delivery.consumer_group == consumer_group]
        if received:
            return self._received(message, rows, received)
        pulls = self._pulls(message, consumer_group, rows)
        if isinstance(pulls, NotPulled):
            outcome, why = Outcome.PENDING if pulls.is_pending else Outcome.NOT_SUBSCRIBED, pulls.why
            refused = self._clients.without_subscription(consumer_group, message.topic, self._facts.end)
            if pulls.is_pending and refused is not None:
                why = without_subscription([client.client_id for client in refused.overruled], refused.absent)
            explanation = self._without_filters(message, consumer_group, outcome, why)
            return self._previewed(explanation, rows) if pulls.is_pending else explanation
        explanation = self._filtered(message, pulls[-1])
        if explanation.outcome in BY_THE_TABLES:
            why = "the filters let it pass, and the group has not pulled it: it began later, or its offset was moved"
            return self._without_filters(message, consumer_group, Outcome.NOT_SUBSCRIBED, why)
        return self._with_uncertainty(explanation, rows, pulls[-1])

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
        self, message: FoundMessage, consumer_group: str, rows: Sequence[SubscriptionRow]
    ) -> Sequence[Pulled] | NotPulled:
        """The pulls of the message by the group, in order. It is pending if the group goes on at it or before it."""
        if not self._windows.is_filtered(message):
            return NotPulled("deliver has not run yet", is_pending=True)
        queue = message.topic, message.queue_id
        begin = self._facts.begins.get(queue, 0)
        is_deleted = message.commitlog_offset < max(begin, self._facts.last.log_start or 0)
        position = self._positions(*queue).get(consumer_group)
        is_before = position is not None and message.queue_offset < position
        pulls = self._windows.pulls(message, consumer_group, rows)
        if not is_before and not is_deleted:
            again = f"the group goes on at offset {position:,}, and pulls the message again" if pulls else None
            why = again or why_pending(rows, self._facts.broker, self._facts.as_of)
            return NotPulled(why, is_pending=True)
        if pulls:
            return pulls
        if self._windows.are_lost(message, consumer_group):
            return NotPulled(DELETED)
        is_passed = is_before and message.commitlog_offset >= begin
        return NotPulled(why_not_pulled(rows, self._facts.broker, message.store_timestamp, is_passed))

    def _without_filters(self, message: FoundMessage, group: str, outcome: Outcome, why: str) -> Explanation:
        stage = Stage.SUBSCRIPTION if not self._rows[group, message.topic] else Stage.PULL
        return Explanation(message, group, Decision(outcome, stage, why), self._facts.broker)

    def _received(
        self, message: FoundMessage, rows: Sequence[SubscriptionRow], received: Sequence[Delivery]
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
            why = after_change(self._facts, message, rows, pull, is_delivered=True)
            why = why or in_lost_pull(self._facts, message, pull, last)
        return replace(explanation, decision=decision, received=received, pulled_at=last.available_at, uncertain=why)

    def _filtered(self, message: FoundMessage, pull: Pulled) -> Explanation:
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
        other = later_filter(rows, pull)
        if other is None:
            return replace(explanation, uncertain=after_change(self._facts, explanation.message, rows, pull, False))
        pull_after = replace(pull, row=other, at=other.valid_from)
        if self._filtered(explanation.message, pull_after).outcome is explanation.outcome:
            return explanation
        seconds = (other.valid_from - pull.at) / 1000
        why = f"stored {seconds:.1f} s before the subscription changed: {other.expression} may have filtered it"
        return replace(explanation, uncertain=why)


def _no_entry(message: FoundMessage) -> str:
    if not has_entry(message.sys_flag):
        return "it has no consume queue entry: a prepared or rolled-back transaction message"
    return "it has no consume queue entry yet: dispatch has not run"


def _otherwise(outcome: Outcome, explanation: Explanation) -> str:
    """Why the stored outcome differs from what the filters of the subscription decide."""
    if outcome is Outcome.DROPPED_BY_HOOK:
        return "a filter hook of the client drops it"
    if outcome is Outcome.DROPPED_BY_CLIENT:
        return dropped_by_other_client(dropping_clients(explanation.client_checks, explanation.message.properties))
    return "delivered"
