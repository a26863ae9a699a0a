"""The columns of a report's table of groups. Columns of zeros are left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from jobs.report_page.numbers import age, difference, whole
from schemas.answers.report.groups import GroupReport
from schemas.delivery_stats import client_drops

Value = Callable[[GroupReport], int | None]


@dataclass(frozen=True)
class Column:
    """One column: the ``value`` of a row, formatted by ``text``.

    ``is_optional``: the column is left out if the value is 0 in all rows.
    """

    title: str
    explanation: str
    value: Value
    text: Callable[[int | None], str] = whole
    is_optional: bool = True

    def cell(self, row: GroupReport) -> str:
        return self.text(self.value(row))


class _Change(Column):
    def cell(self, row: GroupReport) -> str:
        before = row.before
        return difference(row.counts["delivered"], before["delivered"] if before is not None else None)


def _count(name: str) -> Value:
    return lambda row: row.counts[name]


def _less(name: str, other: str) -> Value:
    return lambda row: row.counts[name] - row.counts[other]


def columns(groups: Sequence[GroupReport], nights: int, is_compared: bool) -> list[Column]:
    """The columns between the topic and the filter. A small screen shows only the first."""
    every = [
        Column("Delivered", "messages that the group received", _count("delivered"), is_optional=False),
        _Change("Change", "change of delivered since the earlier night", _changed, is_optional=False),
        Column("Pending", "entries that the group has not pulled yet", _count("pending"), is_optional=False),
        Column("Before", "delivered in the earlier night", _before, is_optional=False),
        Column("Looked at", "entries that the group's pulls went past", _count("scanned"),
               is_optional=False),
        Column("Stopped on entry", "by tags code or filter bit map: the message was not read",
               _less("scanned", "passed_stage1"), is_optional=False),
        Column("Stopped on message", "by the expression: read, and not sent",
               _less("passed_stage1", "passed_stage2"), is_optional=False),
        Column("Client drops", "sent, and dropped by the client's tag check", lambda row: client_drops(row.counts)),
        Column("Hook drops", "sent, and dropped by a hook of the client", _count("dropped_by_hook")),
        Column("Errors", "the expression fails on the message, which counts as no match", _count("evaluation_errors")),
        Column("False pos.", "passed by the filter bit map, stopped by the expression",
               _count("bit_map_false_positives")),
        Column("Lost", "deleted by the broker before the group pulled them", _count("lost")),
        Column("Skipped", "never pulled: before the group's first start, or jumped over by a reset", _count("skipped")),
        Column("Repeated", "pulled again after a reset", _count("repeated")),
        Column("Uncertain", "stored just before or after the filter changed: the old or the new one filtered them",
               _count("uncertain")),
        Column("Behind", "entries after the committed offset, as the broker's tools count", _behind),
        Column("Would get", "messages among those behind that pass the group's filters", _exact),
        Column("Oldest", "age of the oldest of these messages", _oldest, age),
        Column(f"In {nights} nights", f"delivered in the {nights} nights of this report", _in_all),
    ]  # fmt: skip
    comparisons = ("Change", "Before")
    return [
        column
        for column in every
        if (is_compared or column.title not in comparisons)
        and (nights > 1 or column.value is not _in_all)
        and (not column.is_optional or any(column.value(row) for row in groups))
    ]


def _changed(row: GroupReport) -> int:
    return row.change


def _before(row: GroupReport) -> int | None:
    return row.before["delivered"] if row.before is not None else None


def _behind(row: GroupReport) -> int:
    return row.lag.behind


def _exact(row: GroupReport) -> int:
    return row.lag.exact


def _oldest(row: GroupReport) -> int | None:
    return row.lag.oldest_ms


def _in_all(row: GroupReport) -> int:
    return row.delivered_in_all
