"""The broker's checks of a pull before it looks for messages. Source: PullMessageProcessor."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum

from filtering.broker_config import BrokerConfig
from filtering.subscription_data import TAG, is_tag_type
from filtering.subscriptions.subscription_row import SubscriptionRow


class ResponseCode(Enum):
    """org.apache.rocketmq.remoting.protocol.ResponseCode"""

    SUCCESS = 0
    SYSTEM_ERROR = 1
    PULL_NOT_FOUND = 19
    PULL_RETRY_IMMEDIATELY = 20
    PULL_OFFSET_MOVED = 21
    SUBSCRIPTION_PARSE_FAILED = 23
    SUBSCRIPTION_NOT_EXIST = 24
    SUBSCRIPTION_NOT_LATEST = 25
    FILTER_DATA_NOT_EXIST = 27
    FILTER_DATA_NOT_LATEST = 28

    @property
    def text(self) -> str:
        """The name, with the setting that causes it if there is one."""
        return f"{self.name}: enablePropertyFilter is off" if self is ResponseCode.SYSTEM_ERROR else self.name


def pull_refusal(row: SubscriptionRow | None, sub_version: int, config: BrokerConfig) -> ResponseCode | None:
    """Why the broker refuses the pull of a client whose subscription has ``sub_version``; None if it does not.

    ``row`` is the subscription in force for the group and topic; None: it never had one. Of subscriptions sent with
    the pull, the broker refuses tags that do not parse and empty expressions. It does not notice an SQL92 expression
    that does not compile, and lets every message pass.
    """
    if row is None or not (row.registered or row.sent_with_pull):
        return ResponseCode.SUBSCRIPTION_NOT_EXIST
    return _refusal(row, sub_version, row.filter_version, config)


def refusal(row: SubscriptionRow, config: BrokerConfig) -> ResponseCode | None:
    """Why the broker would refuse the pulls of a subscription in force if its group consumed; None if it would not."""
    filter_version = row.filter_version
    if not row.registered and not row.sent_with_pull and row.compile_error is None:
        # When the group comes back, it registers again, and has filter data again if the expression compiles.
        filter_version = row.sub_version
    return _refusal(row, row.sub_version, filter_version, config)


def refused(rows: Iterable[SubscriptionRow], config: BrokerConfig) -> Iterator[tuple[SubscriptionRow, ResponseCode]]:
    """The subscriptions whose every pull the broker refuses, or would refuse if the group came back, and why."""
    for row in rows:
        code = refusal(row, config)
        if code is not None and (row.is_consuming or code is ResponseCode.SYSTEM_ERROR):
            yield row, code


def is_pulling(row: SubscriptionRow, config: BrokerConfig) -> bool:
    """Whether the group is online and the broker accepts its pulls. A client whose pulls are refused tries again."""
    return row.is_consuming and refusal(row, config) is None


def _refusal(
    row: SubscriptionRow, sub_version: int, filter_version: int | None, config: BrokerConfig
) -> ResponseCode | None:
    if row.sent_with_pull:
        if not row.expression and row.expression_type != TAG:  # FilterAPI.build; "" counts as tags elsewhere
            return ResponseCode.SUBSCRIPTION_PARSE_FAILED
        if row.compile_error is not None and is_tag_type(row.expression_type):
            return ResponseCode.SUBSCRIPTION_PARSE_FAILED
        return _unsupported(row, config)
    if row.sub_version < sub_version:
        return ResponseCode.SUBSCRIPTION_NOT_LATEST
    if not is_tag_type(row.expression_type):
        if filter_version is None:
            return ResponseCode.FILTER_DATA_NOT_EXIST
        if filter_version < sub_version:
            return ResponseCode.FILTER_DATA_NOT_LATEST
    return _unsupported(row, config)


def _unsupported(row: SubscriptionRow, config: BrokerConfig) -> ResponseCode | None:
    supported = is_tag_type(row.expression_type) or config.enable_property_filter
    return None if supported else ResponseCode.SYSTEM_ERROR
