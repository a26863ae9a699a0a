"""Runs audits: counts the bad rows, relation by relation."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice

from answers.audits.audit import Audit, AuditList, Scope, Severity, shown_rows
from answers.audits.relations import Relations, open_relations, reason
from filtering.frozen import frozen
from schemas.delta.delta_log import DataFileDamaged
from schemas.delta.table import DataFileWriter
from schemas.errors import UsageError
from schemas.spark_tasks import Session
from schemas.tables import QUALITY_RESULTS

FILES = "data_files"
"""The relation of the data files. Audits of it are counted even if files are damaged."""
SAMPLED = 5
"""Bad rows that a report shows of an audit."""


@frozen
class AuditResult:
    """The result of an audit. ``sample``: some bad rows. ``cause``: the failed audit that explains this failure.

    ``query`` returns the bad rows; it includes all the relations that it reads. If data files are damaged, the audits
    of their rows are not counted.
    """

    audit: Audit
    severity: Severity
    bad_rows: int
    rows: int
    query: str
    sample: tuple[Mapping[str, object], ...] = ()
    cause: str | None = None
    known: bool = False
    is_counted: bool = True

    @property
    def skipped(self) -> str | None:
        """Why the audit was skipped; None if it was not."""
        return self.audit.else_skipped if self.severity is Severity.SKIPPED else None


@frozen
class AuditReport:
    """``results`` in the order of the list. ``audited_at`` in ms."""

    scope: Scope
    audited_at: int
    results: Sequence[AuditResult]

    @property
    def own_failures(self) -> list[AuditResult]:
        """Failures that no other failure explains."""
        return [result for result in self.results if result.severity.is_failure and result.cause is None]

    def failures(self, at_least: Severity) -> list[AuditResult]:
        """Failures that are not known and that no other failure explains."""
        counting = {Severity.ERROR} if at_least is Severity.ERROR else {Severity.WARN, Severity.ERROR}
        return [result for result in self.own_failures if result.severity in counting and not result.known]


def run_audits(scope: Scope, listed: AuditList, known: Mapping[str, int], session: Session) -> AuditReport:
    """Runs audits. ``known``: the bad rows in a baseline, by audit.

    Raises UsageError if an audit is not valid SQL, and DataFileDamaged for a file of earlier nights.
    """
    audited_at = int(time.time() * 1000)
    with open_relations(scope, listed, session) as relations:
        file_audits = [audit for audit in listed.audits if audit.relation == FILES]
        is_readable = not (file_audits and relations.has_damaged_files)
        counts = _count(listed.audits if is_readable else file_audits, relations)
        results = []
        for audit in listed.audits:
            if audit.name not in counts:
                damage = file_audits[0].name
                results.append(AuditResult(audit, Severity.ERROR, 0, 0, audit.query, cause=damage, is_counted=False))
                continue
            bad_rows, rows = counts[audit.name]
            severity = Severity.SKIPPED if _is_skipped(audit, relations) else audit.severity(bad_rows, rows)
            query = relations.complete(audit.query)
            failed = severity.is_failure
            sample = _sample(audit, relations) if failed else ()
            is_known = failed and bad_rows <= known.get(audit.name, -1)
            results.append(AuditResult(audit, severity, bad_rows, rows, query, sample, known=is_known))
    return AuditReport(scope, audited_at, _with_causes(results))


def _is_skipped(audit: Audit, relations: Relations) -> bool:
    """Whether the relation that the audit needs has no rows. Raises UsageError if there is no such relation."""
    if audit.needs is None:
        return False
    try:
        return not len(relations.rows(f"SELECT * FROM {audit.needs} LIMIT 1"))
    except Exception as error:  # The engine raises no type of its own.
        raise UsageError(f"audit {audit.name}: needs: {reason(error)}") from None


def _count(audits: Sequence[Audit], relations: Relations) -> dict[str, tuple[int, int]]:
    """The bad rows and all rows, by audit. Audits of one relation are counted in one pass."""
    by_relation: defaultdict[str, list[Audit]] = defaultdict(list)
    for audit in audits:
        by_relation[audit.relation].append(audit)
    rows_and_offenders = {}
    for relation, same_relation in by_relation.items():
        try:
            counts = _count_together(relation, same_relation, relations)
        except DataFileDamaged:
            raise
        except Exception:  # The engine raises no type of its own.
            counts = _count_one_by_one(relation, same_relation, relations)
        for audit in same_relation:
            rows_and_offenders[audit.name] = counts[audit.name], counts["rows"]
    return rows_and_offenders


def _count_together(relation: str, audits: Sequence[Audit], relations: Relations) -> dict[str, int]:
    counted = ", ".join(f'count(*) FILTER (WHERE {audit.condition}) AS "{audit.name}"' for audit in audits)
    query = f'SELECT count(*) AS "rows", {counted} FROM {relation}'
    counts = dict.fromkeys(["rows", *(audit.name for audit in audits)], 0)
    for (row,) in (rows.to_pylist() for rows in relations.rows_by_part(query)):
        counts = {name: count + row[name] for name, count in counts.items()}
    return counts


def _count_one_by_one(relation: str, audits: Sequence[Audit], relations: Relations) -> dict[str, int]:
    """The same counts with a pass for each audit, to find the audit that cannot be counted."""
    counts: dict[str, int] = {}
    for audit in audits:
        try:
            counts |= _count_together(relation, [audit], relations)
        except OSError:
            raise
        except Exception as error:
            raise UsageError(f"audit {audit.name}: {reason(error)}") from None
    return counts


def _sample(audit: Audit, relations: Relations) -> tuple[Mapping[str, object], ...]:
    """The first bad rows of an audit."""
    parts = relations.rows_by_part(f"{audit.query} LIMIT {SAMPLED}")
    return tuple(islice((row for rows in parts for row in rows.to_pylist()), SAMPLED))


def _with_causes(results: Sequence[AuditResult]) -> list[AuditResult]:
    """The results, in which each failure names the one that explains it."""
    failed = {result.audit.name: result.severity for result in results if result.severity.is_failure}
    return [
        replace(result, cause=_cause(result, failed)) if result.is_counted and result.severity.is_failure else result
        for result in results
    ]


def _cause(failure: AuditResult, failed: Mapping[str, Severity]) -> str | None:
    """The first of a failure's possible causes that failed itself, at least as badly; None if none did."""
    for cause in failure.audit.caused_by:
        if failed.get(cause) is Severity.ERROR or (cause in failed and failure.severity is Severity.WARN):
            return cause
    return None


def store(report: AuditReport, passed: bool) -> None:
    """Adds the results to quality_results, without values of messages."""
    scope = report.scope
    log = scope.warehouse.log(QUALITY_RESULTS)
    log.storage.make()
    if not log.exists:
        log.create()
    rows = [
        {
            "run": scope.last_run,
            "first_run": scope.first_run,
            "audited_at": report.audited_at,
            "audit": result.audit.name,
            "severity": result.severity.value,
            "bad_rows": result.bad_rows,
            "rows": result.rows,
            "cause": result.cause,
            "known": result.known,
            "sample": _json_lines(shown_rows(result.sample, False)),
            "query": result.audit.query,
            "passed": passed,
            "versions": list(scope.versions.items()),
        }
        for result in report.results
    ]
    writer = DataFileWriter(QUALITY_RESULTS, log.storage)
    writer.write([QUALITY_RESULTS.rows_batch(rows)])
    log.append(writer.close(), scope.last_run)


def _json_lines(rows: Sequence[Mapping[str, object]]) -> str | None:
    return "\n".join(json.dumps(row, ensure_ascii=False) for row in rows) or None
