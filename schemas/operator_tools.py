"""Reads subscriptions from the output of RocketMQ's tools: mqadmin, the dashboard, and the broker's log.

Sources: ConsumerConnectionSubCommand (mqadmin consumerConnection), ConsumerConnection (the dashboard's JSON),
ConsumerRunningInfo (mqadmin consumerStatus -i, and the dashboard's JSON), ConsumerGroupInfo.updateSubscription and
ConsumerManager (broker.log).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

from filtering.frozen import frozen
from filtering.java import has_half_a_pair
from filtering.names import RETRY_TOPIC_PREFIX, is_retry_topic
from filtering.rocketmq_version import RocketMQVersion, ShownVersions, client_version, only, shown_by_settings
from filtering.sql92.parser import looks_like_sql92
from filtering.subscription_data import SQL92, SUB_ALL, TAG, Subscription, new_subscription
from filtering.subscriptions.events import (
    UNVERSIONED,
    ConsumeFrom,
    Operation,
    SubscriptionEvent,
    parse_event,
    parse_json,
)
from schemas.subscription_files import is_consumer_filter

LOG_TIME_ZONE = timezone(timedelta(hours=8))
"""The time zone of broker.log on any machine: rmq.broker.logback.xml sets GMT+8."""
_SUBSCRIPTION = re.compile(
    r"SubscriptionData \[classFilterMode=(?P<class_filter_mode>true|false), topic=(?P<topic>\S+), "
    r"subString=(?P<expression>.*?), tagsSet=\[.*?\], codeSet=\[[-\d, ]*\], subVersion=(?P<version>\d+), "
    r"expressionType=(?:null|(?P<type>\w*))\]",
    re.DOTALL,
)
_LOG_LINE = re.compile(r"^(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\b.*? - (?P<message>.*)$", re.DOTALL)
_ADDED = re.compile(r"subscription changed, add new topic, group: (?P<group>\S+) (?P<new>.*)", re.DOTALL)
_CHANGED = re.compile(r"subscription changed, group: (?P<group>\S+) OLD: (?:.* NEW: )?(?P<new>.*)", re.DOTALL)
_REMOVED = re.compile(r"subscription changed, group: (?P<group>\S+) remove topic (?P<topic>\S+) ")
_LEFT = re.compile(r"(?:remove consumer group, |all clear, consumerGroup=)(?P<group>\S+)")
_HOME = " - rocketmqHome="
"""The first setting that a broker prints when it starts."""
_LONGEST_START = 1 << 18
"""Characters in which a broker prints its settings."""
_PRINTED = re.compile(r" - ([a-zA-Z]\w*)=")
_RELEASE = re.compile(r"rocketmq[\w-]*?-(\d+\.\d+\.\d+)", re.IGNORECASE)
_CONNECTED = re.compile(r"new consumer connected, group: (\S+) .*?, language=JAVA, version=(\d{1,4}),")
_TOPIC = re.compile(r"[%|\w-]+", re.ASCII)
_TOPIC_WIDTH = 20
"""mqadmin prints a topic in a column of this width, a space, and an expression of one or more lines."""
_TABLE = re.compile(r"#Topic +#SubExpression\s*")
_NUMBERED_ROW = re.compile(
    r"(?:Below is subscription:)?\d{3,} +Topic: (?P<topic>\S+) +SubExpression: (?P<expression>.*)"
)
"""A subscription as mqadmin up to 4.4 prints it."""
_RUNNING_INFO = "#Consumer Properties#"
_RUNNING_SUBSCRIPTION = re.compile(
    r"^\d{3,} Topic: (?P<topic>\S+) +ClassFilter: (?P<class_filter_mode>true|false) +SubExpression: (?P<expression>.*)$"
)
STARTED_AT = "PROP_CONSUMER_START_TIMESTAMP"
"""The property of a client that says when it started."""
_COMMANDS = (
    ("brokerConsumeStats", {"#Group", "#Broker Offset"}),
    ("consumerProgress", {"#Consumer Offset"}),
    ("consumerProgress", {"#Diff Total"}),
    ("consumerStatus without -i", {"#ConsumerRunningInfoFile"}),
    ("clusterList", {"#BID"}),
    ("clusterList", {"#InTotalYest"}),
    ("statsAll", {"#Accumulation"}),
    ("topicList", {"#Cluster Name", "#Topic", "#Consumer Group"}),
    ("topicRoute", {"#ReadQueue"}),
    ("topicStatus", {"#Max Offset"}),
    ("queryMsgByKey", {"#Message ID"}),
    ("queryMsgTraceById", {"#CostTimes"}),
)
"""Titles of columns, and the command of mqadmin that prints them together."""
_OTHER_JSON = {
    "queueDatas": ": it is the route of a topic (mqadmin topicRoute), not a consumer's connections",
    "offsetTable": ": it has offsets, not a consumer's connections",
}
"""What other JSON of RocketMQ has, and what it is."""
_BEGINNINGS = {
    "queryMsgById": "OffsetID:",
    "printMsg": "minOffset=",
    "brokerStatus": "bootTimestamp",
}
"""The beginnings of outputs that have no table."""
_AFTER_THE_TABLE = "ConsumeType:"
_CONSUME_FROM_WHERE = re.compile(r"^ConsumeFromWhere: (\w+)", re.MULTILINE)


@frozen
class BrokerLog:
    """The subscription events in a broker.log, exact to the second, and the numbers of the lines that lack a part.

    Such a line is cut, or has bytes that are not UTF-8: halves of surrogate pairs in the text.
    """

    events: Sequence[SubscriptionEvent]
    incomplete: Sequence[int]


@frozen
class ConsumerConnection:
    """The subscriptions of the clients of one group, and where they begin at their first start."""

    subscriptions: Sequence[Subscription]
    consume_from: ConsumeFrom
    is_broadcasting: bool = False


@frozen
class RunningInfo:
    """The subscriptions of one client, since it started (ms; 0 if that is not known).

    ``group`` is that of its retry topic; None for a broadcasting client, which subscribes to none.
    """

    subscriptions: Sequence[Subscription]
    started_at: int

    @property
    def group(self) -> str | None:
        for subscription in self.subscriptions:
            if is_retry_topic(subscription["topic"]):
                return subscription["topic"].removeprefix(RETRY_TOPIC_PREFIX)
        return None


def is_broker_log(text: str) -> bool:
    """Whether a text has lines of a broker.log."""
    return any(_LOG_LINE.match(line) for line in text.split("\n", 1000)[:1000])


def read_broker_log(text: str) -> BrokerLog:
    """Reads the lines of a broker.log that report changes of subscriptions."""
    events, incomplete = [], []
    for number, logged, rest in _log_lines(text):
        message, at = "\n".join([logged["message"], *rest]), _milliseconds(logged["time"])
        if match := _ADDED.search(message) or _CHANGED.search(message):
            subscription = _SUBSCRIPTION.match(match["new"])
            if subscription is None or has_half_a_pair(subscription[0]):
                incomplete.append(number)
            else:
                events.append(SubscriptionEvent(at, Operation.REGISTER, match["group"], (_logged(subscription),)))
        elif match := _REMOVED.search(message):
            events.append(SubscriptionEvent(at, Operation.UNREGISTER, match["group"], topic=match["topic"]))
        elif match := _LEFT.search(message):
            events.append(SubscriptionEvent(at, Operation.UNREGISTER, match["group"]))
    return BrokerLog(events, incomplete)


def versions_in_log(text: str) -> ShownVersions | None:
    """What a broker.log shows of the broker's version at its last start; None if the log has no start.

    A broker does not write its version. It prints its settings, of which each version has more; a busy one leaves some
    out (AsyncAppender). And it prints its folder, which often has the name of a release.
    """
    _, begins, start = text.rpartition(_HOME)
    if not begins:
        return None
    shown = shown_by_settings(set(_PRINTED.findall(start[:_LONGEST_START])))
    folder = start.split("\n", 1)[0].strip()
    named = _RELEASE.findall(folder)
    version = RocketMQVersion.parse(named[-1]) if named else None
    if version is None or not shown.includes(version):
        return shown
    return only(version, f"{version}: broker.log prints its folder, {folder}")


def versions_of_clients(text: str) -> dict[str, RocketMQVersion]:
    """By group, the oldest version of its clients in a broker.log. A client may be older or newer than its broker."""
    versions: dict[str, RocketMQVersion] = {}
    for group, number in _CONNECTED.findall(text):
        version = client_version(int(number))
        if version is not None:
            versions[group] = min(version, versions.get(group, version))
    return versions


def _log_lines(text: str) -> list[tuple[int, re.Match[str], list[str]]]:
    """The lines with a time, by number, each with the lines after it: an expression may have several lines."""
    whole: list[tuple[int, re.Match[str], list[str]]] = []
    for number, line in enumerate(text.split("\n"), start=1):
        line = line.removesuffix("\r")
        if logged := _LOG_LINE.match(line):
            whole.append((number, logged, []))
        elif whole:
            whole[-1][2].append(line)
    return whole


def consumer_connection(text: str) -> ConsumerConnection:
    """Reads a consumer connection: the output of ``mqadmin consumerConnection``, or the dashboard's JSON.

    mqadmin does not print the type of an expression. It counts as SQL92 if it compiles, and is more than one name or
    constant. Raises ValueError if the text is in neither format, or was not UTF-8.
    """
    if has_half_a_pair(text):
        raise ValueError("it is not UTF-8; convert it, as iconv does")
    if _is_event(text.lstrip().partition("\n")[0]) or is_consumer_filter(text):
        raise ValueError("it has subscriptions already: give it to --subscriptions as it is")
    return _from_json(text) if text.lstrip().startswith("{") else _from_table(text)


def is_running_info(text: str) -> bool:
    """Whether a text is what one client runs: ``mqadmin consumerStatus -i``, or the dashboard's JSON of it."""
    return text.lstrip().startswith(_RUNNING_INFO) or isinstance(_json(text).get("subscriptionSet"), list)


def running_info(text: str) -> RunningInfo:
    """Reads what one client runs. Raises ValueError if the text was not UTF-8, or a subscription cannot be read."""
    if has_half_a_pair(text):
        raise ValueError("it is not UTF-8; convert it, as iconv does")
    document = _json(text)
    if not document:
        return _running_table(text)
    listed = document["subscriptionSet"]
    if not all(isinstance(entry, dict) and isinstance(entry.get("topic"), str) for entry in listed):
        raise ValueError("its subscriptionSet has an entry without a topic")
    properties = document.get("properties")
    started = properties.get(STARTED_AT) if isinstance(properties, dict) else None
    return RunningInfo([subscription_of(entry["topic"], entry) for entry in listed], started_at(started))


def _running_table(text: str) -> RunningInfo:
    lines = text.replace("\r\n", "\n").partition("#Consumer Subscription#")[2].partition("\n#Consumer Offset#")[0]
    rows: list[list[str]] = []
    for line in lines.rstrip("\n").split("\n")[1:]:
        if match := _RUNNING_SUBSCRIPTION.match(line):
            rows.append([match["topic"], match["class_filter_mode"], match["expression"]])
        elif rows:
            rows[-1][2] += f"\n{line}"
    subscriptions = []
    for topic, mode, expression in rows:
        kind = SQL92 if looks_like_sql92(expression) else TAG
        subscriptions.append(new_subscription(topic, expression or SUB_ALL, kind, UNVERSIONED, mode == "true"))
    started = re.search(rf"^{STARTED_AT} *: *(\d+)", text, re.MULTILINE)
    return RunningInfo(subscriptions, started_at(started and started[1]))


def started_at(value: object) -> int:
    """When a client started (ms), as it says itself; 0 if it does not."""
    return int(value) if isinstance(value, str | int) and str(value).isdecimal() else 0


def _json(text: str) -> dict[str, Any]:
    """The JSON object of a text, or its ``data``, as the dashboard wraps it; empty if it is none."""
    if not text.lstrip().startswith("{"):
        return {}
    try:
        read = parse_json(text, len(text))
    except ValueError:
        return {}
    data = read.get("data") if isinstance(read, dict) else None
    return data if isinstance(data, dict) else read if isinstance(read, dict) else {}


def _is_event(line: str) -> bool:
    try:
        parse_event(line)
    except ValueError:
        return False
    return True


def _from_json(text: str) -> ConsumerConnection:
    parse_json(text, len(text))
    read = _json(text)
    table = read.get("subscriptionTable")
    if not isinstance(table, dict) or not all(isinstance(entry, dict) for entry in table.values()):
        what = next((text for key, text in _OTHER_JSON.items() if key in read), "")
        raise ValueError(f"it has no subscriptionTable{what}")
    subscriptions = [subscription_of(topic, entry) for topic, entry in table.items()]
    return ConsumerConnection(
        subscriptions, consume_from(read.get("consumeFromWhere")), read.get("messageModel") == "BROADCASTING"
    )


def subscription_of(topic: str, entry: Mapping[str, Any], version: int = UNVERSIONED) -> Subscription:
    """The subscription to a topic of a JSON object, as RocketMQ writes it (SubscriptionData)."""
    return new_subscription(
        topic,
        str(entry.get("subString") or SUB_ALL),
        str(entry.get("expressionType") or TAG),
        version,
        entry.get("classFilterMode") is True,
    )


def _from_table(text: str) -> ConsumerConnection:
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    is_numbered = any(map(_NUMBERED_ROW.match, lines))
    if not is_numbered and not any(map(_TABLE.fullmatch, lines)):
        if not text.strip():
            raise ValueError(
                "it is empty: run mqadmin consumerConnection -g GROUP > GROUP.txt while the group is online"
            )
        if _NOT_ONLINE.search(text):
            raise ValueError("the group was not online, and mqadmin shows only what connected clients subscribe to")
        raise ValueError(
            f"it is {_printed_by(text)}, not of mqadmin consumerConnection, which has a line #Topic #SubExpression: "
            "run mqadmin consumerConnection -g GROUP > GROUP.txt"
        )
    begins = _NUMBERED_ROW.match if is_numbered else _TABLE.fullmatch
    first = next(number for number, line in enumerate(lines) if begins(line)) + (not is_numbered)
    table = list(itertools.takewhile(lambda line: not line.startswith(_AFTER_THE_TABLE), lines[first:]))
    while table and not table[-1].strip():
        table.pop()
    rows: list[tuple[str, str]] = []
    for line in table:
        row = _numbered_row(line) if is_numbered else _row(line, is_first=not rows)
        if row is not None:
            rows.append(row)
        elif rows:
            rows[-1] = rows[-1][0], f"{rows[-1][1]}\n{line}"
        else:
            raise ValueError(f"it has no topic where mqadmin prints one: {line}")
    subscriptions = [
        new_subscription(topic, expression, SQL92 if looks_like_sql92(expression) else TAG, UNVERSIONED)
        for topic, expression in rows
    ]
    where = _CONSUME_FROM_WHERE.search(text)
    is_broadcasting = re.search(r"^MessageModel: BROADCASTING\b", text, re.MULTILINE) is not None
    return ConsumerConnection(subscriptions, consume_from(where and where[1]), is_broadcasting)


def _row(line: str, is_first: bool) -> tuple[str, str] | None:
    """The topic and the expression of a line; None if it continues the expression of the line before."""
    topic = _TOPIC.match(line)
    column = f"{topic[0]:<{_TOPIC_WIDTH}} " if topic else ""
    if topic and (line.startswith(column) or (is_first and line.rstrip() == topic[0])):
        return topic[0], line.removeprefix(column) or SUB_ALL
    return None


def _numbered_row(line: str) -> tuple[str, str] | None:
    match = _NUMBERED_ROW.match(line)
    return (match["topic"], match["expression"] or SUB_ALL) if match else None


_NOT_ONLINE = re.compile(r"\bnot online\b|CODE: 206\b")
"""CONSUMER_NOT_ONLINE, which mqadmin prints instead of connections."""


def _printed_by(text: str) -> str:
    """What printed a text, by the titles of its columns."""
    for line in text.split("\n"):
        titles = set(re.split(r"\s{2,}|\s(?=#)", line.strip())) if line.startswith("#") else set()
        for command, own in _COMMANDS:
            if titles >= own:
                return f"the output of mqadmin {command}"
    first = text.lstrip()
    for command, beginning in _BEGINNINGS.items():
        if first.startswith(beginning):
            return f"the output of mqadmin {command}"
    return "another text"


def consume_from(where: object) -> ConsumeFrom:
    """Where a client begins, by its ConsumeFromWhere."""
    return ConsumeFrom.FIRST if where == "CONSUME_FROM_FIRST_OFFSET" else ConsumeFrom.LAST


def _logged(match: re.Match[str]) -> Subscription:
    class_filter_mode = match["class_filter_mode"] == "true"
    version = int(match["version"])
    return new_subscription(match["topic"], match["expression"], match["type"] or TAG, version, class_filter_mode)


def _milliseconds(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=LOG_TIME_ZONE).timestamp() * 1000)
