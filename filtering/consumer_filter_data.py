"""One group's SQL92 filter on one topic, as the broker keeps it. Source: ConsumerFilterData."""

from __future__ import annotations

from dataclasses import dataclass

from filtering.sql92 import CompiledExpression, Expressions
from filtering.subscription_data import SQL92


@dataclass(frozen=True, slots=True)
class ConsumerFilterData:
    """A filter in the broker's registry. Times are in milliseconds.

    ``dead_time`` is None if the group has not left since it registered.
    """

    consumer_group: str
    topic: str
    expression: str
    expression_type: str
    client_version: int
    born_time: int
    dead_time: int | None
    bit_pos: tuple[int, ...]
    bit_num: int
    compiled: CompiledExpression

    @property
    def is_dead(self) -> bool:
        return self.dead_time is not None and self.dead_time >= self.born_time


def compile_filter(
    expression_type: str | None, expression: str | None, expressions: Expressions
) -> CompiledExpression | str:
    """The compiled filter, or the reason why the broker refuses it. Only SQL92 has a compiler (FilterFactory)."""
    if expression_type != SQL92:
        return f"no filter of type {expression_type}; the broker knows TAG and SQL92"
    compiled = expressions.compile(expression or "")
    return compiled if isinstance(compiled, CompiledExpression) else str(compiled)
