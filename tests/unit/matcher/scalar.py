"""Predicates answered one message at a time, in plain Python."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from functools import cache

from filtering.java.numbers import double_order, parse_double, parse_int, parse_long
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
    TagsCodeIn,
    TextContains,
    TextEndsWith,
    TextIn,
    TextsEqual,
    TextStartsWith,
)

PARSE = {
    NumberType.INT: cache(parse_int),
    NumberType.LONG: cache(parse_long),
    NumberType.DOUBLE: cache(parse_double),
}
COMPARE = {
    Comparison.EQUAL: operator.eq,
    Comparison.LESS: operator.lt,
    Comparison.LESS_OR_EQUAL: operator.le,
    Comparison.GREATER: operator.gt,
    Comparison.GREATER_OR_EQUAL: operator.ge,
}


def holds(predicate: Predicate, properties: Mapping[str, str], tags_code: int | None = None) -> bool:
    if any(name not in properties for name in predicate.properties):
        return False
    texts = [properties[name] for name in predicate.properties]
    match predicate:
        case Constant(value=value):
            return value
        case Not(operand=operand):
            return not holds(operand, properties, tags_code)
        case And(terms=terms):
            return all(holds(term, properties, tags_code) for term in terms)
        case Or(terms=terms):
            return any(holds(term, properties, tags_code) for term in terms)
        case IsPresent():
            return True
        case TextIn(texts=wanted):
            return texts[0] in wanted
        case TextContains(text=text):
            return text in texts[0]
        case TextStartsWith(text=text):
            return texts[0].startswith(text)
        case TextEndsWith(text=text):
            return texts[0].endswith(text)
        case IsTrueText():
            return texts[0].lower() == "true"
        case IsNumber(type=type):
            return PARSE[type](texts[0]) is not None
        case NumberIs(type=type, comparison=comparison, value=value):
            number = PARSE[type](texts[0])
            if type is NumberType.DOUBLE and number is not None:
                number, value = double_order(number), double_order(value)
            return number is not None and COMPARE[comparison](number, value)
        case TextsEqual():
            return texts[0] == texts[1]
        case DoublesCompare(comparison=comparison):
            numbers = [PARSE[NumberType.DOUBLE](text) for text in texts]
            return None not in numbers and COMPARE[comparison](*map(double_order, numbers))
        case TagsCodeIn(codes=codes):
            return tags_code is not None and ((tags_code + 2**31) % 2**32) - 2**31 in codes
    raise AssertionError(predicate)
