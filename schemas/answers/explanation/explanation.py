"""What happened to a message for a consumer group, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from filtering.broker_config import BrokerConfig
from filtering.counted import counted
from filtering.explanation.decision import Decision, Outcome
from filtering.explanation.journey import Step, StepKind
from filtering.explanation.nearest_miss import NearestMiss, nearest_miss
from filtering.explanation.trace import Part, trace
from filtering.findings import expression_findings, own_findings
from filtering.findings.finding import INFO
from filtering.predicate import Predicate
from filtering.subscriptions.namespace import DLQ_TOPIC_PREFIX
from filtering.subscriptions.subscription_row import SubscriptionRow
from schemas.answers.explanation.found_messages import FoundMessage
from schemas.answers.explanation.message_deliveries import Delivery
from schemas.answers.first_starts import Start
from schemas.time_text import time_text

BY_THE_TABLES = (Outcome.DELIVERED, Outcome.DROPPED_BY_CLIENT, Outcome.DROPPED_BY_HOOK)
"""Outcomes that the table deliveries stores."""

VERDICTS = {
    Outcome.DELIVERED: "delivered",
    Outcome.DROPPED_BY_CLIENT: "returned by the broker, dropped by the client",
    Outcome.DROPPED_BY_HOOK: "returned by the broker, dropped by a filter hook of the client",
    Outcome.PENDING: "not yet pulled",
    Outcome.NOT_SUBSCRIBED: "never asked for",
    Outcome.WAITING: "waits in a system topic",
    Outcome.NEVER_STORED: "never stored in its topic",
}
"""What to call an outcome; the others are ``not delivered``."""
AGAIN = {
    Outcome.DELIVERED: "delivered again",
    Outcome.PENDING: "not yet pulled again",
    Outcome.NOT_SUBSCRIBED: "stored again in its retry topic",
}


@dataclass(frozen=True)
class Explanation:
    """What happened to a message for a consumer group, and why.

    ``subscription`` filtered the message, or would filter it, at ``pulled_at`` (ms). It is None if the group had no
    subscription or did not pull. ``preview`` is what the filters would decide on a pending message. ``uncertain`` says
    why another subscription may have filtered it. ``client_checks`` are the clients' checks of tags by client id, if
    they differ. ``present`` is the first state with the filter in force now, if another filter decided. ``start`` is
    where the group began in the message's queue; None if that is not known.
    """

    message: FoundMessage
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
    journey: Sequence[Step] = ()

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
        return ", ".join(filter(None, (first, self.progress)))

    @property
    def summary(self) -> str:
        """The reason, what the filters would decide on a message that waits, and what happened later, on one line."""
        then = None
        if self.outcome is Outcome.WAITING and self.preview is not None:
            would = "would be delivered" if self.preview.outcome is Outcome.DELIVERED else "would not be delivered"
            then = f"then it {would}: {self.preview.reason}"
        return "; ".join(filter(None, (self.decision.reason, then, self.progress)))

    @property
    def progress(self) -> str | None:
        """What happened to the message after a consumer failed on it; None if none did."""
        back = [step for step in self.journey if step.kind is StepKind.SENT_BACK]
        last = self.journey[-1] if self.journey else None
        parts = [f"sent back {counted(len(back), 'time')}"] if back else []
        if last is not None and last.kind is StepKind.DEAD:
            parts.append(f"dead since {time_text(last.at or 0)}")
        elif last is not None and last.kind is StepKind.SENT_BACK and last.due is not None:
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
    def trace(self) -> Part | None:
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


def step_text(step: Step) -> str:
    """A step of a message's journey on one line."""
    place = f"({step.topic} {step.queue_id}/{step.queue_offset})"
    if step.kind is StepKind.FILTERED:
        outcome = Outcome(step.outcome or "")
        if step.is_retry and outcome is Outcome.NOT_SUBSCRIBED:
            return f"stored again, and no subscription to the retry topic is known {place}"
        again = " again" if step.is_retry and outcome is Outcome.DELIVERED else ""
        at = f" {time_text(step.at or 0)}" if step.at is not None else ""
        return f"{VERDICTS.get(outcome, 'not delivered')}{again}{at} {place}"
    if step.kind is StepKind.DEAD:
        return f"dead since {time_text(step.at or 0)} {place}"
    what = "sent back" if step.kind is StepKind.SENT_BACK else "waited" if step.is_over else "waits"
    level = f", level {step.level}" if step.level is not None else ""
    due = f", due {time_text(step.due)}" if step.due is not None else ""
    return f"{what} {time_text(step.at or 0)}{level}{due} {place}"
