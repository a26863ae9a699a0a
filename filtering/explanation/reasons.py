"""The reasons for decisions as text, one line each, or as a headline and its detail."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from filtering.counted import listed, shortened
from filtering.explanation.trace import Part, Result, trace
from filtering.sql92 import CompiledExpression, on_one_line
from filtering.subscriptions.namespace import DLQ_TOPIC_PREFIX, RETRY_TOPIC_PREFIX
from filtering.subscriptions.subscription_row import SubscriptionRow
from filtering.tags_code import tags_code

NAMED = 3
LONGEST = 60

Reason = tuple[str, str]
"""A headline, and its detail."""


def refused(code: str, compile_error: str | None) -> str:
    why = f", because it does not compile: {on_one_line(compile_error)}" if compile_error else ""
    return f"the broker refuses every pull with {code}{why}"


def other_tag(tag: str | None, tags: Sequence[str]) -> str:
    """The entry's tags code is not one of the subscribed tags."""
    subscribed = listed([quoted(tag) for tag in tags], NAMED)
    has = "the message has no tag" if tag is None else f"the tag is {quoted(tag)}"
    return (
        f"{has}; the group subscribes to {subscribed}"
        if tags
        else f"{has}; the subscription names no tag, and matches nothing"
    )


def other_tag_same_hash(tag: str | None, tags: Sequence[str]) -> str:
    """The tags code matched at the broker, but the client compares the text of the tags."""
    code = tags_code(tag)
    has = "no tag" if tag is None else f"the tag {quoted(tag)}"
    colliding = [other for other in tags if tags_code(other) == code]
    shares = (
        f"has the hash of {quoted(colliding[0])}, {code}" if colliding else "is not one that this client subscribes to"
    )
    return f"the client drops it: {has} {shares}; the broker compares hashes only"


def dropped_by_other_client(tags_of: Mapping[str, Iterable[str]]) -> str:
    """The client that reads the queue has other tags. ``tags_of``: those that may read it, with their tags."""
    clients = [f"{client} subscribes to {', '.join(map(quoted, sorted(tags)))}" for client, tags in tags_of.items()]
    reads = f" drops it: {' or '.join(clients[:NAMED])}" if clients else " subscribes to other tags"
    return f"the client that reads the queue{reads}; the subscription in force is that of another client"


def overruled(clients: Sequence[str]) -> str:
    """The broker stopped the message, although some clients of the group subscribe to its tag."""
    subscribe = "subscribes" if len(clients) == 1 else "subscribe"
    return f"{listed(clients, NAMED)} {subscribe} to it, but the broker has the subscription of another client"


def without_subscription(clients: Sequence[str], absent: Sequence[str]) -> str:
    """Another client's heartbeat did not list the topic."""
    subscribe = "subscribes" if len(clients) == 1 else "subscribe"
    others = f"the heartbeat of {listed(absent, NAMED)}" if absent else "another heartbeat"
    return (
        f"the broker refuses the group's pulls (SUBSCRIPTION_NOT_EXIST), so the group has not pulled it yet: "
        f"{listed(clients, NAMED)} {subscribe} to the topic, but {others} does not list it"
    )


def never_subscribed(topic: str, group: str) -> str:
    if topic == f"{RETRY_TOPIC_PREFIX}{group}":
        return "no event subscribes the group to its retry topic, as its clients do: add one with the tag *"
    if topic == f"{DLQ_TOPIC_PREFIX}{group}":
        return "its consumers failed on it too often: nothing is delivered from a dead-letter queue"
    return "the group never subscribed to the topic"


def not_in_bit_map(expression: CompiledExpression | None, properties: Mapping[str, str], result: Result) -> Reason:
    """The bits of the group were not set when the message was stored."""
    if expression is None or result is Result.TRUE:
        return "the expression matches, but the filter bit map was made without it when the message was stored", ""
    return "the expression did not match when the message was stored", _leaves(expression, properties)


def failed(expression: CompiledExpression, properties: Mapping[str, str], error: str) -> Reason:
    """The evaluation of the expression fails at the broker."""
    leaf = next((part.text for part in _decisive(expression, properties) if part.error), "")
    return f"{shortened(leaf, LONGEST)} fails", f"{error}; the broker fails the whole expression, which is no match"


def not_true(expression: CompiledExpression, properties: Mapping[str, str], result: Result) -> Reason:
    """The expression is FALSE or NULL."""
    return f"the expression is {result.value}", _leaves(expression, properties)


def passed(row: SubscriptionRow, expression: CompiledExpression | None) -> str:
    if expression is not None:
        return "the expression is TRUE"
    return (
        "the tag is subscribed" if row.tags_set and not row.class_filter_mode else "the subscription takes everything"
    )


def leaf_values(part: Part) -> str:
    """The values of a leaf's properties, or its error."""
    if part.error:
        return part.error
    return ", ".join(
        f"{name} is missing" if value is None else f"{name} is {quoted(value)}" for name, value in part.values.items()
    )


def _leaves(expression: CompiledExpression, properties: Mapping[str, str]) -> str:
    decisive = _decisive(expression, properties)
    shown = [
        f"{shortened(part.text, LONGEST)} is {part.result.value}, {leaf_values(part) or 'always'}"
        for part in decisive[:NAMED]
    ]
    return "; ".join(shown) + (f"; and {len(decisive) - NAMED:,} more" if len(decisive) > NAMED else "")


def _decisive(expression: CompiledExpression, properties: Mapping[str, str]) -> list[Part]:
    return [part for part in trace(expression, properties).leaves() if part.decides]


def quoted(text: str) -> str:
    """A text in quotes, shortened if it is long."""
    return repr(shortened(text, LONGEST))
