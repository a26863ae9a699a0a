"""The entries of messages in the queues that INNER_MULTI_DISPATCH names. Stores of brokers are in tests/nights."""

import pytest

from filtering.delivery.entries import MultiDispatch
from filtering.rocketmq_version import RocketMQVersion


def places(
    *messages: tuple[str, str], version: str = "5.5.0", in_files: bool = True, skipped: tuple[int, ...] = ()
) -> list[list[tuple[str, int]]]:
    """The names and queue offsets of each message's entries. ``skipped``: messages that get none."""
    dispatch = MultiDispatch(RocketMQVersion.parse(version), in_files)
    entries = [
        dispatch.entries(names, offsets, 0, number not in skipped) for number, (names, offsets) in enumerate(messages)
    ]
    return [[(name, at) for name, _, at in message_entries] for message_entries in entries]


def test_a_queue_for_each_name() -> None:
    assert places(("a,b", "0,4"), ("b,a", "5,1")) == [[("a", 0), ("b", 4)], [("b", 5), ("a", 1)]]


@pytest.mark.parametrize(
    ("names", "offsets", "entries"),
    [
        ("a,,b,", "1,,2,", [("a", 1), ("b", 2)]),
        ("a", "", []),
        ("a", ",,", []),
        ("a,b", "1", []),
        ("a,b", "x,2", [("b", 2)]),
        ("a", "-1", []),
        ("", "", []),
        (",", ",", []),
    ],
)
def test_texts_of_properties(names: str, offsets: str, entries: list[tuple[str, int]]) -> None:
    assert places((names, offsets)) == [entries]


@pytest.mark.parametrize(("in_files", "last"), [(True, 1), (False, 2)])
def test_a_name_that_stands_twice(in_files: bool, last: int) -> None:
    """It counts twice, has one entry, and leaves no gap in a file."""
    assert places(("a,a", "0,0"), ("a", "2"), in_files=in_files) == [[("a", 0)], [("a", last)]]


def test_a_name_that_stands_twice_and_counts_once() -> None:
    """As on 4.9.7."""
    assert places(("a,a", "0,0"), ("a", "1"), version="4.9.7") == [[("a", 0)], [("a", 1)]]


def test_messages_without_entry_leave_no_gap() -> None:
    entries = places(("a", "0"), ("a", "1"), ("a", "2"), ("a", "3"), skipped=(1, 2))
    assert entries == [[("a", 0)], [], [], [("a", 1)]]


def test_messages_that_were_not_read_leave_one() -> None:
    assert places(("a,a", "4,4"), ("a", "9")) == [[("a", 4)], [("a", 8)]]


def test_a_copy_with_the_offsets_of_the_first_message() -> None:
    assert places(("a", "3"), ("a", "4"), ("a", "3"), ("a", "5")) == [[("a", 3)], [("a", 4)], [], [("a", 5)]]
    assert places(("a", "3"), ("a", "3"), ("a", "5"), skipped=(1,)) == [[("a", 3)], [], [("a", 5)]]


def test_a_queue_that_begins_again() -> None:
    assert places(("a", "7"), ("a", "0"), ("a", "1")) == [[("a", 7)], [("a", 0)], [("a", 1)]]


@pytest.mark.parametrize(
    ("version", "in_files", "has_entry"), [("5.1.1", True, True), ("5.1.3", True, False), ("5.5.0", False, True)]
)
def test_a_name_with_a_slash(version: str, in_files: bool, has_entry: bool) -> None:
    assert places(("a/b", "0"), version=version, in_files=in_files) == [[("a/b", 0)] if has_entry else []]


def test_topics_whose_messages_get_none() -> None:
    of = {version: RocketMQVersion.parse(version).not_multi_dispatched for version in ("4.9.7", "5.1.1", "5.2.0")}
    assert of == {"4.9.7": (), "5.1.1": ("%RETRY%",), "5.2.0": ("%RETRY%", "SCHEDULE_TOPIC_XXXX", "rmq_sys_")}
