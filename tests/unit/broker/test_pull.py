"""Which filter answers a pull, or why it is refused, compared with a real PullMessageProcessor."""

import dataclasses
import json
from typing import Any

import pytest

from filtering.broker_config import BrokerConfig
from filtering.pulls import ResponseCode, refusal
from filtering.subscriptions.events import ConsumeMode, Operation, SubscriptionEvent, parse_event_lines
from filtering.subscriptions.history import in_force_at, subscription_history
from filtering.subscriptions.subscription_row import SubscriptionRow
from tests.unit.broker import cases

FILTERING = BrokerConfig(enable_property_filter=True)
SUCCESS, PULL_RETRY_IMMEDIATELY, SUBSCRIPTION_NOT_LATEST = 0, 20, 25
"""Codes of the processor that no subscription in force leads to."""


def pull_refusal(row: SubscriptionRow | None, sub_version: int, config: BrokerConfig) -> int | None:
    """The code of the refusal for a client whose subscription has ``sub_version``; None if its pull is answered."""
    if row is None or not (row.registered or row.sent_with_pull):
        return ResponseCode.SUBSCRIPTION_NOT_EXIST.value
    if not row.sent_with_pull and row.sub_version < sub_version:
        return SUBSCRIPTION_NOT_LATEST
    code = refusal(row if row.sent_with_pull else dataclasses.replace(row, sub_version=sub_version), config)
    return None if code is None else code.value


def row(expression: str, type: str = "SQL92", operation: Operation = Operation.REGISTER) -> SubscriptionRow:
    subscription = {"topic": "OrderEvents", "expression": expression, "type": type, "version": 7}
    event = SubscriptionEvent(1_000, operation, "cg", (subscription,))  # type: ignore[arg-type]
    return subscription_history([event], FILTERING)[-1]


def test_random_pulls_against_the_real_processor() -> None:
    refused = 0
    for case in cases("pull_refusals"):
        config = BrokerConfig(enable_property_filter=case["enable_property_filter"])
        events = parse_event_lines("\n".join(map(json.dumps, events_of(case)))).events
        rows = in_force_at(subscription_history(events, config), len(events))
        row = next((each for each in rows if each.topic == "OrderEvents"), None)
        code = pull_refusal(row, case["pull"]["sub_version"], config)
        answered = case["code"] in (SUCCESS, PULL_RETRY_IMMEDIATELY)
        assert code == (None if answered else case["code"]), case
        refused += not answered
    assert refused > 800


def events_of(case: dict[str, Any]) -> list[dict[str, Any]]:
    """What came before the pull of a case, and the subscription that the pull brings, as event lines."""
    who = {"group": case["group"], "client_id": "c1"}
    events = [who | event | {"at": at} for at, event in enumerate(case["events"], start=1)]
    for event in events:
        event["op"] = {"register": "heartbeat"}.get(event["op"], event["op"])
    if "expression" in case["pull"]:
        pulled = case["pull"] | {"op": "pull_subscription", "topic": "OrderEvents", "at": len(events) + 1}
        events.append(who | pulled)
    return events


@pytest.mark.parametrize(("expression", "type"), [("qty > 1", "SQL92"), ("paid", "TAG"), ("", "TAG")])
def test_a_pull_of_what_is_registered_is_answered(expression: str, type: str) -> None:
    assert pull_refusal(row(expression, type), 7, FILTERING) is None


def test_a_group_that_is_not_registered() -> None:
    assert pull_refusal(None, 7, FILTERING) == ResponseCode.SUBSCRIPTION_NOT_EXIST.value
    gone = dataclasses.replace(row("qty > 1"), registered=False)
    assert pull_refusal(gone, 7, FILTERING) == ResponseCode.SUBSCRIPTION_NOT_EXIST.value


def test_a_client_whose_subscription_is_newer() -> None:
    assert pull_refusal(row("paid", "TAG"), 8, FILTERING) == SUBSCRIPTION_NOT_LATEST
    stale_filter = dataclasses.replace(row("qty > 1"), sub_version=8)
    assert pull_refusal(stale_filter, 8, FILTERING) == ResponseCode.FILTER_DATA_NOT_LATEST.value


def test_an_expression_that_does_not_compile() -> None:
    assert pull_refusal(row("qty >"), 7, FILTERING) == ResponseCode.FILTER_DATA_NOT_EXIST.value


def test_a_broker_without_the_property_filter() -> None:
    assert pull_refusal(row("qty > 1"), 7, BrokerConfig()) == ResponseCode.SYSTEM_ERROR.value
    assert pull_refusal(row("qty >"), 7, BrokerConfig()) == ResponseCode.FILTER_DATA_NOT_EXIST.value
    assert pull_refusal(row("paid", "TAG"), 7, BrokerConfig()) is None


def test_a_subscription_sent_with_the_pull() -> None:
    pulled = Operation.PULL_SUBSCRIPTION
    assert pull_refusal(row("qty > 1", operation=pulled), 99, FILTERING) is None
    assert pull_refusal(row("qty > 1", operation=pulled), 99, BrokerConfig()) == ResponseCode.SYSTEM_ERROR.value
    assert pull_refusal(row("qty >", operation=pulled), 99, FILTERING) is None, "it lets every message pass"
    assert pull_refusal(row("", operation=pulled), 99, FILTERING) == ResponseCode.SUBSCRIPTION_PARSE_FAILED.value
    assert pull_refusal(row("||", "TAG", pulled), 99, FILTERING) == ResponseCode.SUBSCRIPTION_PARSE_FAILED.value


def test_a_pop_is_refused_only_if_its_expression_does_not_compile() -> None:
    good, bad = (
        dataclasses.replace(row(text, operation=Operation.POP_SUBSCRIPTION), mode=ConsumeMode.POP)
        for text in ("qty > 1", "qty >")
    )
    assert pull_refusal(good, 99, BrokerConfig()) is None
    assert pull_refusal(bad, 99, FILTERING) == ResponseCode.SUBSCRIPTION_PARSE_FAILED.value


@pytest.mark.parametrize("type", ["", "SQL92"])
def test_an_empty_expression_of_another_type_than_tags_does_not_parse(type: str) -> None:
    sent = row("", type, Operation.PULL_SUBSCRIPTION)
    assert pull_refusal(sent, 7, FILTERING) == ResponseCode.SUBSCRIPTION_PARSE_FAILED.value
    assert pull_refusal(row("", "TAG", Operation.PULL_SUBSCRIPTION), 7, FILTERING) is None
