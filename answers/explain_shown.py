"""How an explanation is shown: as facts, which become text or HTML, and as JSON (docs/JSON.md)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

from answers.explain import VERDICTS, Explanation, step_text
from answers.messages import StoredMessage
from answers.rendering import Code, Fact, Table, short, time
from filtering.delivery.block_schema import Outcome
from filtering.explanation import NearestMiss, Stage, leaf_values
from filtering.sql92.reference import ExpressionPart, Result
from filtering.subscriptions.subscription_row import SubscriptionRow

MARKS = {
    Result.TRUE: "✓", Result.FALSE: "✗", Result.NULL: "∅", Result.ERROR: "!", Result.NOT_EVALUATED: "·",
}  # fmt: skip
STAGES = {
    Stage.TAGS_CODE: "stage 1, tags code",
    Stage.BIT_MAP: "stage 1, filter bit map",
    Stage.EXPRESSION: "stage 2, expression",
}
SHOWN_LEAVES = 8
LONGEST_LEAF = 44


def title(explanation: Explanation, broker: str | None = None) -> str:
    """The message, the group and what happened. ``broker``: its name, where there are several."""
    name, place = short(explanation.message.name), place_on(explanation.message, broker)
    return f"{name}  {place} → {explanation.consumer_group}: {explanation.verdict}"


def place_on(message: StoredMessage, broker: str | None) -> str:
    return message.place if broker is None else f"{message.place} on {broker}"


def facts(explanation: Explanation, full: bool = False) -> Iterator[Fact]:
    """Why the group received the message or not, below the :func:`title`; ``full`` adds all details."""
    decision, trace = explanation.decision, explanation.trace
    if full:
        yield from _details(explanation)
    stopped = explanation.outcome not in VERDICTS
    if stopped:
        why = decision.reason if trace is None else decision.headline
        yield "stopped at", f"{STAGES.get(decision.stage, str(decision.stage))}: {why}"
    else:
        yield "because", decision.reason
    if explanation.start is not None and (full or explanation.is_from_before):
        yield "began", explanation.start.text
    if explanation.filter_change is not None:
        yield "filter", explanation.filter_change
    if (forecast := explanation.forecast) is not None:
        yield "then" if explanation.outcome is Outcome.WAITING else "today", forecast
    if trace is not None and full:
        yield from _labelled("expression", _tree(trace))
    elif trace is not None and stopped:
        yield from _decisive(trace)
    yield from (("lint", finding) for finding in explanation.findings)
    if explanation.uncertain is not None:
        yield "uncertain", explanation.uncertain
    if explanation.nearest_miss is not None:
        preposition, _, change = explanation.nearest_miss.would_match.partition(" ")
        yield "would match", (f"{preposition} ", Code(change))
    if len(explanation.journey) > 1:
        yield from _labelled("journey", map(step_text, explanation.journey))


def _labelled(label: str, lines: Iterable[str]) -> Iterator[Fact]:
    return (("" if number else label, line) for number, line in enumerate(lines))


def _details(explanation: Explanation) -> Iterator[Fact]:
    message, row, bit_map = explanation.message, explanation.subscription, explanation.filters.bit_map
    yield "message", f"msgId {message.msg_id or '-'}, unique key {message.uniq_key or '-'}, keys {message.keys or '-'}"
    yield "stored", f"{time(message.store_timestamp)} UTC, at physical offset {message.commitlog_offset:,}"
    if row is not None:
        born = f", filter born {time(row.born_time)}" if row.born_time else ""
        since = time(row.valid_from) if row.valid_from > 0 else "the beginning"
        yield "subscribed", f"{row.filter_text} (version {row.sub_version}{born})"
        yield "in force", f"{since} – {time(row.valid_to)}, {'online' if row.is_consuming else 'away'}"
    if explanation.pulled_at is not None:
        yield "pulled", time(explanation.pulled_at)
    for delivery in explanation.received:
        yield "received", f"{delivery.outcome} at {time(delivery.available_at)}"
    if message.entry is not None:
        yield "entry", f"tags code {message.entry.tags_code}"
    if bit_map is not None:
        asked = bit_map.not_asked or (f"unset {list(bit_map.unset)}" if bit_map.unset else "all set")
        yield "bit map", f"positions {list(bit_map.positions)}: {asked}"


def _decisive(trace: ExpressionPart) -> Iterator[Fact]:
    """A row for each leaf, or for the first leaves that decide the result if there are many."""
    leaves = list(trace.leaves())
    decisive = [leaf for leaf in leaves if leaf.decides]
    shown = leaves if len(leaves) <= SHOWN_LEAVES else decisive[:SHOWN_LEAVES]
    rows = [(short(leaf.text, LONGEST_LEAF), MARKS[leaf.result], leaf_values(leaf)) for leaf in shown]
    yield "because", Table((), rows)
    if len(shown) < len(leaves):
        yield "", f"… {len(leaves) - len(shown):,} more parts; --full shows all"


def _tree(part: ExpressionPart, depth: int = 0) -> Iterator[str]:
    pad = "  " * depth
    arrow = "  ←" if part.decides and not part.parts else ""
    if not part.parts:
        yield f"{pad}{part.text}  {MARKS[part.result]} {part.result.value}  {leaf_values(part)}{arrow}"
        return
    yield f"{pad}{part.text}  {MARKS[part.result]} {part.result.value}"
    for child in part.parts:
        yield from _tree(child, depth + 1)


# JSON.


def explanation_json(explanation: Explanation) -> dict[str, Any]:
    """An explanation as a JSON object, without the message's copies."""
    bit_map, trace, miss = explanation.filters.bit_map, explanation.trace, explanation.nearest_miss
    row = explanation.subscription
    preview = explanation.preview
    return {
        "message": message_json(explanation.message),
        "consumer_group": explanation.consumer_group,
        "outcome": str(explanation.outcome),
        "stage": str(explanation.decision.stage),
        "reason": explanation.decision.reason,
        "pulled_at": explanation.pulled_at,
        "would_be": None if preview is None else {"outcome": str(preview.outcome), "reason": preview.reason},
        "lint": list(explanation.findings),
        "uncertain": explanation.uncertain,
        "subscription": None if row is None else _subscription(row),
        "present": None if explanation.present is None else _present(explanation.present),
        "journey": [asdict(step) for step in explanation.journey],
        "start": None if explanation.start is None else asdict(explanation.start),
        "clients": None if explanation.clients is None else list(explanation.clients),
        "bit_map": None if bit_map is None else asdict(bit_map),
        "expression": None if trace is None else part_json(trace),
        "nearest_miss": None if miss is None else _nearest_miss(miss),
        "deliveries": [asdict(delivery) for delivery in explanation.received],
    }


def message_json(message: StoredMessage) -> dict[str, Any]:
    """A message as a JSON object, without its consume queue entry and deliveries."""
    names = (
        "topic", "queue_id", "queue_offset", "commitlog_offset", "msg_id", "uniq_key", "keys", "tags",
        "born_timestamp", "store_timestamp",
    )  # fmt: skip
    return {name: getattr(message, name) for name in names} | {"properties": dict(message.properties)}


def part_json(part: ExpressionPart) -> dict[str, Any]:
    """A part of an evaluated expression as a JSON object, with its nested parts."""
    return {
        "kind": part.kind,
        "text": part.text,
        "result": part.result.value,
        "decides": part.decides,
        "error": part.error,
        "values": dict(part.values),
        "parts": [part_json(child) for child in part.parts],
    }


def _subscription(row: SubscriptionRow) -> dict[str, Any]:
    names = (
        "expression", "expression_type", "sub_version", "valid_from", "valid_to", "born_time", "is_consuming",
        "sent_with_pull",
    )  # fmt: skip
    return {name: getattr(row, name) for name in names}


def _present(row: SubscriptionRow) -> dict[str, Any]:
    return {"expression": row.expression, "expression_type": row.expression_type, "since": row.valid_from}


def _nearest_miss(miss: NearestMiss) -> dict[str, Any]:
    return {"text": miss.text, "properties": dict(miss.values), "expression": miss.expression}
