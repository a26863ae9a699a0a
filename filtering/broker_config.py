"""The settings of a broker that filtering depends on.

Source: org.apache.rocketmq.common.BrokerConfig, org.apache.rocketmq.store.config.MessageStoreConfig,
MixAll.properties2Object.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import Field, fields
from functools import cached_property
from typing import Any, NamedTuple

from filtering.bloom_filter import BloomFilter
from filtering.counted import check_type, shortened
from filtering.frozen import frozen
from filtering.java import parse_int, parse_long, parse_properties, trim
from filtering.rocketmq_version import NEWEST, RocketMQVersion
from filtering.tags_code import parse_delay_levels
from filtering.time_spans import DAY

CONSUME_QUEUE_UNIT = 20
"""Bytes of a consume queue entry."""
CONSUME_QUEUE_EXT_UNIT = 20
"""Bytes of an entry's extension without its bit map (ConsumeQueueExt.CqExtUnit)."""
SHORTEST_RECORD = 91
"""Bytes of a message record without body, topic and properties (MessageExtEncoder)."""
MOST_CONSUMERS = 1_000_000
"""The greatest number of groups of a filter bit map. For more groups, it would take a megabyte for each message."""
_LONGS = frozenset({"filterDataCleanTimeSpan"})
_VERSION_KEY = "rocketmqVersion"
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
    "message_delay_level", "enable_pop_buffer_merge", "pop_consumer_kv_service_enable",
    "init_pop_offset_by_check_msg_in_mem",
)  # fmt: skip
"""The settings that decide what groups receive, and what their filter bit maps are."""


class InvalidBrokerConfig(ValueError):
    """A broker configuration that is not valid. The message names the key and the value."""


@frozen
class BrokerConfig:
    """The settings of a broker, with RocketMQ's defaults. Sizes are in bytes, time spans in milliseconds.

    Raises InvalidBrokerConfig for a value with which a broker would not start, or no pull would find a message.
    """

    broker_name: str = "DEFAULT_BROKER"
    rocketmq_version: str = "5.5.0"
    """No setting of a broker.conf: the version that runs with it. Ledgers without a version are of this one."""
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
    enable_pop_buffer_merge: bool = False
    pop_consumer_kv_service_enable: bool = False
    init_pop_offset_by_check_msg_in_mem: bool = True
    max_consume_queue_scan: int = 20_000
    sample_count_threshold: int = 5_000

    def __post_init__(self) -> None:
        for size in ("mapped_file_size_commit_log", "mapped_file_size_consume_queue"):
            if getattr(self, size) < 1:
                raise InvalidBrokerConfig(
                    f"{_key(size)}={getattr(self, size)}: a file size must be 1 or more; the broker starts with it, "
                    "but no message gets into a queue"
                )
        if self.travel_cq_file_num_when_get_message < 1:
            raise InvalidBrokerConfig(
                f"travelCqFileNumWhenGetMessage={self.travel_cq_file_num_when_get_message}: must be 1 or more; the "
                "broker starts with it, but no pull finds a message"
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
                f" expectConsumerNumUseFilter={self.expect_consumer_num_use_filter}: {error}; a broker does not start"
                " with it"
            ) from error
        try:
            _ = self.version
        except ValueError as error:
            raise InvalidBrokerConfig(str(error)) from error
        try:
            _ = self.delay_levels
        except ValueError as error:
            raise InvalidBrokerConfig(f"{error}; a broker does not start with it") from error

    @cached_property
    def version(self) -> RocketMQVersion:
        """The version of RocketMQ. Ask it for a named fact."""
        return RocketMQVersion.parse(self.rocketmq_version)

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
    def from_yaml(cls, document: object) -> BrokerConfig:
        """The configuration of a YAML document: a mapping with the keys of a ``broker.conf``; None if it is empty.

        No broker reads such a file, so a wrong type or a misspelt key raises InvalidBrokerConfig.
        """
        if document is None:
            document = {}
        if not isinstance(document, dict) or not all(isinstance(value, str) for value in document.values()):
            raise InvalidBrokerConfig("a broker configuration in YAML must be a mapping such as brokerName: broker-a")
        _check_has_settings(document)
        for key in document:
            if (similar := _similar(key)) is not None:
                raise InvalidBrokerConfig(f"{key} is not known; did you mean {similar}?")
        return cls.of(document)

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
        read = {}
        for key, value in values.items():
            if key in _KNOWN:
                read[_KNOWN[key].name] = _typed(key, value)
        return cls(**read)


class ReadBrokerConfig(NamedTuple):
    """What a broker takes from its ``broker.conf``.

    ``misread``: one text for each value that means something else to the broker than it seems to. ``ignored``: one
    for each key that the broker does not know, but that looks like one of ours.
    """

    config: BrokerConfig
    misread: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()


def read_properties(text: str, version: RocketMQVersion = NEWEST) -> ReadBrokerConfig:
    """Reads a ``broker.conf`` exactly as a broker of a version does (MixAll.properties2Object).

    ``true`` in any case is true and any other text false; a number that is none leaves the default; keys that the
    broker does not know are ignored. Raises InvalidBrokerConfig for what a broker does not start with, or cannot be
    replayed, and if a line is too long or the text is no broker.conf.
    """
    check_type(text, str, "a broker configuration is the text of its file")
    for number, line in enumerate(text.split("\n") if len(text) > LONGEST_LINE else (), start=1):
        if len(line) > LONGEST_LINE:
            raise InvalidBrokerConfig(f"line {number} is longer than {LONGEST_LINE:,} characters")
    try:
        values = parse_properties(text)
    except ValueError as error:
        raise InvalidBrokerConfig(f"{error}; a broker does not start with it") from error
    _check_has_settings(values)
    ignored = []
    if version.knows_maped_files:
        ignored = [
            f"the broker ignores {new!a}: up to 4.5.1 it is {old}" for old, new in _MAPED_FILES.items() if new in values
        ]
        values = {_MAPED_FILES.get(key, key): values[key] for key in values if key not in _MAPED_FILES.values()}
    taken: dict[str, Any] = {}
    misread = []
    for key, value in values.items():
        if key not in _KNOWN:
            continue
        try:
            taken[key] = _typed(key, value)
        except InvalidBrokerConfig:
            if isinstance(_KNOWN[key].default, bool):
                taken[key] = False
            misread += _misread(key, value)
    config = BrokerConfig.of(taken)
    in_force = {key: getattr(config, field.name) for key, field in _KNOWN.items()}
    ignored += [
        f"the broker ignores {key!a}, which it does not know: {similar} is {_text(in_force[similar])}"
        + (", since the file begins with a byte order mark" if key.startswith(_BYTE_ORDER_MARK) else "")
        + (" (brokers up to 4.5.1 know it)" if key in _MAPED_FILES else "")
        for key in values
        if (similar := _similar(key)) is not None
    ]
    return ReadBrokerConfig(config, tuple(misread), tuple(ignored))


def why_property_filter_is_off(misread: Iterable[str]) -> str | None:
    """Of the ``misread`` texts of a ReadBrokerConfig, the one on enablePropertyFilter; None if there is none."""
    return next((text for text in misread if text.startswith(_SWITCHES["enablePropertyFilter"])), None)


def changed_switches(before: BrokerConfig, now: BrokerConfig) -> Sequence[str]:
    """One text for each changed setting that deliveries depend on, for messages."""
    values = ((_key(name), getattr(before, name), getattr(now, name)) for name in DELIVERIES_DEPEND_ON)
    return [f"{key} was {_text(old)} and is {_text(new)}" for key, old, new in values if old != new]


def _key(name: str) -> str:
    """The RocketMQ key of a field: enable_property_filter -> enablePropertyFilter."""
    return re.sub(r"_(kv|.)", lambda match: match[1].upper(), name)


def _text(value: bool | int | str) -> str:
    """A value as broker.conf has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _typed(key: str, value: Any) -> Any:
    """``value``, a text or a value from YAML or JSON, as a bool, int or str. Raises InvalidBrokerConfig."""
    text, expected = _text(value), type(_KNOWN[key].default)
    if expected is str:
        return trim(text)
    if expected is bool:
        if text.lower() not in ("true", "false"):
            raise InvalidBrokerConfig(f"{key}={text!r} is neither true nor false")
        return text.lower() == "true"
    number = parse_long(text) if key in _LONGS else parse_int(text)
    if number is None:
        raise InvalidBrokerConfig(f"{key}={text!r} is not a whole number of {_bits(key)} bits")
    return number


def _bits(key: str) -> int:
    return 64 if key in _LONGS else 32


_KNOWN: dict[str, Field[Any]] = {_key(field.name): field for field in fields(BrokerConfig)}
"""The settings by their RocketMQ keys."""
_LETTERS = {key.lower(): key for key in _KNOWN}
_MAPED_FILES = {
    "mapedFileSizeCommitLog": "mappedFileSizeCommitLog",
    "mapedFileSizeConsumeQueue": "mappedFileSizeConsumeQueue",
}
"""The keys up to 4.5.1, and what they are later."""
_BYTE_ORDER_MARK = "\xef\xbb\xbf"
_SWITCHES = {
    "enablePropertyFilter": "SQL92 is off",
    "enableCalcFilterBitMap": "the filter bit map is off",
    "enableConsumeQueueExt": "the filter bit map is off",
}
"""What a switch says that the broker takes as false."""
_SHOWN = 60
_SAYS_FALSE = re.compile(r"\W*(?:false|no|off|0)\b|\s*$", re.IGNORECASE)
_NAME = re.compile(r"[A-Za-z]\w*", re.ASCII)


def _check_has_settings(values: Mapping[str, str]) -> None:
    """Raises InvalidBrokerConfig if a file is none of a broker: it has no known key, and others that are no names.

    Also if it has a version, which is no setting.
    """
    if _VERSION_KEY in values:
        raise InvalidBrokerConfig(f"{_VERSION_KEY} is no setting of a broker: give --rocketmq-version")
    if not values or _KNOWN.keys() & values or BROKER_KEYS & values.keys():
        return
    if not all(_NAME.fullmatch(key) or _similar(key) is not None for key in values):
        raise InvalidBrokerConfig("no line is a setting of a broker.conf, such as brokerName=broker-a")


def _similar(key: str) -> str | None:
    """The known key that an unknown one looks like."""
    if key in _KNOWN:
        return None
    same_letters = _LETTERS.get(re.sub("[^a-z]", "", key.lower()))
    return same_letters or next(iter(difflib.get_close_matches(key, _KNOWN, 1, 0.9)), None)


def _misread(key: str, value: str) -> list[str]:
    """What the broker takes a value as that is not of the key's type; nothing if the value seems to say the same."""
    default, written = _KNOWN[key].default, f"broker.conf has {key}={shortened(value, _SHOWN)!a}{_around(value)}"
    if isinstance(default, bool):
        if _SAYS_FALSE.match(value):
            return []
        return [
            f"{_SWITCHES.get(key, f'{key} is false')}: {written}, which the broker takes as false; write {key}=true"
        ]
    return [
        f"{key} is {default:,}, its default: {written}, which to the broker is no whole number of {_bits(key)} bits"
    ]


def _around(value: str) -> str:
    """What stands around the part of a value that is probably meant."""
    if "=" in value:
        return " with another setting on its line"
    if value != value.rstrip():
        return " with a blank after it"
    if re.search("#|//|--|/[*]", value):
        return " with a comment after it"
    if value[:1] in ("'", '"'):
        return " in quotes"
    return f" with {value[-1]} after it" if value[-1:] in (";", ",") else ""
