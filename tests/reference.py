"""The reference evaluator, as the broker asks it."""

from __future__ import annotations

from collections.abc import Mapping

from filtering import sql92


def matches(expression: str, properties: Mapping[str, str] | None) -> bool:
    """Whether a message with these properties matches. An error counts as no match."""
    try:
        return sql92.compile(expression).evaluate(properties or {}) is True
    except sql92.EvaluationError:
        return False
