"""One explanation as HTML for a notebook, and as text for a Python prompt."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from filtering.explanation.decision import Outcome
from filtering.explanation.reasons import leaf_values
from filtering.explanation.trace import Part
from schemas.answers.explanation.explanation import Explanation, step_text
from schemas.answers.rendering import SHOWN, html_table, one_line, text_table


def explanation_html(explanation: Explanation) -> str:
    """One explanation: the outcome, the leaves with their values, and what would have matched."""
    parts = [
        f"<p><b>{escape(explanation.message.name)}</b> {escape(explanation.message.place)} → "
        f"<b>{escape(explanation.consumer_group)}</b>: {explanation.outcome}</p>",
        f"<p>{escape(explanation.decision.reason)}</p>",
    ]
    if explanation.start is not None and explanation.is_from_before:
        parts.append(f"<p>Began: {escape(explanation.start.text)}</p>")
    if explanation.filter_change is not None:
        parts.append(f"<p>Filter: {escape(explanation.filter_change)}</p>")
    if explanation.preview is not None:
        parts.append(f"<p>Now: {explanation.preview.outcome}, {escape(explanation.preview.reason)}</p>")
    if explanation.trace is not None and explanation.outcome is not Outcome.DELIVERED:
        parts.append(html_table(*_leaves(explanation.trace)))
    parts += [f"<p>Lint: {escape(finding)}</p>" for finding in explanation.findings]
    if explanation.uncertain is not None:
        parts.append(f"<p>Uncertain: {escape(explanation.uncertain)}</p>")
    if explanation.nearest_miss is not None:
        preposition, _, change = explanation.nearest_miss.would_match.partition(" ")
        parts.append(f"<p>Would match {preposition} <code>{escape(change)}</code></p>")
    if len(explanation.journey) > 1:
        steps = "".join(f"<li>{escape(step_text(step))}</li>" for step in explanation.journey)
        parts.append(f"<p>Journey:</p><ol>{steps}</ol>")
    return "".join(parts)


def explanation_text(explanation: Explanation) -> str:
    """The same as :func:`explanation_html`, line by line."""
    message, preview = explanation.message, explanation.preview
    lines = [
        one_line(f"{message.name} {message.place} → {explanation.consumer_group}: {explanation.outcome}"),
        one_line(explanation.decision.reason),
    ]
    if explanation.start is not None and explanation.is_from_before:
        lines.append(one_line(f"began: {explanation.start.text}"))
    if explanation.filter_change is not None:
        lines.append(one_line(f"filter: {explanation.filter_change}"))
    if preview is not None:
        lines.append(one_line(f"now: {preview.outcome}, {preview.reason}"))
    if explanation.trace is not None and explanation.outcome is not Outcome.DELIVERED:
        lines.append(text_table(*_leaves(explanation.trace)))
    lines += [one_line(f"lint: {finding}") for finding in explanation.findings]
    if explanation.uncertain is not None:
        lines.append(one_line(f"uncertain: {explanation.uncertain}"))
    if explanation.nearest_miss is not None:
        lines.append(one_line(f"would match {explanation.nearest_miss.would_match}"))
    if len(explanation.journey) > 1:
        lines += [one_line(f"journey: {step_text(step)}") for step in explanation.journey]
    return "\n".join(lines)


def _leaves(trace: Part) -> tuple[Sequence[str], list[Sequence[str]], int]:
    """The titles and rows of a table of the leaves, and the number of leaves that it does not show."""
    leaves = list(trace.leaves())
    rows = [
        (leaf.text, leaf.result.value, leaf_values(leaf), "decides" if leaf.decides else "") for leaf in leaves[:SHOWN]
    ]
    return ("part", "is", "since", ""), [*rows], max(0, len(leaves) - SHOWN)
