"""Four nights of one running broker whose consumers pop, compared with every message that they received.

The captures have groups of gRPC SimpleConsumers and PushConsumers, and of remoting push consumers that pop. The broker
of the second one has no filter bit map, and other names of retry topics.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import statistics
import struct
import zlib
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import mqsieve
from answers import warehouse as warehouse_door
from answers.explain import POP_NOT_COPIED, Explainer, Explanation, why_at
from answers.facts import open_facts
from answers.lag import lag as lag_of
from answers.messages import read
from answers.report import pops_of
from filtering.delivery import Outcome
from filtering.delivery.pull_window import Reason
from filtering.journey import JourneyStepKind
from filtering.pops.modes import RETRY_MAX_TIMES, PopGroups
from filtering.sql92 import EvaluationError, compile
from jobs import audit, explain, inconsistency, lag, lint, maintain, nightly, what_if
from schemas.delta.table_rows import one_of
from schemas.delta.warehouse import Warehouse
from schemas.messages.pop_json import DAMAGED_BODY, NOT_JSON
from schemas.tables import POPS
from tests.captures import capture, rows
from tests.nights.commands import NIGHTS, Run, night, rows_of, without_runs
from tests.nights.damage import copy_of, one_row, rewrite
from tests.nights.growing_broker import BEFORE, GrowingBroker, event, pop, save
from tests.nights.missed_rows import assert_said_alike, missed_rows

DEV, PLAIN = "pop_dev", "pop_plain"
IN_ORDER = {"pop_fifo_1", "pop_fifo_2"}
"""Groups that consume in order: the broker does not write their pops down."""
OPEN = "pop_differ_tags"
"""A group whose clients have different tags: the record does not say which of them popped a message."""
CRC_AT, ATTEMPTS_AT, BODY_AT = 8, 72, 88
"""Where the checksum, the number of earlier attempts and the body of a record are, bytes."""
Delivery = tuple[str, str, int, int, int, int]


def popping(number: int, warehouse: Path, *more: object, name: str = DEV) -> list[str]:
    """The command line of a night of the broker, 1 to 4."""
    broker = capture(name)
    folder = broker / f"night_{number}"
    return night(warehouse, folder / "store", folder / "subscription_events.jsonl", broker / "broker.conf", *more)


@pytest.fixture(scope="module")
def popped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The warehouse after all four nights, without bodies."""
    warehouse = tmp_path_factory.mktemp("pops") / "w"
    for number in NIGHTS:
        nightly.main(popping(number, warehouse, "--bodies", "none"))
    return warehouse


@cache
def received(nights: tuple[int, ...] = NIGHTS, name: str = DEV) -> Counter[Delivery]:
    """Group, topic, queue, offset, time of the pop and night of each message that a client received."""
    counts: Counter[Delivery] = Counter()
    for row in rows(name, "live"):
        seen = min(number for number in nights if number >= row["night"])
        counts[row["group"], row["topic"], row["queueId"], row["queueOffset"], row["popTime"], seen] += 1
    return counts


def delivered(warehouse: Path, nights: tuple[int, ...] = NIGHTS) -> Counter[Delivery]:
    runs = sorted(row["run"] for row in rows_of(warehouse, "run_ledger", "run"))
    night_of = dict(zip(runs, nights, strict=True))
    counts: Counter[Delivery] = Counter()
    for row in rows_of(warehouse, "deliveries"):
        if row["outcome"] == "DELIVERED":
            place = row["topic"], row["queue_id"], row["queue_offset"]
            counts[row["consumer_group"], *place, row["available_at"], night_of[row["run"]]] += 1
    return counts


def deviations(deliveries: Counter[Delivery], expected: Counter[Delivery]) -> Counter[str]:
    wrong = (deliveries - expected) + (expected - deliveries)
    return Counter(key[0] for key in wrong.elements() if key[0] not in IN_ORDER | {OPEN})


def test_the_summary_says_what_became_of_the_pops(popped: Path) -> None:
    facts = open_facts(Warehouse.at(str(popped)))
    all_pops = pops_of(facts, facts.last.run)
    live = [row for row in rows("pop_dev", "live") if row["night"] == 4 and row["group"] not in IN_ORDER]
    received_by_clients = Counter((row["group"], row["topic"]) for row in live)
    again = Counter((row["group"], row["topic"]) for row in live if row["attempt"] > 1)
    for key, pops in all_pops.items():
        assert pops.popped - pops.dropped_by_tags - pops.dead == received_by_clients[key] or key[0] == OPEN, key
        assert pops.redelivered - pops.dead == again[key], key
    key = "pop_all_orders", "OrderEvents"
    taken = [row["ackedAt"] - row["popTime"] for row in live if (row["group"], row["topic"]) == key]
    assert all_pops[key].acknowledged == len(taken)
    assert all_pops[key].median_ms == pytest.approx(statistics.median(taken), abs=15)
    assert sum(pops.dead for pops in all_pops.values()) > 0
    assert sum(pops.dropped_by_tags for pops in all_pops.values()) > 0


def test_every_group_got_what_its_clients_received_night_by_night(popped: Path) -> None:
    assert len({key[0] for key in received()}) == 64
    assert deviations(delivered(popped), received()) == {}
    in_order, expected = (
        {key: count for key, count in messages(of).items() if key[0] in IN_ORDER}
        for of in (delivered(popped), received())
    )
    assert in_order == expected


def test_snapshots_2_and_4_only(tmp_path: Path) -> None:
    for number in (2, 4):
        nightly.main(popping(number, tmp_path / "w"))
    assert deviations(delivered(tmp_path / "w", (2, 4)), received((2, 4))) == {}


def test_four_snapshots_in_one_go(popped: Path, tmp_path: Path) -> None:
    given = popping(4, tmp_path / "w", "--bodies", "none")
    at = given.index("--store")
    stores = [str(capture("pop_dev") / f"night_{number}" / "store") for number in NIGHTS]
    given[at : at + 2] = [part for store in stores for part in ("--store", store)]
    nightly.main(given)
    assert deviations(delivered(tmp_path / "w"), received()) == {}
    assert without_runs(tmp_path / "w")["pops"] == without_runs(popped)["pops"]


def test_pops_went_past_what_they_did_not_hand_out(popped: Path) -> None:
    """A group scanned each queue from the start of its first pop to its offset, or more after it was reset."""
    queue = ("consumer_group", "topic", "queue_id")
    scanned: Counter[tuple[object, ...]] = Counter()
    for row in rows_of(popped, "delivery_stats", *queue, "scanned"):
        scanned[row["consumer_group"], row["topic"], row["queue_id"]] += row["scanned"]
    starts: dict[tuple[object, ...], int] = {}
    for row in rows_of(popped, "pops", *queue, "start_offset"):
        if row["start_offset"] is not None and not row["topic"].startswith("%RETRY%"):
            key = row["consumer_group"], row["topic"], row["queue_id"]
            starts[key] = min(starts.get(key, row["start_offset"]), row["start_offset"])
    ends = {tuple(row[name] for name in queue): row["decided_to"] for row in rows_of(popped, "current_offsets")}
    went_past = {key: ends[key] - start for key, start in starts.items() if "_reset_" not in str(key[0])}
    assert len(went_past) > 150
    assert [key for key, count in went_past.items() if scanned[key] < count] == []


def test_acknowledgements_attempts_and_redeliveries(popped: Path) -> None:
    pops = {
        (row["consumer_group"], row["topic"], row["queue_id"], row["queue_offset"], row["popped_at"]): row
        for row in rows_of(popped, "pops")
        if row["source"] == "RECORDED"
    }
    checked = 0
    for row in rows("pop_dev", "live"):
        pop = pops.get((row["group"], row["topic"], row["queueId"], row["queueOffset"], row["popTime"]))
        if row["group"] in IN_ORDER:
            assert pop is None
            continue
        assert pop is not None
        checked += 1
        assert (pop["acknowledged_at"] is None) == ("ackedAt" not in row)
        columns = ("attempt", "invisible_time", "start_offset", "commitlog_offset", "source")
        expected = row["attempt"], row["invisibleTime"], row["startOffset"], row["commitLogOffset"], "RECORDED"
        assert tuple(pop[name] for name in columns) == expected
    assert checked > 9_000
    stored = {row["commitlog_offset"]: row for row in rows_of(popped, "commitlog")}
    redelivered = [row for row in pops.values() if row["redelivered_as"] is not None]
    assert len(redelivered) == 597
    for row in redelivered:
        first, again = stored[row["commitlog_offset"]], stored[row["redelivered_as"]]
        assert again["topic"].startswith(f"%RETRY%{row['consumer_group']}_")
        assert (again["uniq_key"], again["reconsume_times"]) == (first["uniq_key"], row["attempt"])
        assert row["acknowledged_at"] is None


def test_messages_in_flight_are_those_that_were_not_acknowledged(popped: Path, run: Run) -> None:
    unacknowledged = {
        (row["group"], row["topic"], row["queueId"], row["queueOffset"], row["popTime"])
        for row in rows("pop_dev", "live")
        if "ackedAt" not in row
    }
    waiting = [row for row in rows_of(popped, "pops") if row["is_open"]]
    assert len(waiting) == 22
    for row in waiting:
        names = ("consumer_group", "topic", "queue_id", "queue_offset", "popped_at")
        assert tuple(row[name] for name in names) in unacknowledged
    answers = [json.loads(line) for line in run(lag, "--json", "--warehouse", popped).out.splitlines()]
    counts = ("in_flight", "to_be_redelivered")
    assert [sum(answer[name] or 0 for answer in answers) for name in counts] == [15, 7]
    out = run(lag, "--warehouse", popped).out
    assert "pop_dlq_3 on %RETRY%pop_dlq_3_OrderEvents: 9 in flight until 2026-11-26 22:09:46.876, 2 to be redeli" in out


@pytest.mark.parametrize(
    ("message", "group", "why"),
    [
        ("ord-0", "pop_fail_1", "popped 2026-11-26 22:04:53.267 for 10 s, acknowledged 2026-11-26 22:04:55.100; the"),
        ("ord-22", "pop_sql_orders", "passed over by the pop of 2026-11-26"),
        (
            "ord-71",
            "pop_fail_2",
            "asked for more time 2026-11-26 22:04:55.758, not acknowledged, came again 2026-11-26 22:"
            "04:58.887 on %RETRY%pop_fail_2_OrderEvents (attempt 2), acknowledged 2026-11-26 22:04:59.058; the tag is",
        ),
        (
            "k-729",
            "pop_fail_3",
            "not acknowledged until 2026-11-26 22:09:30.038, and not stored again yet; the expression",
        ),
        (
            "ord-837",
            "pop_dlq_3",
            "not acknowledged yet, in flight until 2026-11-26 22:09:46.873; the expression is TRUE",
        ),
        (
            "ord-301",
            "pop_fail_change_3",
            "popped 2026-11-26 22:06:37.102 for 10 s, not acknowledged, stored again, not "
            "popped: the subscription does not match it any more",
        ),
        ("ord-341", "pop_leaves_rush", "→ pop_leaves_rush: popped for nobody, uncertain, delivered again"),
    ],
)
def test_explain_says_what_became_of_a_message(popped: Path, run: Run, message: str, group: str, why: str) -> None:
    assert why in run(explain, "--warehouse", popped, "--message", message, "--group", group).out


def test_explain_calls_uncertain_what_the_night_counted(popped: Path) -> None:
    """What clients with other tags popped, and what a client popped that was leaving."""
    facts = open_facts(Warehouse.at(str(popped)))
    counted = Counter[str]()
    for row in rows_of(popped, "delivery_stats", "consumer_group", "uncertain"):
        counted[row["consumer_group"]] += row["uncertain"]
    explained = Counter[str]()
    for group in +counted:
        pops = facts.recorded_pops(["commitlog_offset"], [one_of("consumer_group", [group])])
        messages = list(read(facts, set(pops["commitlog_offset"].drop_null().to_pylist())))
        explainer = Explainer(facts, [group])
        explained[group] = sum(explainer.explain(each, group).uncertain is not None for each in messages)
    assert explained == +counted == {"pop_differ_tags": 81, "pop_leaves_held": 1, "pop_leaves_rush": 1}


def test_what_a_group_missed_was_passed_over(popped: Path) -> None:
    facts, group = open_facts(Warehouse.at(str(popped))), "pop_sql_orders"
    explained = missed_rows(facts, group, ["OrderEvents"])
    assert_said_alike(facts, group, explained)
    got = {row[2:4] for row in received() if row[:2] == (group, "OrderEvents")}
    stored = {
        (row["queue_id"], row["queue_offset"])
        for row in rows_of(popped, "consumequeue", "topic", "queue_id", "queue_offset")
        if row["topic"] == "OrderEvents"
    }
    places = {(row["queue_id"], row["queue_offset"]) for row in explained}
    assert len(places) > 100
    assert (places & got, places | got) == (set(), stored)
    outcomes = Counter(row["outcome"] for row in explained)
    assert outcomes[Outcome.STOPPED_BY_EXPRESSION] > 100
    assert Outcome.DELIVERED not in outcomes


def test_the_journey_of_a_message_that_is_popped_again_and_dies(popped: Path, run: Run) -> None:
    asked = ("--warehouse", popped, "--message", "k-34", "--group", "pop_dlq_2")
    lines = [line.strip().replace("2026-11-26 ", "") for line in run(explain, *asked).out.splitlines()]
    assert lines[0] == "k-34  DeviceTelemetry 1/3 → pop_dlq_2: delivered, dead since 22:05:07.480"
    retry = "%RETRY%pop_dlq_2_DeviceTelemetry"
    assert lines[2:] == [
        "journey     delivered 22:04:54.830, popped for 60 s (DeviceTelemetry 1/3)",
        "asked for more time 22:04:55.853, until 22:04:56.853 (DeviceTelemetry 1/3)",
        f"delivered again 22:04:59.351, popped for 60 s (attempt 2) ({retry} 0/0)",
        f"asked for more time 22:04:59.365, until 22:05:04.365 ({retry} 0/0)",
        f"given up: popped once too often 22:05:07.446, popped for 60 s (attempt 3) ({retry} 0/3)",
        "dead since 22:05:07.480 (%DLQ%pop_dlq_2 0/0)",
        f"acknowledged 22:05:07.503 ({retry} 0/3)",
    ]
    every = run(explain, "--warehouse", popped, "--message", "k-34").out
    assert not re.search(r"pop_dlq_2_DeviceTelemetry  ", every), "no group has the name of a retry topic"


def test_each_journey_is_what_a_client_received_and_acknowledged(popped: Path) -> None:
    """Of messages that came again: when each was popped, its attempt, and whether it was acknowledged."""
    mqsieve = warehouse_door.open(str(popped))
    expected: dict[tuple[str, str], list[tuple[int, int, bool]]] = {}
    for row in rows("pop_dev", "live"):
        if row["group"] in {"pop_fail_2", "pop_fail_3", "pop_fail_away"}:
            life = expected.setdefault((row["group"], row["messageId"]), [])
            life.append((row["popTime"], row["attempt"], "ackedAt" in row))
    again = [(key, sorted(life)) for key, life in expected.items() if len(life) > 1]
    for (group, unique_key), life in again[::5]:
        for explanation in mqsieve.why(unique_key, group):
            popped_at = [(step.at, step.attempt) for step in explanation.journey if step.attempt is not None]
            assert popped_at == [(at, attempt) for at, attempt, _ in life]
            acknowledged = [step for step in explanation.journey if step.kind is JourneyStepKind.ACKNOWLEDGED]
            assert len(acknowledged) == sum(is_acknowledged for _, _, is_acknowledged in life)
    assert len(again) > 50


def test_explain_of_a_group_one_of_whose_redeliveries_is_in_no_table(popped: Path, tmp_path: Path, run: Run) -> None:
    lost = one_row({"commitlog_offset": None}, of=lambda row: row["topic"].startswith("%RETRY%pop_fail_1"))
    rewrite(copy_of(Warehouse.at(str(popped)), tmp_path / "w"), POPS, lost)
    out = run(explain, "--warehouse", tmp_path / "w", "--message", "ord-0", "--group", "pop_fail_1").out
    assert "popped 2026-11-26 22:04:53.267 for 10 s, acknowledged 2026-11-26 22:04:55.100; the" in out


def test_clients_that_disagree_lose_what_pops_of_others_pass_over(popped: Path, run: Run) -> None:
    ended = run(inconsistency, "--warehouse", popped, "--json")
    states = {state["consumer_group"]: state for state in map(json.loads, ended.out.splitlines())}
    columns = "topic", "queue_id", "queue_offset", "store_timestamp", "properties"
    stored = [row for row in rows_of(popped, "commitlog", *columns) if row["topic"] == "OrderEvents"]
    for group in ("pop_differ_1", "pop_differ_2"):
        state = states[group]
        got = {(row["queueId"], row["queueOffset"]) for row in rows("pop_dev", "live") if row["group"] == group}
        since = [row for row in stored if row["store_timestamp"] >= state["valid_from"]]
        missed = [dict(row["properties"]) for row in since if (row["queue_id"], row["queue_offset"]) not in got]
        expressions = dict.fromkeys(state["agreeing"], state["expression"])
        expressions |= {client["client_id"]: client["expression"] for client in state["overruled"]}
        expected = {client: sum(map(matches(text), missed)) for client, text in expressions.items()}
        assert {loss["clients"][0]: loss["messages"] for loss in state["losses"]} == expected
        assert {loss["how"] for loss in state["losses"]} == {"PASSED_OVER"}
        assert min(expected.values()) > 0
    out = run(lint, "--warehouse", popped).out
    assert "each pop is filtered by the subscription of its own client: pop_differ_2#2 (qty >= 10); pop_dif" in out


def test_what_if_compares_what_pops_read(popped: Path, run: Run) -> None:
    group, topic = "pop_sql_orders", "OrderEvents"
    asked = ("--warehouse", popped, "--group", group, "--sql", "price > 40.0")
    (change,) = json.loads(run(what_if, *asked, "--json").out)["changes"]
    live = [row for row in rows("pop_dev", "live") if (row["group"], row["topic"]) == (group, topic)]
    got = {(row["queueId"], row["queueOffset"]) for row in live}
    pops = [row for row in rows_of(popped, "pops") if (row["consumer_group"], row["topic"]) == (group, topic)]
    expected = {"kept": 0, "gained": 0, "lost": 0, "neither": 0}
    for row in rows_of(popped, "commitlog", "topic", "queue_id", "queue_offset", "properties"):
        begin = min((pop["start_offset"] for pop in pops if pop["queue_id"] == row["queue_id"]), default=0)
        if row["topic"] == topic and row["queue_offset"] >= begin:
            is_received = (row["queue_id"], row["queue_offset"]) in got
            passes = matches("price > 40.0")(dict(row["properties"]))
            expected[(("neither", "gained"), ("lost", "kept"))[is_received][passes]] += 1
    assert {name: change[name] for name in ("kept", "gained", "lost")} | {"neither": expected["neither"]} == expected
    assert min(expected.values()) > 0
    assert change["is_popping"]
    assert "the group pops: what its pops read is compared" in run(what_if, *asked).out
    html = mqsieve.open(str(popped)).what_if(group, sql="price > 40.0", topic=topic)._repr_html_()
    assert "the group pops: what its pops read is compared" in html


def test_a_group_that_pops_needs_no_switch_for_sql92(tmp_path: Path, run: Run) -> None:
    """The broker compiles the subscription of each pop. It would refuse the same subscription of a pull.

    A remoting client does not start: the broker says that it does not support SQL92.
    """
    config = tmp_path / "broker.conf"
    switched_on = (capture("pop_dev") / "broker.conf").read_text()
    config.write_text(switched_on.replace("enablePropertyFilter=true", "enablePropertyFilter=false"))
    given = popping(1, tmp_path / "w", "--bodies", "none")
    given[given.index("--broker-config") + 1] = str(config)
    assert "refuses" not in run(nightly, *given).out
    events = capture("pop_dev") / "night_1" / "subscription_events.jsonl"
    for of in (("--warehouse", tmp_path / "w"), ("--subscriptions", events, "--broker-config", config)):
        assert "refuses" not in run(lint, *of).out
    asked = ("--warehouse", tmp_path / "w", "--sql", "price > 40.0", "--group")
    refused = run(what_if, *asked, "pop_sql_null")
    assert (refused.code, "the clients of pop_sql_null would not start" in refused.error) == (2, True)
    (change,) = json.loads(run(what_if, *asked, "pop_sql_orders", "--json").out)["changes"]
    assert change["kept"] + change["lost"] == sum(
        (row["consumer_group"], row["topic"]) == ("pop_sql_orders", "OrderEvents")
        for row in rows_of(tmp_path / "w", "deliveries")
    )
    assert change["kept"] > 0


def matches(expression: str) -> Callable[[dict[str, str]], bool]:
    compiled = compile(expression)

    def is_true(properties: dict[str, str]) -> bool:
        try:
            return compiled.evaluate(properties) is True
        except EvaluationError:
            return False

    return is_true


def test_lint_names_acknowledgements_after_the_invisible_time(popped: Path, tmp_path: Path, run: Run) -> None:
    assert "acknowledged after the invisible time" not in run(lint, "--warehouse", popped).out
    last = max(row["run"] for row in rows_of(popped, "run_ledger", "run"))

    def late(stored: list[dict[str, Any]]) -> list[dict[str, Any]]:
        own = [row for row in stored if (row["run"], row["consumer_group"]) == (last, "pop_all_lab")]
        return [row | {"visible_at": row["acknowledged_at"] - 1500} if row is own[0] else row for row in stored]

    rewrite(copy_of(Warehouse.at(str(popped)), tmp_path / "w"), POPS, late)
    out = run(lint, "--warehouse", tmp_path / "w").out
    of = sum(row["group"] == "pop_all_lab" and row["night"] == 4 for row in rows("pop_dev", "live"))
    said = f"of {of} in the last night, 1 pop was acknowledged after the invisible time, at most 1.5 s later"
    assert "pop_all_lab on TagLab" in out
    assert said in out


def test_repeated_and_rebuilt_nights_leave_the_same_pops(popped: Path, tmp_path: Path, run: Run) -> None:
    expected = without_runs(popped)
    tables = "pops", "pop_records", "deliveries"
    shutil.copytree(popped, tmp_path / "redone")
    third = sorted(row["as_of"] for row in rows_of(popped, "run_ledger"))[2]
    assert run(nightly, *popping(4, tmp_path / "redone", "--redo-from", third)).code == 0
    shutil.copytree(popped, tmp_path / "rebuilt")
    shutil.rmtree(tmp_path / "rebuilt" / "pops")
    assert run(maintain, "--rebuild", "--warehouse", tmp_path / "rebuilt").code == 0
    for name in ("redone", "rebuilt"):
        rows_of_tables = without_runs(tmp_path / name)
        assert not [table for table in tables if rows_of_tables[table] != expected[table]], name
    assert run(audit, "--warehouse", tmp_path / "redone").code == 0


ALTERED, GARBLED, DAMAGED = "pop_sql_orders", "pop_all_orders", "pop_all_lab"
"""Groups of which one checkpoint is not as the broker wrote it: its first copy only."""


def altered_store(folder: Path) -> Path:
    """The store after night 1, in which three checkpoints are others."""
    store = folder / "store"
    shutil.copytree(capture("pop_dev") / "night_1" / "store", store)
    _replace(store, ALTERED, lambda body: body.replace(b'"d":[0]', b'"d":[1]'))
    _replace(store, GARBLED, lambda body: body.replace(b'"bm":0', b'"bm":}'))
    _replace(store, DAMAGED, lambda body: body.replace(b'"bm":0', b'"bm":1'), mends_crc=False)
    return store


def _replace(store: Path, group: str, change: Callable[[bytes], bytes], mends_crc: bool = True) -> None:
    """Changes the body of the first checkpoint of one message for a group."""
    pattern = re.compile(rb'\{"bm":0,"bn":"broker-a","c":"%s","d":\[0\],[^}]*\}' % group.encode())
    for segment in sorted((store / "commitlog").iterdir()):
        log = bytearray(segment.read_bytes())
        if match := pattern.search(log):
            body, start = change(match[0]), match.start() - BODY_AT
            log[match.start() : match.end()] = body
            if mends_crc:
                struct.pack_into(">i", log, start + CRC_AT, zlib.crc32(body) & 0x7FFFFFFF)
            segment.write_bytes(log)
            return
    raise AssertionError(f"{group} has no such checkpoint")


OTHER = "pop_sql_not"
"""A group that registers another filter than its requests carry."""


def other_events(folder: Path) -> Path:
    """The events of night 1, in which a group registers another filter, and what its requests carry is not known."""
    lines = []
    for row in map(json.loads, (capture("pop_dev") / "night_1" / "subscription_events.jsonl").read_text().splitlines()):
        if row["group"] != OTHER:
            lines.append(row)
        elif row["op"] == "register":
            lines += [
                row,
                row | {"at": row["at"] + 1, "expression": "price < 0", "sub_version": row["sub_version"] + 1},
            ]
    (folder / "events.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return folder / "events.jsonl"


def test_a_checkpoint_that_was_altered_fails_the_audits(popped: Path, tmp_path: Path, run: Run) -> None:
    given = popping(1, tmp_path / "w")
    given[given.index("--store") + 1] = str(altered_store(tmp_path))
    given[given.index("--subscriptions") + 1] = str(other_events(tmp_path))
    assert run(nightly, *given).code == 0
    reasons = Counter(row["reason"] for row in rows_of(tmp_path / "w", "quarantine"))
    assert reasons == {NOT_JSON: 1, DAMAGED_BODY: 1}
    (first, *_) = sorted(row["run"] for row in rows_of(popped, "run_ledger", "run"))
    deliveries, expected = (
        Counter(
            (row["consumer_group"], row["topic"], row["queue_id"], row["queue_offset"], row["available_at"])
            for row in rows_of(warehouse, "deliveries")
            if row["run"] == first or warehouse != popped
        )
        for warehouse in (tmp_path / "w", popped)
    )
    # The first copy counts. Of the others, which cannot be read, the second does.
    assert {key[0] for key in (deliveries - expected) + (expected - deliveries)} == {ALTERED}
    ended = run(audit, "--warehouse", tmp_path / "w")
    assert ended.code == 3
    assert "error: record_agrees_with_filters: 1 of" in ended.out
    assert "error: record_has_no_contradictions: 1 of" in ended.out
    assert "warn: record_shows_other_filters: 1 of" in ended.out


DIFFER = {"pop_differ_1", "pop_differ_2", OPEN}
"""Groups whose clients have different subscriptions: the first that reads a message decides for the group."""
RECORD = b"rmq_sys_wheel_timer", b"rmq_sys_REVIVE_LOG_"
"""Topics of the record, or what their names begin with."""
Message = tuple[str, str, int, int, int]


def without_record(number: int, folder: Path, name: str = DEV) -> Path:
    """The store after a night, in which the messages of the record have other topics."""
    store = folder / f"store_{number}"
    shutil.copytree(capture(name) / f"night_{number}" / "store", store)
    for segment in (store / "commitlog").iterdir():
        log = segment.read_bytes()
        for topic in RECORD:
            log = log.replace(topic, b"x" + topic[1:])
        segment.write_bytes(log)
    return store


def messages(deliveries: Counter[Delivery]) -> Counter[Message]:
    """Deliveries without their times, but for groups whose clients differ. Planned ones are at the store time."""
    counts: Counter[Message] = Counter()
    for (group, topic, queue_id, queue_offset, _, seen), count in deliveries.items():
        if group not in DIFFER:
            counts[group, topic, queue_id, queue_offset, seen] += count
    return counts


def test_without_the_record_the_rules_foretell_what_every_group_got(tmp_path: Path, run: Run) -> None:
    warehouse = tmp_path / "w"
    for number in NIGHTS:
        given = popping(number, warehouse, "--bodies", "none")
        given[given.index("--store") + 1] = str(without_record(number, tmp_path))
        nightly.main(given)
    assert messages(delivered(warehouse)) == messages(received())
    deliveries = list(rows_of(warehouse, "deliveries"))
    assert {row["source"] for row in deliveries} == {"PLANNED"}
    assert sum(row["outcome"] == "DEAD" for row in deliveries) == 40
    assert {row["mode"] for row in rows_of(warehouse, "pull_windows")} == {"POP"}
    attempts = Counter(
        (row["group"], row["topic"], row["queueId"], row["queueOffset"], row["attempt"], "PLANNED")
        for row in rows("pop_dev", "live")
    )
    names = "consumer_group", "topic", "queue_id", "queue_offset", "attempt", "source"
    popped = Counter(tuple(row[name] for name in names) for row in rows_of(warehouse, "pops"))
    assert {key[0] for key in attempts - popped} <= DIFFER
    assert popped.total() == len(deliveries)
    uncertain = {row["consumer_group"] for row in rows_of(warehouse, "delivery_stats") if row["uncertain"]}
    left, changed = {"pop_fail_away", "pop_leaves_held", "pop_leaves_rush"}, {"pop_rush_1", "pop_rush_2"}
    # These came, or came back, in the night in which the broker deleted messages.
    came = {"pop_expired", "pop_min_n3", "pop_max_n3", "pop_late_n3_1", "pop_late_n3_2", "pop_late_n3_3"}
    assert uncertain == {*DIFFER, *left, *changed, *came}
    assert run(audit, "--warehouse", warehouse).code == 0


@pytest.mark.parametrize("is_hidden", [False, True])
def test_a_broker_without_bit_maps_and_with_other_names_of_retry_topics(tmp_path: Path, is_hidden: bool) -> None:
    """Its redeliveries often wait until after the snapshot: a request looks into the retry topic only now and then."""
    for number in NIGHTS:
        given = popping(number, tmp_path / "w", "--bodies", "none", name=PLAIN)
        if is_hidden:
            given[given.index("--store") + 1] = str(without_record(number, tmp_path, PLAIN))
        nightly.main(given)
        if number == 3:
            retry_topic = "%RETRY%pop_dlq_1+OrderEvents"
            waiting = lag_of(open_facts(Warehouse.at(str(tmp_path / "w"))), ["pop_dlq_1"], [retry_topic])
            assert [(row.behind, row.would_get) for row in waiting] == [(2, 0)], "they were tried too often"
    deliveries, expected = delivered(tmp_path / "w"), received(name=PLAIN)
    # Its client got it when the broker had no client any more, and never acknowledged it.
    left = {"pop_leaves_rush": 1}
    assert is_hidden or deviations(deliveries, expected) == left
    missing, more = messages(expected) - messages(deliveries), messages(deliveries) - messages(expected)
    assert (Counter(key[0] for key in missing.elements()), more) == (left, {})
    assert len(expected) > 8_500


def test_a_broker_that_keeps_pops_in_a_database(tmp_path: Path) -> None:
    broker = (capture("pop_dev") / "broker.conf").read_text()
    config = tmp_path / "broker.conf"
    config.write_text(broker.replace("popConsumerKVServiceEnable=false", "popConsumerKVServiceEnable=true"))
    for number in (1, 2):
        given = popping(number, tmp_path / "w", "--bodies", "none")
        given[given.index("--broker-config") + 1] = str(config)
        nightly.main(given)
    expected = messages(Counter({key: count for key, count in received().items() if key[5] <= 2}))
    assert messages(delivered(tmp_path / "w", (1, 2))) == expected


def test_the_record_corrects_what_was_registered(tmp_path: Path) -> None:
    """Three groups change their tags long before they register them. The record shows the hashes of the new ones."""
    for number in (2, 4):
        given = popping(number, tmp_path / "w", "--bodies", "none")
        at = given.index("--subscriptions") + 1
        lines = [line for line in Path(given[at]).read_text().splitlines() if '"pop_subscription"' not in line]
        (tmp_path / "events.jsonl").write_text("\n".join(lines))
        given[at] = str(tmp_path / "events.jsonl")
        nightly.main(given)
    deliveries, expected = delivered(tmp_path / "w", (2, 4)), received((2, 4))
    # Tag Aa shares the hash of BB, which the requests named: the client dropped it.
    assert deviations(deliveries, expected) == {"pop_change_tag": 13}
    assert {key[0] for key in expected - deliveries} <= IN_ORDER | {OPEN}
    uncertain: Counter[str] = Counter()
    for row in rows_of(tmp_path / "w", "delivery_stats"):
        uncertain[row["consumer_group"]] += row["uncertain"]
    assert uncertain["pop_change_tag"] > 13
    assert {group for group in uncertain if uncertain[group]} >= {"pop_fail_change_3", "pop_rush_3"}


def registered(at: int, tags: str, client: int = 1) -> str:
    more = {"client_id": f"g#{client}", "protocol": "remoting_pop", "consume_from": "first"}
    return event(at, "register", "g", type="TAG", expression=tags, sub_version=at, **more)


def outcomes(broker: GrowingBroker) -> list[tuple[int, str]]:
    return sorted((row["queue_offset"], row["outcome"]) for row in rows_of(broker.folder / "w", "deliveries"))


def uncertain_messages(broker: GrowingBroker) -> int:
    return sum(row["uncertain"] for row in rows_of(broker.folder / "w", "delivery_stats"))


@pytest.mark.parametrize("in_force", [1, 2])
def test_what_only_one_of_the_clients_that_may_have_popped_it_keeps_is_uncertain(
    broker: GrowingBroker, in_force: int
) -> None:
    """Aa and BB have one hash. Only the second client asks for C."""
    for tags in ("Aa", "BB", "C"):
        broker.log.append(TAGS=tags)
    pop(broker, "g", 10, 11, 12)
    clients = [registered(BEFORE, "Aa", 1), registered(BEFORE + 1, "BB || C", 2)]
    broker.night(clients if in_force == 2 else [*clients, registered(BEFORE + 2, "Aa", 1)])
    kept = {1: 10, 2: 11}[in_force]
    decided = [(each, "DELIVERED" if each == kept else "DROPPED_BY_CLIENT") for each in (10, 11)]
    assert outcomes(broker) == [*decided, (12, "DELIVERED")]
    assert uncertain_messages(broker) == 2
    assert broker.passes_audits()


@pytest.mark.parametrize("pops_of_both", [True, False])
def test_the_record_shows_that_requests_still_carry_a_former_subscription(
    broker: GrowingBroker, pops_of_both: bool
) -> None:
    """Only the first subscription asks for D. So it may have handed out Aa and BB, too, which have one hash."""
    for tags in ("Aa", "BB", "C", "D"):
        broker.log.append(TAGS=tags)
    pop(broker, "g", *([10, 11, 12, 13] if pops_of_both else [10, 11, 12]))
    first, second = (
        event(BEFORE + number, "register", "g", type="TAG", expression=tags, sub_version=number)
        for number, tags in enumerate(["Aa || D", "BB || C"])
    )
    broker.night([first, second])
    kept = [(11, "DELIVERED"), (12, "DELIVERED")]
    assert outcomes(broker) == [(10, "DROPPED_BY_CLIENT"), *kept, *([(13, "DELIVERED")] if pops_of_both else [])]
    assert uncertain_messages(broker) == (3 if pops_of_both else 0)


def test_what_was_popped_when_the_last_client_had_left_may_have_been_received(broker: GrowingBroker) -> None:
    pop(broker, "g", 0, acknowledges=False)
    left = json.dumps({"at": broker.log.time, "op": "unregister", "group": "g", "client_id": "g#1"})
    pop(broker, "g", 1)
    pop(broker, "g", 2, acknowledges=False)
    broker.night([registered(BEFORE, "*"), left])
    assert outcomes(broker) == [(0, "DELIVERED"), (1, "DELIVERED")]
    assert uncertain_messages(broker) == 1


@pytest.mark.parametrize("left", [1, 2])
def test_what_was_popped_when_one_of_the_clients_had_left_may_have_been_received(
    broker: GrowingBroker, left: int
) -> None:
    """The proxy holds the last request of a SimpleConsumer, but not of the other client. So only its leave counts."""
    clients = [
        registered(BEFORE + number, "*", number).replace("remoting_pop", protocol)
        for number, protocol in ((1, "grpc_simple"), (2, "grpc_push"))
    ]
    pop(broker, "g", 0, acknowledges=False)
    leave = json.dumps({"at": broker.log.time, "op": "unregister", "group": "g", "client_id": f"g#{left}"})
    pop(broker, "g", 1)
    pop(broker, "g", 2, acknowledges=False)
    broker.night([*clients, leave])
    assert outcomes(broker) == [(each, "DELIVERED") for each in range(3)]
    assert uncertain_messages(broker) == (1 if left == 1 else 0)


def explained(broker: GrowingBroker, queue_offset: int) -> Explanation:
    (explanation,) = why_at(open_facts(Warehouse.at(str(broker.folder / "w"))), "T", 0, queue_offset, "g")
    return explanation


@pytest.mark.parametrize("is_away", [False, True])
def test_what_the_offset_is_past_and_no_pop_of_the_copied_log_has_is_uncertain(
    broker: GrowingBroker, is_away: bool
) -> None:
    """The offsets are copied after the log. The next copy has the pops between."""
    events = [registered(BEFORE, "A")]
    broker.log.append(3, TAGS="A")
    pop(broker, "g", 10, 11, start=0)
    if is_away:
        events.append(json.dumps({"at": broker.log.time, "op": "unregister", "group": "g", "client_id": "g#1"}))
    broker.log.append(2, TAGS="A")
    if is_away:
        events.append(registered(broker.log.time, "A"))
    broker.log.append(2, TAGS="B")
    save(broker, g=17)
    assert broker.night(events).code == 0
    assert [explained(broker, each).uncertain for each in (5, 11, 15)] == [None] * 3
    assert [explained(broker, each).uncertain for each in (12, 13, 14)] == [POP_NOT_COPIED] * 3
    assert explained(broker, 14).outcome is Outcome.NOT_SUBSCRIBED
    pop(broker, "g", 12, 13, 14)
    assert broker.night(events).code == 0
    assert [explained(broker, each).outcome for each in (12, 13, 14)] == [Outcome.DELIVERED] * 3
    assert [explained(broker, each).uncertain for each in (12, 13, 14, 15)] == [None] * 4
    assert broker.failed_audits() == []


@pytest.mark.parametrize("events", [[], [registered(BEFORE, "*")]], ids=["no event", "registered"])
@pytest.mark.parametrize("committed", [{}, {"T@g": 2}], ids=["no offset", "offset of the other topic"])
def test_a_group_goes_on_after_its_pops_where_the_store_has_no_offset_of_it(
    broker: GrowingBroker, committed: dict[str, int], events: list[str]
) -> None:
    retry_topic = "%RETRY%g_T"
    for number in range(2):
        broker.log.append(10).append(4, topic=retry_topic)
        pop(broker, "g", *range(10 * number, 10 * number + 2))
        pop(broker, "g", *range(4 * number, 4 * number + 2), topic=retry_topic)
        offsets = {key: {"0": 10 * number + offset} for key, offset in committed.items()}
        configure(broker, "consumerOffset.json", {"offsetTable": offsets})
        assert broker.night(events).code == 0
        known = [row for row in rows_of(broker.folder / "w", "current_offsets") if row["consumer_group"] == "g"]
        decided_to = {row["topic"]: row["decided_to"] for row in known}
        assert decided_to == {"T": 10 * number + 2, retry_topic: 4 * number + 2}
        assert broker.failed_audits("--all") == []


def test_what_a_night_pops_of_a_topic_without_new_messages_is_counted(broker: GrowingBroker) -> None:
    retry_topic = "%RETRY%g_T"
    broker.log.append(2).append(2, topic=retry_topic)
    pop(broker, "g", 0)
    broker.night([])
    pop(broker, "g", 0, 1, topic=retry_topic)
    broker.night([])
    stats = rows_of(broker.folder / "w", "delivery_stats")
    assert {(row["topic"], row["delivered"]) for row in stats if row["delivered"]} == {("T", 1), (retry_topic, 2)}
    assert broker.failed_audits("--all") == []


def configure(broker: GrowingBroker, name: str, document: dict[str, Any]) -> None:
    config = broker.folder / "store" / "config"
    config.mkdir(parents=True, exist_ok=True)
    (config / name).write_text(json.dumps(document))


def consumes_in_order(broker: GrowingBroker) -> None:
    configure(broker, "subscriptionGroup.json", {"subscriptionGroupTable": {"g": {"consumeMessageOrderly": True}}})


def test_a_group_in_order_that_remoting_clients_pop_out_of_order(broker: GrowingBroker) -> None:
    """Its pops are in the record, and in no pull window."""
    consumes_in_order(broker)
    pop(broker, "g", 0, 1)
    broker.night([registered(BEFORE, "*")])
    assert outcomes(broker) == [(0, "DELIVERED"), (1, "DELIVERED")]


@pytest.mark.parametrize(("known", "delivered", "uncertain"), [("now", 0, 0), ("never", 10, 10), ("before", 10, 0)])
def test_whether_a_group_that_is_in_no_record_pops_in_order(
    broker: GrowingBroker, known: str, delivered: int, uncertain: int
) -> None:
    """The record has another group. The configuration says that the group does not pop in order; that it does, in the
    night before; or nothing."""
    came = registered(broker.log.time, "*").replace("remoting_pop", "grpc_push")
    if known == "now":
        configure(broker, "subscriptionGroup.json", {"subscriptionGroupTable": {"g": {}}})
    if known == "before":
        consumes_in_order(broker)
        broker.night([])
        (broker.folder / "store" / "config" / "subscriptionGroup.json").unlink()
    pop(broker, "other", 0)
    broker.night([came])
    own = [row for row in rows_of(broker.folder / "w", "deliveries") if row["consumer_group"] == "g"]
    assert (len(own), uncertain_messages(broker)) == (delivered, uncertain)
    assert {row["source"] for row in own} <= {"PLANNED"}
    assert broker.failed_audits() == []


def test_a_group_in_order_that_waits_for_an_acknowledgement_has_not_popped_what_follows(broker: GrowingBroker) -> None:
    """A minute ago it popped 2, 3 and 5, and acknowledged 3 and 5. Then it leaves, and gets them again."""
    consumes_in_order(broker)
    popped_last = {"T@g": {"0": {"o": [2, 1, 3], "popTime": BEFORE}}}
    configure(broker, "consumerOrderInfo.json", {"table": popped_last})
    broker.log.append(10)
    came = registered(BEFORE, "*").replace("remoting_pop", "grpc_push")
    events = [came]
    for number in (1, 2):
        if number == 2:
            broker.log.time += 1000
            events.append(json.dumps({"at": broker.log.time, "op": "unregister", "group": "g", "client_id": "g#1"}))
        broker.log.time += 60_000
        broker.log.append(topic="U")
        save(broker, g=2)
        assert broker.night(events).code == 0
        assert outcomes(broker) == [(each, "DELIVERED") for each in range(6)]
    broker.log.time += 60_000
    events.append(came.replace(str(BEFORE), str(broker.log.time)))
    broker.log.time += 60_000
    broker.log.append(topic="U")
    save(broker, g=20)
    assert broker.night(events).code == 0
    assert Counter(outcomes(broker)) == Counter((each, "DELIVERED") for each in [*range(20), 2, 3, 4, 5])
    assert uncertain_messages(broker) == 0
    assert broker.failed_audits() == []


def switch(broker: GrowingBroker, mode: str) -> None:
    modes = {"messageRequestModeMap": {"T": {"g": {"topic": "T", "consumerGroup": "g", "mode": mode}}}}
    configure(broker, "messageRequestMode.json", modes)


def test_a_group_that_was_told_to_pop_when_it_had_left_pulled_before(broker: GrowingBroker) -> None:
    """No pop of its first night is in the record, which has those of another group."""
    for tags in "ABA":
        broker.log.append(TAGS=tags)
    pop(broker, "other", 10)
    switch(broker, "POP")
    events = [
        event(BEFORE, "register", group, type="TAG", expression="A", consume_from="first") for group in ("g", "other")
    ]
    broker.night(events)
    rows = [row for row in rows_of(broker.folder / "w", "deliveries") if row["consumer_group"] == "g"]
    assert sorted((row["queue_offset"], row["source"]) for row in rows) == [(10, "PLANNED"), (12, "PLANNED")]
    broker.log.append(TAGS="A")
    pop(broker, "g", 13)
    broker.night(events)
    rows = [row for row in rows_of(broker.folder / "w", "deliveries") if row["consumer_group"] == "g"]
    assert [row["source"] for row in rows if row["queue_offset"] == 13] == ["RECORDED"]
    assert broker.failed_audits() == []


def test_a_group_that_is_switched_while_it_is_online(broker: GrowingBroker) -> None:
    """It pulls, pops and pulls again. The broker has no event of it, but its record has how far the group had come."""
    events = [event(BEFORE, "register", "g", type="TAG", expression="A", consume_from="first")]

    def new(*tags: str) -> None:
        for each in tags:
            broker.log.append(TAGS=each)
        broker.log.write(broker.folder / "store")

    new("A", "B")
    broker.night(events)
    new("A", "A", "B", "A", "A")  # 12 to 16; 15 is in the range of the first pop
    pop(broker, "g", 15, 16)
    switch(broker, "POP")
    broker.night(events)
    new("A", "B", "A")
    pop(broker, "g", 17, start=17)
    new("A")
    switch(broker, "PULL")
    broker.night(events)
    new("A")
    pop(broker, "g", 21)
    new("A")
    broker.night(events)  # switched twice
    rows = [row for row in rows_of(broker.folder / "w", "deliveries") if row["topic"] == "T"]
    popped = {15, 16, 17, 21}
    assert sorted((row["queue_offset"], row["source"]) for row in rows) == [
        (offset, "RECORDED" if offset in popped else "PLANNED") for offset in (10, 12, 13, 15, 16, 17, 19, 20, 21, 22)
    ]
    assert broker.passes_audits()
    last = max(row["as_of"] for row in rows_of(broker.folder / "w", "run_ledger"))
    before = broker.facts()
    broker.night(events, "--redo-from", last)
    assert broker.facts() == before


@pytest.mark.parametrize(("version", "times"), [("5.1.4", 1), ("5.2.0", 2)])
def test_older_brokers_do_not_reset_clients_that_pop(broker: GrowingBroker, version: str, times: int) -> None:
    """They leave it to the clients, which have no offsets."""
    broker.log.append(10)
    save(broker)
    reset = event(broker.log.time - 500, "reset_offset", "g", queue_id=0, offset=15)
    broker.night([registered(BEFORE, "*"), reset], "--rocketmq-version", version)
    assert Counter(outcomes(broker))[15, "DELIVERED"] == times


@pytest.mark.parametrize(("version", "outcome"), [("5.3.0", "DELIVERED"), ("5.3.3", "DEAD")])
def test_older_remoting_clients_never_give_a_message_up(broker: GrowingBroker, version: str, outcome: str) -> None:
    at = len(broker.log.data) + ATTEMPTS_AT
    broker.log.append(topic="%RETRY%g_T", TAGS="A")
    broker.log.data = broker.log.data[:at] + struct.pack(">i", 17) + broker.log.data[at + 4 :]
    pop(broker, "g", 0, topic="%RETRY%g_T")
    switch(broker, "POP")
    broker.night([registered(BEFORE, "A")], "--rocketmq-version", version)
    assert [row["outcome"] for row in rows_of(broker.folder / "w", "deliveries")] == [outcome]


@pytest.mark.parametrize(
    ("configuration", "is_known"),
    [
        ({"subscriptionGroupTable": {"g": {"retryMaxTimes": 16}}}, True), (None, False),
        ({}, False), ({"subscriptionGroupTable": None}, False),
    ],
)  # fmt: skip
def test_without_the_configuration_of_its_group_a_redelivery_may_be_given_up(
    broker: GrowingBroker, configuration: dict[str, Any] | None, is_known: bool
) -> None:
    if configuration is not None:
        configure(broker, "subscriptionGroup.json", configuration)
    at = len(broker.log.data) + ATTEMPTS_AT
    retry = "%RETRY%g_T"
    broker.log.append(topic=retry, TAGS="A")
    broker.log.data = broker.log.data[:at] + struct.pack(">i", 1) + broker.log.data[at + 4 :]
    pop(broker, "g", 0, topic=retry)
    broker.night([registered(BEFORE, "A")])
    assert outcomes(broker) == [(0, "DELIVERED")]
    assert uncertain_messages(broker) == (not is_known)
    place = ("--topic", retry, "--queue", 0, "--offset", 0)
    answer = broker.run(explain, "--warehouse", broker.folder / "w", "--group", "g", *place, "--json").out
    assert json.loads(answer)["uncertain"] == (None if is_known else Reason.CONFIG_NOT_KNOWN)


@pytest.mark.parametrize("limit", [RETRY_MAX_TIMES, 3])
def test_an_older_mqsieve_did_not_say_whether_it_read_the_configuration(
    broker: GrowingBroker, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    """It wrote down only what is not the default. What it decided stays."""
    written: Any = vars(PopGroups)["text"]

    def older_text(groups: PopGroups) -> str:
        values = json.loads(written.fget(groups))
        del values["configs_are_known"]
        return json.dumps(values)

    configure(broker, "subscriptionGroup.json", {"subscriptionGroupTable": {"g": {"retryMaxTimes": limit}}})
    retry = "%RETRY%g_T"

    def night() -> int:
        at = len(broker.log.data) + ATTEMPTS_AT
        broker.log.append(topic=retry, TAGS="A")
        broker.log.data = broker.log.data[:at] + struct.pack(">i", 1) + broker.log.data[at + 4 :]
        pop(broker, "g", len(broker.log.queues[retry, 0]) - 1, topic=retry)
        broker.night([registered(BEFORE, "A")])
        return uncertain_messages(broker)

    with monkeypatch.context() as older:
        older.setattr(PopGroups, "text", property(older_text))
        assert night() == 0
    (broker.folder / "store" / "config" / "subscriptionGroup.json").unlink()
    assert night() == (limit == RETRY_MAX_TIMES)
    assert broker.passes_audits()


@pytest.mark.parametrize("retry_topic", ["%RETRY%g_T", "%RETRY%g+T"])
def test_a_group_that_pulls_again_pulls_what_came_again(broker: GrowingBroker, retry_topic: str) -> None:
    """Its clients subscribe to the first retry topic by themselves, with the tag ``*``, and to no other one."""
    events = [event(BEFORE, "register", "g", type="TAG", expression="A", consume_from="first")]
    broker.log.append(TAGS="A", UNIQ_KEY="again")
    pop(broker, "g", 10, acknowledges=False)
    switch(broker, "POP")
    broker.night(events)
    came_again = len(broker.log.data) + ATTEMPTS_AT
    broker.log.append(topic=retry_topic, TAGS="A", UNIQ_KEY="again")
    broker.log.data = broker.log.data[:came_again] + struct.pack(">i", 1) + broker.log.data[came_again + 4 :]
    switch(broker, "PULL")
    save(broker)
    for _ in range(2):
        broker.night(events)
        rows = [
            (row["topic"], row["queue_offset"], row["source"]) for row in rows_of(broker.folder / "w", "deliveries")
        ]
        pulled = [(retry_topic, 0, "PLANNED")] if "_" in retry_topic else []
        assert [row for row in rows if row[0] != "T"] == pulled
        broker.log.append(topic="U")
        save(broker)
    assert broker.passes_audits()


@pytest.mark.parametrize(("version", "becomes"), [("5.1.4", "away"), ("5.1.4", "B"), ("5.2.0", "away")])
def test_a_reset_by_clients_that_pull_what_came_again(broker: GrowingBroker, version: str, becomes: str) -> None:
    """Within the 20 s in which older clients do it themselves, the group leaves, or changes its tags on T."""
    retry_topic = "%RETRY%g_T"
    events = [event(BEFORE, "register", "g", type="TAG", expression="A", consume_from="first")]
    pop(broker, "g", 0, acknowledges=False)
    switch(broker, "POP")
    assert broker.night(events, "--rocketmq-version", version).code == 0
    broker.log.append(2, topic=retry_topic, TAGS="A")
    switch(broker, "PULL")
    at = broker.log.time
    events.append(event(at, "reset_offset", "g", queue_id=0, offset=0).replace('"T"', f'"{retry_topic}"'))
    if becomes == "away":
        events.append(event(at + 5_000, "unregister", "g"))
    else:
        events.append(event(at + 5_000, "register", "g", type="TAG", expression=becomes))
    broker.log.append(10, topic="U")
    save(broker)
    assert broker.night(events, "--rocketmq-version", version).code == 0
    facts = open_facts(Warehouse.at(str(broker.folder / "w")))
    (explanation,) = why_at(facts, retry_topic, 0, 1, "g")
    counted = sum(
        row["uncertain"] for row in rows_of(broker.folder / "w", "delivery_stats") if row["topic"] == retry_topic
    )
    is_uncertain = version == "5.1.4" and becomes == "away"
    assert (explanation.uncertain == Reason.RESET_BY_CLIENTS) is is_uncertain
    assert counted == 2 * is_uncertain


def test_what_pops_of_a_switched_group_commit_is_no_late_commit_of_its_pulls(broker: GrowingBroker) -> None:
    """The offsets in the snapshot are those after its pops, just after its last pull."""
    for _ in range(4):
        broker.log.append(TAGS="A")
    pop(broker, "g", 12, 13)
    switch(broker, "POP")
    save(broker, g=14)
    broker.night([event(BEFORE, "register", "g", type="TAG", expression="A", consume_from="first")])
    rows = [row for row in rows_of(broker.folder / "w", "deliveries") if row["topic"] == "T"]
    assert sorted((row["queue_offset"], row["source"]) for row in rows) == [
        (10, "PLANNED"), (11, "PLANNED"), (12, "RECORDED"), (13, "RECORDED")
    ]  # fmt: skip
    assert uncertain_messages(broker) == 0
    assert broker.passes_audits()


def test_a_group_that_pulled_between_two_pops_of_a_night(broker: GrowingBroker) -> None:
    """A second lies between the pops. The later one began to read after two messages that match; before it, at one."""
    registration = event(BEFORE, "register", "g", type="TAG", expression="A", consume_from="first")
    for tags in ("A", "B", "A", "A", "B", "A"):  # 10 to 15
        broker.log.append(TAGS=tags)
    pop(broker, "g", 10)
    broker.log.time += 1000
    pop(broker, "g", 15, start=14)
    switch(broker, "POP")
    broker.night([registration.replace('"op"', '"protocol": "remoting_pop", "op"')])
    rows = [row for row in rows_of(broker.folder / "w", "deliveries") if row["topic"] == "T"]
    assert sorted((row["queue_offset"], row["source"]) for row in rows) == [
        (10, "RECORDED"), (12, "PLANNED"), (13, "PLANNED"), (15, "RECORDED")
    ]  # fmt: skip
    assert uncertain_messages(broker) == 2
    broker.log.append(TAGS="A")
    broker.log.append(TAGS="B")
    broker.log.append(TAGS="A")
    pop(broker, "g", 18)
    broker.night([registration.replace('"op"', '"protocol": "remoting_pop", "op"')])
    later = [row["queue_offset"] for row in rows_of(broker.folder / "w", "deliveries") if row["queue_offset"] > 15]
    assert sorted(later) == [16, 18]
    assert broker.failed_audits("--all") == []


def test_what_remoting_clients_popped_and_did_not_keep_may_not_have_arrived(broker: GrowingBroker) -> None:
    """Clients that are switched to pulls drop what they have just popped, and it comes again."""
    broker.log.append(TAGS="A", UNIQ_KEY="again")
    broker.log.append(TAGS="A", UNIQ_KEY="kept")
    pop(broker, "g", 10, acknowledges=False)
    pop(broker, "g", 11)
    attempts_at = len(broker.log.data) + ATTEMPTS_AT
    broker.log.append(topic="%RETRY%g_T", TAGS="A", UNIQ_KEY="again")
    broker.log.data = broker.log.data[:attempts_at] + struct.pack(">i", 1) + broker.log.data[attempts_at + 4 :]
    broker.log.write(broker.folder / "store")
    switch(broker, "POP")
    broker.night([registered(BEFORE, "A")])
    assert [row for row in outcomes(broker) if row[0] > 9] == [(10, "DELIVERED"), (11, "DELIVERED")]
    assert uncertain_messages(broker) == 1


@pytest.mark.parametrize("last_mode", ["POP", "PULL"])
@pytest.mark.parametrize("nights", ["first", "second"])
def test_a_group_that_is_switched_in_its_first_night(broker: GrowingBroker, nights: str, last_mode: str) -> None:
    """Its first pop begins to read where its pulls ended, so what matches before was pulled."""
    if nights == "second":
        broker.night([])
    started = broker.log.time
    events = [event(started, "register", "g", type="TAG", expression="A", consume_from="first")]
    for tags in ("A", "B", "A", "A", "B", "A"):  # 10 to 15; 14 is in the range of the first pop
        broker.log.append(TAGS=tags)
    pop(broker, "g", 13, 15)
    switch(broker, last_mode)
    broker.night(events)
    rows = [row for row in rows_of(broker.folder / "w", "deliveries") if row["topic"] == "T"]
    assert sorted((row["queue_offset"], row["source"]) for row in rows) == [
        (10, "PLANNED"), (12, "PLANNED"), (13, "RECORDED"), (15, "RECORDED")
    ]  # fmt: skip
    assert uncertain_messages(broker) == 0
    assert broker.passes_audits()
    broker.log.append(TAGS="A")
    broker.log.write(broker.folder / "store")
    broker.night(events)
    later = [row["source"] for row in rows_of(broker.folder / "w", "deliveries") if row["queue_offset"] == 16]
    assert later == (["PLANNED"] if last_mode == "PULL" else [])


def test_a_group_whose_clients_said_that_they_pop_is_switched_back_to_pulls(broker: GrowingBroker) -> None:
    """The heartbeats of clients that pull have no protocol, as record sees them. Then it pops again."""

    def new(*tags: str) -> None:
        for each in tags:
            broker.log.append(TAGS=each)
        broker.log.write(broker.folder / "store")

    def heartbeat(at: int, **more: str) -> str:
        subscription = {"topic": "T", "type": "TAG", "expression": "A", "sub_version": 1}
        client = {"group": "g", "client_id": "g#1", "consume_from": "first", "subscriptions": [subscription]}
        return json.dumps({"at": at, "op": "heartbeat", **client, **more})

    events = [heartbeat(BEFORE, protocol="remoting_pop")]
    new("A", "B")
    pop(broker, "g", 10)
    switch(broker, "POP")
    broker.night(events)
    new("A")
    pop(broker, "g", 12, start=12)
    new("B", "A", "A")
    switch(broker, "PULL")
    broker.night([*events, heartbeat(broker.log.time)])
    new("A")
    broker.night([*events, heartbeat(broker.log.time)])
    new("A")
    pop(broker, "g", 17)
    switch(broker, "POP")
    broker.night([*events, heartbeat(broker.log.time, protocol="remoting_pop")])
    rows = [row for row in rows_of(broker.folder / "w", "deliveries") if row["topic"] == "T"]
    assert sorted((row["queue_offset"], row["source"]) for row in rows) == [
        (offset, "RECORDED" if offset in (10, 12, 17) else "PLANNED") for offset in (10, 12, 14, 15, 16, 17)
    ]
    assert broker.passes_audits()


def test_the_record_is_judged_by_the_messages_that_a_new_queue_had_then(broker: GrowingBroker) -> None:
    """The topic is deleted and made again: messages of the old queue have the same offsets."""
    broker.log.append(3, TAGS="A")
    pop(broker, "g", 10, 11, 12, start=0)
    broker.log.queues["T", 0].clear()
    for tags in "BBBBBBBBBBBA":
        broker.log.append(TAGS=tags)
    pop(broker, "g", 11, start=0)
    broker.night([registered(BEFORE, "A")])
    assert outcomes(broker) == [(offset, "DELIVERED") for offset in (10, 11, 11, 12)]
    assert broker.failed_audits() == []


@pytest.mark.parametrize(("abort_before", "uncertain"), [("4711", 11), ("", 0)], ids=["killed", "stopped"])
def test_what_groups_popped_in_the_seconds_before_a_kill_may_have_come_twice(
    broker: GrowingBroker, abort_before: str, uncertain: int
) -> None:
    """The broker keeps pops in a database. It goes on at the offsets that it saved up to 10 s before it was killed."""
    with (broker.folder / "broker.conf").open("a") as config:
        config.write("popConsumerKVServiceEnable=true\n")
    broker.log.append(20)
    restarted_at = broker.log.time / 1000 + 60
    broker.log.time += 120_000
    broker.log.append(10)
    save(broker, g=30)
    file = broker.folder / "store" / "abort.bak"
    file.write_text(abort_before)
    os.utime(file, (restarted_at, restarted_at))
    events = [registered(BEFORE, "*")]
    for _ in range(2):  # the same start shows in the next night, too
        broker.night(events)
        assert uncertain_messages(broker) == uncertain
        broker.log.append(10)
        save(broker, g=40)
    broker.night(events, "--redo-from", "0")
    assert uncertain_messages(broker) == uncertain
    assert broker.failed_audits() == []


def test_a_group_whose_first_pop_may_be_later_than_the_copied_log(broker: GrowingBroker) -> None:
    """It comes tonight. The next copy has its first pop of the queue, and shows where it began."""
    pop(broker, "other", 0)
    save(broker)
    configure(broker, "subscriptionGroup.json", {"subscriptionGroupTable": {"g": {}}})
    assert broker.night([]).code == 0
    broker.log.append(1, TAGS="A")
    events = [registered(broker.log.time - 1, "A")]
    broker.log.append(2, TAGS="A")
    broker.log.append(2, TAGS="B")
    save(broker, g=15)
    assert broker.night(events).code == 0
    assert [explained(broker, each).uncertain for each in (10, 11, 12)] == [POP_NOT_COPIED] * 3
    assert [explained(broker, each).uncertain for each in (3, 13)] == [None] * 2
    pop(broker, "g", 11, 12)
    assert broker.night(events).code == 0
    assert [explained(broker, each).uncertain for each in (3, 10, 11, 12, 13)] == [None] * 5
    assert explained(broker, 10).decision.headline == "the group first came later, and began at a later message"
