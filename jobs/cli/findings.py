"""Findings as a person reads them, and as JSON."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict

from filtering.findings import SEVERITIES, Finding
from jobs.cli.text import printable, short

_MARKS = {"error": ("✗", "31"), "warn": ("!", "33"), "info": ("·", "2")}
NARROWEST = 40


def as_json(findings: Sequence[Finding]) -> str:
    """The object of docs/FINDINGS.md."""
    return json.dumps({"findings": [asdict(each) for each in findings]}, ensure_ascii=False, indent=2)


def print_findings(findings: Sequence[Finding]) -> None:
    """A line each, the worst first, and how many there are."""
    width = max((len(_whose(each)) for each in findings), default=0)
    for each in findings:
        mark, color = _MARKS[each.severity]
        print(f"{_colored(mark, color)} {_whose(each):<{width}}  {_cut(printable(each.text), width + 4)}")
    counts = Counter(each.severity for each in findings)
    counted = ", ".join(f"{counts[severity]:,} {severity}" for severity in SEVERITIES if counts[severity])
    print(f"{len(findings):,} findings: {counted}" if findings else "no findings")


def _whose(finding: Finding) -> str:
    return f"{short(finding.consumer_group)} on {short(finding.topic)}" if finding.consumer_group else ""


def _cut(text: str, used: int) -> str:
    """On a terminal, what fits on the line."""
    if not sys.stdout.isatty():
        return text
    room = max(NARROWEST, shutil.get_terminal_size().columns - used)
    return text if len(text) <= room else f"{text[: room - 1]}…"


def _colored(text: str, color: str) -> str:
    plain = "NO_COLOR" in os.environ or not sys.stdout.isatty()
    return text if plain else f"\033[{color}m{text}\033[0m"
