"""The history of subscriptions: which were in force at any time, and the events that changed them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from filtering.predicate import to_json
from filtering.rocketmq_version import RocketMQVersion
from filtering.source_code import digest, with_imports
from filtering.sql92 import CompiledExpression, Expressions, StoredExpression, SuspiciousPart
from filtering.sql92 import compiled as compiler
from filtering.sql92.compiled import is_read_alike
from filtering.subscriptions.events import SubscriptionEvent, event_line, parse_event
from filtering.subscriptions.subscription_row import SubscriptionRow
from schemas import VERSION
from schemas.delta.table import Table, column
from schemas.delta.table_rows import sorted_by, tuples
from schemas.delta.warehouse import Warehouse
from schemas.run_ledger import LedgerEntry

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
        column("findings", pa.string(), "what lint says of the SQL92 expression alone, as a JSON list"),
        column("compiled", pa.string(), "what the next night has instead of compiling the expression again, as JSON"),
        column("compiled_by", pa.string(), "version and digest of what made predicate, findings and compiled"),
    ],
    dictionary_encoded=("topic", "expression_type", "compiled_by"),
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


EXPRESSION_COLUMNS = ("predicate", "findings", "compiled", "compiled_by")
"""The columns that depend on the compiled expression only. It takes long to make them."""


def subscription_rows(history: Sequence[SubscriptionRow]) -> pa.RecordBatch:
    """States of subscriptions as rows of the table."""
    by_expression: dict[CompiledExpression | None, dict[str, str]] = {None: {}}
    for row in history:
        compiled = row.compiled.expression
        if compiled is not None and compiled not in by_expression:
            by_expression[compiled] = {
                "predicate": compiled.spark_predicate(), "findings": _findings_text(compiled.findings),
                "compiled": to_json([compiled.predicate, compiled.error_predicate]), "compiled_by": compiled_by(),
            }  # fmt: skip
    expression_values = [by_expression[row.compiled.expression] for row in history]
    columns = {}
    for field in SUBSCRIPTIONS.file_schema:
        if field.name in EXPRESSION_COLUMNS:
            values: list[Any] = [each.get(field.name) for each in expression_values]
        else:
            values = [getattr(row, field.name) for row in history]
        columns[field.name] = pa.array(values, field.type)
    return SUBSCRIPTIONS.batch(columns, len(history))


_NO_FINDINGS = "[]"


def _findings_text(findings: Iterable[SuspiciousPart]) -> str:
    parts = [part._asdict() for part in findings]
    return json.dumps(parts, ensure_ascii=False) if parts else _NO_FINDINGS


def _findings(text: str) -> Sequence[SuspiciousPart]:
    return () if text == _NO_FINDINGS else tuple(SuspiciousPart(**part) for part in json.loads(text))


@cache
def compiled_by() -> str:
    """The version of mqsieve, and a digest of the modules that compile expressions."""
    file = Path(compiler.__file__).absolute()
    sources = with_imports(file, file.parents[len(compiler.__name__.split(".")) - 1])
    return f"{VERSION} {digest(sources).hex()}"


def reuse_compiled(warehouse: Warehouse, entries: Sequence[LedgerEntry], expressions: Expressions) -> bool:
    """Gives ``expressions`` what the stored subscriptions of a broker compiled to. ``entries``: its runs, in order.

    Returns whether all of it is what these modules would make again. What they make also depends on the version of the
    broker, which rows do not have: if there were several, only texts count that all versions read alike.
    """
    if not entries:
        return True
    files = warehouse.files(SUBSCRIPTIONS, entries[-1].broker_name)
    rows = warehouse.rows(SUBSCRIPTIONS, ["expression", *EXPRESSION_COLUMNS], files=files)
    rows = rows.filter(rows["predicate"].is_valid())
    own = rows.filter(pc.equal(rows["compiled_by"], compiled_by()))
    is_one_version = len({entry.broker.rocketmq_version for entry in entries}) == 1
    version: RocketMQVersion = entries[-1].broker.version
    for expression, predicate, findings, compiled, _ in tuples(own, "expression", *EXPRESSION_COLUMNS):
        text = expression or ""
        if is_one_version or is_read_alike(text):
            expressions.keep(text, version, StoredExpression(predicate, _findings(findings), compiled))
    return len(own) == len(rows)


def read_events(warehouse: Warehouse, broker_name: str) -> tuple[SubscriptionEvent, ...]:
    """All subscription events of a broker, in order."""
    files = warehouse.files(SUBSCRIPTION_EVENTS, broker_name)
    rows = warehouse.rows(SUBSCRIPTION_EVENTS, ["number", "event"], files=files)
    lines = sorted_by(rows, "number")["event"].to_pylist()
    return tuple(map(_stored_event, lines))


@lru_cache(maxsize=1 << 16)
def _stored_event(line: str) -> SubscriptionEvent:
    """A night and its summary read the same lines."""
    return parse_event(line, len(line))


def event_rows(events: Iterable[SubscriptionEvent], first_number: int, run: str) -> pa.RecordBatch:
    """Events as rows of subscription_events."""
    rows = [
        {"number": number, "at": event.at, "event": event_line(event), "run": run}
        for number, event in enumerate(events, start=first_number)
    ]
    return SUBSCRIPTION_EVENTS.rows_batch(rows)
