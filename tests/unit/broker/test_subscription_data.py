"""Subscriptions as the broker parses them, and what they let pass, compared with a real broker and client."""

import pytest

from filtering.broker_config import BrokerConfig
from filtering.delivery.message_filter import MessageFilter, message_filter
from filtering.predicate import holds
from filtering.sql92 import Expressions
from filtering.subscription_data import TAG, Subscription, build_subscription_data
from filtering.subscriptions.events import Operation, SubscriptionEvent
from filtering.subscriptions.history import subscription_history
from tests.unit.broker import cases


def tag_filter(topic: str, expression: str) -> MessageFilter:
    subscription = Subscription(topic=topic, expression=expression, type=TAG, version=1)
    event = SubscriptionEvent(1, Operation.REGISTER, "cg", (subscription,))
    (row,) = subscription_history([event], BrokerConfig(), Expressions())
    result = message_filter(row, (), BrokerConfig())
    assert result is not None
    return result


def test_expressions_parse_as_in_the_broker() -> None:
    for case in cases("tags"):
        if case["error"]:
            with pytest.raises(ValueError, match=case["error"]):
                build_subscription_data(case["topic"], case["input"])
            continue
        subscription = build_subscription_data(case["topic"], case["input"])
        assert subscription.sub_string == case["subString"], case
        assert subscription.tags_set == set(case["tagsSet"]), case
        assert subscription.code_set == set(case["codeSet"]), case


def test_broker_and_client_decide_as_the_real_ones() -> None:
    for row in cases("tag_match"):
        if row["error"]:
            continue
        filter_ = tag_filter(row["topic"], row["subString"])
        for case in row["cases"]:
            properties = {} if case["tag"] is None else {"TAGS": case["tag"]}
            assert holds(filter_.tags, properties, case["tagsCode"]) == case["brokerMatch"], (row, case)
            assert holds(filter_.client_tags, properties) == case["clientMatch"], (row, case)


def test_the_broker_cuts_a_delivery_time_to_32_bits() -> None:
    filter_ = tag_filter("SCHEDULE_TOPIC_XXXX", "a")
    assert holds(filter_.tags, {}, 97 + 2**40)
    assert not holds(filter_.tags, {}, 98 + 2**40)
