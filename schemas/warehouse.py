"""The entry point for notebooks and programs: opens a warehouse and answers questions. Nothing starts Spark.

from schemas import warehouse

mqsieve = warehouse.open("/data/mqsieve")
mqsieve.why("ord-370", "cg_expensive_orders")
mqsieve.lag()
mqsieve.deliveries.of(group="cg_expensive_orders").to_pandas()
"""

from __future__ import annotations

from dataclasses import dataclass

from schemas.answers.explain import Explanation
from schemas.answers.export import Selection
from schemas.answers.facts import BrokerFacts, open_facts
from schemas.answers.lag import CommittedOffsets, Lag, lag
from schemas.answers.results import Explanations, Results, Rows
from schemas.answers.why import Why, why, why_at
from schemas.delta.warehouse import Warehouse

_WHY_TITLES = ("message", "place", "group", "outcome", "reason")
_LAG_TITLES = (
    "consumer_group", "topic", "queue_id", "committed", "end", "lag", "exact_lag", "broker_estimate",
    "oldest_pending_ms",
)  # fmt: skip


@dataclass(frozen=True)
class OpenWarehouse:
    """Answers questions about one broker. ``facts`` are its stored data."""

    facts: BrokerFacts

    def why(self, key_or_msg_id: str, group: str | None = None) -> Explanations:
        """Explains what happened to a message for a group, or for all that ever subscribed to its topic.

        ``key_or_msg_id`` is a msgId, a unique key, or one of KEYS, which several messages may share. Raises UsageError
        if no message has it.
        """
        return _explanations(why(self.facts, key_or_msg_id, group))

    def why_at(self, topic: str, queue_id: int, queue_offset: int, group: str | None = None) -> Explanations:
        """The same for the message at a place of a queue."""
        return _explanations(why_at(self.facts, topic, queue_id, queue_offset, group))

    def lag(
        self, group: str | None = None, topic: str | None = None, newer: CommittedOffsets | None = None
    ) -> Results[Lag]:
        """How far groups are behind, a row for each queue."""
        rows = lag(self.facts, newer, None if group is None else [group], None if topic is None else [topic])
        return Results(rows, _LAG_TITLES, lambda row: [getattr(row, name) for name in _LAG_TITLES])

    @property
    def deliveries(self) -> Rows:
        """Which group received which message, one row per pair."""
        return self._rows("deliveries")

    @property
    def messages(self) -> Rows:
        """The stored messages."""
        return self._rows("commitlog")

    @property
    def subscriptions(self) -> Rows:
        """The history of subscriptions."""
        return self._rows("subscriptions")

    def _rows(self, name: str) -> Rows:
        return Rows(self.facts.warehouse, name, Selection(self.facts.name))


def open(folder: str, broker: str | None = None) -> OpenWarehouse:
    """The warehouse in a folder or an object store. ``broker``: the brokerName, required if there are several.

    Raises UsageError if there is no warehouse, or if it is not as its ledger says.
    """
    return OpenWarehouse(open_facts(Warehouse.at(folder), broker))


def _explanations(found: Why) -> Explanations:
    return Explanations(list(found), _WHY_TITLES, _why_row)


def _why_row(explanation: Explanation) -> tuple[str, ...]:
    return (
        explanation.message.name,
        explanation.message.place,
        explanation.consumer_group,
        str(explanation.outcome),
        explanation.decision.reason,
    )
