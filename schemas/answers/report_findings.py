"""What is wrong with the subscriptions in force, as a report lists it."""

from __future__ import annotations

from dataclasses import dataclass

from schemas.answers.facts import BrokerFacts


@dataclass(frozen=True)
class Finding:
    """``severity`` is error, warn or info. ``messages`` of ``of`` are concerned; 0 of 0: nobody counted."""

    severity: str
    consumer_group: str
    topic: str
    code: str
    text: str
    messages: int = 0
    of: int = 0


def findings(facts: BrokerFacts) -> list[Finding]:
    """What the linter says of the expressions, the worst first."""
    found = []
    for row in facts.in_force():
        whose = row.consumer_group, row.topic
        if row.compile_error is not None:
            found.append(Finding("error", *whose, "does-not-compile", row.compile_error))
        for each in row.compiled.expression.findings if row.compiled.expression is not None else ():
            found.append(Finding("warn", *whose, each.code, f"{each.sentence} {each.suggestion}"))
    return sorted(found, key=lambda each: (each.severity, each.consumer_group, each.topic, each.code, each.text))
