"""Expectations: messages that a filter must deliver, or must not deliver, as a YAML list.

    - pass: {region: hangzhou, price: "60.0"}
    - stop: {region: beijing}
      group: cg_expensive_orders

With ``group``, the expectation applies to the filters of this group only, else to every filter that is tried.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from filtering.delivery.message_filter import delivers
from filtering.explanation.trace import evaluated
from filtering.predicate_value import holds
from filtering.subscriptions.subscription_row import SubscriptionRow
from filtering.yaml_input import load

_KEYS = frozenset({"pass", "stop", "group"})


@dataclass(frozen=True)
class Expectation:
    """A message with these properties passes, or it does not. ``number`` (from 1) is its position in the list."""

    number: int
    passes: bool
    properties: Mapping[str, str]
    consumer_group: str | None = None

    @property
    def message(self) -> str:
        """The number and the properties, for a line of text."""
        shown = ", ".join(f"{name}: {text!r}" for name, text in self.properties.items())
        return f"message {self.number} ({shown})"


def parse_expectations(text: str) -> list[Expectation]:
    """The expectations of a YAML text. Raises ValueError; InvalidYaml, a subclass, if it is not YAML."""
    document = load(text)
    if not isinstance(document, list) or not document:
        raise ValueError("not a list; begin each message with - pass: or - stop:, and its properties")
    return [_expectation(number, entry) for number, entry in enumerate(document, start=1)]


def unmet(expectations: Iterable[Expectation], row: SubscriptionRow) -> Iterator[str]:
    """A line for each expectation that a subscription does not meet. One that does not compile gives no lines."""
    predicate = delivers(row)
    for expected in expectations:
        if predicate is None or expected.consumer_group not in (None, row.consumer_group):
            continue
        if holds(predicate, expected.properties) is not expected.passes:
            must = "must pass and does not" if expected.passes else "must not pass and does"
            why = f"the filter is {_outcome(row, expected.properties)}"
            yield f"{row.consumer_group}: {expected.message} {must}: {why}"


def unmet_without_subscription(expectations: Iterable[Expectation], groups: Collection[str]) -> Iterator[str]:
    """A line for each message that must pass for a group that is not one of ``groups``, which have subscriptions."""
    for expected in expectations:
        group = expected.consumer_group
        if expected.passes and group is not None and group not in groups:
            yield f"{group}: {expected.message} must pass and does not: the group has no subscription"


def _expectation(number: int, entry: object) -> Expectation:
    if not isinstance(entry, dict) or not entry.keys() <= _KEYS or ("pass" in entry) == ("stop" in entry):
        raise ValueError(f"entry {number}: give either pass: or stop:; the only other field is group:")
    properties = entry.get("pass", entry.get("stop")) or {}
    if not isinstance(properties, dict) or not all(isinstance(text, str) for text in properties.values()):
        raise ValueError(f"entry {number}: the properties must be names and texts, such as {{region: hangzhou}}")
    group = entry.get("group")
    if not isinstance(group, str | None):
        raise ValueError(f"entry {number}: group: must be a text")
    return Expectation(number, "pass" in entry, properties, group)


def _outcome(row: SubscriptionRow, properties: Mapping[str, str]) -> str:
    if row.compiled.expression is None:
        tag = properties.get("TAGS")
        return f"{row.expression!r}, and {'it has no tag' if tag is None else f'its tag is {tag!r}'}"
    result, error = evaluated(row.compiled.expression, properties)
    return result.value if error is None else f"in error: {error}"
