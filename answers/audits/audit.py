"""Parses the audits that conf/audits.yaml lists."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import Enum

from filtering.frozen import frozen
from schemas.errors import UsageError
from schemas.yaml_input import load_file

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_THRESHOLD = re.compile(r"> *(\d+(?:\.\d+)?)( *%)?")
_KEYS = frozenset({"name", "about", "from", "where", "warn_if", "error_if", "caused_by", "needs", "else_skipped"})


class Severity(Enum):
    """How bad the result of an audit is. SKIPPED: the tables lack the facts that the audit needs."""

    OK = "ok"
    SKIPPED = "skipped"
    WARN = "warn"
    ERROR = "error"

    @property
    def is_failure(self) -> bool:
        """Whether an audit with this result failed."""
        return self in (Severity.WARN, Severity.ERROR)


@frozen
class Threshold:
    """The most bad rows that are allowed: a number, or with ``percent`` a share of all rows."""

    limit: float
    percent: bool

    def is_exceeded_by(self, bad_rows: int, rows: int) -> bool:
        """Whether there are more bad rows than allowed, of ``rows`` rows in all."""
        return bad_rows > (self.limit / 100 * rows if self.percent else self.limit)


@frozen
class Audit:
    """A query for bad rows: those of ``relation`` for which ``condition`` holds. Both are SQL.

    ``about`` is the sentence that holds if no row is bad. ``caused_by``: audits whose failure explains one of this.
    ``needs``: a relation; if it has no rows, the audit is skipped, for the reason ``else_skipped``.
    """

    name: str
    about: str
    relation: str
    condition: str
    warn_if: Threshold | None
    error_if: Threshold | None
    caused_by: tuple[str, ...] = ()
    needs: str | None = None
    else_skipped: str | None = None

    @property
    def query(self) -> str:
        """The SQL that returns the bad rows."""
        return f"SELECT * FROM {self.relation} WHERE {self.condition}"

    def severity(self, bad_rows: int, rows: int) -> Severity:
        """The severity of ``bad_rows`` among ``rows`` rows."""
        if self.error_if is not None and self.error_if.is_exceeded_by(bad_rows, rows):
            return Severity.ERROR
        if self.warn_if is not None and self.warn_if.is_exceeded_by(bad_rows, rows):
            return Severity.WARN
        return Severity.OK


@frozen
class AuditList:
    """Audits and the relations that they read. ``relations``: SQL by name; audits and later relations read it."""

    relations: Mapping[str, str]
    audits: Sequence[Audit]


def parse_audits(text: str, file: str) -> AuditList:
    """The audits of a YAML file. Raises UsageError if the file is not valid."""
    content = load_file(text, file)
    if not isinstance(content, dict) or not content.keys() <= {"relations", "audits"}:
        raise UsageError(f"{file}: a mapping with relations and audits is expected")
    relations = content.get("relations") or {}
    entries = content.get("audits") or []
    if not isinstance(relations, dict) or not isinstance(entries, list):
        raise UsageError(f"{file}: relations must be a mapping, and audits a list")
    for name, query in relations.items():
        if not _NAME.fullmatch(str(name)) or not isinstance(query, str):
            raise UsageError(f"{file}: relation {name}: a lower-case name and a query are expected")
    if not entries:
        raise UsageError(f"{file}: there is no audit: list them under audits")
    audits = [_audit(entry, f"{file}, audit {number}") for number, entry in enumerate(entries, 1)]
    names = [audit.name for audit in audits]
    for audit in audits:
        if names.count(audit.name) > 1:
            raise UsageError(f"{file}: two audits are called {audit.name}")
        if unknown := set(audit.caused_by) - set(names):
            raise UsageError(f"{file}: {audit.name}: caused_by names unknown audits: {', '.join(sorted(unknown))}")
    return AuditList({name: " ".join(query.split()) for name, query in relations.items()}, audits)


def _audit(entry: object, place: str) -> Audit:
    if not isinstance(entry, dict):
        raise UsageError(f"{place}: a mapping is expected")
    if unknown := entry.keys() - _KEYS:
        raise UsageError(f"{place}: unknown key {', '.join(map(str, unknown))}; keys are {', '.join(sorted(_KEYS))}")
    for key in ("name", "about", "from", "where"):
        if not isinstance(entry.get(key), str) or not entry[key].strip():
            raise UsageError(f"{place}: {key} is missing")
    if not _NAME.fullmatch(entry["name"]):
        raise UsageError(f"{place}: name {entry['name']!r}: lower-case letters, digits and _ are expected")
    causes = entry.get("caused_by", [])
    if not isinstance(causes, list) or not all(isinstance(cause, str) for cause in causes):
        raise UsageError(f"{place}: caused_by must be a list of names")
    warn_if, error_if = (_threshold(entry.get(key), f"{place}: {key}") for key in ("warn_if", "error_if"))
    if warn_if is None and error_if is None:
        raise UsageError(f"{place}: warn_if or error_if is missing, such as error_if: '> 0'")
    needs, else_skipped = entry.get("needs"), entry.get("else_skipped")
    if (needs is None) != (else_skipped is None) or not isinstance(needs or "", str):
        raise UsageError(f"{place}: needs and else_skipped belong together: a relation, and a reason")
    about, relation, condition = (" ".join(entry[key].split()) for key in ("about", "from", "where"))
    reason = None if else_skipped is None else " ".join(str(else_skipped).split())
    return Audit(entry["name"], about, relation, condition, warn_if, error_if, tuple(causes), needs, reason)


def _threshold(text: object, place: str) -> Threshold | None:
    if text is None:
        return None
    match = _THRESHOLD.fullmatch(text.strip()) if isinstance(text, str) else None
    if match is None:
        raise UsageError(f"{place}: {text!r} is not a threshold; write '> 5' or '> 0.1%'")
    return Threshold(float(match[1]), match[2] is not None)


# Bad rows as a report shows them.


HIDDEN = "(hidden)"
SHOWN = frozenset(
    {
        "broker_name", "topic", "entry_topic", "consumer_group", "run", "first_run", "last_run", "table_name",
        "column_name", "declared", "found", "path", "source_file", "damage", "remedy", "reason",
        "job", "expression_type",
    }
)  # fmt: skip
"""Text columns without values of messages. Numbers, times and booleans are always shown."""
LONGEST = 200


def shown_rows(rows: Sequence[Mapping[str, object]], show_values: bool) -> list[dict[str, object]]:
    """Rows for JSON, without nulls; columns that may hold values of messages are HIDDEN unless ``show_values``."""
    return [
        {name: _shown(name, value, show_values) for name, value in row.items() if value is not None} for row in rows
    ]


def _shown(name: str, value: object, show_values: bool) -> object:
    if isinstance(value, (bool, int, float)):
        return value
    if name not in SHOWN and not show_values:
        return HIDDEN
    text = value.hex() if isinstance(value, bytes) else str(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
