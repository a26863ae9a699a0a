"""The entry point for notebooks and programs: opens a warehouse and answers questions. Nothing starts Spark.

from schemas import warehouse

mqsieve = warehouse.open("/data/mqsieve")
mqsieve.why("ord-370", "cg_expensive_orders")
mqsieve.lag()
mqsieve.what_if("cg_expensive_orders", sql="price > 40.0")
mqsieve.deliveries.of(group="cg_expensive_orders").to_pandas()
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from filtering.delivery.pull_window import BEGINNING, FOREVER
from filtering.findings import Finding
from filtering.subscription_data import SQL92, TAG
from schemas.answers.advice import TopicAdvice, advice
from schemas.answers.explanation.explain import Explanation
from schemas.answers.explanation.why import Why, why, why_at
from schemas.answers.export import Selection
from schemas.answers.facts import BrokerFacts, open_facts
from schemas.answers.findings import findings
from schemas.answers.lag.lag import lag
from schemas.answers.lag.standings import CommittedOffsets
from schemas.answers.plain_text import Shown
from schemas.answers.report.night_summary import GroupCounts, night_summary
from schemas.answers.results import Explanations, Lags, Results, Rows, Summary
from schemas.answers.what_if.tried_subscriptions import only_topic, subscription_of
from schemas.answers.what_if.what_if import WhatIf, what_if
from schemas.delta.warehouse import Warehouse
from schemas.errors import UsageError

__all__ = ["OpenWarehouse", "open"]

_WHY_TITLES = ("message", "place", "group", "outcome", "reason")
_LAG_TITLES = (
    "consumer_group", "topic", "queue_id", "committed", "end", "lag", "exact_lag", "broker_estimate",
    "oldest_pending_ms",
)  # fmt: skip
_FINDING_TITLES = ("severity", "consumer_group", "topic", "code", "text", "messages", "of")
_ADVICE_TITLES = ("topic", "use", "reason", "reads_without", "reads_with", "false_positive_rate", "measured_rate")
_SUMMARY_TITLES = ("topic", "consumer_group", "scanned", "delivered", "delivered_before", "expression")


@dataclass(frozen=True, repr=False)
class OpenWarehouse(Shown):
    """Answers questions about one broker. ``facts`` are its stored data."""

    facts: BrokerFacts

    def __str__(self) -> str:
        return f"{self.facts.warehouse.location}, broker {self.facts.name}"

    def why(self, key_or_msg_id: str, group: str | None = None) -> Explanations:
        """Explains what happened to a message for a group, or for all that ever subscribed to its topic.

        ``key_or_msg_id`` is a msgId, a unique key, or one of KEYS, which several messages may share. Raises UsageError
        if no message has it.
        """
        return _explanations(why(self.facts, key_or_msg_id, group))

    def why_at(self, topic: str, queue_id: int, queue_offset: int, group: str | None = None) -> Explanations:
        """The same for the message at a place of a queue."""
        return _explanations(why_at(self.facts, topic, queue_id, queue_offset, group))

    def lag(self, group: str | None = None, topic: str | None = None, newer: CommittedOffsets | None = None) -> Lags:
        """How far groups are behind, a row for each queue."""
        rows = lag(self.facts, newer, None if group is None else [group], None if topic is None else [topic])
        return Lags(rows, _LAG_TITLES, lambda row: [getattr(row, name) for name in _LAG_TITLES])

    def what_if(self, group: str, sql: str | None = None, tags: str | None = None, topic: str | None = None) -> WhatIf:
        """What another filter would have delivered: an SQL92 expression, or tags such as ``paid || shipped``.

        ``topic``: which one, where the group subscribes to several. Raises UsageError where the broker would refuse
        the filter, or there is no such group.
        """
        if (sql is None) == (tags is None):
            raise UsageError("what_if needs either sql or tags")
        self.facts.subscriptions_of(group)
        text, type_ = (tags or "", TAG) if sql is None else (sql, SQL92)
        wanted = subscription_of(group, topic or only_topic(self.facts, group), text, type_, self.facts.broker)
        (found,) = what_if(self.facts, [wanted], (BEGINNING, FOREVER))
        return found

    def findings(self) -> Results[Finding]:
        """What is wrong with the subscriptions in force, the worst first."""
        return Results(
            findings(self.facts), _FINDING_TITLES, lambda row: [getattr(row, name) for name in _FINDING_TITLES]
        )

    def advice(self) -> Results[TopicAdvice]:
        """Whether the filter bit map pays, a row for each topic; the rates are shares of entries that do not match."""
        return Results(
            advice(self.facts),
            _ADVICE_TITLES,
            lambda row: [row.topic, *(getattr(row.bit_map, name) for name in _ADVICE_TITLES[1:])],
        )

    def summary(self) -> Summary:
        """What the last night did for each group, and what needs a person's attention."""
        found = night_summary(self.facts)
        return Summary(
            found.groups, _SUMMARY_TITLES, _summary_row, found.attention, [*found.notes, *found.not_replayed]
        )

    @property
    def deliveries(self) -> Rows:
        """Which group received which message, one row per pair."""
        return self._rows("deliveries")

    @property
    def messages(self) -> Rows:
        """The stored messages."""
        return self._rows("commitlog")

    @property
    def subscriptions(self) -> Rows:
        """The history of subscriptions."""
        return self._rows("subscriptions")

    def _rows(self, name: str) -> Rows:
        return Rows(self.facts.warehouse, name, Selection(self.facts.name))


def open(folder: str | Path, broker: str | None = None) -> OpenWarehouse:
    """The warehouse in a folder or an object store. ``broker``: the brokerName, required if there are several.

    Raises UsageError if there is no warehouse, or if it is not as its ledger says.
    """
    return OpenWarehouse(open_facts(Warehouse.at(str(folder)), broker))


def __dir__() -> list[str]:
    return __all__


def _explanations(found: Why) -> Explanations:
    return Explanations(list(found), _WHY_TITLES, _why_row)


def _why_row(each: Explanation) -> tuple[str, ...]:
    return each.message.name, each.message.place, each.consumer_group, str(each.outcome), each.decision.reason


def _summary_row(group: GroupCounts) -> tuple[str | int | None, ...]:
    counts = group.counts
    return (
        group.topic, group.consumer_group, counts["scanned"], counts["delivered"], group.delivered_before,
        group.expression,
    )  # fmt: skip
