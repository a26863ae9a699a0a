"""lag's estimates of the broker's metric rocketmq_consumer_lag_messages, beside a real broker's values."""

from __future__ import annotations

import pytest

from answers.facts import open_facts
from answers.lag import lag
from schemas.delta.warehouse import Warehouse
from tests.broker_log import SEGMENT, BrokerLog
from tests.nights.growing_broker import BEFORE, GrowingBroker, after, event
from tests.records import filler

GROUPS = {
    "tag": ("TAG", "paid"), "sql": ("SQL92", "price > 50"), "all": ("TAG", "*"), "refused": ("SQL92", "price >"),
    "nothing": ("TAG", " || "),
}  # fmt: skip
DELETED = 50
BIT_MAP = "enableCalcFilterBitMap=true\nenableConsumeQueueExt=true\n"
VERSION = ("--rocketmq-version", "5.5.0")
ESTIMATE_OFF, SMALL_FILES = "estimateAccumulation=false\n", "mappedFileSizeConsumeQueue=400\n"


@pytest.mark.parametrize(
    ("deleted", "committed", "settings", "estimates"),
    [
        (0, None, "", (0, 0, 0, 0, 0)),
        (0, None, BIT_MAP, (0, 0, 0, 0, 0)),
        (0, 10, "", (40, 80, 80, 80, 0)),
        (0, 10, BIT_MAP, (40, 40, 80, 80, 0)),
        (0, 10, ESTIMATE_OFF, (80, 80, 80, 80, 80)),
        (0, 10, BIT_MAP + ESTIMATE_OFF, (80, 80, 80, 80, 80)),
        (DELETED, 10, "", (0, 0, 80, 0, 0)),
        (DELETED, 10, BIT_MAP, (0, 0, 80, 0, 0)),
        (DELETED, 10, SMALL_FILES, (15, 30, 80, 30, 0)),
        (DELETED, 10, BIT_MAP + SMALL_FILES, (15, 15, 80, 30, 0)),
        (DELETED, 60, "", (15, 30, 30, 30, 0)),
        (DELETED, 60, BIT_MAP, (15, 15, 30, 30, 0)),
    ],
)
def test_the_estimate_is_the_brokers(
    broker: GrowingBroker, deleted: int, committed: int | None, settings: str, estimates: tuple[int, ...]
) -> None:
    """The broker has 90 messages in one queue, every second one paid. Retry topics and groups away have no value."""
    (broker.folder / "broker.conf").write_text(f"brokerName=b\nenablePropertyFilter=true\n{settings}")
    broker.log = BrokerLog()
    for number in range(90):
        if number == DELETED:
            broker.log.data += filler(SEGMENT - len(broker.log.data) % SEGMENT)
        tags, price = ("open", "5") if number % 2 else ("paid", "60")
        broker.log.append(TAGS=tags, price=price)
    broker.log.append(10, topic="%RETRY%tag").write(broker.folder / "store")
    lines = [
        event(BEFORE, "register", group, type=kind, expression=expression, consume_from="first")
        for group, (kind, expression) in GROUPS.items()
    ]
    lines += [
        event(BEFORE, "register", "left", expression="*"),
        event(after(80), "unregister", "left"),
        event(BEFORE, "register", "tag", expression="*").replace('"T"', '"%RETRY%tag"'),
    ]
    broker.night(lines, *VERSION)
    if deleted:
        broker.log.write(broker.folder / "store", SEGMENT)
    broker.commit(**({"other": 1} if committed is None else dict.fromkeys([*GROUPS, "left"], committed)))
    broker.night(lines, *VERSION)
    rows = lag(open_facts(Warehouse.at(str(broker.folder / "w"))))
    estimate_of = {(row.consumer_group, row.topic): row.broker_estimate for row in rows}
    expected = {(group, "T"): estimate for group, estimate in zip(GROUPS, estimates, strict=True)}
    assert estimate_of == expected | {("left", "T"): None, ("tag", "%RETRY%tag"): None}
