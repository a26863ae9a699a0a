"""Asks Spark for the answers of filter hooks that are Spark SQL."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType

from filtering.delivery.filter_hooks import ENTRY_COLUMNS
from jobs.night.inputs.hooks import FilterHook, answer_names
from schemas.errors import UsageError


def with_answers(entries: DataFrame, hooks: Sequence[FilterHook]) -> DataFrame:
    """The ENTRY_COLUMNS of ``entries``, and one boolean column for each distinct predicate of a topic.

    Raises UsageError if Spark cannot parse a predicate.
    """
    for hook in hooks:
        if hook.predicate is not None:
            _check(entries, hook)
    return entries.select(*ENTRY_COLUMNS, *(_answer(*key).alias(name) for key, name in answer_names(hooks).items()))


def _answer(topic: str, predicate: str) -> Column:
    """The predicate on entries of the topic only, so that a cast cannot fail on other topics."""
    return F.when(F.col("topic") == topic, F.expr(predicate))


def _check(entries: DataFrame, hook: FilterHook) -> None:
    whose = f"filter hook of {hook.consumer_group} on {hook.topic}: {hook.predicate}"
    try:
        kind = entries.select(F.expr(hook.predicate or "")).schema[0].dataType
    except AnalysisException as error:
        raise UsageError(f"{whose}: {(error.getMessage() or str(error)).strip().splitlines()[0]}") from None
    if not isinstance(kind, BooleanType):
        raise UsageError(f"{whose}: must be a boolean, but has the type {kind.simpleString()}")
