"""Writes predicates as SQL for an engine: leaves as small trees of sqlglot, texts by sqlglot's own generators.

The text is true or false, never NULL. No setting of a session changes its meaning.

Engines differ in what they read as a number. Spark reads what Java does, but for some texts, which guards exclude.
Trino is Java, too. The other engines get texts that they read as Java does, and a plain CAST for those that Java reads
and they may not: digits beyond ASCII, hexadecimal doubles, and in PostgreSQL doubles out of range. What the engine does
not read, it refuses with its own error, since any answer might be wrong.

Inside the text, NULL means false, too: conjunctions and disjunctions preserve that, and negation occurs at leaves
only. Nodes are written from the leaves up, with the texts of their operands as operands, so that no predicate is too
deep. A node that a predicate uses twice appears twice in the text. If the text gets too long, Spark binds such nodes to
variables: ``EXISTS(ARRAY(STRUCT(… AS v0, …)), s0 -> …)`` is its way to write ``let``.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

from sqlglot import exp
from sqlglot.errors import UnsupportedError
from sqlglot.expressions import DType
from sqlglot.generator import Generator

from filtering.counted import check_type
from filtering.predicate import (
    And,
    Comparison,
    Constant,
    DoublesCompare,
    IsNumber,
    IsPresent,
    IsTrueText,
    Not,
    NumberIs,
    NumberType,
    Or,
    Predicate,
    TextContains,
    TextEndsWith,
    TextIn,
    TextsEqual,
    TextStartsWith,
    postorder,
    without_not,
)

Properties: TypeAlias = str | Mapping[str, str] | Callable[[str], str]
"""Where properties are: the SQL text of a map (PostgreSQL: of JSON); a mapping of names to the SQL texts of text
columns, in which other properties are missing; or a function from a name to such a text."""

_REPETITION = 4
"""A text gets variables if it is more than so many times as long as its distinct nodes, and _SHORT longer."""
_BRACKETS = 10
"""The approximate length of an operator's brackets, and of a variable's name."""
_SHORT = 2000
"""A repeated operation of up to this length gets no variable."""
_LONGEST = 1_000_000
"""Engines without variables get no text of more characters than about so many."""

_TYPES = {NumberType.INT: DType.INT, NumberType.LONG: DType.BIGINT, NumberType.DOUBLE: DType.DOUBLE}
COMPARISONS: Mapping[Comparison, type[exp.Binary]] = {
    Comparison.EQUAL: exp.EQ,
    Comparison.LESS: exp.LT,
    Comparison.LESS_OR_EQUAL: exp.LTE,
    Comparison.GREATER: exp.GT,
    Comparison.GREATER_OR_EQUAL: exp.GTE,
}
_BELOW = {Comparison.LESS, Comparison.LESS_OR_EQUAL}
_ABOVE = {Comparison.GREATER, Comparison.GREATER_OR_EQUAL}
_CONTROL = re.compile(r"[\\\x00-\x1f\x7f]")
_JAVA_DOUBLE = (
    r"^[\x00- ]*([+-]?(NaN\b|Infinity\b|([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|0[xX].+[pP].+))"
    r"[dDfF]?[\x00- ]*$"
)
"""The first group is what Double.valueOf reads; of hexadecimal numbers, which engines refuse anyway, also others."""


class Engine:
    """How an engine says what differs between engines. This class is DuckDB."""

    has_variables = False
    special = _CONTROL
    """The characters that stand in literals as code points."""

    def element(self, properties: exp.Expr, name: str) -> exp.Expr:
        """The property in a map, NULL if it is missing."""
        return exp.Bracket(this=properties, expressions=[exp.Literal.string(name)])

    def text(self, text: str, leaf: Predicate) -> exp.Expr:
        """A literal of the leaf. Raises UnsupportedError if the engine has none for the text."""
        parts: list[exp.Expr] = []
        for part in re.split(f"({self.special.pattern})", text):
            if self.special.fullmatch(part):
                parts.append(exp.Chr(expressions=[exp.Literal.number(ord(part))]))
            elif part:
                parts.append(exp.Literal.string(part))
        if len(parts) < 2:
            return parts[0] if parts else exp.Literal.string("")
        return exp.Concat(expressions=parts, safe=False, coalesce=False)

    def number_literal(self, type_: NumberType, value: int | float) -> exp.Expr:
        """A literal of the type."""
        image = repr(value)
        return _number_image(f"{image}e0" if type_ is NumberType.DOUBLE and "e" not in image else image)

    def number(self, type_: NumberType, text: exp.Expr) -> exp.Expr:
        """The text as a number, NULL if it is none. Where there are guards, the value counts only if they are true."""
        if type_ is NumberType.DOUBLE:
            return _cast(exp.Nullif(this=self._java_double(text), expression=exp.Literal.string("")), DType.DOUBLE)
        digits, all_digits = _matches(text, "^[+-]?[0-9]+$"), _matches(text, r"^[+-]?\p{Nd}+$")
        casts = [(digits, _try_cast(text, _TYPES[type_])), (all_digits, _cast(text, _TYPES[type_]))]
        return exp.Case(ifs=[exp.If(this=condition, true=cast) for condition, cast in casts])

    def _java_double(self, text: exp.Expr) -> exp.Expr:
        """What is a double to Java, without blanks and suffix; otherwise empty or NULL."""
        return exp.RegexpExtract(this=text, expression=exp.Literal.string(_JAVA_DOUBLE), group=exp.Literal.number(1))

    def guards(
        self, type_: NumberType, text: exp.Expr, value: exp.Expr, comparisons: Collection[Comparison] = ()
    ) -> list[exp.Expr]:
        """Conditions that Java parses the number, too, beside these comparisons of the number with literals."""
        return []

    def compare(self, type_: NumberType, left: exp.Expr, comparison: Comparison, right: exp.Expr) -> exp.Expr:
        """The comparison of a number with another one of the type, which may be a literal, as Java compares them.

        So NaN is the greatest and equals itself. But zeros may be equal whatever their signs are.
        """
        return COMPARISONS[comparison](this=left, expression=right)

    def contains(self, text: exp.Expr, part: exp.Expr) -> exp.Expr:
        return exp.Contains(this=text, expression=part)

    def ends_with(self, text: exp.Expr, leaf: TextEndsWith) -> exp.Expr:
        return exp.EndsWith(this=text, expression=self.text(leaf.text, leaf))


class Spark(Engine):
    """Its TRY_CAST is Java's, but takes blanks and points in integers, and infinities and NaN in other spellings.

    It does not take digits beyond ASCII; FROM_CSV does.
    """

    has_variables = True
    # A literal has no character whose meaning depends on a setting of the parser.
    special = re.compile(r"['\\$\x00-\x1f\x7f]")
    _suffixes: Mapping[NumberType, str] = {NumberType.INT: "", NumberType.LONG: "L", NumberType.DOUBLE: "D"}
    # Digits of all scripts are between U+0660 and U+ABF9, or wide ones, and Java's integers take them all. The byte
    # order mark must not be among these characters: Spark's CSV parser skips it at the beginning of its input.
    _integer_characters = "^[0-9+٠-꯹０-９-]+$"
    _other_than_integer = "[^0-9+٠-꯹０-９-]"
    # Spark also takes inf, infinity and nan in any case; no other number has an n.
    _java_spelling = "^[^nN]*$|Infinity|NaN"

    def number_literal(self, type_: NumberType, value: int | float) -> exp.Expr:
        return _number_image(f"{value!r}{self._suffixes[type_]}")

    def number(self, type_: NumberType, text: exp.Expr) -> exp.Expr:
        cast = _try_cast(text, _TYPES[type_])
        if type_ is NumberType.DOUBLE:
            return cast
        characters = _call("REGEXP_SUBSTR", text, exp.Literal.string(self._integer_characters))
        csv = _call("FROM_CSV", characters, exp.Literal.string(f"v {_TYPES[type_].value}"))
        return exp.Coalesce(this=cast, expressions=[exp.Dot(this=csv, expression=exp.to_identifier("v"))])

    def guards(
        self, type_: NumberType, text: exp.Expr, value: exp.Expr, comparisons: Collection[Comparison] = ()
    ) -> list[exp.Expr]:
        """A finite double needs no guard: Spark differs from Java only in the spelling of infinities and NaN."""
        if type_ is not NumberType.DOUBLE:
            return [exp.Not(this=_matches(text, self._other_than_integer))]
        java_spelling = _matches(text, self._java_spelling)
        if not comparisons:
            return [java_spelling]
        if _BELOW.issuperset(comparisons):
            is_finite: exp.Expr = exp.GT(this=value, expression=_call("DOUBLE", exp.Literal.string("-Infinity")))
        elif _ABOVE.issuperset(comparisons):
            is_finite = exp.LT(this=value, expression=_call("DOUBLE", exp.Literal.string("Infinity")))
        else:
            return []
        return [_any([is_finite, java_spelling])]


class DataFusion(Engine):
    """It puts a NaN with a minus below all numbers."""

    def number_literal(self, type_: NumberType, value: int | float) -> exp.Expr:
        return _number_image(repr(value))

    def number(self, type_: NumberType, text: exp.Expr) -> exp.Expr:
        if type_ is NumberType.DOUBLE:
            without_minus = _call("REPLACE", text, exp.Literal.string("-NaN"), exp.Literal.string("NaN"))
            return _cast(self._java_double(without_minus), DType.DOUBLE)
        return super().number(type_, text)

    def _java_double(self, text: exp.Expr) -> exp.Expr:
        match = _call("REGEXP_MATCH", text, exp.Literal.string(_JAVA_DOUBLE))
        return exp.Bracket(this=match, expressions=[exp.Literal.number(1)])


class _WithoutTextSearches(Engine):
    """Trino and PostgreSQL have no functions for CONTAINS and ENDSWITH."""

    def contains(self, text: exp.Expr, part: exp.Expr) -> exp.Expr:
        return exp.GT(this=exp.StrPosition(this=text, substr=part), expression=exp.Literal.number(0))

    def ends_with(self, text: exp.Expr, leaf: TextEndsWith) -> exp.Expr:
        return exp.StartsWith(this=exp.Reverse(this=text), expression=self.text(leaf.text[::-1], leaf))


class Trino(_WithoutTextSearches):
    """Its TRY_CAST is Java's, but takes blanks around integers. NaN is neither below nor above other numbers."""

    def element(self, properties: exp.Expr, name: str) -> exp.Expr:
        return exp.Bracket(this=properties, expressions=[exp.Literal.string(name)], safe=True)

    def number(self, type_: NumberType, text: exp.Expr) -> exp.Expr:
        cast = _try_cast(text, _TYPES[type_])
        if type_ is NumberType.DOUBLE:
            return cast
        return exp.Case(ifs=[exp.If(this=_matches(text, r"^[+-]?\p{Nd}+\z"), true=cast)])

    def compare(self, type_: NumberType, left: exp.Expr, comparison: Comparison, right: exp.Expr) -> exp.Expr:
        compared = super().compare(type_, left, comparison, right)
        is_literal = isinstance(right, exp.Literal)
        if type_ is not NumberType.DOUBLE or comparison is Comparison.EQUAL or (is_literal and comparison in _BELOW):
            return compared
        greater, less = (left, right) if comparison in _ABOVE else (right, left)
        is_nan: exp.Expr = exp.IsNan(this=greater)
        if not is_literal and comparison in (Comparison.LESS, Comparison.GREATER):
            is_nan = _all([is_nan, exp.Not(this=exp.IsNan(this=less))])
        return _any([compared, is_nan])


class Postgres(_WithoutTextSearches):
    """It has no TRY_CAST, but decimals of any length."""

    _digits = "".join(
        f"{chr(zero)}-{chr(zero + 9)}" for zero in range(0x10000) if unicodedata.decimal(chr(zero), None) == 0
    )

    def element(self, properties: exp.Expr, name: str) -> exp.Expr:
        path = exp.JSONPath(expressions=[exp.JSONPathRoot(), exp.JSONPathKey(this=name)])
        return exp.JSONExtractScalar(this=properties, expression=path, only_json_types=True)

    def text(self, text: str, leaf: Predicate) -> exp.Expr:
        if "\x00" in text:
            raise UnsupportedError(f"postgres cannot write {type(leaf).__name__}: its texts have no character U+0000.")
        return super().text(text, leaf)

    def number_literal(self, type_: NumberType, value: int | float) -> exp.Expr:
        return _number_image(repr(value))

    def number(self, type_: NumberType, text: exp.Expr) -> exp.Expr:
        if type_ is NumberType.DOUBLE:
            return _cast(self._java_double(text), DType.DOUBLE)
        greatest = 2 ** (31 if type_ is NumberType.INT else 63) - 1
        low, high = (_number_image(str(bound)) for bound in (-greatest - 1, greatest))
        in_bounds = exp.Between(this=_cast(text, DType.DECIMAL), low=low, high=high)
        bounded = exp.Case(ifs=[exp.If(this=in_bounds, true=_cast(text, _TYPES[type_]))])
        return exp.Case(ifs=[exp.If(this=_matches(text, f"^[+-]?[{self._digits}]+$"), true=bounded)])

    def _java_double(self, text: exp.Expr) -> exp.Expr:
        # To PostgreSQL, \b is a backspace and \y a boundary of words, and it has no character U+0000.
        pattern = _JAVA_DOUBLE.replace(r"\b", r"\y").replace(r"\x00", r"\u0001")
        return _call("SUBSTRING", text, exp.Literal.string(pattern))


ENGINES: Mapping[str, Engine] = {
    "spark": Spark(),
    "databricks": Spark(),
    "duckdb": Engine(),
    "datafusion": DataFusion(),
    "trino": Trino(),
    "postgres": Postgres(),
}
"""The engine of each dialect of sqlglot in which predicates can be written."""


class _Text(NamedTuple):
    """SQL text. It is NULL instead of false for some messages if it is ``nullable``."""

    sql: str
    nullable: bool = False
    kind: type[Predicate] | None = None
    """The outermost operator, And or Or: inside the other one, the text needs parentheses."""


class PredicateWriter:
    """Writes predicates by one generator of sqlglot. Raises UnsupportedError if the engine cannot say a predicate."""

    def __init__(self, generator: Generator, dialect: str, properties: Properties) -> None:
        self._sql: Callable[[exp.Expr], str] = generator.sql
        # Lines of a pretty text break where they are too long.
        self._depends_on_length = bool(generator.pretty)
        self._dialect = dialect
        self._engine = ENGINES[dialect]
        self._properties = properties
        if not isinstance(properties, str) and not callable(properties):
            check_type(properties, Mapping, "properties are the SQL text of a map, or a mapping of names to SQL texts")
        self._columns: dict[str, exp.Expr] = {}
        self._numbers: dict[tuple[str, NumberType], exp.Expr] = {}
        self._guards: dict[tuple[str, NumberType, frozenset[Comparison]], list[exp.Expr]] = {}
        self._shapes: dict[Hashable, _Text] = {}
        self._leaves: WeakKeyDictionary[Predicate, _Text] = WeakKeyDictionary()

    def write(self, predicate: Predicate) -> str:
        """The text of a predicate about properties."""
        return _Predicate(predicate, self).sql()

    def column(self, name: str) -> exp.Expr:
        """The text of a property, NULL if it is missing."""
        known = self._columns.get(name)
        if known is None:
            known = self._columns[name] = exp.Var(this=self._column(name))
        return known

    def _column(self, name: str) -> str:
        if isinstance(self._properties, str):
            return self._sql(self._engine.element(exp.Var(this=self._properties), name))
        if not isinstance(self._properties, Mapping):
            return self._properties(name)
        return self._properties.get(name) or self._sql(_cast(exp.Null(), DType.TEXT))

    def number(self, name: str, type_: NumberType) -> exp.Expr:
        known = self._numbers.get((name, type_))
        if known is None:
            number = self._engine.number(type_, self.column(name))
            known = self._numbers[name, type_] = exp.Var(this=self._sql(number))
        return known

    def guards(self, name: str, type_: NumberType, comparisons: Iterable[Comparison] = ()) -> list[exp.Expr]:
        """The guards of a property as a number, as terms of a conjunction."""
        key = name, type_, frozenset(comparisons)
        known = self._guards.get(key)
        if known is None:
            trees = self._engine.guards(type_, self.column(name), self.number(name, type_), key[2])
            known = self._guards[key] = [self._operand(self.text(tree), And) for tree in trees]
        return known

    def text(self, tree: exp.Expr, nullable: bool = False) -> _Text:
        """The text of a tree."""
        kind = And if isinstance(tree, exp.And) else Or if isinstance(tree, exp.Or) else None
        return _Text(self._sql(tree), nullable, kind)

    def shaped(
        self, shape: Hashable, tree: Callable[[Sequence[str]], exp.Expr], parts: Sequence[str], nullable: bool = False
    ) -> _Text:
        """The text of ``tree(parts)``. ``parts`` are texts in it.

        Trees of one ``shape`` differ in nothing else, so that the generator, which is slow, writes only one of them.
        """
        if self._depends_on_length:
            return self.text(tree(parts), nullable)
        key = shape, len(parts)
        known = self._shapes.get(key)
        if known is None:
            written = self.text(tree(parts), nullable)
            mark = next(mark for mark in map(chr, range(0xE000, 0xF900)) if mark not in written.sql)
            marked = self.text(tree([f"{mark}{number}{mark}" for number in range(len(parts))])).sql
            template = re.sub(f"{mark}([0-9]+){mark}", r"{\1}", marked.replace("{", "{{").replace("}", "}}"))
            known = self._shapes[key] = written._replace(sql=template)
        return _Text(known.sql.format(*parts), known.nullable, known.kind)

    def two_valued(self, text: _Text) -> _Text:
        """The text that is never NULL."""
        if not text.nullable:
            return text
        return self.shaped(
            "two-valued", lambda parts: exp.Coalesce(this=_var(parts[0]), expressions=[exp.false()]), [text.sql]
        )

    def joined(self, kind: type[And | Or], texts: list[_Text]) -> _Text:
        """The conjunction or disjunction of one or more texts."""
        if len(texts) == 1:
            return texts[0]

        def tree(parts: Sequence[str]) -> exp.Expr:
            operands = [self._operand(text._replace(sql=part), kind) for text, part in zip(texts, parts, strict=True)]
            return _all(operands) if kind is And else _any(operands)

        in_brackets = tuple(text.kind not in (None, kind) for text in texts)
        sql = self.shaped((kind, in_brackets), tree, [text.sql for text in texts]).sql
        return _Text(sql, any(text.nullable for text in texts), kind)

    def _operand(self, text: _Text, kind: type[And | Or]) -> exp.Expr:
        written = exp.Var(this=text.sql)
        return written if text.kind in (None, kind) else exp.Paren(this=written)

    def variables(self, stage: int, values: list[tuple[str, str]], body: str) -> str:
        """The text ``body``, in which variables ``s<stage>.<name>`` stand for the values."""
        aliases = [exp.Alias(this=exp.Var(this=sql), alias=exp.to_identifier(name)) for name, sql in values]
        structs = _call("ARRAY", _call("STRUCT", *aliases))
        return self._sql(
            _call("EXISTS", structs, exp.Lambda(this=exp.Var(this=body), expressions=[exp.to_identifier(f"s{stage}")]))
        )

    @property
    def has_variables(self) -> bool:
        """Whether :meth:`variables` can be written."""
        return self._engine.has_variables

    def check_length(self, length: int) -> None:
        """Raises UnsupportedError if a text without variables would be too long: ``length`` in characters."""
        if length > _LONGEST:
            raise UnsupportedError(
                f"{self._dialect} cannot say the predicate: it has no variables, and the text has {length:,} characters"
            )

    def leaf(self, node: Predicate) -> _Text:
        """The text of a leaf. It is kept as long as a predicate has the leaf."""
        known = self._leaves.get(node)
        if known is None:
            known = self._leaves[node] = self._leaf(node)
        return known

    def _leaf(self, node: Predicate) -> _Text:
        match node:
            case Constant():
                return self.text(exp.Boolean(this=node.value))
            case IsPresent():
                return self.shaped(node, lambda _: _is_null(self.column(node.name), negate=True), ())
            case TextIn():
                column, texts = self.column(node.name), self._texts(node)
                if len(texts) == 1:
                    return self.shaped(
                        (TextIn, node.name), lambda parts: exp.NullSafeEQ(this=column, expression=_var(parts[0])), texts
                    )
                return self.shaped(
                    (TextIn, node.name), lambda parts: exp.In(this=column, expressions=[*map(_var, parts)]), texts, True
                )
            case TextContains():
                part = self._engine.text(node.text, node)
                return self.text(self._engine.contains(self.column(node.name), part), True)
            case TextStartsWith():
                start = self._engine.text(node.text, node)
                return self.text(exp.StartsWith(this=self.column(node.name), expression=start), True)
            case TextEndsWith():
                return self.text(self._engine.ends_with(self.column(node.name), node), True)
            case IsTrueText():
                lower = exp.Lower(this=self.column(node.name))
                return self.text(exp.NullSafeEQ(this=lower, expression=exp.Literal.string("true")))
            case IsNumber():
                is_number = _is_null(self.number(node.name, node.type), negate=True)
                return self.shaped(node, lambda _: _all([is_number, *self.guards(node.name, node.type)]), ())
            case NumberIs():
                return self.in_range([node])
            case TextsEqual():
                return self.text(exp.EQ(this=self.column(node.left), expression=self.column(node.right)), True)
            case DoublesCompare():
                return self.text(self._doubles_compare(node), True)
            case _:
                raise TypeError(f"{type(node).__name__} is not a leaf about properties")

    def in_range(self, leaves: list[NumberIs]) -> _Text:
        """All comparisons of one property as one type; NULL or false if one of them is not true."""
        name, type_ = leaves[0].name, leaves[0].type
        value = self.number(name, type_)
        bounds = {leaf.comparison: leaf for leaf in leaves}

        def tree(parts: Sequence[str]) -> exp.Expr:
            literals = dict(zip(bounds, map(_number_image, parts), strict=True))
            low, high = literals.get(Comparison.GREATER_OR_EQUAL), literals.get(Comparison.LESS_OR_EQUAL)
            if low and high and len(literals) == 2:
                terms: list[exp.Expr] = [exp.Between(this=value, low=low, high=high)]
            else:
                terms = [self._engine.compare(type_, value, each, literal) for each, literal in literals.items()]
            return _all([*terms, *self.guards(name, type_, bounds)])

        return self.shaped((name, type_, *bounds), tree, self._literals(bounds.values()), True)

    def one_of(self, leaves: list[NumberIs]) -> _Text:
        """Any of several equalities of one property as one type; NULL or false if none of them is true."""
        name, type_ = leaves[0].name, leaves[0].type

        def tree(parts: Sequence[str]) -> exp.Expr:
            listed = exp.In(this=self.number(name, type_), expressions=[*map(_number_image, parts)])
            return _all([listed, *self.guards(name, type_, [Comparison.EQUAL])])

        return self.shaped((Or, name, type_), tree, self._literals(leaves), True)

    def none_of(self, leaves: list[NumberIs]) -> _Text:
        """The property is a number of the type and equals none of the values; otherwise NULL or false."""
        name, type_ = leaves[0].name, leaves[0].type
        value = self.number(name, type_)

        def tree(parts: Sequence[str]) -> exp.Expr:
            values = [*map(_number_image, parts)]
            others: exp.Expr = (
                exp.NEQ(this=value, expression=values[0])
                if len(values) == 1
                else exp.Not(this=exp.In(this=value, expressions=values))
            )
            return _all([others, *self.guards(name, type_)])

        return self.shaped((Not, name, type_), tree, self._literals(leaves), True)

    def negated(self, leaf: Predicate) -> _Text:
        """The negated leaf of a property that is present; NULL if the property is missing."""
        match leaf:
            case TextIn():
                column, texts = self.column(leaf.name), self._texts(leaf)

                def tree(parts: Sequence[str]) -> exp.Expr:
                    if len(parts) == 1:
                        return exp.NEQ(this=column, expression=_var(parts[0]))
                    return exp.Not(this=exp.In(this=column, expressions=[*map(_var, parts)]))

                return self.shaped((Not, TextIn, leaf.name), tree, texts, True)
            case IsTrueText():
                lower = exp.Lower(this=self.column(leaf.name))
                return self.text(exp.NEQ(this=lower, expression=exp.Literal.string("true")), True)
            case _:
                return self.text(exp.Not(this=exp.Var(this=self.leaf(leaf).sql)), True)

    def opposite(self, text: _Text) -> _Text:
        """The negation of a text."""
        return self.shaped(Not, lambda parts: exp.Not(this=exp.Paren(this=_var(parts[0]))), [self.two_valued(text).sql])

    def missing(self, leaf: IsPresent) -> _Text:
        return self.shaped((Not, leaf), lambda _: _is_null(self.column(leaf.name)), ())

    def _texts(self, leaf: TextIn) -> list[str]:
        return [self._sql(self._engine.text(text, leaf)) for text in sorted(leaf.texts)]

    def _literals(self, leaves: Iterable[NumberIs]) -> list[str]:
        return [self._sql(self._engine.number_literal(leaf.type, leaf.value)) for leaf in leaves]

    def _doubles_compare(self, node: DoublesCompare) -> exp.Expr:
        """To engines, -0.0 = 0.0; in Java, -0.0 < 0.0."""
        names = node.left, node.right
        left, right = (self.number(name, NumberType.DOUBLE) for name in names)
        compared = self._engine.compare(NumberType.DOUBLE, left, node.comparison, right)
        ascending = node.comparison in (Comparison.LESS, Comparison.GREATER_OR_EQUAL)
        negative, positive = (left, right) if ascending else (right, left)
        ordered_zeros = _all(
            [exp.EQ(this=left, expression=right), _has_minus(negative), exp.Not(this=_has_minus(positive))]
        )
        if node.comparison in (Comparison.LESS, Comparison.GREATER):
            terms = [_any([compared, ordered_zeros])]
        else:
            terms = [compared, exp.Not(this=exp.Paren(this=ordered_zeros))]
        return _all([*terms, *(guard for name in names for guard in self.guards(name, NumberType.DOUBLE))])


class _Predicate:
    """Writes one predicate, from the leaves up."""

    def __init__(self, predicate: Predicate, writer: PredicateWriter) -> None:
        self._predicate = predicate
        self._writer = writer
        self._nodes = list(postorder([predicate]))
        self._uses = Counter(operand for node in self._nodes for operand in node.operands)
        self._leaves = {node: writer.leaf(node) for node in self._nodes if not node.operands}
        self._texts: dict[Predicate, _Text] = {}

    def sql(self) -> str:
        """The text. Texts of operands are dropped after use: they take memory with the square of their depth."""
        stage_of = {} if max(self._uses.values(), default=1) == 1 else self._stages()
        together = not stage_of
        unused = self._uses.copy()
        stages: list[list[tuple[str, str]]] = []
        for node in self._nodes:
            self._texts[node] = self._text(node, together)
            stage = stage_of.get(node)
            if stage is not None:
                stages += [[] for _ in range(stage + 1 - len(stages))]
                variable = f"v{len(stages[stage])}"
                stages[stage].append((variable, self._two_valued(node, together)))
                self._texts[node] = _Text(f"s{stage}.{variable}")
            if node is not self._predicate:
                unused.subtract(node.operands)
                for operand in node.operands:
                    if not unused[operand]:
                        self._texts.pop(operand, None)
        sql = self._two_valued(self._predicate, together)
        for stage in reversed(range(len(stages))):
            sql = self._writer.variables(stage, stages[stage], sql)
        return sql

    def _stages(self) -> dict[Predicate, int]:
        """The nodes to bind, with their stage: after the stages of the nodes they use. Empty if the text is short.

        Empty without variables, too. Raises UnsupportedError if the text is too long then.
        """
        own = {node: _BRACKETS if node.operands else len(self._leaves[node].sql) for node in self._nodes}
        length: dict[Predicate, int] = {}
        for node in self._nodes:
            length[node] = own[node] + sum(length[operand] for operand in node.operands)
        whole = length[self._predicate]
        if whole <= _REPETITION * sum(own.values()) + _SHORT:
            return {}
        if not self._writer.has_variables:
            self._writer.check_length(whole)
            return {}
        ready: dict[Predicate, int] = {}
        bound: dict[Predicate, int] = {}
        for node in self._nodes:
            length[node] = own[node] + sum(length[operand] for operand in node.operands)
            ready[node] = max((ready[operand] for operand in node.operands), default=0)
            if self._uses[node] > 1 and length[node] > (_SHORT if node.operands else _BRACKETS):
                bound[node] = ready[node]
                ready[node] += 1
                length[node] = _BRACKETS
        return bound

    def _two_valued(self, node: Predicate, together: bool) -> str:
        """The text, never NULL. Conjuncts that are never NULL stay separate, so that engines can push them down."""
        if not isinstance(node, And):
            return self._writer.two_valued(self._texts[node]).sql
        conjuncts = self._conjuncts(node.terms, together)
        parts = [text for text in conjuncts if not text.nullable]
        nullable = [text for text in conjuncts if text.nullable]
        if nullable:
            parts.append(self._writer.two_valued(self._writer.joined(And, nullable)))
        return self._writer.joined(And, parts).sql

    def _text(self, node: Predicate, together: bool) -> _Text:
        match node:
            case Not(IsPresent() as leaf):
                return self._writer.missing(leaf)
            case Not():
                return self._writer.opposite(self._texts[node.operand])
            case And():
                return self._writer.joined(And, self._conjuncts(node.terms, together))
            case Or():
                return self._writer.joined(Or, self._disjuncts(node.terms, together))
            case _:
                return self._leaves[node]

    def _conjuncts(self, terms: Iterable[Predicate], together: bool) -> list[_Text]:
        """Terms of a conjunction, without checks for presence: other terms are NULL if the property is missing."""
        if not together:
            return [self._texts[term] for term in terms]
        checked = {term for term in terms if isinstance(term, (IsPresent, IsNumber))}
        ranges: dict[tuple[str, NumberType], list[NumberIs]] = {}
        excluded: dict[tuple[str, NumberType], list[NumberIs]] = {}
        texts = []
        implied = set()
        for term in terms:
            leaf = without_not(term)
            presence = _presence(leaf) if isinstance(term, Not) else None
            if isinstance(term, NumberIs):
                ranges.setdefault((term.name, term.type), []).append(term)
            elif presence is None or presence not in checked:
                texts.append((term, self._texts[term]))
            else:
                implied.add(presence)
                if isinstance(leaf, NumberIs):
                    excluded.setdefault((leaf.name, leaf.type), []).append(leaf)
                else:
                    texts.append((term, self._writer.negated(leaf)))
        return [
            *(text for term, text in texts if term not in implied),
            *(self._numbers(leaves, self._writer.in_range) for leaves in ranges.values()),
            *map(self._writer.none_of, excluded.values()),
        ]

    def _disjuncts(self, terms: Iterable[Predicate], together: bool) -> list[_Text]:
        if not together:
            return [self._texts[term] for term in terms]
        points: dict[tuple[str, NumberType], list[NumberIs]] = {}
        texts = []
        for term in terms:
            if isinstance(term, NumberIs) and term.comparison is Comparison.EQUAL:
                points.setdefault((term.name, term.type), []).append(term)
            else:
                texts.append(self._texts[term])
        return [*texts, *(self._numbers(leaves, self._writer.one_of) for leaves in points.values())]

    def _numbers(self, leaves: list[NumberIs], write: Callable[[list[NumberIs]], _Text]) -> _Text:
        return self._texts[leaves[0]] if len(leaves) == 1 else write(leaves)


def _presence(leaf: Predicate) -> Predicate | None:
    """The check for presence that the text of the negated leaf includes."""
    match leaf:
        case TextIn() | TextContains() | TextStartsWith() | TextEndsWith() | IsTrueText():
            return IsPresent(leaf.name)
        case NumberIs(comparison=Comparison.EQUAL):
            return IsNumber(leaf.name, leaf.type)
        case _:
            return None


def _var(text: str) -> exp.Expr:
    return exp.Var(this=text)


def _number_image(image: str) -> exp.Expr:
    return exp.Literal(this=image, is_string=False)


def _call(name: str, *arguments: exp.Expr) -> exp.Expr:
    return exp.Anonymous(this=name, expressions=list(arguments))


def _cast(value: exp.Expr, type_: DType) -> exp.Expr:
    return exp.Cast(this=value, to=exp.DataType(this=type_))


def _try_cast(value: exp.Expr, type_: DType) -> exp.Expr:
    return exp.TryCast(this=value, to=exp.DataType(this=type_), safe=True)


def _matches(text: exp.Expr, pattern: str) -> exp.Expr:
    return exp.RegexpLike(this=text, expression=exp.Literal.string(pattern))


def _is_null(value: exp.Expr, negate: bool = False) -> exp.Expr:
    return exp.Is(this=value, expression=exp.Null(), negate=negate)


def _has_minus(value: exp.Expr) -> exp.Expr:
    return exp.StartsWith(this=_cast(value, DType.TEXT), expression=exp.Literal.string("-"))


def _all(terms: list[exp.Expr]) -> exp.Expr:
    """The conjunction of one or more trees."""
    return _connected(exp.And, exp.Or, terms)


def _any(terms: list[exp.Expr]) -> exp.Expr:
    """The disjunction of one or more trees."""
    return _connected(exp.Or, exp.And, terms)


def _connected(kind: type[exp.Connector], other: type[exp.Connector], terms: list[exp.Expr]) -> exp.Expr:
    if len(terms) == 1:
        return terms[0]
    first, *rest = [exp.Paren(this=term) if isinstance(term, other) else term for term in terms]
    for term in rest:
        first = kind(this=first, expression=term)
    return first
