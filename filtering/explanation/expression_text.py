"""A part of an expression, as text that means the same."""

from __future__ import annotations

from sqlglot import exp

from filtering.sql92.nodes import NotFound, inside

_OPERATORS: dict[type[exp.Expr], str] = {
    exp.Or: "OR",
    exp.And: "AND",
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.Contains: "CONTAINS",
    exp.StartsWith: "STARTSWITH",
    exp.EndsWith: "ENDSWITH",
}


def expression_text(root: exp.Expr) -> str:
    """The node as text. Parentheses are where the expression had them, so that it compiles to the same."""
    parts: list[str] = []
    stack: list[exp.Expr | str] = [root]
    while stack:
        piece = stack.pop()
        if isinstance(piece, str):
            parts.append(piece)
        else:
            stack += reversed(_pieces(piece))
    return "".join(parts)


def _pieces(node: exp.Expr) -> list[exp.Expr | str]:
    match node:
        case exp.Column():
            return [node.name]
        case exp.Literal():
            return [_quoted(node.this) if node.is_string else str(node.this)]
        case exp.Boolean():
            return ["TRUE" if node.this else "FALSE"]
        case exp.Null():
            return ["NULL"]
        case exp.Paren():
            return ["(", node.this, ")"]
        case exp.Neg():
            return ["- " if isinstance(node.this, exp.Neg) else "-", node.this]
        case exp.Is():
            return [node.this, " IS NULL"]
        case exp.Between():
            return _between(node, "")
        case exp.In():
            return _in(node, "")
        case NotFound():
            search = node.this
            return [search.this, f" NOT {_OPERATORS[type(search)]} ", search.expression]
        case exp.Not():
            return _negated(node)
        case _:
            return [node.this, f" {_OPERATORS[type(node)]} ", node.expression]


def _negated(node: exp.Not) -> list[exp.Expr | str]:
    """NOT of a property, a boolean or parentheses; with anything else it is part of the operator."""
    match node.this:
        case exp.Is():
            return [node.this.this, " IS NOT NULL"]
        case exp.Between():
            return _between(node.this, "NOT ")
        case exp.In():
            return _in(node.this, "NOT ")
        case _:
            return ["NOT ", node.this]


def _between(node: exp.Between, negation: str) -> list[exp.Expr | str]:
    return [node.this, f" {negation}BETWEEN ", node.args["low"], " AND ", node.args["high"]]


def _in(node: exp.In, negation: str) -> list[exp.Expr | str]:
    texts = ", ".join(_quoted(literal.this) for literal in node.expressions)
    return [node.this, f" {negation}IN ({texts})"]


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def properties_of(node: exp.Expr) -> list[str]:
    """The properties that a node reads, each once, in order."""
    return list(dict.fromkeys(column.name for column in node.find_all(exp.Column)))


def is_combination(node: exp.Expr) -> bool:
    """Whether the node combines others: AND, OR, NOT before a parenthesis or another NOT, or parentheses."""
    if isinstance(node, exp.Not):
        return isinstance(node.this, (exp.Paren, exp.Not))
    if isinstance(node, exp.Paren):
        return is_combination(inside(node))
    return isinstance(node, (exp.And, exp.Or))
