"""Reasons in words, each one line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from filtering.explanation.trace import Part, Result, trace
from filtering.sql92 import CompiledExpression
from filtering.subscriptions.history import SubscriptionRow
from filtering.tags_code import tags_code

NAMED = 3
LONGEST = 60


def refused(code: str, compile_error: str | None) -> str:
    """The broker answers no pull of the subscription."""
    why = f", for it does not compile: {one_line(compile_error)}" if compile_error else ""
    return f"the broker refuses every pull with {code}{why}"


def other_tag(tag: str | None, tags: Sequence[str]) -> str:
    """The tags code of the entry is none of those subscribed."""
    wanted = ", ".join(map(quoted, tags[:NAMED])) + (f" and {len(tags) - NAMED:,} more" if len(tags) > NAMED else "")
    has = "the message has no tag" if tag is None else f"the tag is {quoted(tag)}"
    return f"{has}; subscribed is {wanted}" if tags else f"{has}; the subscription names no tag, and matches nothing"


def other_tag_same_hash(tag: str | None, tags: Sequence[str]) -> str:
    """The broker compares hashes, the client texts."""
    code = tags_code(tag)
    has = "no tag" if tag is None else f"the tag {quoted(tag)}"
    same = [each for each in tags if tags_code(each) == code]
    shares = f"has the hash of {quoted(same[0])}, {code}" if same else "is none that this client subscribes to"
    return f"the client drops it: {has} {shares}; the broker compares hashes only"


def not_in_bit_map(expression: CompiledExpression | None, properties: Mapping[str, str], result: Result) -> str:
    """The bits of the group were not set when the message was stored."""
    if expression is None or result is Result.TRUE:
        return "the expression matches, but the filter bit map was made without it when the message was stored"
    return f"the expression did not match when the message was stored: {_leaves(expression, properties)}"


def failed(expression: CompiledExpression | None, properties: Mapping[str, str], error: str | None) -> str:
    """Evaluating the expression throws at the broker."""
    leaf = next((part.text for part in _decisive(expression, properties) if part.error), "")
    return f"{short(leaf)} fails: {error}; the broker fails the whole expression, which is no match"


def not_true(expression: CompiledExpression | None, properties: Mapping[str, str], result: Result) -> str:
    """The expression is FALSE or NULL."""
    return f"the expression is {result.value}: {_leaves(expression, properties)}"


def passed(row: SubscriptionRow, expression: CompiledExpression | None) -> str:
    """Every filter let it through."""
    if expression is not None:
        return "the expression is TRUE"
    return (
        "the tag is subscribed" if row.tags_set and not row.class_filter_mode else "the subscription takes everything"
    )


def leaf_values(part: Part) -> str:
    """What the properties of a leaf are."""
    if part.error:
        return part.error
    return ", ".join(
        f"{name} is missing" if value is None else f"{name} is {quoted(value)}" for name, value in part.values.items()
    )


def _leaves(expression: CompiledExpression | None, properties: Mapping[str, str]) -> str:
    found = _decisive(expression, properties)
    shown = [f"{short(part.text)} is {part.result.value}, {leaf_values(part) or 'always'}" for part in found[:NAMED]]
    return "; ".join(shown) + (f"; and {len(found) - NAMED:,} more" if len(found) > NAMED else "")


def _decisive(expression: CompiledExpression | None, properties: Mapping[str, str]) -> list[Part]:
    if expression is None:
        return []
    return [part for part in trace(expression, properties).leaves() if part.decides]


def quoted(text: str) -> str:
    """A text in quotes, cut where it is long."""
    return repr(short(text))


def short(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def one_line(text: str | None) -> str:
    """The first line: the others of a compile error point at a place."""
    return (text or "").split("\n", 1)[0]
