"""The entry point for notebooks and programs: opens a warehouse and answers questions. Nothing starts Spark.

from schemas import warehouse

mqsieve = warehouse.open("/data/mqsieve")
mqsieve.why("ord-370", "cg_expensive_orders")
mqsieve.lag()
mqsieve.what_if("cg_expensive_orders", sql="price > 40.0")
mqsieve.deliveries.of(group="cg_expensive_orders").to_pandas()

In a Spark session, with Delta Lake, the same as DataFrames:

mqsieve.deliveries.to_spark(spark)
mqsieve.lag().to_spark(spark)
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import TypeVar

from answers.advise import TopicAdvice, advice
from answers.explain import Explanation, Why, only_broker_with, why_at, why_on_brokers
from answers.export import Selection
from answers.facts import BrokerFacts, NewerState, check_only_broker, open_brokers, open_facts
from answers.lag import lag_of_brokers
from answers.lint import findings, findings_of_brokers
from answers.rendering import Shown
from answers.report import GroupCounts, night_summary
from answers.results import Explanations, Lags, Results, Rows, Summary
from answers.what_if import WhatIf, only_topic, subscription_of, what_if
from filtering.findings import Finding
from filtering.subscription_data import SQL92, TAG
from filtering.time_spans import BEGINNING, FOREVER
from schemas.delta.warehouse import Warehouse
from schemas.errors import UsageError

__all__ = ["OpenWarehouse", "open"]

Answer = TypeVar("Answer")

_WHY_TITLES = ("message", "place", "group", "outcome", "reason")
_LAG_TITLES = (
    "consumer_group", "topic", "queue_id", "committed", "end", "behind", "would_get", "broker_estimate",
    "estimate_error", "oldest_ms", "ahead", "pulls",
)  # fmt: skip
_FINDING_TITLES = ("severity", "consumer_group", "topic", "code", "text", "messages", "of")
_ADVICE_TITLES = ("topic", "use", "reason", "reads_without", "reads_with", "false_positive_rate", "measured_rate")
_SUMMARY_TITLES = ("topic", "consumer_group", "scanned", "delivered", "delivered_before", "expression")


@dataclass(frozen=True, repr=False)
class OpenWarehouse(Shown):
    """Answers questions about the brokers of a warehouse. ``brokers`` are their stored data, by name; at least one.

    Answers about several brokers name the broker of each row.
    """

    brokers: Sequence[BrokerFacts]

    def __str__(self) -> str:
        names = ", ".join(facts.name for facts in self.brokers)
        return f"{self.brokers[0].warehouse.location}, {'brokers' if len(self.brokers) > 1 else 'broker'} {names}"

    @property
    def facts(self) -> BrokerFacts:
        """The stored data of the broker. Raises UsageError if there are several."""
        check_only_broker([facts.name for facts in self.brokers])
        return self.brokers[0]

    def why(self, key_or_msg_id: str, group: str | None = None) -> Explanations:
        """Explains what happened to a message for a group, or for all that ever subscribed to its topic.

        ``key_or_msg_id`` is a msgId, a unique key, or one of KEYS, which several messages may share. Raises UsageError
        if no message has it.
        """
        return self._explanations(why_on_brokers(self.brokers, key_or_msg_id, group))

    def why_at(self, topic: str, queue_id: int, queue_offset: int, group: str | None = None) -> Explanations:
        """The same for the message at a place of a queue. Raises UsageError if several brokers have one there."""
        place = (topic, queue_id, queue_offset)
        return self._explanations([why_at(only_broker_with(self.brokers, *place) or self.facts, *place, group)])

    def lag(self, group: str | None = None, topic: str | None = None, newer: NewerState | None = None) -> Lags:
        """How far groups are behind, a row for each queue. ``newer``: the state of the only broker after its night."""
        brokers = self.brokers if newer is None else [replace(self.facts, newer=newer)]
        lags = lag_of_brokers(brokers, None if group is None else [group], None if topic is None else [topic])
        rows, names = self._flat((facts, broker_lags) for facts, broker_lags in lags)
        return Lags(rows, _LAG_TITLES, attrgetter(*_LAG_TITLES), names)

    def what_if(self, group: str, sql: str | None = None, tags: str | None = None, topic: str | None = None) -> WhatIf:
        """What another filter would have delivered: an SQL92 expression, or tags such as ``paid || shipped``.

        ``topic``: which one, where the group subscribes to several. Raises UsageError where the broker would refuse
        the filter, or there is no such group, or if there are several brokers.
        """
        if (sql is None) == (tags is None):
            raise UsageError("what_if needs either sql or tags")
        facts = self.facts
        facts.subscriptions_of(group)
        text, type_ = (tags or "", TAG) if sql is None else (sql, SQL92)
        wanted = subscription_of(facts, group, topic or only_topic(facts, group), text, type_)
        (change,) = what_if(facts, [wanted], (BEGINNING, FOREVER))
        return change

    def findings(self) -> Results[Finding]:
        """What is wrong with the subscriptions in force: of each broker, the worst first."""
        by_broker = findings_of_brokers(self.brokers, findings).by_broker
        rows, names = self._flat((facts, by_broker[facts.name]) for facts in self.brokers)
        return Results(rows, _FINDING_TITLES, attrgetter(*_FINDING_TITLES), names)

    def advice(self) -> Results[TopicAdvice]:
        """Whether the filter bit map pays, a row for each topic; the rates are shares of entries that do not match."""
        rows, names = self._flat((facts, advice(facts)) for facts in self.brokers)
        bit_map_cells = attrgetter(*_ADVICE_TITLES[1:])
        return Results(rows, _ADVICE_TITLES, lambda row: [row.topic, *bit_map_cells(row.bit_map)], names)

    def summary(self) -> Summary:
        """What the last night did for each group, and what needs attention, without the errors that messages show."""
        summaries = [(facts, night_summary(facts)) for facts in self.brokers]
        rows, names = self._flat((facts, night.groups) for facts, night in summaries)
        attention = [
            line for facts, night in summaries for line in self._lines(facts, [each.text for each in night.attention])
        ]
        notes = [line for facts, night in summaries for line in self._lines(facts, [*night.started, *night.notes])]
        return Summary(rows, _SUMMARY_TITLES, _summary_row, names, attention, notes)

    @property
    def deliveries(self) -> Rows:
        """Which group received which message, one row per pair."""
        return self._rows("deliveries")

    @property
    def messages(self) -> Rows:
        """The stored messages."""
        return self._rows("commitlog")

    @property
    def entries(self) -> Rows:
        """The consume queue entries."""
        return self._rows("consumequeue")

    @property
    def subscriptions(self) -> Rows:
        """The history of subscriptions."""
        return self._rows("subscriptions")

    def _rows(self, name: str) -> Rows:
        broker = self.brokers[0].name if len(self.brokers) == 1 else None
        return Rows(self.brokers[0].warehouse, name, Selection(broker))

    def _flat(self, answers: Iterable[tuple[BrokerFacts, Sequence[Answer]]]) -> tuple[list[Answer], list[str]]:
        """The answers of each broker, one after another, and the broker of each if there are several."""
        pairs = [(answer, facts.name) for facts, answers_of_broker in answers for answer in answers_of_broker]
        names = [name for _, name in pairs] if len(self.brokers) > 1 else []
        return [answer for answer, _ in pairs], names

    def _lines(self, facts: BrokerFacts, lines: Sequence[str]) -> list[str]:
        """The lines about a broker, with its name if there are several."""
        return [f"{facts.name}: {line}" for line in lines] if len(self.brokers) > 1 else list(lines)

    def _explanations(self, whys: Sequence[Why]) -> Explanations:
        rows, names = self._flat((each.facts, list(each)) for each in whys)
        return Explanations(rows, _WHY_TITLES, _why_row, names)


def open(folder: str | Path, broker: str | None = None) -> OpenWarehouse:
    """The warehouse in a folder or an object store. ``broker``: ask only this one; default: all of the warehouse.

    Raises UsageError if there is no warehouse, or if it is not as its ledger says.
    """
    warehouse = Warehouse.at(os.fspath(folder))
    return OpenWarehouse(open_brokers(warehouse) if broker is None else [open_facts(warehouse, broker)])


def __dir__() -> list[str]:
    return __all__


def _why_row(each: Explanation) -> tuple[str, ...]:
    return each.message.name, each.message.place, each.consumer_group, str(each.outcome), each.decision.reason


def _summary_row(group: GroupCounts) -> tuple[str | int | None, ...]:
    counts = group.counts
    return (
        group.topic, group.consumer_group, counts["scanned"], counts["delivered"], group.delivered_before,
        group.expression,
    )  # fmt: skip
