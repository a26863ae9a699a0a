"""The parser of RocketMQ's SQL92: it turns tokens into a syntax tree, without recursion.

From loosely to tightly: OR, AND, then = <> IS, then > >= < <= BETWEEN IN CONTAINS STARTSWITH
ENDSWITH, then unary + - NOT; all of them left-associative. (To brokers before 5.1.3, CONTAINS, STARTSWITH
and ENDSWITH are names.) The parser stops after the first
complete expression: it looks at one more token and ignores the rest.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import NamedTuple, NoReturn, TypeGuard

from filtering.java import compare_doubles, has_half_a_pair
from filtering.predicate import Comparison, NumberType
from filtering.rocketmq_version import NEWEST, TEXT_SEARCHES_SINCE, RocketMQVersion
from filtering.sql92 import nodes, tokens
from filtering.sql92.nodes import (
    BooleanLiteral,
    BooleanNode,
    Node,
    NullLiteral,
    Number,
    NumberLiteral,
    Property,
    inside,
)
from filtering.sql92.tokens import (
    END,
    NAME,
    NUMBER,
    STRING,
    TEXT_SEARCHES,
    UNKNOWN,
    Token,
    string_literal,
    string_value,
    tokenize,
)

# The error of a text that the broker's parser refuses.


_SHOWN_BEFORE = 60
_SHOWN_AFTER = 20


class InvalidExpression(ValueError):
    """The broker refuses the expression. ``problem`` says why, ``position`` is the offset in characters."""

    def __init__(self, problem: str, expression: str, position: int) -> None:
        super().__init__(f"{problem}\n{pointed_at(expression, position)}")
        self.problem = problem
        self.expression = expression
        self.position = position

    def __reduce__(self) -> tuple[type[InvalidExpression], tuple[str, str, int]]:
        return type(self), (self.problem, self.expression, self.position)


def pointed_at(expression: str, position: int) -> str:
    """The part of the expression around ``position`` on one line, and a caret below that position."""
    first = max(0, position - _SHOWN_BEFORE)
    shown = expression[first : position + _SHOWN_AFTER]
    line = "".join(character if character.isprintable() else " " for character in shown)
    return f"  {line}\n  {' ' * (position - first)}^"


def on_one_line(compile_error: str) -> str:
    """The text of an error on one line: the expression from the caret on stands for the caret."""
    problem, *shown = compile_error.split("\n")
    if len(shown) != 2:
        return " ".join(compile_error.split())
    expression, caret = shown
    rest = expression[len(caret) - 1 :]
    more = "…" if len(rest) == _SHOWN_AFTER else ""
    return f"{problem} Place: {rest.strip()}{more}" if rest.strip() else problem


# What is probably wrong at the place where the broker's parser refuses a text or ignores the rest, and what to write.
#
# People write what other languages have: LIKE, functions, arithmetic, !=, hyphens and dots in names, text without
# quotes. The parser meets the first token that it has no use for; the cause is mostly in the tokens around it.


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
_COMPARISON_SIGNS = frozenset({"=", "<>", "<", "<=", ">", ">="})
_BEFORE_OPERANDS = frozenset({*_COMPARISON_SIGNS, "(", ",", "AND", "OR", "NOT", "BETWEEN", "IN", "+", "-"})
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
    advice = _for_version(_advice_on_character(text, position), version)
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
        return _advice_on_character(text, position)
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


def _advice_on_character(text: str, position: int) -> str:
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


# Checks for expressions that follow the grammar but that RocketMQ refuses.


_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*|[0-9]+\.[0-9]+)")
_NAME = re.compile(r"[A-Za-z_$][\w$]*", re.ASCII)
_WITHOUT_QUOTES = "Write {} without quotes"


def number(token: Token, text: str) -> Number:
    """The value of a number literal that the broker accepts."""
    try:
        value = nodes.number(token.text)
    except ValueError:
        _refuse("An integer must be at most 9223372036854775807", text, token.start)
    if value.type is NumberType.DOUBLE:
        if value.value == 0:
            _refuse("A decimal number must not be zero: write 0", text, token.start)
        if math.isinf(value.value):
            _refuse("The number is greater than a double can be", text, token.start)
    return value


def boolean(
    node: Node,
    text: str,
    operator: Token | None = None,
    end: int | None = None,
    version: RocketMQVersion = NEWEST,
) -> None:
    """AND, OR, NOT and the expression as a whole take a boolean or a property. ``end``: where the expression ends."""
    value = inside(node)
    if isinstance(value, (BooleanNode, nodes.Property)):
        return
    subject = f"{operator.kind} takes" if operator else "An expression must be"
    advice = ""
    if end is not None:
        advice = advice_at(text, end, version)
    elif isinstance(value, nodes.Minus):
        advice = advice_at(text, value.position)
    elif operator is not None and operator.kind in ("AND", "OR"):
        advice = f"write a whole comparison on both sides of {operator.kind}"
    _refuse(
        f"{subject} a comparison, a boolean or a property, not a number, a string or a minus"
        + (f". {sentence(advice)[:-1]}" if advice else ""),
        text,
        node.position,
    )


def property_name(node: Node, text: str, operator: Token) -> str:
    """The name of the property that IN tests."""
    node = inside(node)
    if not isinstance(node, nodes.Property):
        quoted = f". {_WITHOUT_QUOTES.format(node.value)}" if is_quoted_name(node) else ""
        _refuse(f"IN tests a property, nothing else{quoted}", text, operator.start)
    return node.name


def equality(left: Node, right: Node, text: str, operator: Token) -> None:
    """No side may be NULL, and TRUE or FALSE on the left may not be compared with a literal."""
    left, right = inside(left), inside(right)
    if isinstance(left, nodes.NullLiteral) or isinstance(right, nodes.NullLiteral):
        _refuse("Nothing can be compared to NULL: write IS NULL or IS NOT NULL", text, operator.start)
    if isinstance(left, nodes.BooleanLiteral) and isinstance(right, (nodes.TextLiteral, NumberLiteral)):
        _refuse("TRUE and FALSE can't be compared to a literal on their right", text, operator.start)


def between(low: Node, high: Node, text: str, operator: Token) -> None:
    """Two number literals without a minus must be in order."""
    low, high = inside(low), inside(high)
    if isinstance(low, NumberLiteral) and isinstance(high, NumberLiteral) and compare(low.value, high.value) > 0:
        _refuse("The lower bound of BETWEEN is above its upper bound", text, operator.start)


def is_quoted_name(node: Node) -> TypeGuard[nodes.TextLiteral]:
    """Whether a text may be meant as the name of a property."""
    return isinstance(node, nodes.TextLiteral) and _NAME.fullmatch(node.value) is not None


def ordered(node: Node, text: str, operator: Token, others: Iterable[Node]) -> None:
    """Only numbers, properties and negated ones have an order. ``others``: what the node is compared with."""
    value = inside(node)
    if isinstance(value, (BooleanNode, nodes.TextLiteral)):
        text_value = value.value if isinstance(value, nodes.TextLiteral) else ""
        is_name = is_quoted_name(value) and not any(isinstance(inside(other), nodes.Property) for other in others)
        advice = f". {_WITHOUT_QUOTES.format(text_value)}" if is_name or _NUMBER.fullmatch(text_value) else ""
        problem = f"{operator.kind} compares properties and numbers, not strings, booleans or NULL{advice}"
        _refuse(problem, text, operator.start)


def compare(left: Number, right: Number) -> int:
    """ComparisonExpression.__compare of two numbers: -1, 0 or 1."""
    if NumberType.DOUBLE in (left.type, right.type):
        return compare_doubles(float(left.value), float(right.value))
    return (left.value > right.value) - (left.value < right.value)


def _refuse(problem: str, text: str, position: int) -> NoReturn:
    raise InvalidExpression(problem + ".", text, position)


# Nodes of binary operators, with the broker's checks of their operands.


ORDERINGS = {
    "<": Comparison.LESS,
    "<=": Comparison.LESS_OR_EQUAL,
    ">": Comparison.GREATER,
    ">=": Comparison.GREATER_OR_EQUAL,
}


def binary_node(left: Node, token: Token, right: Node, text: str) -> Node:
    """The node of the operator ``token`` in ``text``. Raises InvalidExpression if the broker refuses its operands."""
    kind, _, start = token
    if kind in ORDERINGS:
        ordered(left, text, token, [right])
        ordered(right, text, token, [left])
        return nodes.Ordering(start, left, right, ORDERINGS[kind])
    if kind in ("AND", "OR"):
        boolean(left, text, token)
        boolean(right, text, token)
        return (nodes.And if kind == "AND" else nodes.Or)(start, left, right)
    equality(left, right, text, token)
    return (nodes.Equal if kind == "=" else nodes.NotEqual)(start, left, right)


_PARENTHESIS, _OR, _AND, _EQUALITY, _COMPARISON, _UNARY = range(6)
_BINARY = {"OR": _OR, "AND": _AND, "=": _EQUALITY, "<>": _EQUALITY, **dict.fromkeys(ORDERINGS, _COMPARISON)}
_SEARCHES = {search.value: search for search in nodes.Search}
_COMPARISONS = frozenset([*ORDERINGS, *_SEARCHES, "NOT", "BETWEEN", "IN"])
_ATOMS = (
    nodes.Parentheses, nodes.Property, nodes.TextLiteral, nodes.NumberLiteral, nodes.BooleanLiteral, nodes.NullLiteral,
)  # fmt: skip
_PREFIXES = frozenset(["NOT", "-", "+", "("])
LONGEST = 262_144
"""The greatest length of an expression in characters. A broker has no such limit."""


class SyntaxTree(NamedTuple):
    """``ignored``: the offset of the input after the first complete expression, which the broker ignores, or None."""

    root: Node
    ignored: int | None


class _Operator(NamedTuple):
    """An operator or an opening parenthesis whose operands are not complete yet."""

    precedence: int
    token: Token
    low: Node | None = None
    """The lower bound of a BETWEEN whose upper bound is not parsed yet."""
    negated: bool = False


def parse(text: str, version: RocketMQVersion = NEWEST) -> SyntaxTree:
    """Parses an expression as a broker of a version does.

    Raises InvalidExpression if the broker refuses it, if it is longer than LONGEST, or if it is not encodable as UTF-8.
    """
    if len(text) > LONGEST:
        raise InvalidExpression(f"An expression must be at most {LONGEST:,} characters long.", text, LONGEST)
    if has_half_a_pair(text):
        raise InvalidExpression("An expression must not contain half of a surrogate pair.", text, 0)
    return _Parser(text, version).parse()


class _Parser:
    """A precedence parser with two stacks: operands that are parsed, and operators that wait for one more."""

    def __init__(self, text: str, version: RocketMQVersion) -> None:
        self._text = text
        self._version = version
        self._tokens = tokenize(text, version)
        self._next = 0
        self._operands: list[Node] = []
        self._operators: list[_Operator] = []
        self._wants_operand = True
        self._wants_comparison = True

    def parse(self) -> SyntaxTree:
        while self._wants_operand:
            self._read_operand()
            while self._take_operator():
                pass
        token = self._tokens[self._next]
        self._reduce(_OR)
        if self._operators and token.kind == END:
            raise self._error("The parenthesis here is never closed", self._operators[-1].token)
        if self._operators:
            raise self._error("An operator or ) is expected here", token)
        root = self._operands.pop()
        boolean(root, self._text, end=token.start, version=self._version)
        return SyntaxTree(root, None if token.kind == END else token.start)

    def _read_operand(self) -> None:
        """Prefixes, opening parentheses, and one literal or property."""
        token = self._take()
        while token.kind in _PREFIXES:
            if token.kind == "(":
                self._operators.append(_Operator(_PARENTHESIS, token))
            elif token.kind != "+":
                self._operators.append(_Operator(_UNARY, token))
            token = self._take()
        self._operands.append(self._atom(token))
        self._finish_operand()

    def _atom(self, token: Token) -> Node:
        kind, text, start = token
        match kind:
            case tokens.NAME:
                return nodes.Property(start, text)
            case tokens.STRING:
                return nodes.TextLiteral(start, string_value(text))
            case tokens.NUMBER:
                return nodes.NumberLiteral(start, text, number(token, self._text))
            case "TRUE" | "FALSE":
                return nodes.BooleanLiteral(start, kind == "TRUE")
            case "NULL":
                return nodes.NullLiteral(start)
        advice = ": write = once" if kind == "=" and self._text[start - 1 : start] == "=" else ""
        raise self._error(f"A property, a literal or a parenthesis is expected here{advice}", token)

    def _finish_operand(self) -> None:
        """Applies NOT and minus to the operand after them, then builds the comparison that the operand completes."""
        self._wants_operand = False
        self._wants_comparison = True
        operators, operands = self._operators, self._operands
        while operators and operators[-1].precedence == _UNARY:
            token = operators.pop().token
            if token.kind == "NOT":
                boolean(operands[-1], self._text, token)
                operands.append(nodes.Not(token.start, operands.pop()))
            else:
                operands.append(nodes.Minus(token.start, operands.pop()))
        if not operators or operators[-1].precedence != _COMPARISON:
            return
        if operators[-1].token.kind != "BETWEEN":
            self._reduce(_COMPARISON)
        elif operators[-1].low is None:
            self._take("AND", "The lower bound of BETWEEN must be followed by AND")
            operators.append(operators.pop()._replace(low=operands.pop()))
            self._wants_operand = True
        else:
            self._reduce_between()

    def _take_operator(self) -> bool:
        """Takes the next operator. False if the next token starts no operator, or if an operand must come first."""
        if self._wants_operand:
            return False
        token = self._tokens[self._next]
        kind = token.kind
        if not self._wants_comparison and kind in _COMPARISONS:
            return False
        if kind in _BINARY:
            precedence = _BINARY[kind]
            self._next += 1
            self._reduce(precedence)
            self._operators.append(_Operator(precedence, token))
            self._wants_operand = True
            return False
        if kind == ")":
            return self._close()
        if kind == "IS":
            self._next += 1
            self._is_null(token)
            return True
        negated = kind == "NOT"
        if negated:
            self._next += 1
            kind = self._tokens[self._next].kind
        if kind == "BETWEEN":
            self._operators.append(_Operator(_COMPARISON, self._take(), negated=negated))
            self._wants_operand = True
            return False
        if kind == "IN":
            self._in_list(self._take(), negated)
            return True
        if kind in _SEARCHES:
            self._search(self._take(), negated)
            return True
        if negated:
            or_search = ", IN or a text search" if self._version.has_text_searches else " or IN"
            raise self._error(f"NOT after an operand must be followed by BETWEEN{or_search}", token)
        if kind == UNKNOWN:
            raise self._error("", token)
        return False

    def _close(self) -> bool:
        """Close a parenthesis; one that was never opened ends the expression."""
        self._reduce(_OR)
        if not self._operators:
            return False
        self._next += 1
        opening = self._operators.pop().token
        node = self._operands[-1]
        if not isinstance(node, _ATOMS):
            self._operands[-1] = nodes.Parentheses(opening.start, node)
        self._finish_operand()
        return True

    def _is_null(self, token: Token) -> None:
        negated = self._tokens[self._next].kind == "NOT"
        self._next += negated
        self._take("NULL", "IS must be followed by NULL or NOT NULL")
        self._reduce(_EQUALITY)
        self._wants_comparison = False
        self._push(nodes.IsNull(token.start, self._operands.pop()), negated)

    def _in_list(self, token: Token, negated: bool) -> None:
        self._take("(", "IN must be followed by a list of strings in parentheses")
        texts = [self._string("IN takes string literals only")]
        while self._tokens[self._next].kind == ",":
            self._next += 1
            texts.append(self._string("A string literal is expected after the comma"))
        self._take(")", "The list of IN must go on with a comma or end with a parenthesis")
        name = property_name(self._operands.pop(), self._text, token)
        self._push(nodes.In(token.start, name, tuple(texts)), negated)

    def _search(self, token: Token, negated: bool) -> None:
        text = self._string(f"{token.kind} takes one string literal")
        self._push(nodes.TextSearch(token.start, _SEARCHES[token.kind], self._operands.pop(), text, negated))

    def _reduce(self, precedence: int) -> None:
        """Builds the pending binary operations that bind at least as tightly as ``precedence``."""
        operators, operands = self._operators, self._operands
        while operators and operators[-1].precedence >= precedence:
            token = operators.pop().token
            right = operands.pop()
            operands.append(binary_node(operands.pop(), token, right, self._text))

    def _reduce_between(self) -> None:
        _, token, low, negated = self._operators.pop()
        high, value = self._operands.pop(), self._operands.pop()
        assert low is not None
        for node in (value, low, high):
            ordered(node, self._text, token, (value, low, high))
        if not negated:
            between(low, high, self._text, token)
        self._push(nodes.Between(token.start, value, low, high), negated)

    def _push(self, node: Node, negated: bool = False) -> None:
        self._operands.append(nodes.Not(node.position, node) if negated else node)

    def _string(self, problem: str) -> str:
        return string_value(self._take(STRING, problem).text)

    def _take(self, kind: str | None = None, problem: str = "") -> Token:
        token = self._tokens[self._next]
        if kind is not None and token.kind != kind:
            raise self._error(problem, token, has_advice=kind in (STRING, "NULL"))
        if token.kind != END:
            self._next += 1
        return token

    def _error(self, problem: str, token: Token, has_advice: bool = True) -> InvalidExpression:
        if token.kind == UNKNOWN:
            problem = unknown(self._text, token.start, self._version)
        elif token.kind == END:
            problem += ", but the expression ends"
        elif has_advice and (advice := advice_at(self._text, token.start, self._version)):
            problem += f". {sentence(advice)[:-1]}"
        return InvalidExpression(problem + ".", self._text, token.start)


# Tells SQL92 expressions from lists of tags, where nothing else says what a text is.


_NAMES = (Property, BooleanLiteral, NullLiteral)
"""What tags look like as SQL92."""


def looks_like_sql92(text: str) -> bool:
    """Whether a text is SQL92 that the broker accepts, and more than one name or constant."""
    try:
        return not isinstance(inside(parse(text).root), _NAMES)
    except InvalidExpression:
        return False
