"""What happened to a message for a consumer group, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from filtering.broker_config import BrokerConfig
from filtering.explanation.decision import Decision, Outcome
from filtering.explanation.nearest_miss import NearestMiss, nearest_miss
from filtering.explanation.trace import Part, trace
from filtering.findings import expression_findings
from filtering.findings.finding import INFO
from filtering.predicate import Predicate
from filtering.subscriptions.subscription_row import SubscriptionRow
from schemas.answers.explanation.found_messages import FoundMessage
from schemas.answers.explanation.message_deliveries import Delivery
from schemas.time_text import time_text

BY_THE_TABLES = (Outcome.DELIVERED, Outcome.DROPPED_BY_CLIENT, Outcome.DROPPED_BY_HOOK)
"""Outcomes that the table deliveries stores."""


@dataclass(frozen=True)
class Explanation:
    """What happened to a message for a consumer group, and why.

    ``subscription`` filtered the message, or would filter it, at ``pulled_at`` (ms). It is None if the group had no
    subscription or did not pull. ``preview`` is what the filters would decide on a pending message. ``uncertain`` says
    why another subscription may have filtered it. ``client_checks`` are the clients' checks of tags by client id, if
    they differ. ``present`` is the first state with the filter in force now, if another filter decided.
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
        """Why the expression that stopped the message means something other than it seems to; mostly none."""
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
