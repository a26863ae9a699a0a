"""Which messages get an entry; and the bit map of each, compared with a real CommitLogDispatcherCalcBitMap."""

from filtering.bloom_filter import is_hit
from filtering.consumer_filter_manager import ConsumerFilterManager
from filtering.delivery.entries import has_entry
from filtering.subscription_data import Subscription
from tests.reference import matches
from tests.unit.broker import cases


def test_of_a_transaction_only_the_committed_message_gets_an_entry() -> None:
    not_of_one, prepared, committed, rolled_back = 0, 0x4, 0x8, 0xC
    assert has_entry([not_of_one, prepared, committed, rolled_back]).tolist() == [True, False, True, False]


def test_bit_maps_and_hits_are_the_brokers() -> None:
    for case in cases("dispatch"):
        manager = ConsumerFilterManager(case["f"], case["n"])
        assert (manager.bloom_filter.k, manager.bloom_filter.m) == (case["k"], case["m"])
        topic = case["topic"]
        groups = []
        for subscription in case["subscriptions"]:
            group = subscription["group"]
            groups.append(group)
            sql92 = Subscription(topic=topic, expression=subscription["expression"], type="SQL92", version=1)
            manager.register_topic(group, sql92, 1_000)
            if subscription.get("dead"):
                manager.unregister(group, 2_000)
        filters = {group: data for group in groups if (data := manager.get(topic, group))}
        for message in case["messages"]:
            matching = [group for group, data in filters.items() if matches(data.expression, message["properties"])]
            if not filters:
                assert message["bitmap"] is None
                continue
            bits = manager.bloom_filter.bit_map(f"{group}#{topic}" for group in matching)
            assert bits.hex() == message["bitmap"], (case, message)
            hits = [group for group, data in filters.items() if is_hit(bits, data.bit_pos)]
            assert hits == message["bitmapHit"], (case, message)
            assert matching == message["delivered"], (case, message)
