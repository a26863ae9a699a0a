"""The columns of a report's table of groups. Columns of zeros are left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from jobs.report_page.numbers import age, difference, whole
from schemas.answers.report.groups import GroupReport
from schemas.delivery_stats import MEANINGS

Value = Callable[[GroupReport], int | None]


@dataclass(frozen=True)
class Column:
    """The ``value`` of each row, formatted by ``text``. The column is left out if all are 0 and it ``is_optional``."""

    title: str
    explanation: str
    value: Value
    text: Callable[[int | None], str] = whole
    is_optional: bool = True

    def cell(self, row: GroupReport) -> str:
        return self.text(self.value(row))


class _Change(Column):
    def cell(self, row: GroupReport) -> str:
        return difference(row.counts["delivered"], row.delivered_before)


def _of_count(title: str, name: str, is_optional: bool = True) -> Column:
    return Column(title, MEANINGS[name], lambda row: row.counts[name], is_optional=is_optional)


def _less(name: str, other: str) -> Value:
    return lambda row: row.counts[name] - row.counts[other]


def columns(groups: Sequence[GroupReport], nights: int, is_compared: bool) -> list[Column]:
    """The columns between the topic and the filter. A small screen shows only the first."""
    every = [
        _of_count("Delivered", "delivered", is_optional=False),
        _Change("Change", "change of delivered since the earlier night", lambda row: row.change, is_optional=False),
        _of_count("Pending", "pending", is_optional=False),
        Column("Before", "delivered in the earlier night", lambda row: row.delivered_before, is_optional=False),
        _of_count("Scanned", "scanned", is_optional=False),
        Column("Stopped on entry", "by tags code or filter bit map: the message was not read",
               _less("scanned", "passed_stage1"), is_optional=False),
        Column("Stopped on message", "by the expression: read, and not sent",
               _less("passed_stage1", "passed_stage2"), is_optional=False),
        _of_count("Client drops", "client_drops"),
        _of_count("Hook drops", "dropped_by_hook"),
        _of_count("Errors", "evaluation_errors"),
        _of_count("False pos.", "bit_map_false_positives"),
        _of_count("Lost", "lost"),
        _of_count("Skipped", "skipped"),
        _of_count("Repeated", "repeated"),
        _of_count("Uncertain", "uncertain"),
        Column("Behind", "entries after the committed offset, as the broker's tools count",
               lambda row: row.lag.behind),
        Column("Would get", "messages among those behind that pass the group's filters", lambda row: row.lag.would_get),
        Column("Oldest", "age of the oldest of these messages", lambda row: row.lag.oldest_ms, age),
    ]  # fmt: skip
    if nights > 1:
        in_all = f"delivered in the {nights} nights of this report"
        every.append(Column(f"In {nights} nights", in_all, lambda row: row.delivered_in_all))
    comparisons = ("Change", "Before")
    return [
        column
        for column in every
        if (is_compared or column.title not in comparisons)
        and (not column.is_optional or any(column.value(row) for row in groups))
    ]
