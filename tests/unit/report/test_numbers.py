"""How numbers read."""

from __future__ import annotations

import pytest

from jobs.report_page import age, cut, difference, night_names, share, size


@pytest.mark.parametrize(
    ("part", "of", "text"),
    [
        (0, 0, "–"),
        (0, 9, "0.0 %"),
        (1, 100_000, "< 0.1 %"),
        (99_999, 100_000, "> 99.9 %"),
        (9, 9, "100.0 %"),
        (1, 8, "12.5 %"),
    ],
)
def test_a_share_never_hides_something(part: int, of: int, text: str) -> None:
    assert share(part, of) == text


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(None, "–"), (999, "999 ms"), (59_000, "59 s"), (8_040_000, "2 h 14 min"), (90_000_000, "1 d 1 h")],
)
def test_an_age(milliseconds: int | None, text: str) -> None:
    assert age(milliseconds) == text


def test_a_difference() -> None:
    assert [difference(5, 3), difference(3, 1_005), difference(3, 3), difference(3, None)] == [
        "+2",
        "−1,002",
        "0",
        "new",
    ]


def test_a_size() -> None:
    assert [size(0), size(999), size(1_250), size(123_456_789)] == ["0 bytes", "999 bytes", "1.2 kB", "123 MB"]


def test_a_text_becomes_one_printable_line() -> None:
    assert cut("a\n  b\x1b[0m", 20) == "a b\\x1b[0m"
    assert cut("x" * 50, 10) == "x" * 9 + "…"


def test_nights_are_told_apart() -> None:
    assert night_names([0, 86_400_000]) == ["1970-01-01 00:00", "1970-01-02 00:00"]
    assert night_names([0, 1_000]) == ["1970-01-01 00:00:00", "1970-01-01 00:00:01"]
    assert night_names([0, 1]) == ["1970-01-01 00:00:00.000", "1970-01-01 00:00:00.001"]
