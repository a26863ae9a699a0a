"""Cuts the audited log into parts. Audits of messages and entries go through it part by part, in little memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from filtering.delivery.pull_window import FOREVER
from schemas.audits.scope import Scope
from schemas.commitlog import COMMITLOG

MESSAGES_IN_A_PART = 1 << 20
"""Unless one file has more."""


@dataclass(frozen=True)
class AuditedPart:
    """Physical offsets of a broker's log, the second exclusive. ``number``: its place among all parts."""

    number: int
    broker_name: str
    begin: int
    end: int

    @property
    def condition(self) -> str:
        """SQL that holds for the rows of commitlog and consumequeue in the part."""
        return f"{_from(self.broker_name, self.begin)} AND commitlog_offset < {self.end}"


def whole_log(scope: Scope) -> str:
    """SQL that holds for the rows of commitlog and consumequeue from the first audited physical offset on."""
    return " OR ".join(f"({_from(name, begin)})" for name, begin in scope.audited_from.items()) or "false"


def _from(broker_name: str, begin: int) -> str:
    name = broker_name.replace("'", "''")
    return f"broker_name = '{name}' AND commitlog_offset >= {begin}"


def log_parts(scope: Scope) -> list[AuditedPart]:
    """The log of each broker from the first audited physical offset on, in order."""
    ranges = [(name, *each) for name in scope.audited_from for each in _ranges(scope, name)]
    return [AuditedPart(number, *each) for number, each in enumerate(ranges)]


def _ranges(scope: Scope, broker_name: str) -> Iterator[tuple[int, int]]:
    files = [file for file in scope.files_of_range(COMMITLOG) if file.broker_name == broker_name]
    begin, messages = scope.audited_from[broker_name], 0
    for file in sorted(files, key=lambda file: file.least["commitlog_offset"]):
        first = file.least["commitlog_offset"]
        if messages and messages + file.rows > MESSAGES_IN_A_PART and first > begin:
            yield begin, first
            begin, messages = first, 0
        messages += file.rows
    yield begin, FOREVER
