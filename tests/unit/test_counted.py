"""Counted nouns, lists of names and long texts in messages."""

from __future__ import annotations

from filtering.counted import counted, listed, shortened


def test_one_is_not_several() -> None:
    assert [counted(number, "message") for number in (0, 1, 12_345)] == ["0 messages", "1 message", "12,345 messages"]
    assert [counted(number, "thing needs", "things need") for number in (1, 2)] == ["1 thing needs", "2 things need"]


def test_names_beyond_the_first_are_counted() -> None:
    names = [str(number) for number in range(2_003)]
    assert [listed(names[:3], 3), listed(names[:4], 3), listed(names, 3)] == [
        "0, 1, 2", "0, 1, 2 and 1 more", "0, 1, 2 and 2,000 more",
    ]  # fmt: skip
    assert [listed(names[:number], 3, "topic") for number in (3, 4, 5)] == [
        "0, 1, 2", "0, 1, 2 and 1 more topic", "0, 1, 2 and 2 more topics",
    ]  # fmt: skip


def test_a_long_text_ends_with_dots() -> None:
    assert [shortened(text, 4) for text in ("", "four", "longer")] == ["", "four", "lon…"]
