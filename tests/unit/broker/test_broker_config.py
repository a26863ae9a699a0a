"""The broker's switches in properties and in YAML, as Java reads them."""

import re
from dataclasses import fields

import pytest

from filtering.broker_config import BrokerConfig, InvalidBrokerConfig, _key, read_properties
from filtering.java import parse_properties
from schemas.yaml_input import load
from tests.captures import UNDAMAGED, capture, rows
from tests.unit.broker import cases


@pytest.mark.parametrize("name", UNDAMAGED)
def test_a_real_brokers_switches(name: str) -> None:
    config = read_properties((capture(name) / "broker.conf").read_text("latin-1")).config
    assert config.broker_name == "broker-a"
    assert config.enable_property_filter
    assert config.enable_calc_filter_bit_map == config.filter_support_retry == (name != "plain")
    blooms = [row["bloom"] for row in rows(name, "subscriptions") if row["bloom"]]
    assert {bloom["bitNum"] for bloom in blooms} == {config.bloom_filter.m}
    assert config.delay_levels[0] == 1_000
    assert config.delay_levels[17] == 7_200_000


def test_an_empty_file_gives_rocketmqs_defaults() -> None:
    config = read_properties("").config
    assert config == BrokerConfig() == BrokerConfig.from_yaml(load(""))
    assert not config.enable_property_filter
    assert (config.bloom_filter.k, config.bloom_filter.m) == (3, 112)
    assert config.filter_data_clean_time_span == 86_400_000
    assert config.consume_queue_file_entries == 300_000
    assert (config.mapped_file_size_commit_log, config.mapped_file_size_consume_queue_ext) == (1 << 30, 48 << 20)
    assert (config.max_transfer_bytes_on_message_in_memory, config.max_transfer_count_on_message_in_memory) == (
        262_144,
        32,
    )
    assert (config.max_transfer_bytes_on_message_in_disk, config.max_transfer_count_on_message_in_disk) == (65_536, 8)
    assert (config.max_consume_queue_scan, config.sample_count_threshold) == (20_000, 5_000)


def test_properties_read_as_java_reads_them() -> None:
    text = (
        "# a comment \\\n! another\n\n  enablePropertyFilter : TRUE\n"
        "brokerName=broker\\u002da\\tb \n mixed\\ key\\=x  value\\\n   goes on\n"
        "expectConsumerNumUseFilter 64\r\nlonely\ncolor=red\\\n#blue\nlast=\\"
    )
    assert parse_properties(text) == {
        "enablePropertyFilter": "TRUE",
        "brokerName": "broker-a\tb ",
        "mixed key=x": "valuegoes on",
        "expectConsumerNumUseFilter": "64",
        "lonely": "",
        "color": "red#blue",
        "last": "",
    }
    assert parse_properties("a=1\n#b") == {"a": "1"}
    assert parse_properties("b") == {"b": ""}
    config = read_properties(text).config
    assert config.enable_property_filter
    assert config.expect_consumer_num_use_filter == 64
    assert config.broker_name == "broker-a\tb"


@pytest.mark.parametrize("name", ["境内", "b\x85", "b\xa0"])
def test_a_name_keeps_the_octets_that_java_does_not_trim(name: str) -> None:
    """Java reads the file as ISO-8859-1, and trims what is up to U+0020."""
    octets = name.encode().decode("latin-1")
    assert read_properties(f"brokerName= {octets}\t\x00").config.broker_name == octets


def test_yaml_has_the_same_keys() -> None:
    config = BrokerConfig.from_yaml(load("enablePropertyFilter: true\nbrokerName: 7\nnamesrvAddr: localhost:9876\n"))
    assert config == BrokerConfig(enable_property_filter=True, broker_name="7")


@pytest.mark.parametrize("name", UNDAMAGED)
def test_what_is_changed_makes_the_same_switches(name: str) -> None:
    config = read_properties((capture(name) / "broker.conf").read_text("latin-1")).config
    assert config.changed["enablePropertyFilter"] == "true"
    assert "messageDelayLevel" not in config.changed
    assert BrokerConfig.of(config.changed) == config


@pytest.mark.parametrize(("size", "entries"), [(1, 1), (20, 1), (1000, 50), (1001, 51), (6_000_000, 300_000)])
def test_an_odd_file_size_is_rounded_up_to_whole_entries(size: int, entries: int) -> None:
    assert BrokerConfig(mapped_file_size_consume_queue=size).consume_queue_file_entries == entries


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("maxErrorRateOfBloomFilter=0", "maxErrorRateOfBloomFilter=0,.* f must be .*; a broker does not start with it"),
        ("expectConsumerNumUseFilter=0", "expectConsumerNumUseFilter=0: n must be"),
        ("messageDelayLevel=1s 2x", "messageDelayLevel: '2x' is not a delay.*; a broker does not start with it"),
        ("messageDelayLevel=99999999999999999999s", "messageDelayLevel: '99999999999999999999s' is not a delay"),
        ("messageDelayLevel=9223372036854775807d", "messageDelayLevel: '9223372036854775807d' is not a delay"),
        ("mappedFileSizeConsumeQueue=0", "mappedFileSizeConsumeQueue=0: a file size"),
        ("travelCqFileNumWhenGetMessage=0", "travelCqFileNumWhenGetMessage=0: must be 1 or more"),
        ("filterDataCleanTimeSpan=-1", "filterDataCleanTimeSpan=-1: the broker would delete filters in use"),
        ("brokerName=\\u12", "Malformed .*; a broker does not start with it"),
        ("- group: cg\n  topic: T\n", "no line is a setting of a broker.conf"),
        ('{"at": 1, "op": "register"}', "no line is a setting of a broker.conf"),
    ],
)
def test_a_bad_value_is_named(text: str, message: str) -> None:
    with pytest.raises(InvalidBrokerConfig, match=message):
        read_properties(text)


def test_each_value_is_what_a_real_broker_takes() -> None:
    """Asked of MixAll.properties2Object: what it changed of the defaults."""
    answered = cases("broker_conf")
    assert len(answered) > 200
    refused = []
    known = {_key(field.name) for field in fields(BrokerConfig)}
    for case in answered:
        changed = {key: value for key, value in case.get("changed", {}).items() if key in known}
        try:
            taken = read_properties(case["text"]).config.changed
        except InvalidBrokerConfig as error:
            refused.append((case["text"], str(error)))
            continue
        assert taken == changed, case
    reasons = "does not start with it|the broker starts with it|filters in use|more than 1,000,000|no line is a setting"
    assert [text for text, error in refused if not re.search(reasons, error)] == []
    assert len(refused) < 30


@pytest.mark.parametrize(
    ("value", "around"),
    [
        ("true ", " with a blank after it"),
        ("true\t", " with a blank after it"),
        ("true;", " with ; after it"),
        ("true   # on", " with a comment after it"),
        ("true // on", " with a comment after it"),
        ('"true"', " in quotes"),
        ("true\\\nlistenPort=1", " with another setting on its line"),
        ("1", ""),
        ("yes", ""),
        ("${FILTER}", ""),
    ],
)
def test_a_switch_that_the_broker_takes_as_false_is_told(value: str, around: str) -> None:
    read = read_properties(f"brokerName=b\nenablePropertyFilter={value}\n")
    assert not read.config.enable_property_filter
    (line,) = read.misread
    assert line.startswith("SQL92 is off: broker.conf has enablePropertyFilter=")
    assert line.endswith(f"{around}, which the broker takes as false; write enablePropertyFilter=true")


@pytest.mark.parametrize("value", ["true", "TRUE", "false", "false ", "no", "0", "off;", ""])
def test_a_switch_that_says_what_the_broker_takes_needs_no_word(value: str) -> None:
    assert read_properties(f"enablePropertyFilter={value}").misread == ()


@pytest.mark.parametrize("value", ["65536 ", "1G", "0x10000", "65_536", "65536L", '"65536"', "3000000000", ""])
def test_a_number_that_the_broker_cannot_read_leaves_the_default(value: str) -> None:
    read = read_properties(f"mappedFileSizeConsumeQueue={value}")
    assert read.config == BrokerConfig()
    (line,) = read.misread
    assert line.startswith("mappedFileSizeConsumeQueue is 6,000,000, its default: broker.conf has")


@pytest.mark.parametrize(
    ("key", "similar"),
    [
        ("mapedFileSizeConsumeQueue", "mappedFileSizeConsumeQueue is 6000000"),
        ("mappedFileSizeCommitlog", "mappedFileSizeCommitLog is 1073741824"),
        ("EnablePropertyFilter", "enablePropertyFilter is false"),
        ("enable_property_filter", "enablePropertyFilter is false"),
        ("\xef\xbb\xbfenablePropertyFilter", "enablePropertyFilter is false, since the file begins with a byte order"),
    ],
)
def test_a_key_that_the_broker_does_not_know_is_ignored_with_a_note(key: str, similar: str) -> None:
    read = read_properties(f"{key}=5\nflushDiskType=ASYNC_FLUSH\n")
    assert read.config == BrokerConfig()
    (line,) = read.ignored
    assert similar in line
    assert read_properties("traceTopicEnable=true\nmaxMessageSize=5\n") == (BrokerConfig(), (), ())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("enablePropertyFilter: yes", "enablePropertyFilter='yes' is neither true nor false"),
        ("maxFilterMessageSize: 16k", "maxFilterMessageSize='16k' is not a whole number of 32 bits"),
        ("mapedFileSizeCommitLog: 5\nbrokerName: b", "did you mean mappedFileSizeCommitLog"),
    ],
)
def test_yaml_which_no_broker_reads_has_no_wrong_values(text: str, message: str) -> None:
    with pytest.raises(InvalidBrokerConfig, match=message):
        BrokerConfig.from_yaml(load(text))


def test_a_yaml_list_is_refused() -> None:
    with pytest.raises(InvalidBrokerConfig, match="YAML"):
        BrokerConfig.from_yaml(load("- enablePropertyFilter"))
