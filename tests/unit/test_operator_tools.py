"""Subscriptions from what RocketMQ's tools print."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from filtering.subscriptions.events import ConsumeFrom
from jobs import subscriptions
from schemas.errors import UsageError
from schemas.operator_tools import read_broker_log
from schemas.subscription_files import parse_subscriptions
from tests.captures import PUBLIC, capture

LOG = """\
2026-11-21 14:00:00 INFO AdminBrokerThread_1 - register broker[0]to name server localhost:9876 OK
2026-11-21 14:00:01 INFO HeartbeatThread_2 - new consumer connected, group: cg_rich CONSUME_PASSIVELY CLUSTERING
2026-11-21 14:00:01 INFO HeartbeatThread_2 - subscription changed, add new topic, group: cg_rich SubscriptionData \
[classFilterMode=false, topic=Orders, subString=price > 50.0 AND note = ', x=1]', tagsSet=[], codeSet=[], \
subVersion=1795240801000, expressionType=SQL92]
2026-11-21 14:00:02 INFO HeartbeatThread_2 - subscription changed, add new topic, group: cg_paid SubscriptionData \
[classFilterMode=false, topic=Orders, subString=paid || shipped, tagsSet=[paid, shipped], \
codeSet=[3433164, -516235858], subVersion=1795240802000, expressionType=TAG]
2026-11-21 14:00:02 INFO HeartbeatThread_2 - subscription changed, add new topic, group: cg_paid SubscriptionData \
[classFilterMode=false, topic=%RETRY%cg_paid, subString=*, tagsSet=[], codeSet=[], subVersion=1, expressionType=TAG]
2026-11-21 15:00:00 INFO HeartbeatThread_1 - subscription changed, group: cg_rich OLD: SubscriptionData \
[classFilterMode=false, topic=Orders, subString=price > 50.0, tagsSet=[], codeSet=[], subVersion=1795240801000, \
expressionType=SQL92] NEW: SubscriptionData [classFilterMode=false, topic=Orders, subString=price > 99.0, tagsSet=[], \
codeSet=[], subVersion=1795244400000, expressionType=SQL92]
2026-11-21 16:00:00 INFO Client_5 - unregister consumer ok, no any connection, and remove consumer group, cg_paid
"""
CONNECTION = """\
#ClientId                            #ClientAddr            #Language  #Version
10.0.0.1@4711                        10.0.0.1:51814         JAVA       V5_5_0

Below is subscription:
#Topic               #SubExpression
%RETRY%cg_rich       *
Orders               price > 50.0 AND region = 'hangzhou'
Payments             paid || shipped

ConsumeType: CONSUME_PASSIVELY
"""
DASHBOARD = {
    "status": 0,
    "data": {
        "connectionSet": [{"clientId": "10.0.0.1@4711"}],
        "subscriptionTable": {
            "Orders": {"topic": "Orders", "expressionType": "SQL92", "subString": "price > 50.0", "subVersion": 7},
            "%RETRY%cg_rich": {"topic": "%RETRY%cg_rich", "expressionType": "TAG", "subString": "*"},
        },
    },
}


def test_a_log_may_have_very_many_lines_without_a_time() -> None:
    """Joined one by one, they would be copied as often as there are lines."""
    trace = "\tat org.apache.rocketmq.broker.processor.PullMessageProcessor.processRequest\n" * 300_000
    events = read_broker_log(LOG + trace + LOG).events
    assert events == [*read_broker_log(LOG).events, *read_broker_log(LOG).events]


def test_a_subscription_without_a_type_is_one_to_tags() -> None:
    """A client may send null, which the broker takes for TAG (ExpressionType.isTagType), and logs as a word."""
    (event,) = read_broker_log(LOG.split("\n")[3].replace("expressionType=TAG", "expressionType=null")).events
    assert event.subscriptions[0]["type"] == "TAG"


def test_a_broker_log_becomes_the_events_it_logged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "broker.log").write_text(LOG)
    subscriptions.main([str(tmp_path / "broker.log")])
    parsed = parse_subscriptions(capsys.readouterr().out)
    assert not parsed.rejected
    events = [
        (
            event.at - 1795240800000,
            event.operation.value,
            event.group,
            [each["expression"] for each in event.subscriptions],
        )
        for event in parsed.events
    ]
    assert events == [
        (1_000, "register", "cg_rich", ["price > 50.0 AND note = ', x=1]'"]),
        (2_000, "register", "cg_paid", ["paid || shipped"]),
        (2_000, "register", "cg_paid", ["*"]),
        (3_600_000, "register", "cg_rich", ["price > 99.0"]),
        (7_200_000, "unregister", "cg_paid", []),
    ]
    assert parsed.events[0].subscriptions[0]["version"] == 1795240801000


def test_what_mqadmin_prints_becomes_a_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "cg_rich.txt").write_text(CONNECTION)
    subscriptions.main([str(tmp_path / "cg_rich.txt")])
    assert _parsed(capsys.readouterr().out) == [
        ("cg_rich", "%RETRY%cg_rich", "TAG", "*"),
        ("cg_rich", "Orders", "SQL92", "price > 50.0 AND region = 'hangzhou'"),
        ("cg_rich", "Payments", "TAG", "paid || shipped"),
    ]


def test_the_dashboards_json_becomes_a_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "cg_rich.json").write_text(json.dumps(DASHBOARD))
    subscriptions.main([str(tmp_path / "cg_rich.json")])
    assert _parsed(capsys.readouterr().out) == [
        ("cg_rich", "Orders", "SQL92", "price > 50.0"),
        ("cg_rich", "%RETRY%cg_rich", "TAG", "*"),
    ]


@pytest.mark.parametrize("text", ["hello", "{}", '{"subscriptionTable": 5}', "{", '{"queueDatas": []}'])
def test_any_other_file_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "x").write_text(text)
    with pytest.raises(UsageError, match="/x: "):
        subscriptions.main([str(tmp_path / "x")])


@pytest.mark.parametrize("name", ["subscription_events.jsonl", "store/config/consumerFilter.json"])
def test_a_file_of_subscriptions_needs_no_conversion(name: str) -> None:
    with pytest.raises(UsageError, match=rf"{name}: it has subscriptions already: give it to --subscriptions as it is"):
        subscriptions.main([str(capture("small") / name)])


def test_expressions_of_several_lines_and_subscriptions_by_class(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sql = "price > 5\n  AND note = 'a\u2028b]'\nOR b IS NULL"
    change = (
        "2026-11-21 14:00:01 INFO HeartbeatThread_2 - subscription changed, add new topic, group: cg SubscriptionData"
    )
    logged = (
        f"{change} [classFilterMode=false, topic=Orders, subString={sql}, tagsSet=[], codeSet=[], subVersion=1, "
        f"expressionType=SQL92]\n{change} [classFilterMode=true, topic=T, subString=C, tagsSet=[a]b], codeSet=[5], "
        f"subVersion=2, expressionType=TAG]\n{change} [classFilterMode=false, topic=Orders, sub\n"
    )
    (tmp_path / "broker.log").write_text(logged, "utf-8")
    subscriptions.main([str(tmp_path / "broker.log")])
    out, err = capsys.readouterr()
    first, second = (event.subscriptions[0] for event in parse_subscriptions(out).events)
    assert (first["expression"], second["expression"], second["class_filter_mode"]) == (sql, "C", True)
    assert f"{tmp_path}/broker.log, line 5: left out, its SubscriptionData is incomplete, or not UTF-8" in err

    printed = CONNECTION.replace("hangzhou'", "hangzhou'\nAND a = 1\n  AND b = 2")
    (tmp_path / "cg.txt").write_text(f"{printed}ConsumeFromWhere: CONSUME_FROM_FIRST_OFFSET\n")
    subscriptions.main([str(tmp_path / "cg.txt")])
    events = parse_subscriptions(capsys.readouterr().out).events
    assert [event.subscriptions[0]["topic"] for event in events] == ["%RETRY%cg_rich", "Orders", "Payments"]
    [several] = events[1].subscriptions
    assert several["expression"] == "price > 50.0 AND region = 'hangzhou'\nAND a = 1\n  AND b = 2"
    assert {event.consume_from for event in events} == {ConsumeFrom.FIRST}

    by_class = {"subString": "com.x.Filter", "expressionType": "TAG", "classFilterMode": True}
    (tmp_path / "cg.json").write_text(json.dumps({"subscriptionTable": {"T": by_class}}))
    subscriptions.main([str(tmp_path / "cg.json")])
    [event] = parse_subscriptions(capsys.readouterr().out).events
    assert event.subscriptions[0]["class_filter_mode"]


@pytest.mark.parametrize(
    ("expression", "kind"),
    [
        ("price>5", "SQL92"),
        ("a='x'", "SQL92"),
        ("'x'=a", "SQL92"),
        ("(a=1)", "SQL92"),
        ("NOT(a=1)", "SQL92"),
        ("a=1\tAND\tb=2", "SQL92"),
        ("price > 5\nOR\nb = 1", "SQL92"),
        ("price > 5\nAND  b = 1", "SQL92"),
        ("price > 5\n\nAND b = 1", "SQL92"),
        (" price > 5", "SQL92"),
        ("a = '\x85'", "SQL92"),
        ("paid", "TAG"),
        ("a b", "TAG"),
        ("paid||shipped", "TAG"),
        ("TRUE", "TAG"),
        ("*", "TAG"),
    ],
)
def test_the_type_that_mqadmin_does_not_print(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], expression: str, kind: str
) -> None:
    printed = CONNECTION.replace("price > 50.0 AND region = 'hangzhou'", expression)
    (tmp_path / "cg.txt").write_text(printed, "utf-8")
    subscriptions.main([str(tmp_path / "cg.txt")])
    assert _parsed(capsys.readouterr().out) == [
        ("cg", "%RETRY%cg_rich", "TAG", "*"),
        ("cg", "Orders", kind, expression),
        ("cg", "Payments", "TAG", "paid || shipped"),
    ]


def test_no_expression_is_every_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "cg.json").write_text(json.dumps({"subscriptionTable": {"T": {"subString": ""}}}))
    (tmp_path / "cg_2.txt").write_text(f"#Topic               #SubExpression\n{'T':<20} \n")
    subscriptions.main([str(tmp_path / name) for name in ("cg.json", "cg_2.txt")])
    assert _parsed(capsys.readouterr().out) == [("cg", "T", "TAG", "*"), ("cg_2", "T", "TAG", "*")]


def _parsed(text: str) -> list[tuple[str, str, str | None, str | None]]:
    parsed = parse_subscriptions(text)
    assert parsed.is_snapshot
    assert not parsed.rejected
    return [
        (event.group, each["topic"], each["type"], each["expression"])
        for event in parsed.events
        for each in event.subscriptions
    ]


def test_a_subscription_in_another_encoding_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A broker in China may log in GBK. With other characters, it would be another subscription."""
    changed = LOG.replace("paid || shipped", "paid || bezahlt für").replace(" INFO ", " für ", 1)
    (tmp_path / "broker.log").write_bytes(changed.encode("latin-1"))
    subscriptions.main([str(tmp_path / "broker.log")])
    out, err = capsys.readouterr()
    assert "bezahlt" not in out
    assert out.count("\n") == 4
    assert "left out, its SubscriptionData is incomplete, or not UTF-8" in err
    (tmp_path / "cg.txt").write_bytes(CONNECTION.replace("paid", "für").encode("latin-1"))
    with pytest.raises(UsageError, match=r"cg\.txt: it is not UTF-8; convert it"):
        subscriptions.main([str(tmp_path / "cg.txt")])


TABLES = [
    (f"{'#Topic':<64}  {'#Broker Name':<32}  {'#QID':<4}  {'#Broker Offset':<20}  {'#Consumer Offset':<20}  #Diff\n"
     f"{'T':<64}  {'b':<32}  {0:<4}  {9:<20}  {8:<20}  1\n", "consumerProgress"),
    (f"{'#Group':<32}  {'#Count':<6}  {'#Version':<24} {'#Type':<5}  {'#Model':<14}  {'#TPS':<7}  #Diff Total\n",
     "consumerProgress"),
    (f"{'#Topic':<32}  {'#Group':<32}  {'#Broker Name':<32}  {'#QID':<4}  {'#Broker Offset':<20}  #Diff\n",
     "brokerConsumeStats"),
    (f"{'#Broker Name':<32}  {'#QID':<4}  {'#Min Offset':<20}  {'#Max Offset':<20}  #Last Updated\n", "topicStatus"),
    (f"{'#ClusterName':<45}  {'#BrokerName':<32}  {'#BrokerAddrs':<25}  {'#ReadQueue':<8}  #WriteQueue  #Perm\n",
     "topicRoute"),
    (f"{'#Cluster Name':<20}  {'#Topic':<48}  {'#Consumer Group':<48}\n", "topicList"),
    (f"{'#Topic':<64}  {'#Consumer Group':<64}  {'#Accumulation':>12}  #InTPS  #OutTPS  #InMsg24Hour\n", "statsAll"),
    (f"{'#Cluster Name':<22}  {'#Broker Name':<22}  {'#BID':<4}  {'#Addr':<22}  #Version\n", "clusterList"),
    (f"{'#Message ID':<50} {'#QID':>4} {'#Offset':>40}\n", "queryMsgByKey"),
    (f"{'#Index':<10} {'#ClientId':<40} {'#Version':<20} #ConsumerRunningInfoFile\n", "consumerStatus without -i"),
    ("OffsetID:            7F000001\nTopic:               T\nTags:                [a]\n", "queryMsgById"),
]  # fmt: skip
"""What other commands of mqadmin print: a table with its titles, or lines."""


@pytest.mark.parametrize(("text", "command"), TABLES)
def test_what_another_command_prints_is_refused_with_its_name(tmp_path: Path, text: str, command: str) -> None:
    (tmp_path / "cg.txt").write_text(text)
    with pytest.raises(UsageError, match=rf"cg\.txt: it is the output of mqadmin {command}, not of mqadmin consum"):
        subscriptions.main([str(tmp_path / "cg.txt")])


def test_consumer_progress_of_a_public_report_is_refused() -> None:
    with pytest.raises(
        UsageError, match=r"the output of mqadmin consumerProgress, not of .* run mqadmin consumerConnec"
    ):
        subscriptions.main([str(PUBLIC / "mqadmin-progress-as-subscriptions" / "cg_progress.txt")])


def test_a_broadcasting_group_is_marked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = json.dumps({"data": {"subscriptionTable": {"T": {"subString": "a"}}, "messageModel": "BROADCASTING"}})
    (tmp_path / "cg_json.json").write_text(table)
    subscriptions.main([str(PUBLIC / "mqadmin-broadcasting" / "cg_bc.txt"), str(tmp_path / "cg_json.json")])
    out, err = capsys.readouterr()
    assert "cg_bc: not replayed: broadcasting, where each client gets every message" in err
    assert "cg_json: not replayed: broadcasting" in err
    parsed = parse_subscriptions(out)
    assert (parsed.entries, parsed.rejected) == ((), ())
    assert parsed.broadcasting == (("cg_bc", "TopicX"), ("cg_json", "T"))


def test_a_message_model_is_one_of_two() -> None:
    entry = "- {group: g, topic: T, tag: a, message_model: %s}"
    assert len(parse_subscriptions(entry % "clustering").entries) == 1
    (rejected,) = parse_subscriptions(entry % "BROADCAST").rejected
    assert "message_model: must be clustering or broadcasting" in rejected.reason


def test_what_mqadmin_up_to_4_4_prints_becomes_a_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = "{:03d}  Topic: {:<40} SubExpression: {}\n".format
    printed = "001  10.0.0.1@4711                    10.0.0.1:51814         JAVA     V4_3_0\n\nBelow is subscription:"
    rows = [row(1, "%RETRY%cg", "*"), row(2, "Orders", "price > 5\nAND a = 1"), row(3, "T" * 50, "paid || shipped")]
    (tmp_path / "cg.txt").write_text(f"{printed}{''.join(rows)}ConsumeType: CONSUME_PASSIVELY\n")
    subscriptions.main([str(tmp_path / "cg.txt")])
    assert _parsed(capsys.readouterr().out) == [
        ("cg", "%RETRY%cg", "TAG", "*"),
        ("cg", "Orders", "SQL92", "price > 5\nAND a = 1"),
        ("cg", "T" * 50, "TAG", "paid || shipped"),
    ]


RUNNING = """\
#Consumer Properties#
PROP_CONSUMER_START_TIMESTAMP           : 1795237513466
PROP_CONSUMEORDERLY                     : false


#Consumer Subscription#
001 Topic: Orders                                   ClassFilter: false    SubExpression: price > 5.0
AND region = 'x'
002 Topic: %RETRY%cg_rich                           ClassFilter: false    SubExpression: *
003 Topic: Payments                                 ClassFilter: false    SubExpression: paid || shipped


#Consumer Offset#
#Topic                                                            #Broker Name                      #QID  #Consumer Offset
Orders                            broker-a                          0     9
"""  # noqa: E501


def test_what_each_client_runs_becomes_heartbeats(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """consumerStatus writes a file for each client, named after it; the dashboard has the same as JSON."""
    (tmp_path / "10.0.0.5@4103").write_text(RUNNING)
    listed = [
        {"topic": "Orders", "subString": "TagA", "expressionType": "TAG", "subVersion": 7},
        {"topic": "%RETRY%cg_rich", "subString": "*", "expressionType": "TAG"},
    ]
    info = {"properties": {"PROP_CONSUMER_START_TIMESTAMP": "1795237500000"}, "subscriptionSet": listed}
    (tmp_path / "10.0.0.6@1#2.json").write_text(json.dumps({"status": 0, "data": info}))
    subscriptions.main([str(tmp_path / "10.0.0.5@4103"), str(tmp_path / "10.0.0.6@1#2.json")])
    out, err = capsys.readouterr()
    assert err == "2 clients of 1 group\n"
    parsed = parse_subscriptions(out)
    assert not parsed.rejected
    events = [
        (event.at, event.operation.value, event.group, event.client_id,
         [(each["topic"], each["type"], each["expression"]) for each in event.subscriptions])
        for event in parsed.events
    ]  # fmt: skip
    retry = ("%RETRY%cg_rich", "TAG", "*")
    assert events == [
        (1795237500000, "heartbeat", "cg_rich", "10.0.0.6@1#2", [("Orders", "TAG", "TagA"), retry]),
        (1795237513466, "heartbeat", "cg_rich", "10.0.0.5@4103",
         [("Orders", "SQL92", "price > 5.0\nAND region = 'x'"), retry, ("Payments", "TAG", "paid || shipped")]),
    ]  # fmt: skip


def test_a_client_that_subscribes_by_class_runs_without_a_filter(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    by_class = RUNNING.replace("false    SubExpression: paid || shipped", "true     SubExpression: F")
    (tmp_path / "c@1").write_text(by_class)
    subscriptions.main([str(tmp_path / "c@1")])
    [event] = parse_subscriptions(capsys.readouterr().out).events
    assert [each["topic"] for each in event.subscriptions if each.get("class_filter_mode")] == ["Payments"]


def test_a_client_whose_group_is_not_known_is_refused(tmp_path: Path) -> None:
    (tmp_path / "c@1").write_text(RUNNING.replace("%RETRY%cg_rich", "Other"))
    with pytest.raises(UsageError, match=r"c@1: which group is this\?"):
        subscriptions.main([str(tmp_path / "c@1")])
    (tmp_path / "cg.txt").write_text(CONNECTION)
    with pytest.raises(UsageError, match="not several kinds at once"):
        subscriptions.main([str(tmp_path / "c@1"), str(tmp_path / "cg.txt")])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it is empty: run mqadmin consumerConnection"),
        ("The consumer group <cg_x> not online\n", "the group was not online"),
        ("SubCommandException: failed\nCaused by: CODE: 206  DESC: the consumer group[z] not online", "not online"),
    ],
)
def test_a_group_that_is_not_online_has_no_connections(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "cg.txt").write_text(text)
    with pytest.raises(UsageError, match=rf"cg\.txt: .*{reason}"):
        subscriptions.main([str(tmp_path / "cg.txt")])


@pytest.mark.parametrize(("name", "is_doubted"), [("cg_rich.txt", False), ("connection.txt", True), ("cg_r.txt", True)])
def test_a_file_with_another_name_than_the_group_is_doubted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, is_doubted: bool
) -> None:
    (tmp_path / name).write_text(CONNECTION)
    subscriptions.main([str(tmp_path / name)])
    assert ("retry topic of cg_rich: name the file cg_rich.txt" in capsys.readouterr().err) == is_doubted
