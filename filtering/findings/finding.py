"""A finding: something suspicious about a subscription."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from filtering.subscriptions.events import GroupTopic

ERROR, WARN, INFO = SEVERITIES = ("error", "warn", "info")
FAILING_SHARE = 0.1
"""A share of messages. An expression that fails on more of them is an error."""


@dataclass(frozen=True)
class Finding:
    """``code`` is the kind of finding. ``text`` explains it in one line and says what to write instead.

    It affects ``messages`` of the ``of`` messages of the topic; ``of`` is 0 if no messages were checked.
    """

    severity: str
    consumer_group: str
    topic: str
    code: str
    text: str
    messages: int = 0
    of: int = 0

    @property
    def key(self) -> GroupTopic:
        return self.consumer_group, self.topic


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """Findings by severity, then by topic, group and code, else in their order, without repetition."""
    return sorted(
        dict.fromkeys(findings),
        key=lambda finding: (SEVERITIES.index(finding.severity), finding.topic, finding.consumer_group, finding.code),
    )
