"""Traces of clients in the log, and the table consumptions that nights make of them."""

from __future__ import annotations

import json
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from answers import warehouse
from jobs import audit, explain, export, nightly
from schemas.errors import time_text
from tests.broker_log import EVERY
from tests.captures import capture, rows
from tests.nights.commands import Run, night, rows_of
from tests.nights.growing_broker import BEFORE, GrowingBroker, event, pop

PROCESS = "0A0000070001" + "4E0E2F2A"
"""The address 10.0.0.7, process 1, and a class loader."""
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
LZ4, ZSTD, ZLIB = 0x101, 0x201, 0x301


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The warehouse after two nights of a broker whose clients trace. No bodies are kept. Tests only read it."""
    warehouse = tmp_path_factory.mktemp("traced")
    for number in (1, 2):
        nightly.main([*traced_night(number, warehouse), "--bodies", "none"])
    return warehouse


def traced_night(number: int, warehouse: Path) -> list[str]:
    folder = capture("trace_dev") / f"night_{number}"
    config = capture("trace_dev") / "broker.conf"
    return night(warehouse, folder / "store", folder / "subscription_events.jsonl", config)


def call(number: int) -> str:
    return f"{PROCESS}{number:012X}"


def line(*fields: object) -> str:
    return "\x01".join(map(str, fields)) + "\x02"


def called(number: int, message_id: str, group: str = "g", retry_times: int = 0, at: int = 5) -> str:
    return line("SubBefore", at, "region", group, call(number), message_id, retry_times, "null")


def returned(number: int, message_id: str, success: str = "true", code: int = 0) -> str:
    return line("SubAfter", call(number), message_id, 12, success, "null", code, 17, "g")


def trace(broker: GrowingBroker, *lines: str, topic: str = TRACE_TOPIC, sys_flag: int = 0) -> None:
    """Appends a message with a trace to the log."""
    body = "".join(lines).encode()
    codecs = {LZ4: "lz4", ZSTD: "zstd"}
    if sys_flag in codecs:
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, codecs[sys_flag]) as stream:
            stream.write(body)
        body = sink.getvalue().to_pybytes()
    elif sys_flag:
        body = zlib.compress(body)
    broker.log.append(topic=topic, body=body, sys_flag=sys_flag, KEYS="k")
    broker.log.write(broker.folder / "store")


def tagged(group: str) -> str:
    return event(BEFORE, "register", group, type="TAG", expression="*", consume_from="first")


def consumptions(broker: GrowingBroker, *columns: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in rows_of(broker.folder / "w", "consumptions", *columns))


def test_every_trace_of_real_clients_is_a_row_with_the_message_that_they_received(traced: Path) -> None:
    consumptions = list(rows_of(traced, "consumptions"))
    written = rows("trace_dev", "traces")
    ends = {(row["requestId"], row["msgId"]): row for row in written if row["type"] == "SubAfter"}
    expected = Counter[tuple[Any, ...]]()
    for row in written:
        if row["type"] == "SubBefore":
            end = ends[row["requestId"], row["msgId"]]
            returned_values = end["cost"], end["success"], end["code"], end.get("time")
            expected[
                row["group"], row["requestId"], row["msgId"], row["retryTimes"], row["time"], *returned_values
            ] += 1
    names = (
        "consumer_group", "request_id", "message_id", "retry_times", "consumed_at", "cost", "success", "code",
        "returned_at",
    )  # fmt: skip
    assert Counter(tuple(row[name] for name in names) for row in consumptions) == expected
    assert {row["trace_topic"] for row in consumptions} == {
        TRACE_TOPIC,
        "AuditTrace",
        "rmq_sys_TRACE_DATA_DefaultRegion",
    }
    live = Counter(
        (row["group"], row["topic"], row["queueId"], row["queueOffset"], row["process"])
        for row in rows("trace_dev", "live")
    )
    place = ("consumer_group", "topic", "queue_id", "queue_offset", "client_process")
    assert not Counter(tuple(row[name] for name in place) for row in consumptions) - live
    assert Counter(row["records"] for row in consumptions).keys() == {1, 2}


def test_formats_of_all_clients_and_topics(broker: GrowingBroker) -> None:
    broker.log.append(6, UNIQ_KEY="A")
    broker.log.append(topic="%RETRY%g", UNIQ_KEY="M9")
    for number in range(1, 6):
        broker.log.append(UNIQ_KEY=f"M{number}")
    up_to_4_7_1 = line("SubAfter", call(1), "M1", 12, "true", "null", 0)
    from_4_8 = line("SubBefore", 5, "region", "g", call(2), "M2", 0, "null", "10.0.0.7"), returned(2, "M2", "false", 2)
    trace(broker, line("Pub", *"123456789"), called(1, "M1"), up_to_4_7_1, *from_4_8, topic="AuditTrace")
    cloud = line("SubAfter", call(3), "M3", 12, "true", "null", 0, called(3, "M4").strip("\x02"))
    trace(broker, called(3, "M3"), cloud, line("SubAfter", call(3), "M4", 12, "TRUE", "null", 0, ""), sys_flag=ZLIB)
    trace(broker, called(4, "M5"), topic="rmq_sys_TRACE_DATA_r", sys_flag=LZ4)
    trace(broker, returned(4, "M5"), topic="OwnTopic", sys_flag=ZSTD)
    broker.night([tagged("g")])
    assert consumptions(broker, "message_id", "cost", "success", "code", "returned_at", "topic", "queue_offset") == [
        ("M1", 12, True, 0, None, "T", 16),
        ("M2", 12, False, 2, 17, "T", 17),
        ("M3", 12, True, 0, None, "T", 18),
        ("M4", 12, True, 0, None, "T", 19),
        ("M5", 12, True, 0, 17, "T", 20),
    ]


def test_which_message_a_trace_means(broker: GrowingBroker) -> None:
    broker.log.append(UNIQ_KEY="twice").append(UNIQ_KEY="twice")
    broker.log.append(topic="RMQ_SYS_TRANS_HALF_TOPIC", UNIQ_KEY="half").append(UNIQ_KEY="half")
    broker.log.append(topic="%RETRY%shop%g", UNIQ_KEY="half").append(topic="%DLQ%shop%g", UNIQ_KEY="half")
    offset_id = f"0A00000200002A9F{len(broker.log.data):016X}"
    broker.log.append()
    trace(broker, called(1, "twice", at=6), called(2, "twice", at=7), called(3, "twice", at=8), called(4, "half"))
    trace(broker, called(5, offset_id), called(6, "half", retry_times=2), called(7, "gone"))
    trace(broker, called(7, "gone"))  # the client's second try after a time-out
    broker.night([tagged("shop%g")])
    assert consumptions(broker, "request_id", "consumer_group", "topic", "queue_offset", "records") == [
        (call(1), "shop%g", "T", 10, 2),
        (call(2), "shop%g", "T", 11, 2),
        (call(3), "shop%g", "T", 10, 2),
        (call(4), "shop%g", "%RETRY%shop%g", 0, 1),
        (call(5), "shop%g", "T", 13, 1),
        (call(6), "shop%g", "T", 12, 1),
        (call(7), "shop%g", None, None, 0),
    ]


def test_a_trace_of_what_was_popped_again_means_the_redelivery(broker: GrowingBroker) -> None:
    """Both names of retry topics, and those of other groups."""
    broker.log.append(UNIQ_KEY="M1").append(UNIQ_KEY="M2").append(UNIQ_KEY="M3")
    for topic, message_id in (("%RETRY%g_T", "M1"), ("%RETRY%g+T", "M2"), ("%RETRY%h_T", "M3"), ("%RETRY%g_h_T", "M3")):
        broker.log.append(topic=topic, UNIQ_KEY=message_id)
    trace(broker, *(called(number, f"M{number}") for number in (1, 2, 3)))
    broker.night([tagged("g"), tagged("h"), tagged("g_h")])
    assert consumptions(broker, "request_id", "topic", "queue_offset", "records") == [
        (call(1), "%RETRY%g_T", 0, 1),
        (call(2), "%RETRY%g+T", 0, 1),
        (call(3), "T", 12, 1),
    ]


def test_a_trace_means_an_earlier_message_rather_than_the_dead_letter_of_another_group(broker: GrowingBroker) -> None:
    broker.log.append(UNIQ_KEY="M1")
    broker.grow()
    broker.night([tagged("g")])
    broker.log.append(topic="%DLQ%h", UNIQ_KEY="M1")
    trace(broker, called(1, "M1"))
    broker.night([tagged("g")])
    assert consumptions(broker, "topic", "queue_offset", "records") == [("T", 10, 1)]


def test_a_call_that_returns_after_the_snapshot_is_of_the_next_night(broker: GrowingBroker) -> None:
    broker.log.append(UNIQ_KEY="M1").append(UNIQ_KEY="M2")
    now = broker.log.time
    trace(broker, called(1, "M1", at=now), called(1, "M2", at=now))
    broker.night([tagged("g")])
    assert consumptions(broker, "message_id", "success") == [("M1", None), ("M2", None)]
    assert broker.passes_audits()
    trace(broker, returned(1, "M1"))
    broker.night([tagged("g")])
    assert consumptions(broker, "message_id", "success", "queue_offset") == [("M1", True, 10), ("M2", None, 11)]
    assert broker.passes_audits()


def test_bad_lines_are_quarantined_and_the_others_count(broker: GrowingBroker) -> None:
    broker.log.append(UNIQ_KEY="M1")
    begin = len(broker.log.data)
    trace(
        broker,
        called(1, "M1"),
        line("SubBefore", "now", "r", "g", call(2), "M1", 0),
        line("Subway", 1),
        returned(1, "M1"),
    )
    trace(broker, "no trace")
    broker.log.append(body=b"Pub in a town", UNIQ_KEY="M2")
    broker.night([tagged("g")])
    assert consumptions(broker, "message_id", "success") == [("M1", True)]
    first, second = rows_of(broker.folder / "w", "quarantine", "source_file", "offset", "reason", "bytes")
    assert first == {
        "source_file": f"{TRACE_TOPIC} (trace)",
        "offset": begin,
        "reason": "a SubBefore lacks a field, or has a wrong one",
        "bytes": (line("SubBefore", "now", "r", "g", call(2), "M1", 0) + line("Subway", 1)).encode(),
    }
    assert (second["reason"], second["bytes"]) == ("a line of no known type", b"no trace\x02")


def test_traces_go_with_the_log(broker: GrowingBroker) -> None:
    broker.log.append(UNIQ_KEY="M1")
    kept = len(broker.log.data)
    trace(broker, called(1, "M1"), "bad")
    broker.night([tagged("g")])
    broker.log.data = broker.log.data[:kept]
    broker.log.queues[TRACE_TOPIC, 0].clear()
    trace(broker, called(2, "M1"))
    broker.night([tagged("g")])
    assert consumptions(broker, "request_id") == [(call(2),)]
    assert not list(rows_of(broker.folder / "w", "quarantine"))
    broker.night([tagged("g")], "--redo-from", "0")
    assert consumptions(broker, "request_id", "queue_offset") == [(call(2), 10)]
    assert broker.passes_audits()


def test_traces_prove_deliveries_and_deny_others(traced: Path, run: Run, tmp_path: Path) -> None:
    ended = run(audit, "--warehouse", traced, "--all", "--json")
    rows_by_audit = {row["audit"]: (row["bad_rows"], row["rows"]) for row in map(json.loads, ended.out.splitlines())}
    traces = list(rows_of(traced, "consumptions", "records"))
    assert rows_by_audit["no_trace_without_delivery"] == (0, sum(row["records"] == 1 for row in traces))
    assert rows_by_audit["no_delivery_denied"][0] == 0
    groups = warehouse.open(traced).summary()
    (group,) = (each for each in groups if each.key == ("cg_all_orders", "OrderEvents"))
    written = {(row["group"], row["msgId"]) for row in rows("trace_dev", "traces") if row["type"] == "SubBefore"}
    received = [row for row in rows("trace_dev", "live") if (row["group"], row["night"]) == ("cg_all_orders", 2)]
    traced_count = sum((row["group"], row["msgId"]) in written for row in received)
    assert (group.counts["delivered"], group.counts["proven"]) == (len(received), traced_count)


def test_a_contradiction_is_named_with_both_sides(broker: GrowingBroker) -> None:
    for number, tags in enumerate(["A", "A", "B", "A"]):
        broker.log.append(UNIQ_KEY=f"M{number}", TAGS=tags, MSG_REGION="DefaultRegion")
    broker.log.append(UNIQ_KEY="M4", TAGS="A")
    at = broker.log.time
    # M1 was delivered and not traced; M2 was traced and not delivered; M4 may be of a call that is not traced.
    trace(broker, *(called(number, f"M{number}", at=at + number) for number in (0, 2, 3)))
    broker.log.append(10, UNIQ_KEY="later")
    trace(broker, called(9, "later", at=broker.log.time))
    events = [event(BEFORE, "register", "g", type="TAG", expression="A", consume_from="first")]
    ended = broker.night(events)
    not_delivered = f"10.0.0.7 (process 1) consumed 0/12 at {time_text(at + 2)}, which was not delivered"
    not_traced = (
        f"0/11, available at {time_text(at - 4 * EVERY)}, was delivered, and its client traced only those around it"
    )
    assert f"traces contradict: g on T: {not_delivered}; audit lists all\n" in ended.out
    assert f"traces contradict: g on T: {not_traced}; audit lists all\n" in ended.out
    assert broker.failed_audits() == ["no_trace_without_delivery"]


@pytest.mark.parametrize("is_copied", [True, False])
def test_a_trace_may_be_in_a_part_of_the_log_that_no_copy_has(broker: GrowingBroker, is_copied: bool) -> None:
    """The first copy ends after the traces of M0 and M2. Before the second one, the broker deleted what followed."""
    broker.log.segment = 1 << 10
    for number in range(3):
        broker.log.append(UNIQ_KEY=f"M{number}", MSG_REGION="DefaultRegion")
    at = broker.log.time
    trace(broker, *(called(number, f"M{number}", at=at + number) for number in (0, 2)))
    events = [tagged("g")]
    broker.night(events)
    broker.log.append(40, topic="U")
    kept_from = 0 if is_copied else len(broker.log.data) // 1024 * 1024
    broker.log.append(10, topic="U")
    broker.log.write(broker.folder / "store", kept_from)
    assert broker.night(events).code == 0
    audits = map(json.loads, broker.run(audit, "--warehouse", broker.folder / "w", "--json", "--all").out.splitlines())
    (denied,) = (row["bad_rows"] for row in audits if row["audit"] == "no_delivery_denied")
    assert denied == (1 if is_copied else 0)


@pytest.fixture
def changing(broker: GrowingBroker) -> GrowingBroker:
    """A broker with five messages, T 0/10 to 0/14, of which 0/12 has the tag B. Then nothing is stored for 10 s.

    The tags of ``tags`` change from A to A || B just before it, and the SQL92 of ``sql`` from A to B just after it.
    """
    for number, tags in enumerate("AABAA"):
        broker.log.append(UNIQ_KEY=f"M{number}", TAGS=tags, MSG_REGION="DefaultRegion")
    return broker


def changes_of(at: int) -> list[str]:
    """``at``: when T 0/12 was stored."""

    def registered(when: int, group: str, type: str, expression: str) -> str:
        return event(when, "register", group, type=type, expression=expression, consume_from="first")

    return [
        registered(BEFORE, "tags", "TAG", "A"),
        registered(BEFORE, "sql", "SQL92", "TAGS = 'A'"),
        registered(at - EVERY // 2, "tags", "TAG", "A || B"),
        registered(at + EVERY // 2, "sql", "SQL92", "TAGS = 'B'"),
    ]


def decided(broker: GrowingBroker, group: str) -> list[tuple[int, str, str]]:
    rows = rows_of(broker.folder / "w", "deliveries", "consumer_group", "queue_offset", "outcome", "source")
    decisions = [(row["queue_offset"], row["outcome"], row["source"]) for row in rows if row["consumer_group"] == group]
    return sorted(row for row in decisions if row[0] >= 10)


def test_traces_decide_what_a_change_leaves_uncertain(changing: GrowingBroker) -> None:
    at = changing.log.time - 3 * EVERY
    trace(changing, *(called(number, f"M{number}", "tags", at=at + number) for number in (0, 1, 3, 4)))
    trace(changing, *(called(number, f"M{number}", "sql", at=at + number) for number in (0, 1, 2)))
    changing.grow()
    ended = changing.night(changes_of(at))
    planned = [(offset, "DELIVERED", "PLANNED") for offset in (10, 11, 13, 14)]
    assert decided(changing, "tags") == sorted([*planned, (12, "DENIED", "TRACED")])
    assert decided(changing, "sql") == [*planned[:2], (12, "DELIVERED", "TRACED")]
    same_filter = warehouse.open(changing.folder / "w").what_if("tags", tags="A || B")
    assert 12 not in same_filter.gained.rows["queue_offset"].to_pylist()
    denied = f"0/12, available at {time_text(at)}, was uncertain and not delivered: its client traced only those around"
    received = (
        f"0/12 was uncertain, or comes once more, and was delivered: its client consumed it at {time_text(at + 2)}"
    )
    assert f"traces decide: tags on T: {denied} it; deliveries have all\n" in ended.out
    assert f"traces decide: sql on T: {received}; deliveries have all\n" in ended.out
    stats = rows_of(changing.folder / "w", "delivery_stats", "consumer_group", "topic", "queue_id", "scanned")
    assert {row["scanned"] for row in stats if (row["topic"], row["queue_id"]) == ("T", 0)} == {25}
    assert changing.passes_audits()
    why = changing.run(explain, "--message", "M2", "--warehouse", changing.folder / "w", "--group", "tags").out
    assert "not delivered" in why
    assert "the client traced the messages just before and after it, and not this one" in why
    before = changing.facts()["deliveries"]
    changing.night(changes_of(at), "--redo-from", "0")
    assert changing.facts()["deliveries"] == before


def registered_tags(at: int, tags: str) -> str:
    return event(at, "register", "g", type="TAG", expression=tags, consume_from="first")


def test_a_client_that_kept_what_its_new_tags_drop(broker: GrowingBroker) -> None:
    """Aa and BB have one hash. The message that it keeps is also what denies the next one."""
    for number, tags in enumerate(["A", "BB", "Aa", "BB", "A"]):
        broker.log.append(UNIQ_KEY=f"M{number}", TAGS=tags, MSG_REGION="DefaultRegion")
    at = broker.log.time - 4 * EVERY
    trace(broker, *(called(number, f"M{number}", at=at + number * EVERY) for number in (1, 3)))
    broker.grow()
    broker.night([registered_tags(BEFORE, "BB"), registered_tags(at - EVERY // 2, "Aa")])
    assert decided(broker, "g") == [(11, "DELIVERED", "TRACED"), (12, "DENIED", "TRACED"), (13, "DELIVERED", "TRACED")]
    assert broker.passes_audits()


def test_traces_deny_messages_of_two_topics_in_one_night(broker: GrowingBroker) -> None:
    events = []
    for topic in ("T", "U"):
        for number, tags in enumerate("ABA"):
            broker.log.append(topic=topic, UNIQ_KEY=f"{topic}{number}", TAGS=tags, MSG_REGION="DefaultRegion")
        at = broker.log.time - 2 * EVERY
        filters = {BEFORE: "A", at - EVERY // 2: "A || B"}
        events += [
            event(when, "register", "g", topic=topic, type="TAG", expression=each) for when, each in filters.items()
        ]
        calls = {"T": (1, 2), "U": (3, 4)}[topic]
        trace(broker, called(calls[0], f"{topic}0", at=at), called(calls[1], f"{topic}2", at=at + 2 * EVERY))
    broker.grow()
    broker.night(events)
    rows = rows_of(broker.folder / "w", "deliveries", "topic", "queue_offset", "outcome", "source")
    decisions = [tuple(row.values()) for row in rows]
    expected = [(0, "DELIVERED", "PLANNED"), (1, "DENIED", "TRACED"), (2, "DELIVERED", "PLANNED")]
    first = {"T": 10, "U": 0}
    assert sorted(decisions) == [(topic, first[topic] + at, *rest) for topic in first for at, *rest in expected]
    assert broker.passes_audits()


def test_traces_decide_what_was_in_flight_when_the_group_left(broker: GrowingBroker) -> None:
    for number, tags in enumerate("AABB"):
        broker.log.append(UNIQ_KEY=f"M{number}", TAGS=tags, MSG_REGION="DefaultRegion")
    left = broker.log.time - EVERY // 2
    trace(broker, *(called(number, f"M{number}", at=left + number * EVERY) for number in (0, 1, 2, 3)))
    broker.grow()
    events = [registered_tags(BEFORE, "A"), event(left, "unregister", "g"), registered_tags(left + EVERY, "B")]
    assert "contradict" not in broker.night(events).out
    planned = [(offset, "DELIVERED", "PLANNED") for offset in (10, 11)]
    assert decided(broker, "g") == [*planned, *((offset, "DELIVERED", "TRACED") for offset in (12, 13))]
    assert broker.passes_audits()


def test_a_message_with_the_id_of_a_traced_one_is_not_denied(broker: GrowingBroker) -> None:
    """As when a producer sends again after a time-out, or a client sends what it received to another topic."""
    for message_id in ("M0", "M1", "M1", "M2"):
        broker.log.append(UNIQ_KEY=message_id, TAGS="A", MSG_REGION="DefaultRegion")
    at = broker.log.time
    trace(broker, *(called(number, f"M{number}", at=at + number) for number in range(3)))
    broker.grow()
    assert "contradict" not in broker.night([registered_tags(BEFORE, "A")]).out
    assert decided(broker, "g") == [(offset, "DELIVERED", "PLANNED") for offset in (10, 11, 12, 13)]


def test_traces_of_a_later_night_add_rows_to_what_was_decided(changing: GrowingBroker) -> None:
    at = changing.log.time - 3 * EVERY
    trace(changing, *(called(number, f"M{number}", "tags", at=at + number) for number in (0, 1)))
    changing.night(changes_of(at))
    first = list(rows_of(changing.folder / "w", "deliveries"))
    assert (12, "DELIVERED", "PLANNED") in decided(changing, "tags")
    trace(changing, *(called(number, f"M{number}", "tags", at=at + number) for number in (3, 4)))
    trace(changing, called(2, "M2", "sql", at=at + 2))
    changing.grow()
    changing.night(changes_of(at))
    assert [row for row in rows_of(changing.folder / "w", "deliveries") if row["run"] == first[0]["run"]] == first
    assert (12, "DENIED", "TRACED") in decided(changing, "tags")
    assert (12, "DELIVERED", "TRACED") in decided(changing, "sql")
    why = changing.run(explain, "--message", "M2", "--warehouse", changing.folder / "w", "--group", "tags").out
    assert "tags: not delivered\n" in why
    assert "delivered 2" not in why
    missed = ("missed", "--group", "tags", "--warehouse", changing.folder / "w", "--output", "-")
    rows = map(json.loads, changing.run(export, *missed).out.splitlines())
    assert [row["outcome"] for row in rows if row["queue_offset"] == 12] == ["DENIED"]
    nothing = warehouse.open(changing.folder / "w").what_if("tags", tags="C")
    assert sorted(nothing.lost.rows["queue_offset"].to_pylist()) == [10, 11, 13, 14]
    changing.grow()
    changing.night(changes_of(at))
    assert decided(changing, "sql").count((12, "DELIVERED", "TRACED")) == 1
    assert changing.passes_audits()


def test_a_message_that_was_traced_twice_was_received_twice(broker: GrowingBroker) -> None:
    for number in range(4):
        broker.log.append(UNIQ_KEY=f"M{number}")
    trace(broker, called(1, "M0"), called(2, "M1"), called(3, "M1", at=9), called(4, "M2"))
    trace(broker, called(5, "M2", retry_times=1), called(6, "M2", retry_times=2))  # in the memory of an orderly client
    trace(broker, called(7, "M3"), *(called(8 + again, "M3", retry_times=1, at=5 + 4 * again) for again in (0, 1)))
    broker.night([tagged("g")])
    once = [(offset, "DELIVERED", "PLANNED") for offset in (10, 11, 12, 13)]
    assert decided(broker, "g") == sorted([*once, (11, "DELIVERED", "TRACED"), (13, "DELIVERED", "TRACED")])
    again = [row for row in rows_of(broker.folder / "w", "deliveries") if row["source"] == "TRACED"]
    assert [row["available_at"] for row in again] == [9, 9]
    assert broker.passes_audits()


def test_the_journey_of_a_message_has_what_its_clients_wrote(broker: GrowingBroker) -> None:
    broker.log.append(UNIQ_KEY="M1", KEYS="k", TAGS="A")  # the KEYS of the traces, too
    at = broker.log.time
    trace(broker, called(1, "M1", at=at), returned(1, "M1", "false", 2), called(2, "M1", at=at + 9, retry_times=1))
    lines = [event(BEFORE, "register", "g", type="TAG", expression="A", consume_from="first")]
    lines.append(event(BEFORE, "register", "h", type="TAG", expression="B", consume_from="first"))
    trace(broker, called(3, "M1", group="h", at=at))
    broker.night(lines)
    asked = ("--message", "k", "--warehouse", broker.folder / "w")
    answer_for_g = broker.run(explain, *asked, "--group", "g").out
    client = "10.0.0.7 (process 1)"
    assert f"consumed {time_text(at)} in 12 ms by {client}: failed with an exception (T 0/10)" in answer_for_g
    assert (
        f"handed to {client} {time_text(at + 9)}, attempt 2, which has not returned in the log (T 0/10)" in answer_for_g
    )
    answer_for_h = broker.run(explain, *asked, "--group", "h").out
    assert f"uncertain   {client} wrote that it consumed it at {time_text(at)}: the group received it" in answer_for_h
    answer = json.loads(broker.run(explain, *asked, "--group", "g", "--json").out)
    assert [step["kind"] for step in answer["journey"]] == ["FILTERED", "CONSUMED", "CONSUMED"]
    assert answer["journey"][1]["call"] == {"client": client, "retry_times": 0, "cost": 12, "success": False, "code": 2}


def popping(client: int, tags: str) -> str:
    more = {"type": "TAG", "consume_from": "first", "protocol": "remoting_pop"}
    return event(BEFORE + client, "register", "g", expression=tags, client_id=f"g#{client}", sub_version=client, **more)


def test_traces_decide_which_client_popped_a_message(broker: GrowingBroker) -> None:
    """Aa and BB have one hash, and the second client's tags are in force. The last pop is of a client that left."""
    for number, tags in enumerate(["Aa", "BB", "Aa", "Aa"]):
        broker.log.append(UNIQ_KEY=f"M{number}", TAGS=tags, MSG_REGION="DefaultRegion")
    first, second = pop(broker, "g", 10, 11, 12), broker.log.time
    gone = [json.dumps({"at": second, "op": "unregister", "group": "g", "client_id": f"g#{each}"}) for each in (1, 2)]
    assert pop(broker, "g", 13, acknowledges=False) == second
    trace(broker, *(called(number, f"M{number}", at=first + number) for number in (0, 3)))
    ended = broker.night([popping(1, "Aa"), popping(2, "BB"), *gone])
    traced_pops = [(10, "DELIVERED", "TRACED"), (13, "DELIVERED", "TRACED")]
    recorded = [(11, "DELIVERED", "RECORDED"), (12, "DROPPED_BY_CLIENT", "RECORDED")]
    assert decided(broker, "g") == sorted([*traced_pops, *recorded])
    rows = {row["queue_offset"]: row for row in rows_of(broker.folder / "w", "deliveries")}
    assert [rows[offset]["available_at"] for offset in (10, 13)] == [first, second]
    assert "contradict" not in ended.out
    (stats,) = (row for row in rows_of(broker.folder / "w", "delivery_stats") if row["topic"] == "T")
    assert (stats["passed_stage2"], stats["delivered"], stats["hash_collisions"]) == (4, 3, 0)
    assert broker.passes_audits()


def test_traces_of_one_client_do_not_deny_what_another_one_popped(broker: GrowingBroker) -> None:
    for number in range(3):
        broker.log.append(UNIQ_KEY=f"M{number}", MSG_REGION="DefaultRegion")
    at = [pop(broker, "g", offset) for offset in (10, 11, 12)]
    trace(broker, *(called(number, f"M{number}", at=at[0] + number) for number in (0, 2)))
    broker.grow()
    ended = broker.night([popping(1, "*"), popping(2, "*")])
    assert "contradict" not in ended.out
    assert decided(broker, "g") == [(offset, "DELIVERED", "RECORDED") for offset in (10, 11, 12)]
    assert broker.failed_audits("--all") == []


def test_traces_decide_what_was_deleted_in_the_night_in_which_the_group_came_back(broker: GrowingBroker) -> None:
    """T 0/10 and 0/11 wait for the group. The broker deletes them: before it comes back, or after that."""
    left = json.dumps({"at": broker.log.time, "op": "unregister", "group": "g"})
    broker.log.append(UNIQ_KEY="M0").append(UNIQ_KEY="M1")
    broker.log.segment = len(broker.log.data)
    broker.log.write(broker.folder / "store")
    broker.commit(broker.log.time, g=10)
    broker.night([tagged("g"), left])
    broker.log.time += EVERY
    back = event(broker.log.time, "register", "g", type="TAG", expression="*", consume_from="first")
    broker.log.append(UNIQ_KEY="M2")
    trace(broker, called(1, "M1", at=broker.log.time), called(2, "M2", at=broker.log.time))
    broker.log.write(broker.folder / "store", start=broker.log.segment)
    broker.log.write_queues(broker.folder / "store")
    ended = broker.night([tagged("g"), left, back])
    assert ended.code == 0, ended.error
    assert "contradict" not in ended.out
    assert decided(broker, "g") == [(11, "DELIVERED", "TRACED"), (12, "DELIVERED", "PLANNED")]
    stats = max(
        (row for row in rows_of(broker.folder / "w", "delivery_stats") if row["topic"] == "T"),
        key=lambda row: row["run"],
    )
    assert (stats["lost"], stats["delivered"], stats["scanned"], stats["uncertain"]) == (1, 2, 2, 2)
    assert broker.passes_audits()


def test_each_client_of_a_group_that_broadcasts_traces_a_message(broker: GrowingBroker) -> None:
    """That is one delivery, to at least one client. The second client got M1, and does not trace it."""
    for number in range(3):
        broker.log.append(UNIQ_KEY=f"M{number}", MSG_REGION="DefaultRegion")
    at = broker.log.time
    other = called(3, "M0", at=at).replace(PROCESS, "0A0000080001" + "4E0E2F2A")
    trace(broker, called(1, "M0", at=at), called(2, "M2", at=at + 1), other)
    broker.grow()
    more = {"type": "TAG", "expression": "*", "consume_from": "first", "message_model": "broadcasting"}
    clients = [event(BEFORE + each, "register", "g", client_id=f"c{each}", **more) for each in (1, 2)]
    ended = broker.night(clients)
    assert "contradict" not in ended.out
    assert [row for row in decided(broker, "g") if row[0] < 13] == [
        (offset, "DELIVERED", "PLANNED") for offset in (10, 11, 12)
    ]
    assert broker.failed_audits("--all") == []
