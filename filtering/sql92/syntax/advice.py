"""What is probably wrong at the place where the broker's parser refuses a text or ignores the rest, and what to write.

People write what other languages have: LIKE, functions, arithmetic, !=, hyphens and dots in names, text without
quotes. The parser meets the first token that it has no use for; the cause is mostly in the tokens around it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from filtering.rocketmq_version import NEWEST, TEXT_SEARCHES_SINCE, RocketMQVersion
from filtering.sql92.syntax.tokens import (
    END,
    NAME,
    NUMBER,
    STRING,
    TEXT_SEARCHES,
    UNKNOWN,
    Token,
    string_literal,
    tokenize,
)

SEARCHES_INSTEAD = "use CONTAINS, STARTSWITH or ENDSWITH"
_CHARACTERS = {
    "&": "write AND",
    "|": "write OR",
    ";": "leave it out",
    "`": "write property names without quotes",
    "'": "the string that starts here is never closed; a quote inside a string is written twice",
    "/": "there is no division, and a comment /* must be closed by */",
    "%": f"there is no arithmetic, and LIKE does not exist; {SEARCHES_INSTEAD}",
    "~": f"there are no regular expressions; {SEARCHES_INSTEAD}",
    "^": "there is no arithmetic",
    "[": "there are no brackets",
    "]": "there are no brackets",
    "\\": "a quote inside a string is written twice",
    **dict.fromkeys(":?@", "there are no parameters; write the value"),
    **dict.fromkeys("{}", "a placeholder is not replaced; write the value"),
}
_IN_TEXTS = frozenset(".:/@#%")
"""Characters that texts have without quotes, such as 12:30, us.east and a@b."""
_QUOTES = frozenset("‘’‚‛“”„‟′″«»")
_PATTERNS = frozenset({"LIKE", "ILIKE", "RLIKE", "REGEXP", "REGEX", "MATCH", "MATCHES", "SIMILAR", "GLOB"})
_COMPARISONS = frozenset({"=", "<>", "<", "<=", ">", ">="})
_BEFORE_OPERANDS = frozenset({*_COMPARISONS, "(", ",", "AND", "OR", "NOT", "BETWEEN", "IN", "+", "-"})
_OPERANDS = frozenset({NAME, NUMBER, STRING, "TRUE", "FALSE", "NULL", ")"})
_NO_NAMES = frozenset({"BETWEEN", "IN", "IS", "CONTAINS", "STARTSWITH", "ENDSWITH"})
"""Reserved words with which no operand can begin."""
_HYPHENATED = re.compile(r"[A-Za-z_$][\w$]*(?:-[\w$]+)+", re.ASCII)
_DOTTED = re.compile(r"[A-Za-z_$][\w$]*(?:\.[\w$]+)+", re.ASCII)
_NAME_BEFORE = re.compile(r"[A-Za-z_$][\w$]*$", re.ASCII)
_UNQUOTED = re.compile(r"[^\s'\"(),;<>=!|&]+")
_VALUE_BEFORE = re.compile(r"[\w$)]\s*(?:=|<>)\s*([^\s'\"(),;<>=!|&]*)$", re.ASCII)
"""A comparison with what stands on its right, up to some place."""
_DOUBLE_QUOTED = re.compile(r'"([^"]*)"')
_NULL_AFTER = re.compile(r"=\s*null\b", re.IGNORECASE | re.ASCII)
_SELECT_BEFORE = re.compile(r"\s*select\s*$", re.IGNORECASE)
_ONE_OPERATOR = {
    ("=", ">"): "write >=",
    ("=", "<"): "write <=",
    (">", "="): "write >= without a blank",
    ("<", "="): "write <= without a blank",
    ("<", ">"): "write <> without a blank",
    ("<=", ">"): "write =",
}
"""Two operators in a row, and what was probably meant."""


def unknown(text: str, position: int, version: RocketMQVersion = NEWEST) -> str:
    """Why the broker refuses the character at ``position``, with which no token starts. Without a full stop."""
    advice = _for_version(_of_character(text, position), version)
    return f"The character {text[position]!a} is not part of the language" + (f": {advice}" if advice else "")


def advice_at(text: str, position: int, version: RocketMQVersion = NEWEST) -> str:
    """What is probably wrong at the token at ``position``, where the parser stops; empty if that is not known.

    It begins with a small letter and ends without a full stop, as in ``there is no arithmetic``.
    """
    return _for_version(_advice_at(text, position, version), version)


def _for_version(advice: str, version: RocketMQVersion) -> str:
    """The advice without operators that the broker does not have."""
    return advice if version.has_text_searches else advice.removesuffix(f"; {SEARCHES_INSTEAD}")


def _advice_at(text: str, position: int, version: RocketMQVersion) -> str:
    tokens = tokenize(text, version)
    place = next((number for number, token in enumerate(tokens) if token.start == position), None)
    if place is None or tokens[place].kind == END:
        return ""
    if tokens[place].kind == UNKNOWN:
        return _of_character(text, position)
    before = tokens[:place]
    if not before or before[-1].kind in _BEFORE_OPERANDS:
        return _instead_of_operand(text, before, tokens[place])
    if before[-1].kind in _OPERANDS:
        return _after_operand(text, before, tokens[place], tokens[place + 1])
    if before[-1].kind == "IS":
        return "compare with = or <>" if tokens[place].kind in (NAME, NUMBER, STRING) else ""
    return _in_quotes(text, tokens[place])


def sentence(advice: str) -> str:
    return f"{advice[:1].upper()}{advice[1:]}."


def _of_character(text: str, position: int) -> str:
    """What to write instead of a character with which no token starts."""
    character, before = text[position], text[:position]
    match character:
        case "!" if text[position + 1 : position + 2] != "=":
            return "write NOT"
        case "!":
            return "write IS NOT NULL" if _NULL_AFTER.match(text, position + 1) else "write <> for not equal"
        case '"':
            quoted = _DOUBLE_QUOTED.match(text, position)
            if quoted and before.rstrip().endswith(("=", ">", "(", ",")):
                return f"write strings in single quotes, {string_literal(quoted[1])}"
            return "write strings in single quotes and property names without quotes"
        case "*":
            is_select = _SELECT_BEFORE.fullmatch(before)
            return "write only the condition after WHERE" if is_select else "there is no arithmetic"
        case "#" if text[position + 1 : position + 2] == "{":
            return _CHARACTERS["{"]
    if character in _QUOTES:
        return "strings stand in single quotes, '"
    ascii_form = unicodedata.normalize("NFKC", character)
    if not character.isascii() and ascii_form.isspace():
        return "only ASCII white space separates words; write a plain blank"
    if not character.isascii() and ascii_form.isascii() and ascii_form.isprintable():
        return f"it only looks like {ascii_form}; write the ASCII character"
    value = _VALUE_BEFORE.search(before)
    if value and (character.isalpha() or (character in _IN_TEXTS and value[1])):
        return _if_text(text, value.start(1), position + 1)
    if character == ".":
        name = _NAME_BEFORE.search(before)
        dotted = _DOTTED.match(text, name.start()) if name else None
        return _not_in_names("dots", dotted[0]) if dotted else "property names have no dots"
    if character.isascii():
        return _CHARACTERS.get(character, "")
    return "names are ASCII letters, digits, _ and $, and only ASCII white space separates them"


def _instead_of_operand(text: str, before: Sequence[Token], token: Token) -> str:
    """What is wrong with a token where an operand is expected."""
    if token.kind in (NAME, NUMBER):  # in a list of strings
        return _in_quotes(text, token)
    is_in_name = token.kind == "-" and before and _touch(before[-1], token)
    hyphenated = _HYPHENATED.match(text, before[-1].start if is_in_name else token.start)
    if hyphenated:
        return _not_in_names("hyphens", hyphenated[0])
    if before and (instead := _ONE_OPERATOR.get((before[-1].kind, token.kind))):
        return instead
    if token.kind in _NO_NAMES:
        return f"{token.text} is a reserved word. {_cannot_be_named(token.text)}"
    return ""


def _after_operand(text: str, before: Sequence[Token], token: Token, after: Token) -> str:
    """What is wrong with a token behind an operand, which may be the end of a comparison."""
    operand = before[-1]
    touches = _touch(operand, token)
    pattern = after if token.kind == "NOT" else token
    if pattern.kind == NAME and pattern.text.upper() in _PATTERNS:
        return f"{pattern.text.upper()} does not exist; {SEARCHES_INSTEAD}"
    if pattern.kind == NAME and pattern.text.upper() in TEXT_SEARCHES:
        return f"{pattern.text.upper()} is an operator from RocketMQ {TEXT_SEARCHES_SINCE} on only, and a name before"
    if token.kind == "(" and operand.kind == NAME:
        return f"there are no functions; {operand.text} is a property here"
    if touches and operand.kind == STRING and token.kind == NAME:
        return "a quote inside a string is written twice, as in 'it''s'"
    if token.kind == "-" and after.kind == "-" and _touch(token, after):
        return "a comment that begins with -- must end with a line break"
    if len(before) >= 3 and before[-2].kind in ("=", "<>") and operand.kind in (NAME, NUMBER):
        is_in_text = touches and token.kind in (NAME, NUMBER, "-")
        if is_in_text or operand.kind == token.kind == NAME:
            return _if_text(text, operand.start, token.start + len(token.text))
    if token.kind == "-" and touches and (hyphenated := _HYPHENATED.match(text, operand.start)):
        no_arithmetic = "there is no arithmetic, and " if after.kind == NUMBER else ""
        return no_arithmetic + _not_in_names("hyphens", hyphenated[0])
    if token.kind in ("+", "-"):
        return "there is no arithmetic"
    if touches and operand.kind == NAME and token.kind == NUMBER:
        return _not_in_names("dots", operand.text + token.text)
    if touches and operand.kind == NUMBER and token.kind in (NAME, NUMBER):
        is_name = len(before) == 1 or before[-2].kind in ("(", "AND", "OR", "NOT")
        return "a property name begins with a letter, _ or $" if is_name else "a number has decimal digits only"
    if operand.kind == NAME and operand.text.upper() in ("SELECT", "WHERE"):
        return f"write only the condition, without {operand.text}"
    if token.kind == ")":
        return "no parenthesis is open here"
    if token.kind == ",":
        return _comma(before, operand, after)
    if token.kind == NAME and operand.kind == NAME and (len(before) == 1 or before[-2].kind in ("(", "AND", "OR")):
        return f"there is no operator {token.text}"
    return "join comparisons with AND or OR" if token.kind in (NAME, NUMBER, STRING, "(") else ""


def _comma(before: Sequence[Token], operand: Token, after: Token) -> str:
    if operand.kind == after.kind == NUMBER and after.start == operand.start + len(operand.text) + 1:
        return "a number has no separators"
    opening = next((number for number in reversed(range(len(before))) if before[number].kind == "("), 0)
    match before[opening - 1].kind if opening else "":
        case "BETWEEN":
            return "write BETWEEN … AND …"
        case "=" | "<>":
            return "a list follows IN only"
    return "join comparisons with AND or OR"


def _touch(left: Token, right: Token) -> bool:
    return left.start + len(left.text) == right.start


def _not_in_names(what: str, name: str) -> str:
    return f"property names have no {what}. {_cannot_be_named(name)}"


def _cannot_be_named(name: str) -> str:
    return f"SQL92 cannot name a property {name} at all; let producers send another one"


def _if_text(text: str, start: int, end: int) -> str:
    """The advice to write the characters from ``start`` on in quotes, at least up to ``end``."""
    rest = _UNQUOTED.match(text, end)
    value = text[start : rest.end() if rest and not text[end].isspace() else end]
    return f"if {value} is a text, write {string_literal(value)}"


def _in_quotes(text: str, token: Token) -> str:
    """What to write for a token where only a string can be."""
    value = _UNQUOTED.match(text, token.start)
    return f"write {string_literal(value[0])}" if value and token.kind in (NAME, NUMBER) else ""
