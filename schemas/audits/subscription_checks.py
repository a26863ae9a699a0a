"""The relation for the audit of subscriptions: their rows compared with those that follow from the events."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from filtering.subscriptions.history import subscription_history
from schemas.answers.facts import BrokerFacts
from schemas.arrow_batches import table_of
from schemas.audits.scope import Scope
from schemas.run_ledger import earlier_configs
from schemas.subscriptions import SUBSCRIPTIONS

SUBSCRIPTION_CHECKS = pa.schema(
    [
        ("broker_name", pa.string()),
        ("consumer_group", pa.string()),
        ("topic", pa.string()),
        ("valid_from", pa.int64()),
        ("difference", pa.string()),
    ]
)
_KEY = ("consumer_group", "topic", "valid_from")
_COMPARED = [name for name in SUBSCRIPTIONS.file_schema.names if name not in (*_KEY, "predicate", "compile_error")]
"""Without texts that another version of mqsieve writes differently."""
_REGISTERING = ("nightly", "register")
"""The jobs that write subscriptions."""
Rows = Mapping[tuple[Any, ...], list[tuple[Any, ...]]]
"""By the values of _KEY, those of _COMPARED."""


def subscription_checks(scope: Scope) -> pa.Table:
    """Rows of SUBSCRIPTION_CHECKS: each state of a subscription, stored or following from the events.

    ``difference``: ``missing``, ``doubled``, ``not from the events`` or the columns that differ; null if there is none.
    """
    rows = (row for facts in scope.facts if not facts.is_replay for row in _checks(facts))
    return table_of(SUBSCRIPTION_CHECKS, rows)


def _checks(facts: BrokerFacts) -> Iterable[tuple[Any, ...]]:
    stored = _by_key(facts.rows(SUBSCRIPTIONS, [*_KEY, *_COMPARED]).to_pylist())
    expected = _expected(facts)
    for key in sorted(stored.keys() | expected.keys()):
        yield facts.name, *key, _difference(key, stored, expected)


def _expected(facts: BrokerFacts) -> Rows:
    """The states that follow from the events, by the configuration of the last run that wrote subscriptions."""
    config = next((entry.broker for entry in reversed(facts.entries) if entry.job in _REGISTERING), facts.broker)
    history = subscription_history(facts.events, config, facts.expressions, earlier_configs(facts.nights))
    batch = SUBSCRIPTIONS.rows_batch([{name: getattr(row, name) for name in (*_KEY, *_COMPARED)} for row in history])
    return _by_key(batch.to_pylist())


def _by_key(rows: Iterable[Mapping[str, Any]]) -> Rows:
    found: defaultdict[tuple[Any, ...], list[tuple[Any, ...]]] = defaultdict(list)
    for row in rows:
        found[tuple(row[name] for name in _KEY)].append(tuple(row[name] for name in _COMPARED))
    return found


def _difference(key: tuple[Any, ...], stored: Rows, expected: Rows) -> str | None:
    if key not in stored:
        return "missing"
    if key not in expected:
        return "not from the events"
    if len(stored[key]) > 1:
        return "doubled"
    (found,), (right,) = stored[key], expected[key]
    return ", ".join(name for name, one, other in zip(_COMPARED, found, right, strict=True) if one != other) or None
