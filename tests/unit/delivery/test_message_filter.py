"""What the filters of a subscription are, where no capture has one."""

from dataclasses import replace
from typing import Any

import pytest

from filtering.broker_config import BrokerConfig
from filtering.delivery.message_filter import MessageFilter, message_filter, message_filters
from filtering.predicate import TRUE, TagsCodeIn, holds
from filtering.subscription_data import Subscription
from filtering.subscriptions.events import ConsumeMode, Operation, SubscriptionEvent
from filtering.subscriptions.history import in_force_at, registered_alone, subscription_history
from filtering.tags_code import tags_code

FILTERING = BrokerConfig(enable_property_filter=True, enable_calc_filter_bit_map=True, enable_consume_queue_ext=True)


def filters_of(config: BrokerConfig = FILTERING, **subscription: Any) -> list[MessageFilter]:
    given: Any = {"topic": "T", "version": 7} | subscription
    event = SubscriptionEvent(1_000, Operation.REGISTER, "cg", (given,))
    return message_filters(subscription_history([event], config)[-1:], config)


@pytest.mark.parametrize(
    ("expression", "type"), [("paid", "TAG"), ("shop.PaidOrders", "TAG"), ("||", "TAG"), ("a = 5", "SQL92")]
)
def test_class_filter_mode_passes_everything(expression: str, type: str) -> None:
    # so ExpressionMessageFilter, ExpressionForRetryMessageFilter and PullAPIWrapper of RocketMQ 5.5.0 answer
    assert filters_of(expression=expression, type=type, class_filter_mode=True) == [MessageFilter("cg", "T")]
    assert filters_of(expression=expression, type=type) != [MessageFilter("cg", "T")]


def test_class_filter_mode_needs_what_its_type_needs() -> None:
    assert filters_of(BrokerConfig(), expression="a = 5", type="SQL92", class_filter_mode=True) == []
    assert filters_of(expression="a = ", type="SQL92", class_filter_mode=True) == []


def test_what_a_group_gets_has_its_tag_and_not_only_the_hash() -> None:
    (own,) = filters_of(expression="Aa", type="TAG")
    got = {tag: holds(own.delivered, {"TAGS": tag}, tags_code(tag)) for tag in ("Aa", "BB", "other")}
    assert got == {"Aa": True, "BB": False, "other": False}
    (by_expression,) = filters_of(expression="n = 1", type="SQL92")
    assert [holds(by_expression.delivered, {"n": n}, 0) for n in ("1", "2")] == [True, False]


@pytest.mark.parametrize(("mode", "most"), [(ConsumeMode.PULL, None), (ConsumeMode.POP, 17)])
def test_only_a_group_that_pops_gives_a_message_up(mode: ConsumeMode, most: int | None) -> None:
    row = registered_alone("cg", Subscription(topic="T", expression="*", type="TAG", version=7), FILTERING)
    own = message_filter(replace(row, mode=mode), (), FILTERING, most_attempts=17)
    assert own == MessageFilter("cg", "T", most_attempts=most)


def test_an_empty_type_is_a_tag_subscription_without_tags() -> None:
    # FilterAPI.build computes tags for the type TAG and for null only; ExpressionType.isTagType has "" as well
    (nothing,) = filters_of(expression="paid", type="")
    assert (nothing.tags, nothing.client_tags) == (TagsCodeIn(frozenset()), TRUE)
    assert filters_of(expression="*", type="") == [MessageFilter("cg", "T")]


def test_a_registered_expression_on_a_retry_topic_gives_way_to_that_of_the_original_topic() -> None:
    """ExpressionForRetryMessageFilter overrides the check of the message, and not that of the entry."""
    config = replace(FILTERING, filter_support_retry=True)
    events = [
        SubscriptionEvent(
            at, Operation.REGISTER, "cg", (Subscription(topic=topic, expression=text, type="SQL92", version=7),)
        )
        for at, topic, text in ((1, "T", "x = 'yes'"), (2, "%RETRY%cg", "y = 'own'"))
    ]
    rows = in_force_at(subscription_history(events, config), 3)
    (retry_filter,) = (each for each in message_filters(rows, config) if each.topic == "%RETRY%cg")
    (own,) = (each for each in message_filters(rows, FILTERING) if each.topic == "%RETRY%cg")
    assert (retry_filter.bit_pos, retry_filter.born_time) == (own.bit_pos, own.born_time) != ((), 0)
    assert holds(retry_filter.expression, {"RETRY_TOPIC": "T", "x": "yes", "y": "no"})
    assert not holds(retry_filter.expression, {"RETRY_TOPIC": "T", "x": "mon", "y": "own"})
    assert holds(own.expression, {"RETRY_TOPIC": "T", "x": "mon", "y": "own"})
