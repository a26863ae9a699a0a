"""lag and explain with the offsets, ends and subscriptions of a broker that runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs import explain, lag, nightly
from tests.broker_log import BrokerLog
from tests.nights.commands import Run
from tests.remoting_server import Answers

LISTED = """{"brokerAddrTable":{"broker-a":{"brokerAddrs":{0:"%s"}}}}"""


@pytest.fixture
def broker() -> Iterator[Answers]:
    """cg_sql is online with price > 2, cg_tag is not; both have committed offset 3 in queues that end at 6."""
    with Answers() as answers:
        answers.changed["GET_BROKER_CLUSTER_INFO", None] = (LISTED % answers.address).encode()
        yield answers
        answers.shutdown()


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    """After a night with five messages in each queue, with other subscriptions."""
    log = BrokerLog()
    for queue_id in (0, 1):
        for price in range(5):
            log.append(topic="Orders", queue_id=queue_id, TAGS="a", price=str(price), KEYS=f"k{queue_id}{price}")
    (tmp_path / "broker.conf").write_text("brokerName=broker-a\nenablePropertyFilter=true\n")
    (tmp_path / "subscriptions.yaml").write_text(
        "- {group: cg_sql, topic: Orders, sql: price > 3}\n- {group: cg_tag, topic: Orders, tag: a}\n"
    )
    given = ("--subscriptions", tmp_path / "subscriptions.yaml", "--broker-config", tmp_path / "broker.conf")
    store = log.write(tmp_path / "store")
    nightly.main(["--store", str(store), "--warehouse", str(tmp_path / "w"), *map(str, given)])
    return tmp_path / "w"


def test_lag_as_of_now(broker: Answers, warehouse: Path, run: Run) -> None:
    ended = run(lag, "--warehouse", warehouse, "--namesrv", broker.address, "--topic", "Orders", "--json")
    assert ended.code == 0, ended.error
    rows = [json.loads(line) for line in ended.out.splitlines()]
    names = ("committed", "end", "filtered_to", "behind", "would_get", "unfiltered", "broker_estimate", "ahead")
    assert {tuple(row[name] for name in names) for row in rows if row["consumer_group"] == "cg_sql"} == {
        (3, 6, 5, 3, 2, 1, None, 0)  # of prices 3 and 4, the filter of the night takes one
    }
    assert {(row["consumer_group"], row["queue_id"], row["pulls"]) for row in rows} == {
        ("cg_sql", 0, "online"), ("cg_sql", 1, "online"), ("cg_tag", 0, "away"), ("cg_tag", 1, "away"),
    }  # fmt: skip
    out = run(lag, "--warehouse", warehouse, "--namesrv", broker.address, "--topic", "Orders").out
    assert "0 of 2 subscriptions are up to date" in out
    assert "when broker-a was asked" in out


def test_lag_of_queues_without_messages(broker: Answers, warehouse: Path, run: Run) -> None:
    """Each group has a retry topic, and clients commit offset 0 of its queue. Nights do not count it either."""
    queue = '{"brokerName":"broker-a","queueId":0,"topic":"%RETRY%cg_sql"}'
    ends = f'{{"offsetTable":{{{queue}:{{"lastUpdateTimestamp":0,"maxOffset":0,"minOffset":0}}}}}}'
    broker.changed["GET_TOPIC_STATS_INFO", "%RETRY%cg_sql"] = ends.encode()
    live = ("--warehouse", warehouse, "--namesrv", broker.address)
    assert "0 of 2 subscriptions are up to date" in run(lag, *live).out
    rows = [json.loads(line) for line in run(lag, *live, "--group", "cg_sql", "--json").out.splitlines()]
    assert [(row["topic"], row["queue_id"]) for row in rows] == [("Orders", 0), ("Orders", 1)]


def test_a_message_after_the_night(broker: Answers, warehouse: Path, run: Run) -> None:
    place = ("--topic", "Orders", "--queue", 0, "--offset", 5)
    ended = run(explain, "--warehouse", warehouse, "--namesrv", broker.address, *place)
    assert (ended.code, ended.error.partition(": the queue")[2]) == (
        2, " has those from offset 0 to 4, and those up to 5 since then: run nightly with a new copy of the store\n",
    )  # fmt: skip


def test_a_broker_that_does_not_answer(broker: Answers, warehouse: Path, run: Run) -> None:
    nobody = "127.0.0.1:1"
    ended = run(lag, "--warehouse", warehouse, "--namesrv", nobody)
    advice = "give a name server that runs and can be reached from here, mostly at port 9876"
    assert (ended.code, ended.error) == (2, f"mqsieve: --namesrv {nobody}: Connection refused; {advice}\n")
    broker.changed["GET_BROKER_CLUSTER_INFO", None] = (LISTED % nobody).encode()
    ended = run(lag, "--warehouse", warehouse, "--namesrv", broker.address)
    advice = "the name server lists this address, which must be reached from here"
    assert (ended.code, ended.error) == (2, f"mqsieve: broker-a at {nobody}: Connection refused; {advice}\n")
    broker.changed["GET_BROKER_CLUSTER_INFO", None] = b"{}"
    ended = run(lag, "--warehouse", warehouse, "--namesrv", broker.address)
    assert ended.error.startswith("mqsieve: the name server lists no broker broker-a (it lists none)")
