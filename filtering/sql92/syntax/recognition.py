"""Tells SQL92 expressions from lists of tags, where nothing else says what a text is."""

from filtering.sql92.errors import InvalidExpression
from filtering.sql92.syntax.nodes import BooleanLiteral, NullLiteral, Property, inside
from filtering.sql92.syntax.parser import parse

_NAMES = (Property, BooleanLiteral, NullLiteral)
"""What tags look like as SQL92."""


def looks_like_sql92(text: str) -> bool:
    """Whether a text is SQL92 that the broker accepts, and more than one name or constant."""
    try:
        return not isinstance(inside(parse(text).root), _NAMES)
    except InvalidExpression:
        return False
