"""Evaluates thousands of predicates on Arrow batches of messages, with 64 messages in a machine word.

- :mod:`~filtering.matcher.program` compiles the predicates of all groups into one program, once for a topic.
- :mod:`~filtering.matcher.matcher` runs the program on batches, by the loops of :mod:`filtering.kernels`.
- :mod:`~filtering.matcher.column` makes columns of properties in whatever layout; ``packed_bits`` has the results.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from filtering.matcher.matcher import Matcher, Matches
from filtering.sql92 import compile

__all__ = ["Matcher", "Matches", "match"]


def match(properties: pa.RecordBatch | pa.Array, expressions: Sequence[str]) -> Matches:
    """The messages for which the broker's outcome of each SQL92 expression is TRUE.

    ``properties``: a RecordBatch or StructArray with one column of text for each property (without a column, all
    messages lack it), or a MapArray from text to text. Of the result, ``counts()`` are the numbers of messages that
    match each expression, and ``pairs()`` which ones. Raises InvalidExpression if an expression does not compile, and
    TypeError for other types.
    """
    if isinstance(expressions, str):
        raise TypeError("expressions must be a list of texts, not one text")
    return Matcher([compile(expression).predicate for expression in expressions]).match(properties)
