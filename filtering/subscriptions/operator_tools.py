"""Reads subscriptions from the output of RocketMQ's tools: mqadmin, the dashboard, and the broker's log.

Sources: ConsumerConnectionSubCommand (mqadmin consumerConnection), ConsumerConnection (the dashboard's JSON),
ConsumerGroupInfo.updateSubscription and ConsumerManager (broker.log).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

from filtering.java.strings import has_half_a_pair
from filtering.sql92.syntax.recognition import looks_like_sql92
from filtering.subscription_data import SQL92, SUB_ALL, TAG, Subscription, new_subscription
from filtering.subscriptions.event_lines import parse_event
from filtering.subscriptions.events import UNVERSIONED, ConsumeFrom, Operation, SubscriptionEvent
from filtering.subscriptions.json_fields import parse_json
from filtering.subscriptions.sources import is_consumer_filter

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
_TOPIC = re.compile(r"[%|\w-]+", re.ASCII)
_TOPIC_WIDTH = 20
"""mqadmin prints a topic in a column of this width, a space, and an expression of one or more lines."""
_AFTER_THE_TABLE = "ConsumeType:"
_CONSUME_FROM_WHERE = re.compile(r"^ConsumeFromWhere: (\w+)", re.MULTILINE)


@dataclass(frozen=True)
class BrokerLog:
    """The subscription events in a broker.log, exact to the second, and the numbers of the lines that lack a part.

    Such a line is cut, or has bytes that are not UTF-8: halves of surrogate pairs in the text.
    """

    events: Sequence[SubscriptionEvent]
    incomplete: Sequence[int]


@dataclass(frozen=True)
class ConsumerConnection:
    """The subscriptions of the clients of one group, and where they begin at their first start."""

    subscriptions: Sequence[Subscription]
    consume_from: ConsumeFrom


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


def _is_event(line: str) -> bool:
    try:
        parse_event(line)
    except ValueError:
        return False
    return True


def _from_json(text: str) -> ConsumerConnection:
    read: Any = parse_json(text, len(text))
    if isinstance(read, dict) and isinstance(read.get("data"), dict):
        read = read["data"]
    table = read.get("subscriptionTable") if isinstance(read, dict) else None
    if not isinstance(table, dict) or not all(isinstance(entry, dict) for entry in table.values()):
        raise ValueError("it has no subscriptionTable")
    subscriptions = [
        new_subscription(
            topic,
            str(entry.get("subString") or SUB_ALL),
            str(entry.get("expressionType") or TAG),
            UNVERSIONED,
            entry.get("classFilterMode") is True,
        )
        for topic, entry in table.items()
    ]
    return ConsumerConnection(subscriptions, _consume_from(read.get("consumeFromWhere")))


def _from_table(text: str) -> ConsumerConnection:
    lines = iter([line.removesuffix("\r") for line in text.split("\n")])
    if not any(line.startswith("#Topic") for line in lines):
        raise ValueError("it is not the output of mqadmin consumerConnection: it has no line #Topic")
    table = list(itertools.takewhile(lambda line: not line.startswith(_AFTER_THE_TABLE), lines))
    while table and not table[-1].strip():
        table.pop()
    rows: list[tuple[str, str]] = []
    for line in table:
        topic = _TOPIC.match(line)
        column = f"{topic[0]:<{_TOPIC_WIDTH}} " if topic else ""
        if topic and (line.startswith(column) or (not rows and line.rstrip() == topic[0])):
            rows.append((topic[0], line.removeprefix(column) or SUB_ALL))
        elif rows:
            rows[-1] = rows[-1][0], f"{rows[-1][1]}\n{line}"
        else:
            raise ValueError(f"it has no topic where mqadmin prints one: {line}")
    subscriptions = [
        new_subscription(topic, expression, SQL92 if looks_like_sql92(expression) else TAG, UNVERSIONED)
        for topic, expression in rows
    ]
    where = _CONSUME_FROM_WHERE.search(text)
    return ConsumerConnection(subscriptions, _consume_from(where and where[1]))


def _consume_from(where: object) -> ConsumeFrom:
    return ConsumeFrom.FIRST if where == "CONSUME_FROM_FIRST_OFFSET" else ConsumeFrom.LAST


def _logged(match: re.Match[str]) -> Subscription:
    class_filter_mode = match["class_filter_mode"] == "true"
    version = int(match["version"])
    return new_subscription(match["topic"], match["expression"], match["type"] or TAG, version, class_filter_mode)


def _milliseconds(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=LOG_TIME_ZONE).timestamp() * 1000)
