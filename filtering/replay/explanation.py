"""Why one message reached a group or did not: what each filter said, and what it saw."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from filtering.bloom_filter import is_hit
from filtering.holds import holds
from filtering.predicate import TRUE, Predicate, postorder
from filtering.replay.message_filter import MessageFilter


@dataclass(frozen=True)
class Verdict:
    """One filter's answer; ``why`` gives the values that it read."""

    filter: str
    passed: bool
    why: str


def explain(message_filter: MessageFilter, entry: Mapping[str, Any], bit_num: int) -> list[Verdict]:
    """The verdicts on a message in the order in which a pull asks, up to the first filter that stops it.

    ``entry``: tags_code, store_timestamp (ms), filter_bit_map and properties, as a row of consumequeue has them;
    ``bit_num``: bits of a filter bit map as the broker is configured. A group that has no filter of a kind gets
    no verdict of it.
    """
    verdicts = []
    for verdict in _verdicts(message_filter, entry, bit_num):
        verdicts.append(verdict)
        if not verdict.passed:
            break
    return verdicts


def _verdicts(message_filter: MessageFilter, entry: Mapping[str, Any], bit_num: int) -> list[Verdict]:
    properties = entry["properties"] or {}
    verdicts = []
    if message_filter.tags != TRUE:
        passed = holds(message_filter.tags, properties, entry["tags_code"])
        seen = f"tags code {entry['tags_code']} is{'' if passed else ' not'} one of the subscription's"
        verdicts.append(Verdict("stage 1: tags code", passed, seen))
    if message_filter.bit_pos:
        verdicts.append(Verdict("stage 1: filter bit map", *_bit_map(message_filter, entry, bit_num)))
    if message_filter.expression != TRUE:
        passed = holds(message_filter.expression, properties)
        fails = holds(message_filter.failure, properties)
        answer = "true" if passed else "an error" if fails else "not true"
        seen = f"the expression is {answer} for {_values(message_filter.expression, properties)}"
        verdicts.append(Verdict("stage 2: expression", passed, seen))
    if message_filter.client_tags != TRUE:
        passed = holds(message_filter.client_tags, properties)
        seen = f"the tag is{'' if passed else ' not'} one of the subscription's"
        values = _values(message_filter.client_tags, properties)
        verdicts.append(Verdict("client: tag", passed, f"{seen}: {values}"))
    return verdicts


def _bit_map(message_filter: MessageFilter, entry: Mapping[str, Any], bit_num: int) -> tuple[bool, str]:
    if entry["store_timestamp"] <= message_filter.born_time:
        return True, f"not asked: stored no later than the filter's birth at {message_filter.born_time}"
    bit_map = entry["filter_bit_map"]
    if bit_map is None or len(bit_map) * 8 != bit_num:
        return True, "not asked: the entry has no bit map of the broker's size"
    passed = is_hit(bit_map, message_filter.bit_pos)
    return passed, f"the group's bits {sorted(set(message_filter.bit_pos))} are {'' if passed else 'not '}all set"


def _values(predicate: Predicate, properties: Mapping[str, str]) -> str:
    names = dict.fromkeys(name for node in postorder([predicate]) for name in node.properties)
    read = [f"{name} = {properties[name]!r}" if name in properties else f"no {name}" for name in names]
    return ", ".join(read) or "every message"
