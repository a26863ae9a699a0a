"""Answers as objects that a notebook shows as HTML, and a Python prompt as text. All texts are escaped."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import repeat
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

import pyarrow as pa

from schemas.answers.explanation.explanation import Explanation
from schemas.answers.explanation.page import explanation_html, explanation_text
from schemas.answers.export import Selection, batches_of, check_groups, check_topics, schema_of
from schemas.answers.lag.lag import FIELDS, Lag
from schemas.answers.rendering import SHOWN, Shown, html_list, html_table, one_line, text_table
from schemas.answers.report.group_counts import GroupCounts
from schemas.delta.warehouse import Warehouse

if TYPE_CHECKING:
    import pandas as pd

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

    @property
    def _columns(self) -> list[str]:
        return [*(("broker_name",) if self.broker_names else ()), *self.titles]

    def _rows(self, most: int | None = None) -> list[list[Any]]:
        """The cells of the first answers, at most ``most``."""
        brokers = ([name] for name in self.broker_names) if self.broker_names else repeat(())
        return [[*broker, *self.row(answer)] for broker, answer in zip(brokers, self.answers[:most], strict=False)]

    def __str__(self) -> str:
        shown = self._rows(SHOWN)
        return text_table(self._columns, shown, len(self) - len(shown))

    def to_pandas(self) -> pd.DataFrame:
        """A DataFrame with the columns that are shown."""
        import pandas as pd

        return pd.DataFrame(self._rows(), columns=self._columns)

    def _repr_html_(self) -> str:
        shown = self._rows(SHOWN)
        return html_table(self._columns, shown, len(self) - len(shown))


@dataclass(frozen=True, repr=False)
class Lags(Results[Lag]):
    """How far groups are behind, a row for each queue."""

    def to_pandas(self) -> pd.DataFrame:
        """A DataFrame with all fields, also those that are not shown."""
        import pandas as pd

        frame = pd.DataFrame([row.fields for row in self.answers], columns=list(FIELDS))
        if self.broker_names:
            frame.insert(0, "broker_name", list(self.broker_names))
        return frame


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
        """All rows. Maps, such as properties, are dictionaries."""
        return self.to_arrow().to_pandas(maps_as_pydicts="strict")

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
