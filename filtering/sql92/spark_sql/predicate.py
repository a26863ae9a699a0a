"""Turns a predicate into Spark SQL text that is true or false, never NULL.

A node that a predicate uses twice appears twice in the text. If the text gets too long, such nodes are bound to
variables: ``exists(array(struct(… AS v0, …)), s0 -> …)`` is SQL's way to write ``let``.
"""

from __future__ import annotations

from collections import Counter

from filtering.predicate import Predicate, postorder
from filtering.sql92.spark_sql.leaves import Column
from filtering.sql92.spark_sql.text import SparkText

_REPETITION = 4
"""A text gets variables if it is more than so many times as long as its distinct nodes, and _SHORT longer."""
_BRACKETS = 10
"""The approximate length of an operator's brackets, and of a variable's name."""
_SHORT = 2000
"""A repeated operation of up to this length gets no variable."""


def spark_sql(predicate: Predicate, column: Column) -> str:
    """The SQL text of the predicate. ``column`` returns the SQL text of a property."""
    nodes = list(postorder([predicate]))
    uses = _uses(nodes)
    is_tree = max(uses.values(), default=1) == 1
    stage_of = {} if is_tree else _stages(nodes, _lengths(nodes, column))
    text = SparkText(column, together=not stage_of)
    stages: list[list[str]] = []
    for node in nodes:
        text.write(node)
        stage = stage_of.get(node)
        if stage is not None:
            stages += [[] for _ in range(stage + 1 - len(stages))]
            variable = f"v{len(stages[stage])}"
            stages[stage].append(f"{text.two_valued(node)} AS {variable}")
            text.name(node, f"s{stage}.{variable}")
        if node is not predicate:
            uses.subtract(node.operands)
            text.forget(operand for operand in node.operands if not uses[operand])
    sql = text.two_valued(predicate)
    for stage in reversed(range(len(stages))):
        sql = f"exists(array(struct({', '.join(stages[stage])})), s{stage} -> {sql})"
    return sql


def _lengths(nodes: list[Predicate], column: Column) -> dict[Predicate, int]:
    """The approximate number of characters that each node adds to those of its operands."""
    text = SparkText(column, together=False)
    return {node: _BRACKETS if node.operands else len(text.write(node).sql) for node in nodes}


def _uses(nodes: list[Predicate]) -> Counter[Predicate]:
    return Counter(operand for node in nodes for operand in node.operands)


def _stages(nodes: list[Predicate], own: dict[Predicate, int]) -> dict[Predicate, int]:
    """The nodes to bind, with their stage: after the stages of the nodes they use. Empty if the text is short."""
    length: dict[Predicate, int] = {}
    for node in nodes:
        length[node] = own[node] + sum(length[operand] for operand in node.operands)
    if length[nodes[-1]] <= _REPETITION * sum(own.values()) + _SHORT:
        return {}
    uses = _uses(nodes)
    ready: dict[Predicate, int] = {}
    bound: dict[Predicate, int] = {}
    for node in nodes:
        length[node] = own[node] + sum(length[operand] for operand in node.operands)
        ready[node] = max((ready[operand] for operand in node.operands), default=0)
        if uses[node] > 1 and length[node] > (_SHORT if node.operands else _BRACKETS):
            bound[node] = ready[node]
            ready[node] += 1
            length[node] = _BRACKETS
    return bound
