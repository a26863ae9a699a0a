"""Random SQL92 expressions and messages that know the whole grammar, its edges and what is just past them.

Everything is drawn from a ``random.Random``: a seeded one where thousands are wanted, or one of Hypothesis, which
shrinks.
"""

from __future__ import annotations

from random import Random

from hypothesis import strategies as st

NAMES = ("a", "b", "c", "price", "A", "_x1", "$v")
INTEGERS = ("0", "5", "7", "42", "1000", "2147483647", "2147483648", "5L", "10l", "9223372036854775807", "4294967296L")
DOUBLES = ("5.0", ".5", "5.", "5.E3", "1e3", "00.5", "4.9E-324", "1e308", "2147483648.0", "1.7976931348623157E308")
STRINGS = ("", "x", "5", "5.0", "true", "TRUE", "it''s", "é٥", "%", "\\", "xyx", " 5", "NaN", "-5")
ODD_TOKENS = (
    *("007", "0x10", "1.2.3", "5e", "9223372036854775808", "0.0", "1e400", "1e-400", ".0", "0L"),
    *("a.b", "!=", "==", "=<", "&&", "%", "*", "#", ";", '"x"', "`a`", "é", "\x00", "\u00a0", "'", "/*", "like", "now"),
    *("NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS", "CONTAINS", "STARTSWITH", "ENDSWITH"),
    *("(", ")", ",", "+", "-", "=", "<>", "<", ">=", "'x'", "5", "a", "--", "-- c\n"),
)
BLANKS = (" ", " ", " ", " ", "\t", "\n", "\f", "  ", " /* c */ ", " -- c\n", "/***/", "--\r")
VALUES = (
    *(
        "5",
        "+5",
        "-5",
        "05",
        "7",
        "42",
        "1000",
        "0",
        "-0",
        "5.0",
        " 5",
        "5 ",
        "5\t",
        "\x005",
        "",
        " ",
        "x",
        "xyx",
        "it's",
    ),
    *(
        "true",
        "TRUE",
        "True",
        " true",
        "false",
        "banana",
        "NaN",
        "nan",
        "-NaN",
        "Infinity",
        "-Infinity",
        "inf",
        "INFINITY",
    ),
    *(
        "5d",
        "5f",
        "5L",
        "5e",
        "1e3",
        "1E+3",
        ".5",
        "5.",
        ".",
        "+",
        "-",
        "+-5",
        "0x1.4p2",
        "0x5",
        "0x1p99999",
        "1e400",
        "-1e400",
    ),
    *("-0.0", "0.0", "0e9", "4.9E-324", "1e308", "2147483647", "2147483648", "-2147483648", "9223372036854775807"),
    *(
        "9223372036854775808",
        "00000000000000000000005",
        "٥",
        "５",
        "٥.0",
        "𝟓",
        "\u00a05",
        "é٥",
        "%",
        "\\",
        "5,5",
        '"5"',
        "5\n",
    ),
    *("2147483648.0", "1_000", "4294967296", "1000.0", "1e3f", "NaNd", "\x7f5", "5\u2028", "0x.8p0", "0x1.p0F"),
)


class Generator:
    """The first choice of each list is the plainest, so that Hypothesis shrinks towards it."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def expression(self) -> str:
        """One expression; about one in six is mangled and may not compile."""
        random = self._random
        text = self._boolean(random.choice((0, 1, 1, 2, 2, 3, 4)))
        if random.random() < 0.16:
            text = self._mangled(text)
        if random.random() < 0.04:
            text += random.choice(BLANKS) + self._words(random.randint(1, 3))
        return text

    def properties(self) -> dict[str, str]:
        """A message's properties; each name is missing sometimes."""
        random = self._random
        return {name: random.choice(VALUES) for name in NAMES if random.random() < 0.75}

    def _boolean(self, depth: int) -> str:
        random = self._random
        if depth <= 0:
            return self._comparison(0)
        kind = random.randrange(12)
        if kind < 4:
            return f"{self._boolean(depth - 1)}{self._word('AND')}{self._boolean(depth - 1)}"
        if kind < 8:
            return f"{self._boolean(depth - 1)}{self._word('OR')}{self._boolean(depth - 1)}"
        if kind < 9:
            return f"{self._word('NOT')}{self._bracketed(self._boolean(depth - 1))}"
        if kind < 11:
            return self._bracketed(self._boolean(depth - 1))
        return self._comparison(depth - 1)

    def _comparison(self, depth: int) -> str:
        random = self._random
        kind = random.randrange(20)
        left = self._operand(depth)
        if kind < 6:
            return f"{left}{self._symbol('=', '<>')}{self._operand(depth)}"
        if kind < 11:
            return f"{self._number_operand()}{self._symbol('<', '<=', '>', '>=')}{self._number_operand()}"
        if kind < 13:
            value = self._number_operand()
            low, high = self._number_operand(), self._number_operand()
            return f"{value}{self._maybe_not()}{self._word('BETWEEN')}{low}{self._word('AND')}{high}"
        if kind < 15:
            strings = ",".join(self._string() for _ in range(random.choice((1, 1, 2, 3, 6))))
            return f"{self._property()}{self._maybe_not()}{self._word('IN')}({strings})"
        if kind < 17:
            search = random.choice(("CONTAINS", "STARTSWITH", "ENDSWITH"))
            return f"{left}{self._maybe_not()}{self._word(search)}{self._string()}"
        if kind < 18:
            return f"{left}{self._word('IS')}{self._maybe_not()}{self._word('NULL')}"
        if kind < 19:
            return random.choice(("TRUE", "FALSE", "NULL", self._property()))
        return f"{left}{self._symbol('=', '<>')}{self._operand(depth)}{self._symbol('=', '<>')}{self._operand(depth)}"

    def _operand(self, depth: int) -> str:
        random = self._random
        kind = random.randrange(20)
        if kind < 8:
            return self._property()
        if kind < 11:
            return self._number()
        if kind < 14:
            return self._string()
        if kind < 15:
            return random.choice(("TRUE", "FALSE"))
        if kind < 16:
            return random.choice(("-", "+", "- -", "NOT ")) + self._operand(0)
        if kind < 19 and depth > 0:
            return self._bracketed(self._boolean(depth - 1))
        return self._bracketed(self._property())

    def _number_operand(self) -> str:
        random = self._random
        kind = random.randrange(16)
        if kind < 8:
            return self._property()
        if kind < 13:
            return self._number()
        if kind < 14:
            return "-" + self._number()
        if kind < 15:
            return random.choice(("-", "+", "-+")) + self._property()
        return "-" + self._bracketed(self._boolean(1))

    def _property(self) -> str:
        return self._random.choice(NAMES)

    def _number(self) -> str:
        return self._random.choice(INTEGERS if self._random.random() < 0.6 else DOUBLES)

    def _string(self) -> str:
        return f"'{self._random.choice(STRINGS)}'"

    def _bracketed(self, text: str) -> str:
        return f"({text})"

    def _maybe_not(self) -> str:
        return self._word("NOT") if self._random.random() < 0.35 else " "

    def _word(self, word: str) -> str:
        random = self._random
        if random.random() < 0.1:
            word = "".join(random.choice((letter.lower(), letter)) for letter in word)
        return f"{random.choice(BLANKS)}{word}{random.choice(BLANKS)}"

    def _symbol(self, *symbols: str) -> str:
        return self._random.choice(("", " ")) + self._random.choice(symbols) + self._random.choice(("", " "))

    def _words(self, count: int) -> str:
        return " ".join(self._random.choice(ODD_TOKENS) for _ in range(count))

    def _mangled(self, text: str) -> str:
        """A token or a character put in, taken out, or the text cut."""
        random = self._random
        position = random.randint(0, len(text))
        match random.randrange(5):
            case 0:
                return text[:position] + random.choice(ODD_TOKENS) + text[position:]
            case 1:
                return f"{text[:position]} {random.choice(ODD_TOKENS)} {text[position:]}"
            case 2:
                return text[:position] + text[position + 1 :]
            case 3:
                return text[:position]
            case _:
                return text[:position] + random.choice("()'=<>+-.,0E \n") + text[position:]


@st.composite
def expressions(draw: st.DrawFn) -> str:
    """One expression; about one in six is mangled and may not compile."""
    return Generator(draw(st.randoms(use_true_random=False))).expression()


@st.composite
def properties(draw: st.DrawFn) -> dict[str, str]:
    """A message's properties."""
    return Generator(draw(st.randoms(use_true_random=False))).properties()
