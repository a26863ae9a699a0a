"""Findings as text, and as JSON."""

from __future__ import annotations

import json
import os
import shutil
import sys
import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from answers.lint import FindingsOfBrokers
from answers.rendering import short
from filtering.counted import counted, listed
from filtering.findings import SEVERITIES, Finding
from filtering.subscriptions.events import GroupTopic
from jobs.cli.output import BROKERS_NAMED
from schemas.errors import UsageError, printable

_MARKS = {"error": ("✗", "31"), "warn": ("!", "33"), "info": ("·", "2")}
NARROWEST = 40


def json_object(findings: Sequence[Finding]) -> dict[str, Any]:
    """The findings as the JSON object that docs/JSON.md describes."""
    return {"findings": [asdict(finding) for finding in findings]}


def read_baseline(file: Path) -> set[tuple[GroupTopic, str]]:
    """The keys and codes of findings that ``--json`` wrote. Raises UsageError for another file."""
    decoder, findings = json.JSONDecoder(), []
    try:
        text = file.read_text("utf-8", "surrogatepass").lstrip()
        while text:  # an object for each broker
            row, end = decoder.raw_decode(text)
            findings += row["findings"]
            text = text[end:].lstrip()
        return {((each["consumer_group"], each["topic"]), each["code"]) for each in findings}
    except (ValueError, KeyError, TypeError, RecursionError):
        raise UsageError(f"{file} has no findings: lint --json writes them") from None


def print_findings(on_brokers: FindingsOfBrokers) -> None:
    """Prints the findings and their number. A finding that not all brokers have names those that have it."""
    findings = on_brokers.all
    width = max((len(_whose(finding)) for finding in findings), default=0)
    for finding in findings:
        mark, color = _MARKS[finding.severity]
        brokers = on_brokers.only_on(finding)
        where = f" ({listed(brokers, BROKERS_NAMED)})" if brokers else ""
        first, *more = _lines(printable(finding.text + where), width + 4)
        print(f"{_colored(mark, color)} {_whose(finding):<{width}}  {first}")
        for line in more:
            print(f"{'':{width + 4}}{line}")
    counts = Counter(finding.severity for finding in findings)
    by_severity = ", ".join(f"{counts[severity]:,} {severity}" for severity in SEVERITIES if counts[severity])
    print(f"{counted(len(findings), 'finding')}: {by_severity}" if findings else "no findings")
    if findings and len(on_brokers.by_broker) > 1:
        print(f"a finding that names no broker is on all {len(on_brokers.by_broker):,} of them")


def _whose(finding: Finding) -> str:
    return f"{short(finding.consumer_group)} on {short(finding.topic)}" if finding.consumer_group else ""


def _lines(text: str, used: int) -> list[str]:
    """The text; on a terminal, as lines that fit beside or below the ``used`` columns."""
    if not sys.stdout.isatty():
        return [text]
    room = max(NARROWEST, shutil.get_terminal_size().columns - used)
    return textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False)


def _colored(text: str, color: str) -> str:
    plain = "NO_COLOR" in os.environ or not sys.stdout.isatty()
    return text if plain else f"\033[{color}m{text}\033[0m"
