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
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from html import escape
from itertools import repeat
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

import pyarrow as pa

from answers.advise import TopicAdvice, advice
from answers.explain import Explanation, Why, explanation_facts, only_broker_with, title, why_at, why_on_brokers
from answers.export import Selection, batches_of, check_groups, check_topics, read, schema_of
from answers.facts import BrokerFacts, NewerState, check_only_broker, open_brokers, open_facts
from answers.lag import FIELDS, Lag, lag_of_brokers
from answers.lint import findings, findings_of_brokers
from answers.rendering import (
    SHOWN,
    Fact,
    Shown,
    facts_as_html,
    facts_as_text,
    html_list,
    html_table,
    one_line,
    text_table,
)
from answers.report import GroupCounts, night_summary
from answers.what_if import WhatIf, subscription_of, what_if
from filtering.findings import Finding
from filtering.subscription_data import SQL92, TAG
from filtering.time_spans import BEGINNING, FOREVER
from schemas.delta.warehouse import Warehouse
from schemas.errors import UsageError
from schemas.tables import with_times, with_times_in_spark

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession

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
        """How far groups are behind, a row for each queue.

        ``newer``: offsets and subscriptions that the running broker had after the last night. Raises UsageError if the
        warehouse has several brokers then.
        """
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
        wanted = subscription_of(facts, group, topic or facts.only_topic_of(group), text, type_)
        (change,) = what_if(facts, [wanted], (BEGINNING, FOREVER))
        return change

    def findings(self) -> Results[Finding]:
        """What is wrong with the subscriptions in force: of each broker, the worst first."""
        by_broker = findings_of_brokers(self.brokers, findings).by_broker
        rows, names = self._flat((facts, by_broker[facts.name]) for facts in self.brokers)
        return Results(rows, _FINDING_TITLES, attrgetter(*_FINDING_TITLES), names)

    def advice(self) -> Results[TopicAdvice]:
        """Whether the filter bit map is worth its cost, a row for each topic.

        The rates are shares of the entries that do not match.
        """
        rows, names = self._flat((facts, advice(facts)) for facts in self.brokers)
        bit_map_cells = attrgetter(*_ADVICE_TITLES[1:])
        return Results(rows, _ADVICE_TITLES, lambda row: [row.topic, *bit_map_cells(row.bit_map)], names)

    def summary(self) -> Summary:
        """What the last night did for each group, and what needs attention.

        Mistakes in subscriptions that only show on real messages are left out; :meth:`findings` has them.
        """
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


def _why_row(each: Explanation) -> tuple[str, ...]:
    return each.message.name, each.message.place, each.consumer_group, str(each.outcome), each.decision.reason


def _summary_row(group: GroupCounts) -> tuple[str | int | None, ...]:
    counts = group.counts
    return (
        group.topic, group.consumer_group, counts["scanned"], counts["delivered"], group.delivered_before,
        group.expression,
    )  # fmt: skip


# What answers are: a notebook shows them as HTML, and a Python prompt as text.


@dataclass(frozen=True, repr=False)
class Results(Shown, Sequence[Answer], Generic[Answer]):
    """A list of answers. ``row`` returns the cells of one answer, under ``titles``.

    ``broker_names`` has the broker of each answer, which is its first cell; it is empty if one broker was asked.
    """

    answers: Sequence[Answer]
    titles: Sequence[str]
    row: Callable[[Answer], Sequence[Any]]
    broker_names: Sequence[str]

    @overload
    def __getitem__(self, index: int) -> Answer: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Answer]: ...
    def __getitem__(self, index: int | slice) -> Answer | Sequence[Answer]:
        return self.answers[index]

    def __len__(self) -> int:
        return len(self.answers)

    def _table(
        self, titles: Iterable[str], row: Callable[[Answer], Iterable[Any]], most: int | None = None
    ) -> tuple[list[str], list[list[Any]]]:
        """The columns, and the cells of the first answers, at most ``most``, each with its broker if there are some."""
        columns = [*(("broker_name",) if self.broker_names else ()), *titles]
        brokers = ([name] for name in self.broker_names) if self.broker_names else repeat(())
        return columns, [[*broker, *row(answer)] for broker, answer in zip(brokers, self.answers[:most], strict=False)]

    def __str__(self) -> str:
        columns, shown = self._table(self.titles, self.row, SHOWN)
        return text_table(columns, shown, len(self) - len(shown))

    def _data(self) -> tuple[list[str], list[list[Any]]]:
        """The columns and the rows of data frames."""
        return self._table(self.titles, self.row)

    def to_pandas(self) -> pd.DataFrame:
        """A DataFrame of the answers."""
        import pandas as pd

        columns, rows = self._data()
        return pd.DataFrame(rows, columns=columns)

    def to_spark(self, spark: SparkSession) -> DataFrame:
        """A DataFrame of Spark with the columns of :meth:`to_pandas`. A column of nulls only has the type string."""
        columns, rows = self._data()
        arrays = [pa.array([row[i] for row in rows]) for i in range(len(columns))]
        typed = [array.cast(pa.string()) if pa.types.is_null(array.type) else array for array in arrays]
        return spark.createDataFrame(pa.table(typed, names=columns))

    def _repr_html_(self) -> str:
        columns, shown = self._table(self.titles, self.row, SHOWN)
        return html_table(columns, shown, len(self) - len(shown))


@dataclass(frozen=True, repr=False)
class Lags(Results[Lag]):
    """How far groups are behind, a row for each queue."""

    def _data(self) -> tuple[list[str], list[list[Any]]]:
        """All fields, also those that are not shown."""
        return self._table(FIELDS, lambda lag: lag.fields.values())


@dataclass(frozen=True, repr=False)
class Explanations(Results[Explanation]):
    """Explanations of one message or of several, for one group or for all."""

    def __str__(self) -> str:
        return super().__str__() if len(self) != 1 else facts_as_text(*self._only())

    def _repr_html_(self) -> str:
        return super()._repr_html_() if len(self) != 1 else facts_as_html(*self._only())

    def _only(self) -> tuple[str, Iterable[Fact]]:
        """The title and the facts of the only explanation."""
        (only,), broker = self.answers, next(iter(self.broker_names), None)
        return title(only, broker), explanation_facts(only)


@dataclass(frozen=True, repr=False)
class Summary(Results[GroupCounts]):
    """A night: a row for each group and topic, problems to act on, and facts to know."""

    attention: Sequence[str]
    notes: Sequence[str]

    def __str__(self) -> str:
        return "\n".join([*map(one_line, (*self.attention, *self.notes)), super().__str__()])

    def _repr_html_(self) -> str:
        attention = html_list("Needs attention", self.attention)
        return attention + html_list("Notes", self.notes) + super()._repr_html_()


@dataclass(frozen=True, repr=False)
class Rows(Shown):
    """The rows of a table in the form that readers see. They are read on each use."""

    warehouse: Warehouse
    name: str
    selection: Selection

    def of(self, group: str | None = None, topic: str | None = None) -> Rows:
        """Only the rows of a group, and of a topic. Raises UsageError if one of them is unknown.

        Reading them raises UsageError if the table has no such column.
        """
        check_groups(self.warehouse, () if group is None else [group])
        check_topics(self.warehouse, self.name, () if topic is None else [topic])
        groups = self.selection.groups if group is None else [group]
        topics = self.selection.topics if topic is None else [topic]
        return Rows(self.warehouse, self.name, Selection(self.selection.broker_name, groups, topics))

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, part by part."""
        return batches_of(self.warehouse, self.name, self.selection)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for batch in self.batches():
            yield from batch.to_pylist(maps_as_pydicts="strict")

    def to_arrow(self) -> pa.Table:
        """All rows."""
        schema = schema_of(self.name, self.selection.columns)
        return pa.Table.from_batches([batch.cast(schema) for batch in self.batches()], schema)

    def to_pandas(self) -> pd.DataFrame:
        """All rows, with a timestamp beside each time in milliseconds. Maps, such as properties, are dictionaries."""
        return with_times(self.to_arrow()).to_pandas(maps_as_pydicts="strict")

    def to_spark(self, spark: SparkSession) -> DataFrame:
        """All rows, read by Spark, with a timestamp beside each time in milliseconds."""
        rows = with_times_in_spark(read(spark, self.warehouse, self.name))
        if self.selection.broker_name is not None:
            rows = rows.where(rows["broker_name"] == self.selection.broker_name)
        for column, values in (("consumer_group", self.selection.groups), ("topic", self.selection.topics)):
            if values is not None:
                rows = rows.where(rows[column].isin(list(values)))
        return rows

    def __str__(self) -> str:
        caption, titles, rows = self._shown()
        return "\n".join([*caption, text_table(titles, rows)])

    def _repr_html_(self) -> str:
        caption, titles, rows = self._shown()
        return "".join(f"<p>{escape(line)}</p>" for line in caption) + html_table(titles, rows)

    def _shown(self) -> tuple[list[str], list[str], list[list[Any]]]:
        """A caption if there may be more rows, the column names, and at most SHOWN rows."""
        shown: list[dict[str, Any]] = []
        for batch in self.batches():
            shown += batch.slice(0, SHOWN - len(shown)).to_pylist(maps_as_pydicts="strict")
            if len(shown) == SHOWN:
                break
        caption = [f"the first {SHOWN} rows of {self.name}"] if len(shown) == SHOWN else []
        titles = schema_of(self.name, self.selection.columns).names
        return caption, titles, [list(row.values()) for row in shown]


def open(folder: str | Path, broker: str | None = None) -> OpenWarehouse:
    """The warehouse in a folder or an object store. ``broker``: ask only this one; default: all of the warehouse.

    Raises UsageError if there is no warehouse, or if it is not as its ledger says.
    """
    warehouse = Warehouse.at(os.fspath(folder))
    return OpenWarehouse(open_brokers(warehouse) if broker is None else [open_facts(warehouse, broker)])


def __dir__() -> list[str]:
    return __all__
