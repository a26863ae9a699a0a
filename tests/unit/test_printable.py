"""Text from outside on a terminal."""

import pytest

from schemas.errors import printable


@pytest.mark.parametrize("text", ["price > 5", "杭州\u3000市\u00a0x", "e\u0301", "😀", "a\tb"])
def test_letters_marks_and_spaces_stay(text: str) -> None:
    assert printable(text) == text


@pytest.mark.parametrize(
    ("character", "escape"),
    [
        ("\x1b", "\\x1b"),
        ("\n", "\\n"),
        ("\x85", "\\x85"),
        ("\u2028", "\\u2028"),
        ("\u202e", "\\u202e"),
        ("\udcff", "\\udcff"),
    ],
)
def test_control_characters_and_line_breaks_are_escaped(character: str, escape: str) -> None:
    assert printable(f"a{character}b") == f"a{escape}b"
