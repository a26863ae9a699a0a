"""The columns of a report's table of groups. Those in which every number is 0 are left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from jobs.report_page.numbers import age, difference, whole
from schemas.answers.report_groups import GroupReport

Value = Callable[[GroupReport], int | None]


@dataclass(frozen=True)
class Column:
    """``value`` of a row, as ``text`` writes it. ``is_optional``: left out where no row has a value but 0."""

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
    """The columns between the topic and the filter. The first are what a small screen shows."""
    every = [
        Column("Delivered", "messages that the group got", _count("delivered"), is_optional=False),
        _Change("Change", "delivered, more or less than in the night compared with", _changed, is_optional=False),
        Column("Pending", "entries that the group has yet to pull", _count("pending"), is_optional=False),
        Column("Before", "delivered in the night compared with", _before, is_optional=False),
        Column("Looked at", "entries that the group pulled, and the filters judged", _count("scanned"),
               is_optional=False),
        Column("Stopped on entry", "by tags code or filter bit map: the message was not read",
               _less("scanned", "passed_stage1"), is_optional=False),
        Column("Stopped on message", "by the expression: read, and not sent",
               _less("passed_stage1", "passed_stage2"), is_optional=False),
        Column("Client drops", "sent, and dropped by the client's tag check", _count("hash_collisions")),
        Column("Hook drops", "sent, and dropped by a hook of the client", _count("dropped_by_hook")),
        Column("Errors", "the expression fails on the message, which is no match", _count("evaluation_errors")),
        Column("False pos.", "passed by the filter bit map, stopped by the expression",
               _count("bit_map_false_positives")),
        Column("Lost", "deleted by the broker before the group pulled them", _count("lost")),
        Column("Skipped", "never pulled: before the group's first start, or jumped over by a reset", _count("skipped")),
        Column("Repeated", "pulled again after a reset", _count("repeated")),
        Column("Uncertain", "stored just before the expression changed: either may have filtered them",
               _count("uncertain")),
        Column("Behind", "entries after the offset that the broker knows, as its own tools count", _behind),
        Column("Would get", "of those behind, messages that the group would get", _exact),
        Column("Oldest", "age of the oldest message that the group would get", _oldest, age),
        Column(f"In {nights} nights", f"delivered in the {nights} nights of this report", _in_all),
    ]  # fmt: skip
    of_two = ("Change", "Before")
    return [
        column
        for column in every
        if (is_compared or column.title not in of_two)
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
