"""Answers as objects that a notebook shows as HTML, and a Python prompt as text. All texts are escaped."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import repeat
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

import pyarrow as pa

from answers.explain import Explanation
from answers.explain_shown import facts, title
from answers.export import Selection, batches_of, check_groups, check_topics, read, schema_of
from answers.lag import FIELDS, Lag
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
from answers.report import GroupCounts
from schemas.delta.warehouse import Warehouse
from schemas.utc_times import with_times, with_times_in_spark

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession


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
        return super().__str__() if len(self) != 1 else facts_as_text(*self._only())

    def _repr_html_(self) -> str:
        return super()._repr_html_() if len(self) != 1 else facts_as_html(*self._only())

    def _only(self) -> tuple[str, Iterable[Fact]]:
        """The title and the facts of the only explanation."""
        return title(self.answers[0], next(iter(self.broker_names), None)), facts(self.answers[0])


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
