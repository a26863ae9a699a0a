"""The versions of brokers, and what each of them makes of an expression and of a redelivery."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
import sqlglot
from sqlglot import exp

from filtering import sql92
from filtering.broker_config import BrokerConfig, InvalidBrokerConfig, read_properties
from filtering.delivery.message_filter import message_filters
from filtering.predicate import holds
from filtering.rocketmq_version import NEWEST, RocketMQVersion, before_text_searches, only, since_5, up_to_4
from filtering.sql92 import EvaluationError, InvalidExpression
from filtering.sql92.dialect import RocketMQ
from filtering.subscription_data import new_subscription
from filtering.subscriptions.events import Operation, SubscriptionEvent
from filtering.subscriptions.history import EarlierConfig, in_force_at, subscription_history
from schemas.operator_tools import versions_in_log, versions_of_clients
from tests.unit.broker import cases
from tests.unit.sql92.cases import expressions

OUTCOMES = {True: "TRUE", False: "FALSE", None: "NULL"}
OLD, NEW = "5.1.1", "5.1.3"
"""On both sides of the border from which three words are operators."""


def outcome(expression: str, properties: dict[str, str], version: str) -> str | None:
    try:
        return OUTCOMES[sql92.compile(expression, version).evaluate(properties)]
    except InvalidExpression:
        return None
    except EvaluationError:
        return "ERROR"


@pytest.mark.parametrize("version", ["4.9.7", OLD, "5.1.2"])
def test_brokers_before_the_text_searches_read_every_expression_as_they_did(version: str) -> None:
    known = expressions(RocketMQVersion.parse(version))
    assert sum("versions" in row for row in known) == 841
    differing = [row for row in known if "versions" in row or version == "4.9.7"]
    wrong: list[object] = []
    for row in differing:
        try:
            compiled = sql92.compile(row["expression"], version)
        except InvalidExpression:
            wrong += [row["expression"]] if row["compiles"] else []
            continue
        wrong += [] if row["compiles"] else [row["expression"]]
        for case in row["cases"]:
            properties = case["properties"] or {}
            answer = outcome(row["expression"], properties, version)
            predicates = holds(compiled.predicate, properties), holds(compiled.error_predicate, properties)
            if (answer, predicates) != (case["result"], (answer == "TRUE", answer == "ERROR")):
                wrong.append((row["expression"], case, answer))
    assert not wrong


def test_the_same_questions_have_the_other_answers_from_the_border_on() -> None:
    wrong = []
    for row in cases("versions"):
        for case in row["cases"]:
            answer = outcome(row["expression"], case["properties"] or {}, NEW)
            if answer != case["result_from_5.1.3"]:
                wrong.append((row["expression"], case, answer))
    assert not wrong


def test_the_words_are_names_before() -> None:
    assert outcome("contains = 5", {"contains": "5"}, "4.3.0") == "TRUE"
    assert outcome("NOT a CONTAINS 'x'", {"a": "x"}, "4.9.7") == "TRUE"
    assert outcome("NOT a CONTAINS 'x'", {"a": "x"}, "5.5.0") == "FALSE"
    with pytest.raises(InvalidExpression, match="must be followed by BETWEEN or IN"):
        sql92.compile("a NOT CONTAINS 'x'", OLD)


@pytest.mark.parametrize("text", ["a LIKE '%x%'", "a % 5", "a ~ 'x'", "a NOT LIKE 'x'"])
def test_advice_names_no_operator_that_the_broker_does_not_have(text: str) -> None:
    def advice(version: str) -> str:
        try:
            return " ".join(finding.suggestion for finding in sql92.compile(text, version).findings)
        except InvalidExpression as error:
            return str(error)

    assert "CONTAINS" in advice(NEW)
    assert "CONTAINS" not in advice(OLD)


def test_the_linter_says_that_the_operator_came_later() -> None:
    (finding,) = sql92.compile("a CONTAINS 'x'", "4.9.7").findings
    assert "CONTAINS is an operator from RocketMQ 5.1.3 on only, and a name before" in finding.suggestion


def test_the_dialect_reads_as_a_version() -> None:
    tree = sqlglot.parse_one("a CONTAINS 'x'", read=f"{RocketMQ.__name__.lower()}, version=4.9.7")
    assert [column.name for column in tree.find_all(exp.Column)] == ["a"]
    assert list(tree.find_all(exp.Contains)) == []
    assert len(list(sqlglot.parse_one("a CONTAINS 'x'", read="rocketmq").find_all(exp.Contains))) == 1


def test_a_compiled_expression_keeps_its_version() -> None:
    compiled = sql92.compile("NOT a CONTAINS 'x'", "4.9.7")
    assert repr(compiled) == """compile("NOT a CONTAINS 'x'", '4.9.7')"""
    assert pickle.loads(pickle.dumps(compiled)).predicate is compiled.predicate
    assert "CONTAINS" not in compiled.spark_predicate().upper()


@pytest.mark.parametrize("text", ["", "5", "5.1", "5.1.x", "five", "5.1.3.4"])
def test_what_is_no_version(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a version of RocketMQ, such as 4.9.7"):
        sql92.compile("a = 5", text)


def test_versions_as_the_tools_write_them() -> None:
    assert RocketMQVersion.parse("V4_9_7") == RocketMQVersion.parse(" 4.9.7") == (4, 9, 7)
    assert sql92.compile("a = 5").version == NEWEST


def test_a_broker_conf_has_no_version() -> None:
    with pytest.raises(InvalidBrokerConfig, match="give --rocketmq-version"):
        read_properties("brokerName=a\nrocketmqVersion=4.9.7\n")


def registered(at: int, group: str, topic: str, expression: str, type: str = "SQL92") -> SubscriptionEvent:
    return SubscriptionEvent(at, Operation.REGISTER, group, (new_subscription(topic, expression, type, 7),))


@pytest.mark.parametrize("version", ["5.1.3", "5.1.4"])
@pytest.mark.parametrize("row", range(72))
def test_redeliveries_and_the_filter_of_their_original_topic(version: str, row: int) -> None:
    """Each question to ExpressionForRetryMessageFilter, in two modes. A level of - is no property."""
    asked = cases("versions_retry")[row]
    until, since = asked["stage1, stage2 up to 5.1.3"], asked["stage1, stage2 from 5.1.4"]
    answer = until if version == "5.1.3" else since
    config = BrokerConfig(
        enable_property_filter=True, filter_support_retry=asked["filterSupportRetry"], rocketmq_version=version
    )
    events = [registered(2, "cg", "%RETRY%cg", asked["expression"], asked["type"])]
    if asked["registered"] is not None:
        events.insert(0, registered(1, "cg", "T", asked["registered"]))
    rows = in_force_at(subscription_history(events, config), 3)
    (retry_filter,) = (each for each in message_filters(rows, config) if each.topic == "%RETRY%cg")
    level = asked["level"].removeprefix("no RETRY_TOPIC, ")
    properties = {} if level == "-" else {"level": level}
    if level == asked["level"]:
        properties["RETRY_TOPIC"] = "T"
    if answer[1] == "NullPointerException":
        assert holds(retry_filter.failure, properties)
    assert holds(retry_filter.expression, properties) is (answer[1] == "true")


def states(events: list[SubscriptionEvent], before: str, at: int, after: str) -> list[Any]:
    configs = [
        BrokerConfig(enable_property_filter=True, enable_calc_filter_bit_map=True, rocketmq_version=version)
        for version in (before, after)
    ]
    return subscription_history(events, configs[1], earlier=[EarlierConfig(configs[0], at)])


def test_an_upgrade_changes_what_a_filter_means_from_then_on() -> None:
    before, after = states([registered(1, "cg", "T", "NOT a CONTAINS 'x'")], "4.9.7", 100, "5.5.0")
    assert (before.valid_to, after.valid_from, before.born_time, after.born_time) == (100, 100, 1, 1)
    assert [holds(row.filter_data.compiled.predicate, {"a": "x"}) for row in (before, after)] == [True, False]
    assert [holds(row.compiled.expression.predicate, {"a": "x"}) for row in (before, after)] == [True, False]


def test_an_upgrade_lets_a_refused_group_in() -> None:
    before, after = states([registered(1, "cg", "T", "a NOT CONTAINS 'x'")], "4.9.7", 100, "5.5.0")
    assert (before.filter_data, after.born_time) == (None, 100)


def test_an_upgrade_to_a_broker_that_refuses_a_loaded_filter_passes_every_message() -> None:
    """ConsumerFilterManager.decode keeps it without a compiled expression, as also for a client that sends it again."""
    events = [registered(1, "cg", "T", "contains = 5"), registered(200, "cg", "T", "contains = 5")]
    *_, last = states(events, "4.9.7", 100, "5.5.0")
    assert last.filter_data is not None
    assert last.filter_data.compiled is None
    config = BrokerConfig(enable_property_filter=True)
    (passes_all,) = message_filters([last], config)
    assert holds(passes_all.expression, {})


def test_a_version_that_reads_expressions_alike_changes_nothing() -> None:
    assert len(states([registered(1, "cg", "T", "a = 5")], "4.9.7", 100, "5.5.0")) == 1
    assert len(states([registered(1, "cg", "T", "a CONTAINS 'x'")], "5.1.3", 100, "5.5.0")) == 1


BROKER_LOG = """\
2026-11-27 14:08:57 INFO main - rocketmqHome={home}
2026-11-27 14:08:57 INFO main - namesrvAddr=127.0.0.1:19876
{settings}2026-11-27 14:09:09 INFO HeartbeatThread_2 - new consumer connected, group: cg_x CONSUME_PASSIVELY \
CLUSTERING channel: ClientChannelInfo [channel=[id: 0x345f0432, L:/127.0.0.1:31911 - R:/127.0.0.1:40358], \
clientId=127.0.0.1@21110#667813917693, language=JAVA, version={client}, lastUpdateTimestamp=1795759749768]
"""
"""Lines of brokers of 4.9.7 and 5.5.0, which print their settings when they start."""
POP_LOG, COLD, SPLIT, BLACK = (
    f"2026-11-27 14:08:57 INFO main - {setting}\n"
    for setting in ("enablePopLog=false", "cgColdReadThreshold=3145728", "enableSplitRegistration=false",
                    "configBlackList=configBlackList;brokerConfigPath")
)  # fmt: skip


@pytest.mark.parametrize(
    ("home", "settings", "taken_for", "reason"),
    [
        ("/opt/rocketmq", "", "4.9.7", "4.x: broker.log prints no setting of 5.x"),
        ("/home/rocketmq/rocketmq-4.9.4", "", "4.9.4", "4.9.4: broker.log prints its folder, "),
        ("/opt/rocketmq-all-4.4.0-bin-release", "", "4.4.0", "4.4.0: broker.log prints its folder, "),
        ("/opt/mq", POP_LOG, "5.1.1", "5.0.0 or newer: broker.log prints enablePopLog, and no setting of 5.1.3"),
        ("/opt/mq", POP_LOG + COLD, "5.1.3", "5.1.3 or newer: broker.log prints cgColdReadThreshold, and no setting"),
        ("/opt/mq", COLD + SPLIT, "5.1.4", "5.1.4 or newer: broker.log prints enableSplitRegistration, and no"),
        ("/opt/mq", POP_LOG + COLD + BLACK, "5.5.0", "5.2.0 or newer: broker.log prints configBlackList"),
        ("/opt/rocketmq-4.9.4", POP_LOG, "5.1.1", "5.0.0 or newer: "),
    ],
)
def test_what_a_broker_log_shows(home: str, settings: str, taken_for: str, reason: str) -> None:
    """The last start counts, and a folder only where the settings do not contradict its name."""
    before = BROKER_LOG.format(home="/opt/rocketmq-5.3.1", settings=BLACK, client=513)
    shown = versions_in_log(before + BROKER_LOG.format(home=home, settings=settings, client=407))
    assert shown is not None
    assert (str(shown.taken_for), shown.reason[: len(reason)]) == (taken_for, reason)
    assert versions_in_log(before.partition("\n")[2]) is None


@pytest.mark.parametrize(
    ("number", "version"), [(213, "4.0.0"), (407, "4.9.7"), (412, "4.9.9"), (513, "5.5.0"), (9, None)]
)
def test_the_versions_of_clients_in_a_broker_log(number: int, version: str | None) -> None:
    newer = BROKER_LOG.format(home="/opt", settings="", client=513)
    versions = versions_of_clients(newer + BROKER_LOG.format(home="/opt", settings="", client=number))
    assert {group: str(each) for group, each in versions.items()} == {"cg_x": version or "5.5.0"}


def test_what_store_and_log_show_together() -> None:
    """The store's files are newer than the start in a log; what they exclude does not count."""
    in_store = since_5("5.x: consumerOffset.json has a dataVersion")
    log = only(RocketMQVersion(5, 1, 4), "5.1.4: the log")
    assert in_store.narrowed(log) == log
    assert in_store.narrowed(None) == in_store
    assert up_to_4("4.x").narrowed(log) == up_to_4("4.x")
    assert log.narrowed(in_store) == log
    both = before_text_searches("before 5.1.3").narrowed(since_5("5.x"))
    assert both == before_text_searches("before 5.1.3")


OLD_SIZES = "mapedFileSizeConsumeQueue=40\nmappedFileSizeCommitLog=99\n"


def test_the_keys_of_file_sizes_up_to_4_5_1() -> None:
    old, new = (read_properties(OLD_SIZES, RocketMQVersion.parse(version)) for version in ("4.5.1", "4.5.2"))
    assert (old.config.mapped_file_size_consume_queue, old.config.mapped_file_size_commit_log) == (40, 1 << 30)
    assert old.ignored == ("the broker ignores 'mappedFileSizeCommitLog': up to 4.5.1 it is mapedFileSizeCommitLog",)
    assert (new.config.mapped_file_size_consume_queue, new.config.mapped_file_size_commit_log) == (6_000_000, 99)
    (ignored,) = new.ignored
    assert ignored.startswith("the broker ignores 'mapedFileSizeConsumeQueue'")
