"""Explanations as JSON objects (docs/JSON.md)."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from filtering.explanation.decision import BitMapCheck
from filtering.explanation.nearest_miss import NearestMiss
from filtering.explanation.trace import Part
from filtering.subscriptions.subscription_row import SubscriptionRow
from schemas.answers.explanation.explanation import Explanation
from schemas.answers.explanation.found_messages import FoundMessage


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
        "bit_map": None if bit_map is None else _bit_map(bit_map),
        "expression": None if trace is None else part_json(trace),
        "nearest_miss": None if miss is None else _nearest_miss(miss),
        "deliveries": [asdict(delivery) for delivery in explanation.received],
    }


def message_json(message: FoundMessage) -> dict[str, Any]:
    """A message as a JSON object, without its consume queue entry and deliveries."""
    names = (
        "topic", "queue_id", "queue_offset", "commitlog_offset", "msg_id", "uniq_key", "keys", "tags",
        "born_timestamp", "store_timestamp",
    )  # fmt: skip
    return {name: getattr(message, name) for name in names} | {"properties": dict(message.properties)}


def part_json(part: Part) -> dict[str, Any]:
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


def _bit_map(check: BitMapCheck) -> dict[str, Any]:
    return {"positions": list(check.positions), "unset": list(check.unset), "not_asked": check.not_asked}


def _nearest_miss(miss: NearestMiss) -> dict[str, Any]:
    return {"text": miss.text, "properties": dict(miss.values), "expression": miss.expression}
