"""Answers as objects that a notebook shows as HTML, and a Python prompt as text. All texts are escaped."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import repeat
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

import pyarrow as pa

from answers.explain import Explanation, step_text
from answers.export import Selection, batches_of, check_groups, check_topics, read, schema_of
from answers.lag import FIELDS, Lag
from answers.rendering import SHOWN, Shown, html_list, html_table, one_line, text_table
from answers.report import GroupCounts
from filtering.delivery.block_schema import Outcome
from filtering.explanation import leaf_values
from filtering.sql92.trace import ExpressionPart
from schemas.delta.warehouse import Warehouse
from schemas.utc_times import with_times, with_times_in_spark

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession

    from answers.what_if import ChangedMessages, WhatIf
    from filtering.subscriptions.subscription_row import SubscriptionRow


# Parts of an answer, as HTML and as text: a label, which may be empty, and a text or a table.

Table = tuple[Sequence[str], list[Sequence[str]], int]
Part = tuple[str, str | Table]


def _html(label: str, content: str | Table) -> str:
    if isinstance(content, tuple):
        return html_table(*content)
    return f"<p>{escape(f'{label[0].upper()}{label[1:]}: {content}' if label else content)}</p>"


def _text(label: str, content: str | Table) -> str:
    return text_table(*content) if isinstance(content, tuple) else one_line(f"{label}: {content}" if label else content)


# Explanations.


def explanation_html(explanation: Explanation) -> str:
    """One explanation: the outcome, the leaves with their values, and what would have matched."""
    parts = [
        f"<p><b>{escape(explanation.message.name)}</b> {escape(explanation.message.place)} → "
        f"<b>{escape(explanation.consumer_group)}</b>: {explanation.outcome}</p>",
        *(_html(*part) for part in _explained(explanation)),
    ]
    if explanation.nearest_miss is not None:
        preposition, _, change = explanation.nearest_miss.would_match.partition(" ")
        parts.append(f"<p>Would match {preposition} <code>{escape(change)}</code></p>")
    if len(explanation.journey) > 1:
        steps = "".join(f"<li>{escape(step_text(step))}</li>" for step in explanation.journey)
        parts.append(f"<p>Journey:</p><ol>{steps}</ol>")
    return "".join(parts)


def explanation_text(explanation: Explanation) -> str:
    """The same as :func:`explanation_html`, line by line."""
    message = explanation.message
    lines = [
        one_line(f"{message.name} {message.place} → {explanation.consumer_group}: {explanation.outcome}"),
        *(_text(*part) for part in _explained(explanation)),
    ]
    if explanation.nearest_miss is not None:
        lines.append(one_line(f"would match {explanation.nearest_miss.would_match}"))
    if len(explanation.journey) > 1:
        lines += [one_line(f"journey: {step_text(step)}") for step in explanation.journey]
    return "\n".join(lines)


def _explained(explanation: Explanation) -> Iterator[Part]:
    """Why, what counted then and counts now, and what is suspicious or not certain."""
    yield "", explanation.decision.reason
    if explanation.start is not None and explanation.is_from_before:
        yield "began", explanation.start.text
    if explanation.filter_change is not None:
        yield "filter", explanation.filter_change
    if explanation.preview is not None:
        yield "now", f"{explanation.preview.outcome}, {explanation.preview.reason}"
    if explanation.trace is not None and explanation.outcome is not Outcome.DELIVERED:
        yield "", _leaves(explanation.trace)
    yield from (("lint", str(finding)) for finding in explanation.findings)
    if explanation.uncertain is not None:
        yield "uncertain", explanation.uncertain


def _leaves(trace: ExpressionPart) -> Table:
    """The titles and rows of a table of the leaves, and the number of leaves that it does not show."""
    leaves = list(trace.leaves())
    rows = [
        (leaf.text, leaf.result.value, leaf_values(leaf), "decides" if leaf.decides else "") for leaf in leaves[:SHOWN]
    ]
    return ("part", "is", "since", ""), [*rows], max(0, len(leaves) - SHOWN)


Answer = TypeVar("Answer")


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
        """A DataFrame of Spark with the columns of :meth:`to_pandas`. A column without any value is one of texts."""
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
        if len(self) != 1:
            return super().__str__()
        return "\n".join(
            [explanation_text(self.answers[0]), *(one_line(f"broker {name}") for name in self.broker_names)]
        )

    def _repr_html_(self) -> str:
        if len(self) != 1:
            return super()._repr_html_()
        brokers = "".join(f"<p>Broker {escape(name)}</p>" for name in self.broker_names)
        return explanation_html(self.answers[0]) + brokers


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


# What-if.


NOT_KNOWN_OF_POPS = (
    "the group pops: what its pops read is compared. When others would have been popped is not known, nor what would "
    "have been acknowledged or come again"
)
NOTHING_TO_COMPARE = "there is no message to compare"
"""Said where the topic has no message in the period."""


def what_if_html(change: WhatIf) -> str:
    """The counts, how the two filters relate, findings, and the newest messages that are gained and lost."""
    whose = f"<b>{escape(change.new.consumer_group)}</b> on {escape(change.new.topic)}"
    filters = [("in force", _filter(change.old)), ("instead", _filter(None if change.ends else change.new))]
    counts = (len(change.gained), len(change.lost), change.kept, change.pending)
    parts = [
        f"<p>{whose}</p>",
        html_table(("", "filter"), filters),
        html_table(("gained", "lost", "kept", "pending"), [counts]),
    ]
    parts += [_html(*part) for part in _compared(change)]
    parts.append(html_list("Findings", [f"{each.severity}: {each.text}" for each in change.findings]))
    parts += [_side("Gained", change.gained), _side("Lost", change.lost)]
    return "".join(parts)


def what_if_text(change: WhatIf) -> str:
    """The same as :func:`what_if_html` without the messages, line by line."""
    counts = (
        f"{len(change.gained):,} gained, {len(change.lost):,} lost, {change.kept:,} kept, {change.pending:,} pending"
    )
    lines = [
        f"{change.new.consumer_group} on {change.new.topic}: {counts}",
        f"in force: {_filter(change.old)}",
        f"instead: {_filter(None if change.ends else change.new)}",
    ]
    lines += [_text(*part) for part in _compared(change)]
    lines += [f"{each.severity}: {each.text}" for each in change.findings]
    return "\n".join(map(one_line, lines))


def _compared(change: WhatIf) -> Iterator[Part]:
    """What cannot be compared, and how the new filter compares with the old one."""
    if not change.stored:
        yield "", NOTHING_TO_COMPARE
    if change.is_popping:
        yield "", NOT_KNOWN_OF_POPS
    if change.deliveries_differ:
        by_change = f"{change.gained_by_change:,} gained, {change.lost_by_change:,} lost"
        yield "against the filter in force, as if it had always been", by_change
    if change.relation is not None:
        yield "the new filter against the old one", change.relation.kind.value


def _filter(row: SubscriptionRow | None) -> str:
    return "no subscription" if row is None else row.filter_text


def _side(title: str, side: ChangedMessages) -> str:
    if not len(side):
        return ""
    traits = [f"{each.share:.0%} have {each.text} ({each.share_of_others:.0%} of the others)" for each in side.traits]
    rows = [
        (f"{row['queue_id']}/{row['queue_offset']}", row["keys"], _properties(row["properties"] or {}))
        for row in side.samples
    ]
    samples = html_table(("queue/offset", "keys", "properties"), rows, len(side) - len(rows))
    return html_list(f"{title}: what they have in common", traits) + f"<p><b>{title}</b></p>" + samples


def _properties(properties: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={text!r}" for name, text in properties.items())
