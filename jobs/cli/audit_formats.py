"""Writes the results of audits as text, JSON lines, JUnit XML and a GitHub summary."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

from answers.audits.audit import Severity, shown_rows
from answers.audits.auditor import AuditReport, AuditResult
from jobs.cli.output import count, output_file, print_json, print_table
from schemas.errors import UsageError, printable

LONGEST_SUMMARY = 65_000
"""Characters. GitHub refuses a comment of more than 65,536, and a step's summaries of more than 1 MiB."""
_NOT_IN_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_MARKS = {Severity.OK: "✅", Severity.SKIPPED: "⏭️", Severity.WARN: "⚠️", Severity.ERROR: "❌"}


def read_baseline(file: Path) -> dict[str, int]:
    """The known bad rows by audit, as :func:`print_json_lines` wrote them. Raises UsageError for other lines."""
    known = {}
    for number, line in enumerate(file.read_text("utf-8").split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            if Severity(row["severity"]).is_failure:
                known[str(row["audit"])] = int(row["bad_rows"])
        except (ValueError, KeyError, TypeError, RecursionError):
            raise UsageError(f"{file}, line {number}: not an audit result; audit --json writes such lines") from None
    return known


def print_json_lines(report: AuditReport, show_values: bool) -> None:
    """Prints one JSON object for each audit."""
    rows = [
        {
            "audit": result.audit.name,
            "severity": result.severity.value,
            "skipped": result.skipped,
            "bad_rows": result.bad_rows,
            "rows": result.rows,
            "cause": result.cause,
            "known": result.known,
            "about": result.audit.about,
            "sample": shown_rows(result.sample, show_values),
            "query": result.query,
        }
        for result in report.results
    ]
    print_json(*rows)


def print_report(report: AuditReport, show_values: bool) -> None:
    """Prints a table of all audits, and for each failure what was expected, its query and some bad rows."""
    print(f"nights {report.scope.first_run} to {report.scope.last_run}\n")
    rows = [
        [
            result.audit.name, _verdict(result), count(result.bad_rows), count(result.rows),
            result.skipped or result.audit.about,
        ]
        for result in folded(report.results)
    ]  # fmt: skip
    print_table(["audit", "result", "bad rows", "rows", "expectation"], rows, left=2, last_is_text=True)
    for result in report.own_failures:
        print(f"\n{_verdict(result)}: {result.audit.name}: {count(result.bad_rows)} of {count(result.rows)} rows")
        print(f"  expected: {printable(result.audit.about)}")
        print(f"  {printable(result.query)}")
        for row in shown_rows(result.sample, show_values):
            print(f"    {printable(json.dumps(row, ensure_ascii=False))}")
    print(f"\n{_totals(report.results)}")


def _totals(results: Sequence[AuditResult]) -> str:
    counts = Counter(result.severity for result in results if result.is_counted)
    totals = [f"{counts[severity]} {severity.value}" for severity in Severity]
    if not_counted := len(results) - counts.total():
        totals.append(f"{not_counted} not counted")
    return f"{len(results)} audits: " + ", ".join(totals)


def folded(results: Sequence[AuditResult]) -> list[AuditResult]:
    """The results, each followed by the failures that it caused."""
    consequences = {
        result.audit.name: [other for other in results if other.cause == result.audit.name] for result in results
    }
    ordered: list[AuditResult] = []

    def add(result: AuditResult) -> None:
        ordered.append(result)
        for consequence in consequences[result.audit.name]:
            add(consequence)

    for result in results:
        if result.cause is None:
            add(result)
    return ordered


def write_junit(file: Path, report: AuditReport, show_values: bool) -> None:
    """Writes a test case for each audit. Warnings, consequences, known failures and uncounted audits are skipped."""
    failed = {result.audit.name for result in report.failures(Severity.ERROR)}
    skipped = [
        result for result in report.results if result.severity is not Severity.OK and result.audit.name not in failed
    ]
    suite = ElementTree.Element(
        "testsuite", name="mqsieve audit", tests=str(len(report.results)), failures=str(len(failed)), errors="0",
        skipped=str(len(skipped)),
    )  # fmt: skip
    for result in report.results:
        case = ElementTree.SubElement(suite, "testcase", classname="mqsieve.audit", name=result.audit.name)
        if result.severity is Severity.OK:
            continue
        if result.skipped is not None:
            ElementTree.SubElement(case, "skipped", message=_xml_text(result.skipped))
            continue
        message = f"{_verdict(result)}: {result.bad_rows} of {result.rows} rows; {result.audit.about}"
        kind = "failure" if result.audit.name in failed else "skipped"
        detail = ElementTree.SubElement(case, kind, message=_xml_text(message))
        detail.text = _xml_text(_detail(result, show_values))
    with output_file(file) as output:
        ElementTree.ElementTree(suite).write(output, encoding="utf-8", xml_declaration=True)


def add_summary(file: Path, report: AuditReport, show_values: bool) -> None:
    """Appends the results to a Markdown file, such as the step summary of GitHub Actions."""
    scope = report.scope
    lines = [
        f"### mqsieve audit: nights {scope.first_run} to {scope.last_run}",
        "",
        "| audit | result | bad rows | rows |",
        "|---|---|---:|---:|",
    ]
    for result in folded(report.results):
        mark = _MARKS[result.severity]
        verdict = _verdict(result) if result.skipped is None else f"skipped: {result.skipped}"
        lines.append(f"| {result.audit.name} | {mark} {verdict} | {result.bad_rows:,} | {result.rows:,} |")
    text = "\n".join(lines) + "\n"
    for result in report.own_failures:
        detail = "\n".join(f"    {printable(line)}" for line in _detail(result, show_values).split("\n"))
        part = f"\n{result.audit.name}: {result.audit.about}\n\n{detail}\n"
        if len(text) + len(part) > LONGEST_SUMMARY:
            text += "\nThe other failures are in the log of the step.\n"
            break
        text += part
    with file.open("a", encoding="utf-8") as output:
        output.write(text[:LONGEST_SUMMARY])


def _detail(result: AuditResult, show_values: bool) -> str:
    """The query, and some bad rows."""
    rows = [json.dumps(row, ensure_ascii=False) for row in shown_rows(result.sample, show_values)]
    return "\n".join([result.query, *rows])


def _verdict(result: AuditResult) -> str:
    if not result.is_counted:
        return f"not counted: {result.cause} failed"
    if result.cause is not None:
        return f"follows from {result.cause}"
    return f"{result.severity.value} (known)" if result.known else result.severity.value


def _xml_text(text: str) -> str:
    """The text with U+FFFD for each character that XML cannot hold."""
    return _NOT_IN_XML.sub("\ufffd", text)
