"""What export missed says, beside what explain says of each message alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from answers.explain import Explainer
from answers.facts import BrokerFacts
from answers.messages import copies_of_each, read
from answers.missed import missed


def missed_rows(facts: BrokerFacts, group: str, topics: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """What a group missed."""
    return [row for batch in missed([facts], [group], topics) for row in batch.to_pylist()]


def assert_said_alike(facts: BrokerFacts, group: str, rows: Sequence[dict[str, Any]]) -> None:
    """Checks that ``rows`` of what a group missed say of each message what Explainer says of it alone."""
    explainer = Explainer(facts, [group])
    row_at = {(row["topic"], row["commitlog_offset"]): row for row in rows}
    assert len(row_at) == len(rows)
    messages = read(facts, {offset for _, offset in row_at})
    for message, copies in zip(messages, copies_of_each(facts, messages), strict=True):
        for each in (message, *message.in_lmqs):
            row = row_at.pop((each.topic, each.commitlog_offset), None)
            if row is not None:
                explanation = explainer.explain(each, group, copies)
                since = None if explanation.subscription is None else explanation.subscription.valid_from
                expected = str(explanation.outcome), explanation.summary, explanation.uncertain, since
                said = row["outcome"], row["reason"], row["uncertain"], row["subscription_from"]
                assert (each.place, said) == (each.place, expected)
    assert not row_at
