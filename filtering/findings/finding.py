"""One thing to look at in a subscription."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

ERROR, WARN, INFO = SEVERITIES = ("error", "warn", "info")


@dataclass(frozen=True)
class Finding:
    """``code`` names the kind of finding, ``text`` says it in one line, with what to write instead.

    ``messages`` of ``of`` messages of the topic are concerned; ``of`` is 0 where no message was looked at.
    """

    severity: str
    consumer_group: str
    topic: str
    code: str
    text: str
    messages: int = 0
    of: int = 0


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """By severity, then by topic, group and code; each once."""
    return sorted(
        dict.fromkeys(findings),
        key=lambda each: (SEVERITIES.index(each.severity), each.topic, each.consumer_group, each.code, each.text),
    )
