"""Answers in Prometheus's text format: gauges of how far groups are behind, and of the last night of each broker.

A file of them is for node_exporter's textfile collector, which reads it at any time: so it is replaced at once.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from answers.attention import CONDITIONS
from answers.facts import open_facts
from answers.lag import Lag, lag
from jobs.cli.output import output_file
from schemas.commitlog import COMMITLOG
from schemas.errors import printable
from schemas.tables import QUARANTINE

if TYPE_CHECKING:
    from jobs.cli.night_job import SummarizedNight
    from jobs.night.run import NightRunner

LAG = {
    "mqsieve_consumer_lag_messages": ("behind", "Entries behind the committed offset."),
    "mqsieve_consumer_exact_lag_messages": ("would_get", "Messages that the group would receive."),
    "mqsieve_consumer_unfiltered_messages": ("unfiltered", "Entries after the last night, which no filter has seen."),
    "mqsieve_consumer_broker_estimate_messages": ("broker_estimate", "Messages that the broker's metric counts."),
    "mqsieve_consumer_ahead_messages": ("ahead", "Entries by which the committed offset is beyond the queue's end."),
    "mqsieve_consumer_oldest_pending_ms": ("oldest_ms", "Age of the oldest of these messages."),
}
NIGHT = {
    "mqsieve_night_run_timestamp_seconds": "When the last nightly ended, whether something was new or not.",
    "mqsieve_night_newest_timestamp_seconds": "Up to when messages are filtered, by the broker's clock.",
    "mqsieve_night_duration_seconds": "How long the night took.",
    "mqsieve_night_messages": "Messages that the night read.",
    "mqsieve_night_deliveries": "Messages that groups received, by the night.",
    "mqsieve_night_uncertain": "Of these and others, those of which it is not known which filter they met.",
    "mqsieve_night_quarantined": "Pieces of input that the night could not decode.",
}
ATTENTION = "mqsieve_night_attention"

Labels = Mapping[str, str]
Sample = tuple[Labels, float]


def lag_metrics(rows: Sequence[tuple[str, Lag]]) -> Iterator[str]:
    """The gauges of the rows of some brokers, labelled with broker, group, topic and queue."""
    for name, (field, meaning) in LAG.items():
        samples = [
            ({"broker": broker, "group": row.consumer_group, "topic": row.topic, "queue": str(row.queue_id)}, value)
            for broker, row in rows
            if (value := getattr(row, field)) is not None
        ]
        yield from _gauge(name, meaning, samples)


def night_metrics(runner: NightRunner, nights: Iterable[SummarizedNight]) -> Iterator[str]:
    """The gauges of the last of the ``nights`` of each broker, and of how far its groups are behind."""
    last = {night.broker: night for night in nights}
    values = {broker: _values(runner, night) for broker, night in last.items()}
    for name, meaning in NIGHT.items():
        yield from _gauge(name, meaning, [({"broker": broker}, each[name]) for broker, each in values.items()])
    problems = {broker: Counter(problem.code for problem in each.summary.attention) for broker, each in last.items()}
    samples = [
        ({"broker": broker, "condition": code, "severity": severity}, counts[code])
        for broker, counts in problems.items()
        for code, (severity, _) in CONDITIONS.items()
    ]
    yield from _gauge(ATTENTION, "Conditions that need attention (docs/OPERATIONS.md).", samples)
    brokers = [open_facts(runner.warehouse, broker, runner.expressions) for broker in last]
    yield from lag_metrics([(facts.name, row) for facts in brokers for row in lag(facts)])


def _values(runner: NightRunner, night: SummarizedNight) -> dict[str, float]:
    """The values of NIGHT. Of a night without anything new, the counts are 0."""
    rows, counts = night.report.rows, night.counts
    filtered_to = (runner.last[night.broker].as_of or 0) / 1000
    seconds = round(time.time(), 3), filtered_to, round(night.report.seconds, 3)
    rows_of = rows.get(COMMITLOG.name, 0), counts["delivered"], counts["uncertain"], rows.get(QUARANTINE.name, 0)
    return dict(zip(NIGHT, (*seconds, *rows_of), strict=True))


def write(file: Path, lines: Iterable[str]) -> None:
    """Replaces a file at once. Raises UsageError, OSError."""
    with output_file(file) as output:
        output.writelines(f"{line}\n".encode() for line in lines)


def _gauge(name: str, meaning: str, samples: Iterable[Sample]) -> Iterator[str]:
    yield f"# HELP {name} {meaning}"
    yield f"# TYPE {name} gauge"
    for labels, value in samples:
        shown = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
        yield f"{name}{{{shown}}} {value}"


def _escaped(text: str) -> str:
    """A label's value. Its only escapes are those of backslash, quote and line feed."""
    lines = (printable(line).replace("\\", "\\\\").replace('"', '\\"') for line in text.split("\n"))
    return "\\n".join(lines)
