"""explain agrees with the tables for every pair of message and group, and with the real broker."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from answers.explain import Explainer, Explanation
from answers.facts import open_facts
from answers.lag import lag as behind
from answers.messages import read
from filtering import sql92
from filtering.delivery import Outcome
from filtering.delivery.pull_window import Reason
from jobs import explain as explain_job
from jobs import ingest, lag, nightly, pulls, report
from schemas.delta.warehouse import Warehouse
from tests.broker_log import BrokerLog
from tests.captures import rows
from tests.nights.commands import Ended, Run, delivered_by_night, received_by_night, rows_of
from tests.nights.growing_broker import BEFORE, GrowingBroker, after, event, sql
from tests.records import log_of
from tests.replayed import Replayed

Pair = tuple[str, int]
NOT_FILTERED = (Outcome.NOT_SUBSCRIBED, Outcome.PENDING, Outcome.WAITING, Outcome.NEVER_STORED)
NEVER_MATCHES = {"cg_sql_flag_bare"}
"""A property alone is never TRUE."""
WITH_ROW = {"DELIVERED", "DROPPED_BY_CLIENT"}


def every_pair(warehouse: Warehouse) -> dict[Pair, Explanation]:
    """The explanations of all groups and messages, by group and physical offset."""
    facts = open_facts(warehouse)
    explainer = Explainer(facts)
    return {
        (group, message.commitlog_offset): explainer.explain(message, group)
        for message in read(facts, [row["commitlog_offset"] for row in rows_of(warehouse, "commitlog")])
        for group in facts.groups
    }


def outcomes_by_pair(warehouse: Warehouse) -> dict[Pair, set[str]]:
    """The outcomes in deliveries, by group and physical offset."""
    outcomes: defaultdict[Pair, set[str]] = defaultdict(set)
    for row in rows_of(warehouse, "deliveries"):
        outcomes[row["consumer_group"], row["commitlog_offset"]].add(row["outcome"])
    return outcomes


@pytest.fixture(scope="module")
def small_explanations(replayed: Replayed) -> dict[Pair, Explanation]:
    return every_pair(replayed("small"))


def check_agreement(pairs: dict[Pair, Explanation], warehouse: Warehouse) -> Counter[str]:
    """Every pair has its outcome in deliveries, or an outcome without a row there."""
    delivered = outcomes_by_pair(warehouse)
    counted: Counter[str] = Counter()
    for pair, explanation in pairs.items():
        outcome = str(explanation.outcome)
        assert (outcome in WITH_ROW) == (pair in delivered), (pair, explanation.decision)
        assert outcome not in WITH_ROW or outcome in delivered[pair]
        assert ("DELIVERED" in delivered[pair]) == (outcome == "DELIVERED") if pair in delivered else True
        # The filters that the explanation is made of say so themselves.
        assert "let it pass" not in explanation.decision.reason, (pair, explanation.decision)
        counted[outcome] += 1
    assert delivered.keys() <= pairs.keys()
    return counted


def test_it_agrees_with_deliveries_for_every_pair_of_small(
    small_explanations: dict[Pair, Explanation], replayed: Replayed
) -> None:
    counted = check_agreement(small_explanations, replayed("small"))
    assert counted.keys() == {str(outcome) for outcome in Outcome} - {"DROPPED_BY_HOOK", "DEAD", "DENIED"}
    assert counted["STOPPED_BY_BIT_MAP"] > 4_000


@pytest.fixture(scope="module")
def night_explanations(nights: Path) -> dict[Pair, Explanation]:
    return every_pair(Warehouse.at(str(nights / "4")))


def test_it_agrees_with_deliveries_for_every_pair_of_the_nights(
    night_explanations: dict[Pair, Explanation], nights: Path
) -> None:
    counted = check_agreement(night_explanations, Warehouse.at(str(nights / "4")))
    assert counted["DELIVERED"] > 14_000
    pending = sum(row["pending"] for row in last_stats(nights / "4"))
    assert counted["PENDING"] == pending


def last_stats(warehouse: Path) -> list[dict[str, int]]:
    last = max(row["run"] for row in rows_of(warehouse, "run_ledger", "run"))
    return [row for row in rows_of(warehouse, "delivery_stats") if row["run"] == last]


def test_stage_1_stops_what_the_real_broker_stopped(small_explanations: dict[Pair, Explanation]) -> None:
    """The entries that pass stage 1 by the broker's own classes, for groups whose subscription never changed."""
    places = {
        (row["topic"], row["queueId"], row["queueOffset"]): row["physicalOffset"]
        for row in rows("small", "messages")
        if not row.get("blank")
    }
    registered = Counter(row["group"] for row in rows("small", "subscription_events") if row["op"] == "register")
    checked = Counter[bool]()
    for row in rows("small", "cqfilter"):
        if registered[row["group"]] != 1 or row["mode"] != "wire, registered subscription":
            continue
        for queue_id, queue in row["queues"].items():
            bits = bytes.fromhex(queue["cqPassBits"])
            for offset in range(queue["scanned"]):
                explanation = small_explanations[row["group"], places[row["topic"], int(queue_id), offset]]
                if explanation.outcome in (Outcome.NOT_SUBSCRIBED, Outcome.PENDING):
                    continue
                passes = bool(bits[offset // 8] >> offset % 8 & 1)
                stopped = explanation.outcome in (Outcome.STOPPED_BY_TAGS_CODE, Outcome.STOPPED_BY_BIT_MAP)
                assert stopped is not passes, (row["group"], explanation.message.place, explanation.decision)
                checked[passes] += 1
    assert checked[True] > 800
    assert checked[False] > 1_000


def test_the_nearest_miss_applied_is_delivered_for_every_dropped_pair_of_small(
    small_explanations: dict[Pair, Explanation],
) -> None:
    checked = Counter[str]()
    for (group, _), explanation in small_explanations.items():
        if explanation.outcome in (Outcome.DELIVERED, *NOT_FILTERED):
            continue
        miss, row = explanation.nearest_miss, explanation.subscription
        if group in NEVER_MATCHES:
            assert miss is None
            continue
        assert miss is not None, (group, explanation.decision)
        assert row is not None
        changed = miss.applied(explanation.message.properties)
        if row.expression_type == "SQL92":
            expression = miss.expression or (row.filter_expression if not row.sent_with_pull else row.expression)
            assert sql92.compile(str(expression)).evaluate(changed) is True, (group, miss)
        else:
            assert changed["TAGS"] in (row.tags_set or ())
        checked[str(explanation.outcome)] += 1
    assert checked["STOPPED_BY_BIT_MAP"] > 4_000
    assert checked.keys() == {
        "STOPPED_BY_BIT_MAP", "STOPPED_BY_EXPRESSION", "STOPPED_BY_TAGS_CODE", "EXPRESSION_FAILED", "DROPPED_BY_CLIENT",
    }  # fmt: skip


def test_messages_just_before_or_after_a_change_are_called_uncertain(
    night_explanations: dict[Pair, Explanation],
) -> None:
    groups_by_reason = defaultdict(set)
    for (group, _), each in night_explanations.items():
        if each.uncertain is not None:
            near = re.search(r"\d s (before|after) ", each.uncertain)
            groups_by_reason[near[1] if near else each.uncertain.split(":")[0]].add(group)
    assert groups_by_reason == {
        "before": {"cg_sql_change_rush", "cg_tag_change_rush"},
        "after": {"cg_post_sub", "cg_tag_change", "cg_tag_change_rush", "cg_tag_to_sql"},
        "two clients seem to disagree": {"cg_split_differ", "cg_split_tags"},
        Reason.IN_FLIGHT.split(":")[0]: {"cg_retry_away"},
        Reason.DELETED_TONIGHT.split(":")[0]: {"cg_expired"},
        Reason.BEGAN_EARLIER: {"cg_sql_last_n3", "cg_tag_first_n4", "cg_tag_last_n3"},
    }


def test_a_message_that_was_lost_while_tags_changed_is_called_uncertain(
    night_explanations: dict[Pair, Explanation], nights: Path
) -> None:
    """A live consumer did not receive it: the broker answered a pull under the old tags with it."""
    (lost,) = [key for key in delivered_by_night(nights / "4") - received_by_night() if key[0] == "cg_tag_change_rush"]
    uncertain = {
        (group, each.message.topic, each.message.queue_id, each.message.queue_offset)
        for (group, _), each in night_explanations.items()
        if each.uncertain is not None
    }
    assert lost[:4] in uncertain
    counted = [row for row in rows_of(nights / "4", "delivery_stats") if row["consumer_group"] == "cg_tag_change_rush"]
    assert [row["uncertain"] for row in counted if row["queue_id"] == lost[2] and row["uncertain"]] == [4]


def test_why_a_group_was_never_asked(night_explanations: dict[Pair, Explanation]) -> None:
    reasons: defaultdict[str, set[str]] = defaultdict(set)
    for (group, _), each in night_explanations.items():
        if each.outcome is Outcome.NOT_SUBSCRIBED:
            reasons[each.decision.reason].add(group)
    assert reasons["the broker deleted it before the group pulled it"] == {"cg_expired"}
    assert len(reasons["the group never subscribed to the topic"]) > 5
    assert reasons["the group first came later, and began at a later message"]


def test_what_the_broker_deleted_is_not_pending(nights: Path) -> None:
    """In night 3 the group is away, and some of what it missed is no longer in the broker's log."""
    facts = open_facts(Warehouse.at(str(nights / "3")))
    explainer = Explainer(facts, ["cg_expired"])
    orders = [row["commitlog_offset"] for row in rows_of(nights / "3", "commitlog") if row["topic"] == "OrderEvents"]
    explained = [explainer.explain(message, "cg_expired") for message in read(facts, orders)]
    log_start = facts.last.log_start or 0
    deleted = {each.decision.reason: each.outcome for each in explained if each.message.commitlog_offset < log_start}
    assert deleted["the broker deleted it before the group pulled it"] is Outcome.NOT_SUBSCRIBED
    assert Outcome.PENDING not in deleted.values()
    would_get = [each for each in explained if each.preview and each.preview.outcome is Outcome.DELIVERED]
    assert len(would_get) == sum(row.would_get for row in behind(facts, groups=["cg_expired"]))


def test_a_colleague_reads_the_reason_and_the_fix(replayed: Replayed, run: Run) -> None:
    place = ("--topic", "OrderEvents", "--queue", 0, "--offset", 56)
    given = ("--warehouse", replayed("small").location, "--group", "cg_sql_region_price", *place)
    code, out, _ = run(explain_job, *given)
    assert (code, out.splitlines()) == (
        0,
        [
            "ord-370  OrderEvents 0/56 → cg_sql_region_price: not delivered",
            "  stopped at  stage 1, filter bit map: the expression did not match when the message was stored",
            "  because     region = 'hangzhou'  ✗  region is 'us-east'",
            "              price > 50.0         ·  price is missing",
            "  would match with price = '50.01' and region = 'hangzhou'",
        ],
    )
    full = run(explain_job, *given, "--full").out
    assert "msgId 7F000001000056EF0000000000072BBC" in full
    assert "positions [111, 84, 56]: unset [111, 84, 56]" in full


def test_every_way_to_name_a_message(replayed: Replayed, run: Run) -> None:
    warehouse = replayed("small").location
    names = ("7F000001000056EF0000000000072BBC", "7F00000100015EED0000000300000172", "ord-370")
    answers = [run(explain_job, "--warehouse", warehouse, "--message", name).out for name in names]
    assert len(set(answers)) == 1
    assert "cg_all_orders" in answers[0]


@pytest.mark.parametrize("host", ["00000000000000000000FFFF0A000002", "FD000000000000000000000000000002"])
def test_a_msg_id_of_a_store_with_ipv6_addresses_is_found(tmp_path: Path, run: Run, host: str) -> None:
    """Java takes the first address for an IPv4 one, which is shorter, and leaves zeros behind the offset."""
    message: dict[str, object] = {"sys_flag": 0x20, "store_host": bytes.fromhex(host)}
    log = BrokerLog()
    log.data = log_of(message, message | {"queue_offset": 1})
    store = log.write(tmp_path / "store")
    nightly.main(["--store", str(store), "--warehouse", str(tmp_path / "w")])
    given = ("--warehouse", tmp_path / "w", "--message")
    for row in rows_of(tmp_path / "w", "commitlog", "msg_id", "commitlog_offset"):
        code, out, _ = run(explain_job, *given, row["msg_id"])
        assert (code, len(row["msg_id"])) == (0, 56)
        assert f"OrderEvents 0/{int(row['commitlog_offset'] > 0)}" in out.splitlines()[0]
    assert run(explain_job, *given, "F" * 56).code == 2


def test_times_beyond_the_calendar_are_shown_as_numbers(tmp_path: Path, run: Run) -> None:
    store = BrokerLog(first_time=1795237513466000).append(KEYS="k").write(tmp_path / "store")
    (tmp_path / "s.yaml").write_text("- {group: cg, topic: T, tag: '*', consume_from: first}\n")
    nightly.main(
        ["--store", str(store), "--warehouse", str(tmp_path / "w"), "--subscriptions", str(tmp_path / "s.yaml")]
    )
    given = ("--warehouse", tmp_path / "w")
    assert "stored 1795237513466000 ms" in run(explain_job, *given, "--message", "k").out
    assert run(lag, *given).code == 0
    assert run(report, *given, "--output", tmp_path / "page.html").code == 0
    assert run(pulls, *given, "--group", "cg", "--topic", "T").code == 0


def test_copies_of_a_message_are_named_and_not_mistaken_for_it(replayed: Replayed, run: Run) -> None:
    """Consumers of the capture small sent messages back. These came again in %RETRY% topics, via the schedule topic."""
    retried = next(
        row
        for row in rows("small", "messages")
        if row.get("topic", "").startswith("%RETRY%") and "UNIQ_KEY" in row["properties"]
    )
    key = retried["properties"]["UNIQ_KEY"]
    out = run(explain_job, "--warehouse", replayed("small").location, "--message", key).out
    place = f"{retried['topic']} {retried['queueId']}/{retried['queueOffset']}"
    (line,) = (line for line in out.splitlines() if line.startswith("  copies"))
    assert place in line
    assert not out.splitlines()[0].split()[1].startswith(("%RETRY%", "SCHEDULE"))


def test_several_messages_with_one_key_are_listed(tmp_path: Path, run: Run) -> None:
    store = BrokerLog().append(2, KEYS="a b", UNIQ_KEY="u").append(KEYS="b").write(tmp_path / "store")
    nightly.main(["--store", str(store), "--warehouse", str(tmp_path / "w")])
    out = run(explain_job, "--warehouse", tmp_path / "w", "--message", "b").out
    assert out.startswith("3 messages match; choose one:")
    message_id = out.splitlines()[1].split()[1]
    assert "T 0/0" in run(explain_job, "--warehouse", tmp_path / "w", "--message", message_id).out
    code, _, error = run(explain_job, "--warehouse", tmp_path / "w", "--message", "c")
    assert (code, "no message with the id or key c" in error) == (2, True)


def test_a_message_is_found_by_its_properties(tmp_path: Path, run: Run) -> None:
    store = BrokerLog().append(orderId="7").append(orderId="8", price="9").append(orderId="8").write(tmp_path / "store")
    nightly.main(["--store", str(store), "--warehouse", str(tmp_path / "w")])

    def explained(expression: str) -> Ended:
        return run(explain_job, "--warehouse", tmp_path / "w", "--where", expression)

    assert "T 0/1" in explained("orderId = '8' AND price > 5").out.splitlines()[0]
    assert explained("orderId = '8'").out.startswith("2 messages match; choose one:")
    assert (explained("orderId = '9'").code, explained("orderId =").code) == (2, 2)
    assert explained("orderId = '9'").error.endswith("has no message with orderId = '9'\n")
    assert "--where: Compared with the integer 5, price = '55.10' is an error" in explained("price > 5").error
    assert explained("orderid = '8'").error.endswith(": none has orderid; did you mean orderId?\n")
    assert explained("orderId = seven").error.endswith(": none has seven; if it is a text, write 'seven'\n")


def test_the_options_that_choose_a_message_can_be_pasted(tmp_path: Path, run: Run) -> None:
    """RocketMQ allows bars in the names of groups."""
    store = BrokerLog().append(2, KEYS="b").write(tmp_path / "store")
    (tmp_path / "s.yaml").write_text("- {group: cg|x, topic: T, tag: '*'}")
    run(nightly, "--store", store, "--subscriptions", tmp_path / "s.yaml", "--warehouse", tmp_path / "w")
    line = run(explain_job, "--warehouse", tmp_path / "w", "--group", "cg|x", "--message", "b").out.splitlines()[1]
    assert " --group 'cg|x'  T 0/0, " in line


def test_a_command_that_names_no_message_is_refused(tmp_path: Path, run: Run) -> None:
    for given in ((), ("--topic", "T", "--queue", 0), ("--message", "x", "--topic", "T")):
        code, _, error = run(explain_job, "--warehouse", tmp_path, *given)
        assert (code, "--message, or --topic, --queue and --offset" in error) == (2, True)


def test_an_empty_id_is_refused(replayed: Replayed, run: Run) -> None:
    code, _, error = run(explain_job, "--warehouse", replayed("small").location, "--message", "")
    assert (code, "give a msgId, a unique key or a key" in error) == (2, True)


def test_without_entries_there_is_no_answer_yet(tmp_path: Path, run: Run) -> None:
    store = BrokerLog().append(KEYS="k").write(tmp_path / "store")
    (tmp_path / "s.yaml").write_text("- {group: cg, topic: T, tag: a}\n")
    ingest.main(["--store", str(store), "--warehouse", str(tmp_path / "w")])
    code, out, _ = run(explain_job, "--warehouse", tmp_path / "w", "--message", "k")
    assert (code, "no group ever subscribed to the topic" in out) == (0, True)


def test_json_has_the_fields_that_docs_promise(replayed: Replayed, run: Run) -> None:
    out = run(explain_job, "--warehouse", replayed("small").location, "--message", "ord-370", "--json").out
    page = (Path(__file__).parents[2] / "docs" / "JSON.md").read_text("utf-8")
    answers = [json.loads(line) for line in out.splitlines()]
    assert len(answers) > 20
    for answer in answers:
        for name in answer:
            assert f"| `{name}` |" in page, name
        for name in ("message", "subscription", "bit_map", "expression", "nearest_miss"):
            for field in answer[name] or ():
                assert f"`{field}`" in page, field


@pytest.mark.parametrize(
    ("place", "message"),
    [
        (("OrderEvnts", 0, 3), "there is no topic OrderEvnts in {}; did you mean OrderEvents?"),
        (("OrderEvents", 0, 82), "{} has no message at OrderEvents 0/82: the queue has those from offset 0 to 81"),
        (("OrderEvents", 0, -1), "{} has no message at OrderEvents 0/-1: the queue has those from offset 0 to 81"),
        (("OrderEvents", 4, 0), "{} has no message at OrderEvents 4/0: the topic has them in 4 queues, 0 to 3"),
    ],
)
def test_a_place_without_a_message_names_those_that_exist(
    replayed: Replayed, run: Run, place: tuple[str, int, int], message: str
) -> None:
    topic, queue, offset = place
    location = replayed("small").location
    given = ("--topic", topic, "--queue", queue, f"--offset={offset}", "--warehouse", location)
    ended = run(explain_job, *given)
    assert (ended.code, ended.out, ended.error) == (2, "", f"mqsieve: {message.format(location)}\n")


def test_the_subscription_of_a_group_that_is_away_is_not_of_the_future(broker: GrowingBroker) -> None:
    """The broker will delete the filter data a day after the group left."""
    broker.night([sql(BEFORE, "cg", "n = '8'"), event(after(6), "unregister", "cg")])
    place = ("--topic", "T", "--queue", 0, "--offset", 8)
    asked = broker.run(explain_job, "--warehouse", broker.folder / "w", "--group", "cg", *place, "--json")
    answer = json.loads(asked.out)
    assert (answer["outcome"], answer["subscription"]["valid_from"]) == ("PENDING", after(6))


def test_a_message_is_found_by_the_keys_that_answers_show(replayed: Replayed, run: Run) -> None:
    message = next(
        row for row in rows_of(replayed("small"), "commitlog", "keys", "msg_id") if " " in (row["keys"] or "")
    )
    for text in (message["keys"], *message["keys"].split(" ")):
        out = run(explain_job, "--warehouse", replayed("small").location, "--message", text).out
        assert out.startswith(f"{message['keys']}  "), text


def test_a_message_that_the_group_pulls_again(broker: GrowingBroker) -> None:
    """In the second night, the offset is less than what the group had pulled in the first one."""
    lines = [sql(BEFORE, "cg", "n = 'none'")]
    broker.night(lines)
    broker.grow()
    broker.commit(cg=2)
    broker.night([*lines, event(after(12), "unregister", "cg")])
    asked = ("--warehouse", broker.folder / "w", "--group", "cg", "--topic", "T", "--queue", 0, "--json", "--offset")
    answers = [json.loads(broker.run(explain_job, *asked, offset).out) for offset in (1, 4)]
    assert [answer["outcome"] for answer in answers] == ["STOPPED_BY_BIT_MAP", "PENDING"]
    assert answers[1]["would_be"]["outcome"] == "STOPPED_BY_BIT_MAP"
