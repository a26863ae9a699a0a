"""What another filter would have changed, as a notebook and a Python prompt show it. Every text is escaped."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING

from schemas.answers.rendering import html_list, html_table, one_line

if TYPE_CHECKING:
    from filtering.subscriptions.subscription_row import SubscriptionRow
    from schemas.answers.what_if.what_if import ChangedMessages, WhatIf

NOTHING_TO_COMPARE = "there is no message to compare"
"""Said where the topic has no message in the period."""


def what_if_html(found: WhatIf) -> str:
    """The counts, how the two filters relate, findings, and the newest messages that are gained and lost."""
    whose = f"<b>{escape(found.new.consumer_group)}</b> on {escape(found.new.topic)}"
    filters = [("in force", _filter(found.old)), ("instead", _filter(None if found.ends else found.new))]
    counts = (len(found.gained), len(found.lost), found.kept, found.pending)
    parts = [
        f"<p>{whose}</p>",
        html_table(("", "filter"), filters),
        html_table(("gained", "lost", "kept", "pending"), [counts]),
    ]
    if not found.stored:
        parts.append(f"<p>{NOTHING_TO_COMPARE}</p>")
    if found.deliveries_differ:
        parts.append(f"<p>Against the filter in force, as if it had always been: {_by_change(found)}</p>")
    if found.relation is not None:
        parts.append(f"<p>The new filter against the old one: {escape(found.relation.kind.value)}</p>")
    parts.append(html_list("Findings", [f"{each.severity}: {each.text}" for each in found.findings]))
    parts += [_side("Gained", found.gained), _side("Lost", found.lost)]
    return "".join(parts)


def what_if_text(found: WhatIf) -> str:
    """The same as :func:`what_if_html` without the messages, line by line."""
    counts = f"{len(found.gained):,} gained, {len(found.lost):,} lost, {found.kept:,} kept, {found.pending:,} pending"
    lines = [
        f"{found.new.consumer_group} on {found.new.topic}: {counts}",
        f"in force: {_filter(found.old)}",
        f"instead: {_filter(None if found.ends else found.new)}",
    ]
    if not found.stored:
        lines.append(NOTHING_TO_COMPARE)
    if found.deliveries_differ:
        lines.append(f"against the filter in force, as if it had always been: {_by_change(found)}")
    if found.relation is not None:
        lines.append(f"the new filter against the old one: {found.relation.kind.value}")
    lines += [f"{each.severity}: {each.text}" for each in found.findings]
    return "\n".join(map(one_line, lines))


def _by_change(found: WhatIf) -> str:
    return f"{found.gained_by_change:,} gained, {found.lost_by_change:,} lost"


def _filter(row: SubscriptionRow | None) -> str:
    return "no subscription" if row is None else row.filter_text


def _side(title: str, side: ChangedMessages) -> str:
    if not len(side):
        return ""
    traits = [f"{each.share:.0%} have {each.text} ({each.share_of_others:.0%} of the others)" for each in side.traits]
    rows = [
        (f"{row['queue_id']}/{row['queue_offset']}", row["keys"], _properties(row["properties"] or {}))
        for row in side.samples
    ]
    samples = html_table(("queue/offset", "keys", "properties"), rows, len(side) - len(rows))
    return html_list(f"{title}: what they have in common", traits) + f"<p><b>{title}</b></p>" + samples


def _properties(properties: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={text!r}" for name, text in properties.items())
