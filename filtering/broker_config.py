"""The settings of a broker that filtering depends on.

Source: org.apache.rocketmq.common.BrokerConfig, org.apache.rocketmq.store.config.MessageStoreConfig,
MixAll.properties2Object.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

from filtering.bloom_filter import BloomFilter
from filtering.java.numbers import parse_int, parse_long
from filtering.java.properties import parse_properties
from filtering.java.strings import trim
from filtering.tags_code import parse_delay_levels
from filtering.time_spans import DAY
from filtering.type_checks import check_type
from filtering.yaml_input import InvalidYaml, load

CONSUME_QUEUE_UNIT = 20
"""Bytes of a consume queue entry."""
CONSUME_QUEUE_EXT_UNIT = 20
"""Bytes of an entry's extension without its bit map (ConsumeQueueExt.CqExtUnit)."""
SHORTEST_RECORD = 91
"""Bytes of a message record without body, topic and properties (MessageExtEncoder)."""
MOST_CONSUMERS = 1_000_000
"""The greatest number of groups of a filter bit map. For more groups, it would take a megabyte for each message."""
_LONGS = frozenset({"filterDataCleanTimeSpan"})
LONGEST_LINE = 1 << 20
"""The greatest length of a line of a broker.conf in characters."""
BROKER_KEYS = frozenset(
    {
        "brokerClusterName", "brokerId", "brokerIP1", "brokerIP2", "brokerRole", "listenPort", "namesrvAddr",
        "storePathRootDir", "storePathCommitLog", "deleteWhen", "fileReservedTime", "flushDiskType",
        "autoCreateTopicEnable", "autoCreateSubscriptionGroup", "defaultTopicQueueNums",
    }
)  # fmt: skip
"""Keys that most files have, and that filtering does not depend on."""

DELIVERIES_DEPEND_ON = (
    "enable_property_filter", "enable_calc_filter_bit_map", "enable_consume_queue_ext", "filter_support_retry",
    "max_error_rate_of_bloom_filter", "expect_consumer_num_use_filter", "filter_data_clean_time_span",
    "message_delay_level",
)  # fmt: skip
"""The settings that decide what groups receive, and what their filter bit maps are."""


class InvalidBrokerConfig(ValueError):
    """A broker configuration that is not valid. The message names the key and the value."""


@dataclass(frozen=True)
class BrokerConfig:
    """The settings of a broker, with the defaults of RocketMQ 5.5. Sizes are in bytes, time spans in milliseconds.

    Raises InvalidBrokerConfig for a value with which a broker would not start, or no pull would find a message.
    """

    broker_name: str = "DEFAULT_BROKER"
    enable_property_filter: bool = False
    enable_calc_filter_bit_map: bool = False
    enable_consume_queue_ext: bool = False
    filter_support_retry: bool = False
    max_error_rate_of_bloom_filter: int = 20
    expect_consumer_num_use_filter: int = 32
    filter_data_clean_time_span: int = DAY
    max_filter_message_size: int = 16_000
    message_delay_level: str = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
    mapped_file_size_commit_log: int = 1 << 30
    mapped_file_size_consume_queue: int = 6_000_000
    mapped_file_size_consume_queue_ext: int = 48 << 20
    max_transfer_bytes_on_message_in_memory: int = 256 << 10
    max_transfer_count_on_message_in_memory: int = 32
    max_transfer_bytes_on_message_in_disk: int = 64 << 10
    max_transfer_count_on_message_in_disk: int = 8
    travel_cq_file_num_when_get_message: int = 1
    estimate_accumulation: bool = True
    max_consume_queue_scan: int = 20_000
    sample_count_threshold: int = 5_000

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name.startswith("mapped_file_size") and value < 1:
                raise InvalidBrokerConfig(f"{_key(field.name)}={value}: a file size must be 1 or more")
        if self.travel_cq_file_num_when_get_message < 1:
            raise InvalidBrokerConfig(
                f"travelCqFileNumWhenGetMessage={self.travel_cq_file_num_when_get_message}: must be 1 or more"
            )
        if self.filter_data_clean_time_span < 0:
            raise InvalidBrokerConfig(
                f"filterDataCleanTimeSpan={self.filter_data_clean_time_span}: the broker would delete filters in use"
            )
        if self.expect_consumer_num_use_filter > MOST_CONSUMERS:
            raise InvalidBrokerConfig(
                f"expectConsumerNumUseFilter={self.expect_consumer_num_use_filter}: more than {MOST_CONSUMERS:,}"
            )
        try:
            _ = self.bloom_filter
        except ValueError as error:
            raise InvalidBrokerConfig(
                f"maxErrorRateOfBloomFilter={self.max_error_rate_of_bloom_filter},"
                f" expectConsumerNumUseFilter={self.expect_consumer_num_use_filter}: {error}"
            ) from error
        try:
            _ = self.delay_levels
        except ValueError as error:
            raise InvalidBrokerConfig(str(error)) from error

    @cached_property
    def bloom_filter(self) -> BloomFilter:
        """The Bloom filter of the bit maps. A bit map has ``bloom_filter.m`` bits."""
        return BloomFilter.create_by_fn(self.max_error_rate_of_bloom_filter, self.expect_consumer_num_use_filter)

    @cached_property
    def delay_levels(self) -> tuple[int, ...]:
        """The delays of the schedule topic in milliseconds, beginning with level 1."""
        return parse_delay_levels(self.message_delay_level)

    @property
    def calculates_bit_maps(self) -> bool:
        """Whether entries get a filter bit map. The broker keeps it in consumequeue_ext."""
        return self.enable_calc_filter_bit_map and self.enable_consume_queue_ext

    @property
    def consume_queue_file_entries(self) -> int:
        """The number of entries in one consume queue file. The broker rounds the file size up to whole entries."""
        return -(-self.mapped_file_size_consume_queue // CONSUME_QUEUE_UNIT)

    @classmethod
    def from_properties(cls, text: str) -> BrokerConfig:
        """Reads a RocketMQ ``broker.conf``. Keys that filtering does not depend on are ignored.

        Raises InvalidBrokerConfig if a known key has a value of the wrong type, or if a line is too long. (For a wrong
        type, the broker itself would silently keep its default, or take anything but ``true`` as false.)
        """
        check_type(text, str, "a broker configuration is the text of its file")
        for number, line in enumerate(text.split("\n") if len(text) > LONGEST_LINE else (), start=1):
            if len(line) > LONGEST_LINE:
                raise InvalidBrokerConfig(f"line {number} is longer than {LONGEST_LINE:,} characters")
        try:
            return cls.of_file(parse_properties(text))
        except InvalidBrokerConfig:
            raise
        except ValueError as error:
            raise InvalidBrokerConfig(str(error)) from error

    @classmethod
    def from_yaml(cls, text: str) -> BrokerConfig:
        """Reads a YAML mapping with the keys of a ``broker.conf``. Raises InvalidBrokerConfig."""
        try:
            document = load(text)
        except InvalidYaml as error:
            raise InvalidBrokerConfig(f"line {error.line}: {error}") from error
        if document is None:
            document = {}
        if not isinstance(document, dict) or not all(isinstance(value, str) for value in document.values()):
            raise InvalidBrokerConfig("a broker configuration in YAML must be a mapping such as brokerName: broker-a")
        return cls.of_file(document)

    @classmethod
    def of_file(cls, values: Mapping[str, str]) -> BrokerConfig:
        """Converts the keys and values of a file. Raises InvalidBrokerConfig, also if none is of a broker.conf."""
        known = {_key(field.name) for field in fields(cls)}
        if values and not known.intersection(values) and not BROKER_KEYS.intersection(values):
            raise InvalidBrokerConfig("no line is a setting of a broker.conf, such as brokerName=broker-a")
        for key in values:
            similar = difflib.get_close_matches(key, known, 1, 0.9)
            if key not in known and similar:
                raise InvalidBrokerConfig(f"{key} is not known; did you mean {similar[0]}?")
        return cls.of(values)

    @property
    def changed(self) -> dict[str, str]:
        """The keys and values of a ``broker.conf`` that are not the defaults. :meth:`of` reads them."""
        changed = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if value != field.default:
                changed[_key(field.name)] = _text(value)
        return changed

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> BrokerConfig:
        """Converts keys and values of a ``broker.conf``. Raises InvalidBrokerConfig."""
        known = {_key(field.name): field for field in fields(cls)}
        return cls(
            **{
                known[key].name: _typed(key, value, type(known[key].default))
                for key, value in values.items()
                if key in known
            }
        )


def changed_switches(before: BrokerConfig, now: BrokerConfig) -> Sequence[str]:
    """One text for each changed setting that deliveries depend on, for messages."""
    values = ((_key(name), getattr(before, name), getattr(now, name)) for name in DELIVERIES_DEPEND_ON)
    return [f"{key} was {_text(old)} and is {_text(new)}" for key, old, new in values if old != new]


def _key(name: str) -> str:
    """The RocketMQ key of a field: enable_property_filter -> enablePropertyFilter."""
    return re.sub(r"_(.)", lambda match: match[1].upper(), name)


def _text(value: bool | int | str) -> str:
    """A value as broker.conf has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _typed(key: str, value: Any, expected: type) -> Any:
    """``value``, a text or a value from YAML or JSON, as a bool, int or str."""
    text = _text(value)
    if expected is str:
        return trim(text)
    if expected is bool:
        if text.lower() not in ("true", "false"):
            raise InvalidBrokerConfig(f"{key}={text!r} is neither true nor false")
        return text.lower() == "true"
    number = parse_long(text) if key in _LONGS else parse_int(text)
    if number is None:
        bits = 64 if key in _LONGS else 32
        raise InvalidBrokerConfig(f"{key}={text!r} is not a whole number of {bits} bits")
    return number
