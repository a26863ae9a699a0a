"""Opens the stored data of the brokers of a warehouse."""

from __future__ import annotations

from collections.abc import Sequence

from filtering.sql92 import Expressions
from schemas.answers.facts import BrokerFacts
from schemas.delta.warehouse import Warehouse
from schemas.errors import UsageError
from schemas.ledger_check import open_runs
from schemas.run_ledger import by_broker


def open_facts(
    warehouse: Warehouse, broker_name: str | None = None, expressions: Expressions | None = None
) -> BrokerFacts:
    """The stored data of a broker. Without a name, the warehouse must hold only one broker.

    ``expressions`` are already compiled filters. Raises UsageError if there is no such broker, or if there are several.
    """
    runs = by_broker(open_runs(warehouse))
    if broker_name is None:
        check_only_broker(list(runs))
    chosen = broker_name if broker_name is not None else next(iter(runs))
    check_broker(chosen, list(runs))
    return BrokerFacts(warehouse, runs[chosen], expressions or Expressions())


def open_brokers(warehouse: Warehouse) -> list[BrokerFacts]:
    """The stored data of each broker of a warehouse, in the order of their names."""
    expressions = Expressions()
    return [BrokerFacts(warehouse, runs, expressions) for _, runs in sorted(by_broker(open_runs(warehouse)).items())]


def check_only_broker(names: Sequence[str]) -> None:
    """Raises UsageError if there are several brokers."""
    if len(names) > 1:
        known = ", ".join(names)
        raise UsageError(f"the warehouse holds the brokers {known}: say which (--broker NAME, in Python broker=NAME)")


def check_broker(name: str, known: Sequence[str]) -> None:
    """Raises UsageError if a warehouse with these brokers has none of this name."""
    if name not in known:
        raise UsageError(f"the warehouse has no broker {name}; it holds {', '.join(known)}")
