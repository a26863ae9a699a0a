"""The history of subscriptions: what was in force at any instant."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from pyspark.sql import SparkSession

from filtering.subscriptions.history import SubscriptionRow
from schemas.python_rows import data_frame
from schemas.table import Table
from schemas.warehouse import Warehouse

SUBSCRIPTIONS = Table(
    "subscriptions",
    "One row a state of a group's subscription to a topic. Key: consumer_group, topic, valid_from.",
    """
    consumer_group STRING NOT NULL,
    topic STRING NOT NULL,
    valid_from BIGINT NOT NULL COMMENT 'ms since the epoch, inclusive',
    valid_to BIGINT COMMENT 'ms since the epoch, exclusive; null: still in force',
    expression STRING COMMENT 'of the subscription that pulls use',
    expression_type STRING COMMENT 'TAG or SQL92',
    sub_version BIGINT,
    tags_set ARRAY<STRING>,
    code_set ARRAY<INT>,
    registered BOOLEAN COMMENT 'false after the group unregistered: its last subscription stays visible',
    sent_with_pull BOOLEAN COMMENT 'true: every pull brings this subscription, which uses no bit map',
    class_filter_mode BOOLEAN COMMENT 'true: subscribes by filter class, and takes every message',
    filter_expression STRING COMMENT 'of the ConsumerFilterData, which may outlive the subscription',
    filter_version BIGINT,
    born_time BIGINT COMMENT 'of the ConsumerFilterData, ms since the epoch',
    dead_time BIGINT COMMENT 'of the ConsumerFilterData; null while alive',
    bit_pos ARRAY<INT> COMMENT 'positions in the filter bit map',
    bit_num INT COMMENT 'bits of the filter bit map',
    predicate STRING COMMENT 'Spark SQL over a column properties, true exactly where the broker delivers',
    compile_error STRING COMMENT 'why the broker refuses the expression'
    """,
)

_NAMES = [field.name for field in fields(SubscriptionRow)]


def rows(spark: SparkSession, warehouse: Warehouse) -> list[SubscriptionRow]:
    """The whole history, in memory."""
    stored = SUBSCRIPTIONS.read(spark, warehouse).select(*_NAMES).collect()
    return [SubscriptionRow(*map(_hashable, row)) for row in stored]


def replace(spark: SparkSession, warehouse: Warehouse, history: Sequence[SubscriptionRow]) -> None:
    """Makes ``history`` the whole table."""
    states = [{name: getattr(row, name) for name in _NAMES} for row in history]
    SUBSCRIPTIONS.overwrite(data_frame(spark, states, SUBSCRIPTIONS.columns), warehouse)


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
