"""Answers as objects that a notebook shows as HTML tables. All texts are escaped."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

import pyarrow as pa

from filtering.explanation.decision import Outcome
from filtering.explanation.reasons import leaf_values
from schemas.answers.explain import Explanation
from schemas.answers.export import Selection, batches_of, schema_of
from schemas.answers.html import SHOWN, html_list, html_table
from schemas.answers.night_summary import GroupCounts
from schemas.delta.warehouse import Warehouse

if TYPE_CHECKING:
    import pandas as pd

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Results(Sequence[Answer], Generic[Answer]):
    """A list of answers. ``row`` returns the cells of one answer, under ``titles``."""

    answers: Sequence[Answer]
    titles: Sequence[str]
    row: Callable[[Answer], Sequence[Any]]

    @overload
    def __getitem__(self, index: int) -> Answer: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Answer]: ...
    def __getitem__(self, index: int | slice) -> Answer | Sequence[Answer]:
        return self.answers[index]

    def __len__(self) -> int:
        return len(self.answers)

    def __str__(self) -> str:
        """A table of text."""
        cells = [["" if cell is None else str(cell) for cell in self.row(answer)] for answer in self.answers]
        widths = [max(map(len, column)) for column in zip(self.titles, *cells, strict=True)]
        lines = [[*self.titles], *cells]
        return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)

    def to_pandas(self) -> pd.DataFrame:
        """A DataFrame with the columns that are shown."""
        import pandas as pd

        return pd.DataFrame([self.row(answer) for answer in self.answers], columns=list(self.titles))

    def _repr_html_(self) -> str:
        shown = self.answers[:SHOWN]
        return html_table(self.titles, [self.row(answer) for answer in shown], len(self) - len(shown))


@dataclass(frozen=True)
class Explanations(Results[Explanation]):
    """Explanations of one message or of several, for one group or for all."""

    def _repr_html_(self) -> str:
        return explanation_html(self.answers[0]) if len(self) == 1 else super()._repr_html_()


@dataclass(frozen=True)
class Summary(Results[GroupCounts]):
    """A night: a row for each group and topic, problems to act on, and facts to know."""

    attention: Sequence[str]
    notes: Sequence[str]

    def _repr_html_(self) -> str:
        attention = html_list("Needs attention", self.attention)
        return attention + html_list("Notes", self.notes) + super()._repr_html_()


def explanation_html(explanation: Explanation) -> str:
    """One explanation: the outcome, the leaves with their values, and what would have matched."""
    parts = [
        f"<p><b>{escape(explanation.message.name)}</b> {escape(explanation.message.place)} → "
        f"<b>{escape(explanation.consumer_group)}</b>: {explanation.outcome}</p>",
        f"<p>{escape(explanation.decision.reason)}</p>",
    ]
    if explanation.filter_change is not None:
        parts.append(f"<p>Filter: {escape(explanation.filter_change)}</p>")
    if explanation.preview is not None:
        parts.append(f"<p>Now: {explanation.preview.outcome}, {escape(explanation.preview.reason)}</p>")
    if explanation.trace is not None and explanation.outcome is not Outcome.DELIVERED:
        leaves = list(explanation.trace.leaves())
        rows = [
            (leaf.text, leaf.result.value, leaf_values(leaf), "decides" if leaf.decides else "")
            for leaf in leaves[:SHOWN]
        ]
        parts.append(html_table(("part", "is", "since", ""), rows, max(0, len(leaves) - SHOWN)))
    if explanation.uncertain is not None:
        parts.append(f"<p>Uncertain: {escape(explanation.uncertain)}</p>")
    if explanation.nearest_miss is not None:
        parts.append(f"<p>Would match with <code>{escape(explanation.nearest_miss.text)}</code></p>")
    return "".join(parts)


@dataclass(frozen=True)
class Rows:
    """The rows of a table in the form that readers see. They are read on each use."""

    warehouse: Warehouse
    name: str
    selection: Selection

    def of(self, group: str | None = None, topic: str | None = None) -> Rows:
        """Only the rows of a group, and of a topic. Reading them raises UsageError if the table has no such column."""
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
        """All rows."""
        return self.to_arrow().to_pandas()

    def _repr_html_(self) -> str:
        shown: list[dict[str, Any]] = []
        for batch in self.batches():
            shown += batch.slice(0, SHOWN - len(shown)).to_pylist(maps_as_pydicts="strict")
            if len(shown) == SHOWN:
                break
        titles = list(shown[0]) if shown else []
        first = f"<p>the first {SHOWN} rows of {escape(self.name)}</p>" if len(shown) == SHOWN else ""
        return first + html_table(titles, [list(row.values()) for row in shown])
