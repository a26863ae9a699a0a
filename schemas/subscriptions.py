"""The history of subscriptions: which were in force at any time, and the events that changed them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa

from filtering.sql92 import CompiledExpression
from filtering.subscriptions.events import SubscriptionEvent, event_line, parse_event
from filtering.subscriptions.subscription_row import SubscriptionRow
from schemas.delta.table import Table, column
from schemas.delta.table_rows import sorted_by
from schemas.delta.warehouse import Warehouse

SUBSCRIPTIONS = Table(
    "subscriptions",
    "One row per state of a group's subscription to a topic. Key: broker_name, consumer_group, topic, valid_from.",
    [
        column("broker_name", pa.string(), nullable=False),
        column("consumer_group", pa.string(), nullable=False),
        column("topic", pa.string(), nullable=False),
        column("valid_from", pa.int64(), "ms since the epoch, inclusive; may be after the last night", nullable=False),
        column("valid_to", pa.int64(), "ms since the epoch, exclusive; null: no later state is known"),
        column("expression", pa.string(), "expression of the subscription that pulls use"),
        column("expression_type", pa.string(), "TAG or SQL92"),
        column("sub_version", pa.int64(), "version of the subscription: when the client made it, ms since the epoch"),
        column("tags_set", pa.list_(pa.string()), "tags of a TAG expression; empty for *, null for SQL92"),
        column("code_set", pa.list_(pa.int32()), "hash codes of tags_set"),
        column("registered", pa.bool_(), "false after the group left: its last subscription stays visible"),
        column("is_consuming", pa.bool_(), "the group is online"),
        column("sent_with_pull", pa.bool_(), "every pull brings this subscription, which uses no bit map"),
        column("class_filter_mode", pa.bool_(), "subscribes by filter class, and receives every message"),
        column(
            "filter_expression",
            pa.string(),
            "expression of the ConsumerFilterData, which may outlive the subscription",
        ),
        column("filter_version", pa.int64(), "clientVersion of the ConsumerFilterData, ms since the epoch"),
        column("born_time", pa.int64(), "of the ConsumerFilterData, ms since the epoch"),
        column("dead_time", pa.int64(), "of the ConsumerFilterData; null while alive"),
        column("bit_pos", pa.list_(pa.int32()), "positions in the filter bit map"),
        column("bit_num", pa.int32(), "bits of the filter bit map"),
        column("predicate", pa.string(), "Spark SQL over a column properties, true if the broker delivers"),
        column("compile_error", pa.string(), "why the broker refuses the expression"),
    ],
    dictionary_encoded=("topic", "expression_type"),
)

SUBSCRIPTION_EVENTS = Table(
    "subscription_events",
    "The subscription events that were applied, in order. Key: broker_name, number.",
    [
        column("broker_name", pa.string(), nullable=False),
        column("number", pa.int64(), "from 0, in order of time", nullable=False),
        column("at", pa.int64(), "ms since the epoch", nullable=False),
        column("event", pa.string(), "the event as a JSON line", nullable=False),
        column("run", pa.string(), "the run that applied it first", nullable=False),
    ],
    statistics_on=("number", "at", "run"),
    dictionary_encoded=("run",),
    delta_encoded=("number", "at"),
)


def subscription_rows(history: Iterable[SubscriptionRow], stored: Mapping[str, str] | None = None) -> pa.RecordBatch:
    """States of subscriptions as rows of the table. ``stored``: predicates that need not be written, by expression."""
    names = [name for name in SUBSCRIPTIONS.file_schema.names if name != "predicate"]
    known = stored or {}
    predicates: dict[CompiledExpression | None, str | None] = {None: None}
    rows = []
    for row in history:
        compiled = row.compiled.expression
        if compiled is not None and compiled not in predicates:
            predicates[compiled] = known.get(compiled.expression) or compiled.spark_predicate()
        rows.append({name: getattr(row, name) for name in names} | {"predicate": predicates[compiled]})
    return SUBSCRIPTIONS.rows_batch(rows)


def read_events(warehouse: Warehouse, broker_name: str) -> tuple[SubscriptionEvent, ...]:
    """All subscription events of a broker, in order."""
    files = warehouse.files(SUBSCRIPTION_EVENTS, broker_name)
    rows = warehouse.rows(SUBSCRIPTION_EVENTS, ["number", "event"], files=files)
    lines = sorted_by(rows, "number")["event"].to_pylist()
    return tuple(parse_event(line, len(line)) for line in lines)


def event_rows(events: Iterable[SubscriptionEvent], first_number: int, run: str) -> pa.RecordBatch:
    """Events as rows of subscription_events."""
    rows = [
        {"number": number, "at": event.at, "event": event_line(event), "run": run}
        for number, event in enumerate(events, start=first_number)
    ]
    return SUBSCRIPTION_EVENTS.rows_batch(rows)
