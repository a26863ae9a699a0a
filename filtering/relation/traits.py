"""What messages have in common that other messages have not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from filtering.java.numbers import parse_double

LEAST_SHARE = 0.5
LEAST_LIFT = 0.05
MOST = 3


@dataclass(frozen=True)
class Trait:
    """``share`` of the messages, and ``share_of_others``, have this, from 0 to 1.

    ``values``: one text of the property ``name``, or with two the least and the greatest number; empty: it is
    missing.
    """

    name: str
    values: tuple[str, ...]
    share: float
    share_of_others: float

    @property
    def text(self) -> str:
        """As a condition: ``region = 'us-east'``."""
        if not self.values:
            return f"{self.name} is missing"
        if len(self.values) == 1:
            return f"{self.name} = '{self.values[0]}'"
        return f"{self.name} is from {self.values[0]} to {self.values[1]}"


def common_traits(messages: Sequence[Mapping[str, str]], others: Sequence[Mapping[str, str]]) -> list[Trait]:
    """What most messages have, and fewer of the others do; the most telling first."""
    if not messages:
        return []
    names = dict.fromkeys(name for message in [*messages, *others] for name in message)
    found = []
    for name in names:
        of_messages = Counter(message.get(name) for message in messages)
        of_others = Counter(message.get(name) for message in others)
        text, count = of_messages.most_common(1)[0]
        share = count / len(messages)
        if share >= LEAST_SHARE:
            found.append(Trait(name, () if text is None else (text,), share, of_others[text] / max(1, len(others))))
        elif (numbers := _numbers(of_messages)) is not None:
            low, high = min(numbers, key=lambda each: each[0]), max(numbers, key=lambda each: each[0])
            inside = sum(low[0] <= number <= high[0] for number, _ in _numbers(of_others, strict=False) or ())
            found.append(Trait(name, (low[1], high[1]), 1.0, inside / max(1, len(others))))
    telling = [trait for trait in found if trait.share - trait.share_of_others >= LEAST_LIFT]
    return sorted(telling, key=lambda trait: trait.share_of_others - trait.share)[:MOST]


def _numbers(texts: Counter[str | None], strict: bool = True) -> list[tuple[float, str]] | None:
    """The numbers among the texts, once for each message; None where ``strict`` and some text is none."""
    found = []
    for text, count in texts.items():
        number = parse_double(text) if text is not None else None
        if number is not None and number == number:
            found += [(number, text or "")] * count
        elif strict:
            return None
    return found
