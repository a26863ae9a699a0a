"""The audit of the stored filter bit maps."""

from __future__ import annotations

import pytest

from schemas.delta.warehouse import Warehouse
from schemas.tables import CONSUMEQUEUE
from tests.nights.commands import rows_of
from tests.nights.damage import rewrite
from tests.nights.growing_broker import BEFORE, GrowingBroker, event, sql

RETRY = "%RETRY%cg"
EVENTS = [
    sql(BEFORE, "cg", "n IN ('0', '1')"),
    event(BEFORE, "register", "cg", type="SQL92", expression="n IN ('1', '2')", consume_from="first").replace(
        '"T"', f'"{RETRY}"'
    ),
]


@pytest.fixture
def retrying(broker: GrowingBroker) -> GrowingBroker:
    """A broker with messages of T that a consumer sent back to its retry topic."""
    config = broker.folder / "broker.conf"
    config.write_text(config.read_text() + "filterSupportRetry=true\n")
    broker.log.append(5, topic=RETRY, RETRY_TOPIC="T").write(broker.folder / "store")
    assert broker.night(EVENTS).code == 0
    return broker


def test_a_retry_topic_is_filtered_by_its_own_bit_and_the_original_expression(retrying: GrowingBroker) -> None:
    """The broker calculates the bit from the expression of the retry topic, and stage 2 reads that of T."""
    received = rows_of(retrying.folder / "w", "deliveries", "topic", "queue_offset")
    assert [row["queue_offset"] for row in received if row["topic"] == RETRY] == [1]
    assert retrying.passes_audits()


def test_a_missing_bit_in_a_retry_topic_is_found(retrying: GrowingBroker) -> None:
    warehouse = Warehouse.at(str(retrying.folder / "w"))
    rewrite(
        warehouse,
        CONSUMEQUEUE,
        lambda rows: [row | {"filter_bit_map": bytes(len(row["filter_bit_map"]))} for row in rows],
    )
    assert not retrying.passes_audits()
