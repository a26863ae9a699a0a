"""Counted nouns in messages."""

from __future__ import annotations

from filtering.counted import counted


def test_one_is_not_several() -> None:
    assert [counted(number, "message") for number in (0, 1, 12_345)] == ["0 messages", "1 message", "12,345 messages"]
    assert [counted(number, "thing needs", "things need") for number in (1, 2)] == ["1 thing needs", "2 things need"]
