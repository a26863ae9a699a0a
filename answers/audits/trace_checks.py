"""The relations for the audits of traces: what clients wrote of their own consumption, and what is told of it."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from answers.audits.scope import Scope
from answers.proof import Proof, proof

_PLACE = [
    ("broker_name", pa.string()),
    ("consumer_group", pa.string()),
    ("topic", pa.string()),
    ("queue_id", pa.int32()),
    ("queue_offset", pa.int64()),
]
TRACE_CHECKS = pa.schema(
    [*_PLACE, ("consumed_at", pa.int64()), ("client_process", pa.string()), ("is_told", pa.bool_())]
)
PROVEN_DELIVERIES = pa.schema(
    [*_PLACE, ("available_at", pa.int64()), ("is_proven", pa.bool_()), ("is_denied", pa.bool_())]
)


def trace_checks(scope: Scope) -> pa.Table:
    """A row of TRACE_CHECKS for each trace that can be judged."""
    return _of_brokers(scope, TRACE_CHECKS, lambda found: found.traces)


def proven_deliveries(scope: Scope) -> pa.Table:
    """A row of PROVEN_DELIVERIES for each delivery to a group that traces."""
    return _of_brokers(scope, PROVEN_DELIVERIES, lambda found: found.deliveries)


def _of_brokers(scope: Scope, schema: pa.Schema, part: Callable[[Proof], pa.Table]) -> pa.Table:
    found = [(facts.name, proof(facts, scope.first_run)) for facts in scope.facts]
    tables = [
        part(each).append_column("broker_name", pa.repeat(name, len(part(each)))).select(schema.names).cast(schema)
        for name, each in found
        if each is not None
    ]
    return pa.concat_tables([schema.empty_table(), *tables])
