"""One group's SQL92 filter on one topic, as the broker keeps it. Source: ConsumerFilterData."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from filtering.rocketmq_version import NEWEST, RocketMQVersion
from filtering.sql92 import CompiledExpression, Expressions
from filtering.subscription_data import SQL92


@dataclass(frozen=True, slots=True)
class ConsumerFilterData:
    """A filter in the broker's registry. Times are in milliseconds.

    ``dead_time`` is None if the group has not left since it registered. ``compiled`` is None if the broker refuses the
    expression. Only data loaded from a file can have such an expression: the broker does not register it.
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
    compiled: CompiledExpression | None

    @property
    def is_dead(self) -> bool:
        return self.dead_time is not None and self.dead_time >= self.born_time

    def to_json(self) -> dict[str, Any]:
        """An entry of consumerFilter.json, its keys in RocketMQ's order."""
        return {
            "bloomFilterData": {"bitNum": self.bit_num, "bitPos": list(self.bit_pos)},
            "bornTime": self.born_time,
            "clientVersion": self.client_version,
            "consumerGroup": self.consumer_group,
            "dead": self.is_dead,
            "deadTime": self.dead_time or 0,
            "expression": self.expression,
            "expressionType": self.expression_type,
            "topic": self.topic,
        }

    @classmethod
    def from_json(
        cls, entry: Mapping[str, Any], expressions: Expressions, version: RocketMQVersion = NEWEST
    ) -> ConsumerFilterData:
        """The reverse of :meth:`to_json`. Raises KeyError, TypeError or ValueError for a missing or bad field."""
        expression, expression_type = entry["expression"], entry["expressionType"]
        compiled = compile_filter(expression_type, expression, expressions, version)
        return cls(
            consumer_group=entry["consumerGroup"],
            topic=entry["topic"],
            expression=expression,
            expression_type=expression_type,
            client_version=int(entry["clientVersion"]),
            born_time=int(entry["bornTime"]),
            dead_time=int(entry["deadTime"]) or None,
            bit_pos=tuple(entry["bloomFilterData"]["bitPos"]),
            bit_num=int(entry["bloomFilterData"]["bitNum"]),
            compiled=compiled if isinstance(compiled, CompiledExpression) else None,
        )


def compile_filter(
    expression_type: str | None, expression: str | None, expressions: Expressions, version: RocketMQVersion = NEWEST
) -> CompiledExpression | str:
    """The compiled filter, or the reason why a broker of this version refuses it (FilterFactory).

    Only SQL92 has a compiler.
    """
    if expression_type != SQL92:
        return f"no filter of type {expression_type}; the broker knows TAG and SQL92"
    compiled = expressions.compile(expression or "", version)
    return compiled if isinstance(compiled, CompiledExpression) else str(compiled)
