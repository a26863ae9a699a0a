import pytest

from filtering.subscription_data import build_subscription_data
from tests.unit.broker import cases


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
        subscription = build_subscription_data(row["topic"], row["subString"])
        for case in row["cases"]:
            assert subscription.matches_tags_code(case["tagsCode"]) == case["brokerMatch"], (row, case)
            assert subscription.matches_tag(case["tag"]) == case["clientMatch"], (row, case)


def test_the_broker_cuts_a_delivery_time_to_32_bits() -> None:
    subscription = build_subscription_data("SCHEDULE_TOPIC_XXXX", "a")
    assert subscription.matches_tags_code(97 + 2**40)
    assert not subscription.matches_tags_code(98 + 2**40)
