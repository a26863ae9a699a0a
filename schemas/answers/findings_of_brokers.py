"""The findings of the brokers of a warehouse. What several brokers have in common is one finding."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from filtering.findings import Finding, worst_first
from schemas.answers.facts import BrokerFacts


@dataclass(frozen=True)
class FindingsOfBrokers:
    """By the name of each broker, in order, its findings, the worst first."""

    by_broker: Mapping[str, Sequence[Finding]]

    @cached_property
    def _brokers(self) -> dict[Finding, list[str]]:
        brokers: dict[Finding, list[str]] = {}
        for name, found in self.by_broker.items():
            for finding in found:
                brokers.setdefault(finding, []).append(name)
        return brokers

    @property
    def all(self) -> list[Finding]:
        """Each finding once, the worst first."""
        return worst_first(self._brokers)

    def only_on(self, finding: Finding) -> list[str]:
        """The brokers that have the finding, if not all of them do."""
        names = self._brokers[finding]
        return names if len(names) < len(self.by_broker) else []


def findings_of_brokers(
    brokers: Iterable[BrokerFacts], findings: Callable[[BrokerFacts], Sequence[Finding]]
) -> FindingsOfBrokers:
    """The ``findings`` of each broker. Clients subscribe at every broker, also where the topic has no messages."""
    opened = list(brokers)
    topics = {topic for facts in opened for topic in facts.topics}
    return FindingsOfBrokers(
        {
            facts.name: [
                finding
                for finding in findings(facts)
                if finding.code != "topic-without-messages" or finding.topic not in topics
            ]
            for facts in opened
        }
    )
