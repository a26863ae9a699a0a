"""Explains why a message reached a consumer group or did not, from the tables and the filters."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial

from filtering.consumption.allocation import ClientChecks, dropping_clients, keeping_clients
from filtering.delivery.entries import has_entry
from filtering.explanation.decision import Decision, Outcome, Stage, decide
from filtering.explanation.pulls_of_message import (
    NightInQueue,
    NotPulled,
    Place,
    Pulled,
    later_filter,
    pulls_of_message,
)
from filtering.explanation.reasons import dropped_by_other_client, never_subscribed, overruled
from filtering.subscriptions.in_force import in_force_at, present_filter
from filtering.subscriptions.states import states_by_key
from filtering.subscriptions.subscription_row import SubscriptionRow
from schemas.answers.explanation.explanation import BY_THE_TABLES, Explanation
from schemas.answers.explanation.found_messages import FoundMessage
from schemas.answers.explanation.message_deliveries import Delivery
from schemas.answers.explanation.queue_history import log_lost, nights_in_queue, nights_of_message, resets_in
from schemas.answers.explanation.uncertainty import after_change
from schemas.answers.facts import BrokerFacts
from schemas.answers.lag.standings import positions_in_queue

BY_POP = "the group consumes the topic by POP, which is not replayed: this is what a group that pulls would receive"


class Explainer:
    """Explains messages of one broker. ``groups``: the only groups to read; None: all."""

    def __init__(self, facts: BrokerFacts, groups: Collection[str] | None = None) -> None:
        self._facts = facts
        self._groups = groups
        history = facts.history if groups is None else facts.history_of_groups(groups)
        self._clients = ClientChecks([event for event in facts.events if groups is None or event.group in groups])
        self._positions = cache(partial(positions_in_queue, facts, groups))
        self._nights = cache(self._read_nights)
        self._rows = states_by_key(history)
        self._rows_by_group: defaultdict[str, list[SubscriptionRow]] = defaultdict(list)
        for row in history:
            self._rows_by_group[row.consumer_group].append(row)

    def groups_of(self, topic: str) -> list[str]:
        """The groups that ever subscribed to a topic."""
        return sorted(group for group, subscribed in self._rows if subscribed == topic)

    def explain(self, message: FoundMessage, consumer_group: str) -> Explanation:
        """Explains what happened to the message for the group."""
        explanation = self._explained(message, consumer_group)
        if explanation.uncertain is None and (consumer_group, message.topic) in self._facts.not_replayed.pop:
            return replace(explanation, uncertain=BY_POP)
        return explanation

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
            outcome = Outcome.PENDING if pulls.is_pending else Outcome.NOT_SUBSCRIBED
            explanation = self._without_filters(message, consumer_group, outcome, pulls.why)
            return self._previewed(explanation, rows) if pulls.is_pending else explanation
        explanation = self._filtered(message, pulls[-1])
        if explanation.outcome in BY_THE_TABLES:
            why = "the filters let it pass, and the group has not pulled it: it began later, or its offset was moved"
            return self._without_filters(message, consumer_group, Outcome.NOT_SUBSCRIBED, why)
        return self._with_uncertainty(explanation, rows, pulls[-1])

    def _pulls(
        self, message: FoundMessage, consumer_group: str, rows: Sequence[SubscriptionRow]
    ) -> Sequence[Pulled] | NotPulled:
        """The pulls of the message by the group. It is pending if the group goes on at it or before it."""
        if message.commitlog_offset >= (self._facts.last.delivered_to or 0):
            return NotPulled("deliver has not run yet", is_pending=True)
        queue = message.topic, message.queue_id
        begin = self._facts.begins.get(queue, 0)
        is_deleted = message.commitlog_offset < max(begin, self._facts.last.log_start or 0)
        gone_at = log_lost(self._facts, message.commitlog_offset)
        place = Place(message.queue_offset, message.store_timestamp, message.run, is_deleted, gone_at)
        nights = nights_of_message(self._nights(*queue).get(consumer_group, ()), message.commitlog_offset)
        events = self._facts.resets.get((consumer_group, *queue), ())
        resets = resets_in(nights, events, message.commitlog_offset < begin)
        pulls = pulls_of_message(rows, nights, resets, place, self._facts.broker, self._facts.as_of)
        position = self._positions(*queue).get(consumer_group)
        waits = position is not None and message.queue_offset >= position and not is_deleted
        if waits and not (isinstance(pulls, NotPulled) and pulls.is_pending):
            again = "" if isinstance(pulls, NotPulled) else ", and pulls the message again"
            return NotPulled(f"the group goes on at offset {position:,}{again}", is_pending=True)
        return pulls

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
        why = after_change(self._facts, message, rows, pull, is_delivered=True) if delivered else None
        return replace(explanation, decision=decision, received=received, pulled_at=last.available_at, uncertain=why)

    def _filtered(self, message: FoundMessage, pull: Pulled) -> Explanation:
        assert message.entry is not None
        row = pull.row
        others = in_force_at(self._rows_by_group[row.consumer_group], pull.at)
        decision = decide(row, others, pull.config, message.entry, message.properties)
        checks = self._clients.at(row.consumer_group, row.topic, pull.at)
        if decision.outcome not in BY_THE_TABLES and (others_would := keeping_clients(checks, message.properties)):
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

    def _read_nights(self, topic: str, queue_id: int) -> Mapping[str, Sequence[NightInQueue]]:
        return nights_in_queue(self._facts, (topic, queue_id), self._rows, self._groups)


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
