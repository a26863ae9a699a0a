"""Reads subscriptions from the output of RocketMQ's tools: mqadmin, the dashboard, and the broker's log.

Sources: ConsumerConnectionSubCommand (mqadmin consumerConnection), ConsumerConnection (the dashboard's JSON),
ConsumerGroupInfo.updateSubscription and ConsumerManager (broker.log).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

from filtering.consumer_filter_manager import Subscription
from filtering.sql92 import Expressions, InvalidExpression
from filtering.subscription_data import SQL92, TAG
from filtering.subscriptions.events import UNVERSIONED, Operation, SubscriptionEvent
from filtering.subscriptions.json_fields import parse_json

LOG_TIME_ZONE = timezone(timedelta(hours=8))
"""The time zone of broker.log on any machine: rmq.broker.logback.xml sets GMT+8."""
_SUBSCRIPTION = re.compile(
    r"SubscriptionData \[classFilterMode=(?P<class_filter_mode>true|false), topic=(?P<topic>\S+), "
    r"subString=(?P<expression>.*?), tagsSet=\[[^\]]*\], codeSet=\[[-\d, ]*\], subVersion=(?P<version>\d+), "
    r"expressionType=(?P<type>\w*)\]"
)
_LOG_LINE = re.compile(r"^(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\b.*? - (?P<message>.*)$")
_ADDED = re.compile(r"subscription changed, add new topic, group: (?P<group>\S+) (?P<new>SubscriptionData .*)")
_CHANGED = re.compile(r"subscription changed, group: (?P<group>\S+) OLD: .* NEW: (?P<new>SubscriptionData .*)")
_REMOVED = re.compile(r"subscription changed, group: (?P<group>\S+) remove topic (?P<topic>\S+) ")
_LEFT = re.compile(r"(?:remove consumer group, |all clear, consumerGroup=)(?P<group>\S+)")


def is_broker_log(text: str) -> bool:
    """Whether a text has lines of a broker.log."""
    return any(_LOG_LINE.match(line) for line in text.splitlines()[:1000])


def broker_log_events(text: str) -> Iterator[SubscriptionEvent]:
    """The subscription events in a broker.log. Their times are exact to the second."""
    for line in text.splitlines():
        logged = _LOG_LINE.match(line)
        if logged is None:
            continue
        message = logged["message"]
        at = _milliseconds(logged["time"])
        if match := _ADDED.search(message) or _CHANGED.search(message):
            subscription = _SUBSCRIPTION.search(match["new"])
            if subscription is not None:
                yield SubscriptionEvent(at, Operation.REGISTER, match["group"], (_logged(subscription),))
        elif match := _REMOVED.search(message):
            yield SubscriptionEvent(at, Operation.UNREGISTER, match["group"], topic=match["topic"])
        elif match := _LEFT.search(message):
            yield SubscriptionEvent(at, Operation.UNREGISTER, match["group"])


def consumer_connection(text: str, expressions: Expressions) -> list[Subscription]:
    """The subscriptions in the output of ``mqadmin consumerConnection``, or in the dashboard's JSON of it.

    mqadmin does not print the type of an expression. It counts as SQL92 if it compiles and is not a list of single
    words. Raises ValueError if the text is in neither format.
    """
    return _from_json(text) if text.lstrip().startswith("{") else _from_table(text, expressions)


def _from_json(text: str) -> list[Subscription]:
    read: Any = parse_json(text, len(text))
    if isinstance(read, dict) and isinstance(read.get("data"), dict):
        read = read["data"]
    table = read.get("subscriptionTable") if isinstance(read, dict) else None
    if not isinstance(table, dict) or not all(isinstance(entry, dict) for entry in table.values()):
        raise ValueError("it has no subscriptionTable")
    return [
        _subscription(topic, str(entry.get("expressionType") or TAG), str(entry.get("subString") or ""))
        for topic, entry in table.items()
    ]


def _from_table(text: str, expressions: Expressions) -> list[Subscription]:
    lines = iter(text.splitlines())
    if not any(line.startswith("#Topic") for line in lines):
        raise ValueError("it is not the output of mqadmin consumerConnection: it has no line #Topic")
    subscriptions = []
    for line in lines:
        if not line.strip():
            break
        topic, _, expression = line.strip().partition(" ")
        expression = expression.strip()
        kind = TAG if _looks_like_tags(expression, expressions) else SQL92
        subscriptions.append(_subscription(topic, kind, expression))
    return subscriptions


def _looks_like_tags(expression: str, expressions: Expressions) -> bool:
    if all(" " not in tag.strip() for tag in expression.split("||")):
        return True
    return isinstance(expressions.compile(expression), InvalidExpression)


def _logged(match: re.Match[str]) -> Subscription:
    subscription = _subscription(match["topic"], match["type"] or TAG, match["expression"], int(match["version"]))
    if match["class_filter_mode"] == "true":
        subscription["class_filter_mode"] = True
    return subscription


def _subscription(topic: str, kind: str, expression: str, version: int = UNVERSIONED) -> Subscription:
    return Subscription(topic=topic, expression=expression, type=kind, version=version)


def _milliseconds(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=LOG_TIME_ZONE).timestamp() * 1000)
