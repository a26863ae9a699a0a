"""What a running broker says of its groups, offsets and queues, by requests that only read."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from filtering.subscription_data import Subscription
from filtering.subscriptions.events import ConsumeStart, GroupTopic
from filtering.subscriptions.watch import WatchedClient, WatchedGroup
from schemas.operator_tools import STARTED_AT, consume_from, started_at, subscription_of
from schemas.remoting import (
    CONSUMER_NOT_ONLINE,
    TOPIC_NOT_EXIST,
    Connection,
    Credentials,
    ReadRequest,
    RemotingError,
    Request,
    Response,
    masters,
)
from schemas.rocketmq_store.config_files import ConfigFileError, parse_consumer_offsets

_SECRET = re.compile(r"password|secret|credential|authenticationuser|accesskey|token", re.IGNORECASE)
"""In the names of settings that are not recorded."""
_VERSION = re.compile(r"V(\d+)_(\d+)_(\d+)")
_PULLS_ITSELF = "CONSUME_ACTIVELY"
"""The consumeType of pull consumers, which send their subscription with every pull."""

Read = TypeVar("Read")
Committed = dict[GroupTopic, dict[int, int]]
"""Committed queue offsets by group and topic, and then by queue id."""


class LiveBroker:
    """A running broker. All methods raise RemotingError or OSError."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def config(self) -> str:
        """The configuration as the text of a broker.conf, without settings whose names are those of secrets."""
        lines = self.connection.ask(ReadRequest.GET_BROKER_CONFIG).text().splitlines()
        return "".join(f"{line}\n" for line in lines if not _SECRET.search(line.partition("=")[0]))

    def name(self) -> str:
        """The brokerName in the configuration."""
        for line in self.config().splitlines():
            key, _, value = line.partition("=")
            if key == "brokerName" and value:
                return value
        raise RemotingError("its configuration has no brokerName")

    def version(self) -> str | None:
        table = self.connection.ask(ReadRequest.GET_BROKER_RUNTIME_INFO).json().get("table") or {}
        match = _VERSION.match(str(table.get("brokerVersionDesc")))
        return None if match is None else ".".join(match.groups())

    def groups(self) -> list[str]:
        """The names of all groups, sorted, whether they are online or not."""
        table = self.connection.ask(ReadRequest.GET_ALL_SUBSCRIPTIONGROUP_CONFIG).json().get("subscriptionGroupTable")
        return sorted(table or {})

    def online(self, groups: Sequence[str]) -> dict[str, WatchedGroup]:
        """Those of the groups that have clients, without what only their clients know."""
        requests = [Request(ReadRequest.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": name}) for name in groups]
        responses = self.connection.ask_all(requests)
        return {
            name: _read(connected, response)
            for name, response in zip(groups, responses, strict=True)
            if response.code != CONSUMER_NOT_ONLINE
        }

    def running(self, group: str, clients: Mapping[str, WatchedClient]) -> dict[str, WatchedClient]:
        """Clients of a group with what they say of themselves.

        Those that left, are of another language, or do not answer in time are missing.
        """
        requests = [
            Request(
                ReadRequest.GET_CONSUMER_RUNNING_INFO,
                {"consumerGroup": group, "clientId": client_id, "jstackEnable": "false"},
            )
            for client_id in clients
        ]
        answers = {}
        for client_id, response in zip(clients, self.connection.ask_all(requests), strict=True):
            with suppress(RemotingError):
                answers[client_id] = _read(partial(running, clients[client_id]), response)
        return answers

    def committed(self) -> Committed:
        """The offsets that all groups have committed."""
        body = self.connection.ask(ReadRequest.GET_ALL_CONSUMER_OFFSET).text()
        try:
            return parse_consumer_offsets(body.encode(), "the broker's answer")[0]
        except ConfigFileError as error:
            raise RemotingError(str(error)) from None

    def born_time(self, group: str, topic: str, committed: Committed) -> int | None:
        """When the broker registered the SQL92 filter of a group (ms); None if it does not say.

        The request is about entries of a queue, and needs one that is there: the one before the greatest offset that
        any group has committed.
        """
        ends: dict[int, int] = {0: 0}
        for (_, committed_topic), queues in committed.items():
            for queue_id, offset in queues.items() if committed_topic == topic else ():
                ends[queue_id] = max(ends.get(queue_id, 0), offset)
        queue_id = max(ends, key=lambda each: ends[each])
        fields = {
            "topic": topic,
            "queueId": str(queue_id),
            "index": str(max(ends[queue_id] - 1, 0)),
            "count": "1",
            "consumerGroup": group,
        }
        response = self.connection.ask(ReadRequest.QUERY_CONSUME_QUEUE, fields)
        try:
            at = json.loads(response.json()["filterData"])["bornTime"]
        except (RemotingError, ValueError, KeyError, TypeError):
            return None
        return at if isinstance(at, int) else None

    def queue_ends(self, topics: Collection[str]) -> dict[tuple[str, int], int]:
        """By topic and queue id, the queue offset after the last entry. Topics that do not exist have none."""
        requests = [Request(ReadRequest.GET_TOPIC_STATS_INFO, {"topic": topic}) for topic in topics]
        ends: dict[tuple[str, int], int] = {}
        for topic, response in zip(topics, self.connection.ask_all(requests), strict=True):
            if response.code != TOPIC_NOT_EXIST:
                ends |= {(topic, queue_id): end for queue_id, end in _read(_ends, response).items()}
        return ends


def _read(reader: Callable[[dict[str, Any]], Read], response: Response) -> Read:
    """What a response says. Raises RemotingError."""
    try:
        return reader(response.json())
    except (KeyError, TypeError, ValueError, AttributeError):
        raise RemotingError("the answer is not of the form that RocketMQ writes") from None


def connected(row: Mapping[str, Any]) -> WatchedGroup:
    """A group as the broker has it (ConsumerConnection)."""
    clients = {
        str(each["clientId"]): WatchedClient(
            str(each.get("clientAddr")), sends_with_pulls=row.get("consumeType") == _PULLS_ITSELF
        )
        for each in row.get("connectionSet") or ()
    }
    subscriptions = {topic: _subscription(topic, each) for topic, each in (row.get("subscriptionTable") or {}).items()}
    return WatchedGroup(
        clients,
        subscriptions,
        _consume_from(row.get("consumeFromWhere"), None),
        row.get("messageModel") == "BROADCASTING",
    )


def running(client: WatchedClient, row: Mapping[str, Any]) -> WatchedClient:
    """A client with what it says of itself (ConsumerRunningInfo)."""
    properties = row.get("properties") or {}
    subscriptions = {
        str(subscription["topic"]): _subscription(str(subscription["topic"]), subscription)
        for subscription in row["subscriptionSet"]
    }
    return replace(
        client,
        started_at=started_at(properties.get(STARTED_AT)),
        subscriptions=subscriptions,
        consume_from=_consume_from(properties.get("consumeFromWhere"), properties.get("consumeTimestamp")),
        sends_with_pulls=client.sends_with_pulls or properties.get("postSubscriptionWhenPull") == "true",
        protocol="remoting_pop" if row.get("mqPopTable") else None,
    )


def _ends(row: Mapping[str, Any]) -> dict[int, int]:
    """The end of each queue of a topic by its id (TopicStatsTable). Its keys are the JSON texts of MessageQueues."""
    queues = row["offsetTable"].items()
    return {int(json.loads(queue)["queueId"]): int(offsets["maxOffset"]) for queue, offsets in queues}


def _subscription(topic: str, row: Mapping[str, Any]) -> Subscription:
    return subscription_of(topic, row, int(row.get("subVersion") or 0))


def _consume_from(where: object, timestamp: object) -> ConsumeStart:
    """Where a client begins. Its ``timestamp`` is of its time zone, which counts as that of this machine."""
    if where == "CONSUME_FROM_TIMESTAMP" and isinstance(timestamp, str):
        with suppress(ValueError):
            return int(time.mktime(time.strptime(timestamp, "%Y%m%d%H%M%S"))) * 1000
    return consume_from(where)


def live_brokers(name_servers: Sequence[str], credentials: Credentials | None = None) -> dict[str, LiveBroker]:
    """By brokerName, the brokers that the first of the name servers lists that answers.

    Raises RemotingError, OSError.
    """
    connections = [Connection(address, credentials) for address in name_servers]
    try:
        listed = masters(connections)
    finally:
        for connection in connections:
            connection.close()
    return {name: LiveBroker(Connection(address, credentials)) for name, address in listed.items()}
