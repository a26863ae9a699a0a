"""The relation of a new filter to an old one (Kind), with example messages, and what messages have in common.

:func:`satisfying` finds a message for which a predicate is true, or proves that there is none. ``relation`` asks it
about "new and not old", and "old and not new".

1. The predicate is split into branches: a branch is a set of leaves and negated leaves that must all be true.
2. Rules about one property close branches that are impossible (``can_hold``).
3. For the other branches, messages are built from likely texts for each property (``likely_texts``) and tried.

:func:`common_traits` says what real messages that are gained or lost have in common and other messages do not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from itertools import islice, product
from math import inf, isfinite, nextafter
from operator import itemgetter
from typing import TypeAlias

from filtering.counted import check_type
from filtering.frozen import frozen
from filtering.java import double_order, parse_double
from filtering.predicate import (
    OPPOSITE,
    TRUE_TEXTS,
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
    PropertyLeaf,
    TagsCodeIn,
    TextContains,
    TextEndsWith,
    TextIn,
    TextStartsWith,
    all_hold,
    holds,
    opposite,
    order,
    positive_and_negative,
    postorder,
    without_not,
)
from filtering.sql92.tokens import string_literal

# Rules: can all terms about one property be true?


_LIMITS = {
    NumberType.INT: (-(2**31), 2**31 - 1),
    NumberType.LONG: (-(2**63), 2**63 - 1),
    NumberType.DOUBLE: (double_order(float("-inf")), double_order(float("nan"))),
}
_FEW = 64
"""In a smaller range, each number is compared with the excluded ones."""


def can_hold(terms: Sequence[Predicate], plain: bool) -> bool:
    """False only if it is certain that no text makes all terms true, nor a missing property.

    ``terms``: leaves and negated leaves about one property. ``plain``: only texts whose digits are 0 to 9 count; then
    every integer is a decimal, too.
    """
    yes, no = positive_and_negative(terms)
    if not yes:
        return True
    if any(isinstance(leaf, IsPresent) for leaf in no) or not set(yes).isdisjoint(no):
        return False
    listed = [leaf.texts for leaf in yes if isinstance(leaf, TextIn)]
    listed += [TRUE_TEXTS for leaf in yes if isinstance(leaf, IsTrueText)]
    if listed:
        return any(all_hold(text, yes, no) for text in frozenset.intersection(*listed))
    return _numbers_can_be(yes, no, plain) and _texts_can_be(yes, no)


def _numbers_can_be(yes: Sequence[PropertyLeaf], no: Sequence[PropertyLeaf], plain: bool) -> bool:
    types = {leaf.type for leaf in yes if isinstance(leaf, (IsNumber, NumberIs))}
    if NumberType.INT in types:
        types.add(NumberType.LONG)
    if plain and NumberType.LONG in types:
        types.add(NumberType.DOUBLE)
    if any(isinstance(leaf, IsNumber) and leaf.type in types for leaf in no):
        return False
    ranges = {type_: _range(type_, yes, no) for type_ in types}
    if NumberType.INT in types:
        low, high = ranges[NumberType.INT]
        least, greatest = ranges[NumberType.LONG]
        ranges[NumberType.LONG] = max(low, least), min(high, greatest)
    if plain and NumberType.LONG in types:
        low, high = (double_order(float(bound)) for bound in ranges[NumberType.LONG])
        least, greatest = ranges[NumberType.DOUBLE]
        ranges[NumberType.DOUBLE] = max(low, least), min(high, greatest)
    return all(_has_number(type_, *bounds, no) for type_, bounds in ranges.items())


def _range(type_: NumberType, yes: Iterable[PropertyLeaf], no: Iterable[PropertyLeaf]) -> tuple[int, int]:
    """The least and greatest possible number of a type, as its sort key. The range is empty if least > greatest."""
    low, high = _LIMITS[type_]
    bounds = [(leaf.comparison, leaf.value) for leaf in yes if isinstance(leaf, NumberIs) and leaf.type is type_]
    bounds += [
        (OPPOSITE[leaf.comparison], leaf.value)
        for leaf in no
        if isinstance(leaf, NumberIs) and leaf.type is type_ and leaf.comparison is not Comparison.EQUAL
    ]
    for comparison, value in bounds:
        key = order(type_, value)
        if comparison in (Comparison.EQUAL, Comparison.GREATER_OR_EQUAL, Comparison.GREATER):
            low = max(low, key + (comparison is Comparison.GREATER))
        if comparison in (Comparison.EQUAL, Comparison.LESS_OR_EQUAL, Comparison.LESS):
            high = min(high, key - (comparison is Comparison.LESS))
    return low, high


def _has_number(type_: NumberType, low: int, high: int, no: Iterable[PropertyLeaf]) -> bool:
    if high - low >= _FEW:
        return True
    excluded = {
        order(type_, leaf.value)
        for leaf in no
        if isinstance(leaf, NumberIs) and leaf.type is type_ and leaf.comparison is Comparison.EQUAL
    }
    return any(number not in excluded for number in range(low, high + 1))


def _texts_can_be(yes: Sequence[PropertyLeaf], no: Sequence[PropertyLeaf]) -> bool:
    starts = [leaf.text for leaf in yes if isinstance(leaf, TextStartsWith)]
    ends = [leaf.text for leaf in yes if isinstance(leaf, TextEndsWith)]
    parts = [*starts, *ends, *(leaf.text for leaf in yes if isinstance(leaf, TextContains))]
    start, end = max(starts, key=len, default=""), max(ends, key=len, default="")
    if not all(start.startswith(text) for text in starts) or not all(end.endswith(text) for text in ends):
        return False
    for leaf in no:
        if isinstance(leaf, TextContains) and any(leaf.text in part for part in parts):
            return False
        if isinstance(leaf, TextStartsWith) and start.startswith(leaf.text):
            return False
        if isinstance(leaf, TextEndsWith) and end.endswith(leaf.text):
            return False
    return True


# Likely texts for a property.


MISSING = None
MOST_TEXTS = 12
"""The number of texts of a property that are tried together with texts of other properties."""
_USUAL = ("x", "1", "2", "1.5", "0", "-1", "true", "false", "another", "1000000", "-1000000", "3000000000", "1e30")
_ODD = (" 1.5", " 1", "NaN", "Infinity", "-Infinity", "", "\u0661", "\u0662", "9223372036854775808")


def likely_texts(terms: Iterable[Predicate], plain: bool, more: Sequence[str | None] = ()) -> list[str | None]:
    """Texts, or MISSING, for which all terms about one property are true, at most MOST of them.

    ``plain``: no digits but 0 to 9. ``more``: additional texts to try.
    """
    yes, no = positive_and_negative(terms)
    texts: dict[str | None, None] = {}
    for text in _tried(yes, no, more):
        if plain and text is not None and not text.isascii() and any(map(str.isdigit, text)):
            continue
        if text not in texts and all_hold(text, yes, no):
            texts[text] = None
            if len(texts) == MOST_TEXTS:
                break
    return list(texts)


def _tried(yes: Sequence[PropertyLeaf], no: Sequence[PropertyLeaf], more: Sequence[str | None]) -> Iterator[str | None]:
    leaves = [*yes, *no]
    for leaf in yes:
        if isinstance(leaf, TextIn):
            yield from sorted(leaf.texts)
        elif isinstance(leaf, IsTrueText):
            yield from ("true", "TRUE", *sorted(TRUE_TEXTS))
    numbers = list(dict.fromkeys(text for leaf in leaves if isinstance(leaf, NumberIs) for text in _around(leaf)))
    yield from numbers
    start = max((leaf.text for leaf in yes if isinstance(leaf, TextStartsWith)), key=len, default="")
    end = max((leaf.text for leaf in yes if isinstance(leaf, TextEndsWith)), key=len, default="")
    inner = [leaf.text for leaf in yes if isinstance(leaf, TextContains)]
    if start or end or inner:
        yield from _joined(start, [text for text in inner if text not in start and text not in end], end)
    yield from more
    yield from _USUAL
    yield MISSING
    mentioned = [text for leaf in leaves if isinstance(leaf, TextIn) for text in sorted(leaf.texts)[:MOST_TEXTS]]
    mentioned += [leaf.text for leaf in leaves if isinstance(leaf, (TextContains, TextStartsWith, TextEndsWith))]
    for text in mentioned:
        yield from (text, f"{text}x", f"x{text}", text.upper(), f"x{text}x")
    for text in numbers:
        yield from (f"+{text}", f"0{text}", f" {text}", f"{text}0", f"{text}.0", f"{text}d", f"{text}e0")
    yield from _ODD
    for text in numbers:
        yield text.translate(_OTHER_DIGITS)


_OTHER_DIGITS = {ord("0") + digit: chr(0x660 + digit) for digit in range(10)}


def _around(leaf: NumberIs) -> Iterator[str]:
    """The number that a leaf compares with, and numbers near it."""
    value = leaf.value
    if leaf.type is not NumberType.DOUBLE:
        for number in (value, value + 1, value - 1):
            yield str(number)
        yield f"{value}.5"
        yield f"{value}.0"
        return
    value = float(value)
    for number in (
        value,
        value + 1,
        value - 1,
        value + 0.5,
        value - 0.5,
        nextafter(value, inf),
        nextafter(value, -inf),
    ):
        if isfinite(number):
            yield str(number)
        if abs(number) < 2**63 and number == int(number):
            yield str(int(number))


def _joined(start: str, inner: Sequence[str], end: str) -> Iterator[str]:
    """Short texts with the given start, end, and parts between them."""
    middle = "".join(inner)
    for length in range(min(len(start), len(end)), -1, -1):
        if start.endswith(end[:length]):
            yield start + middle + end[length:] if not middle else start + middle + end
    yield start + middle + "1" + end
    yield start + "x".join(inner) + "x" + end
    yield start + "-".join(reversed(inner)) + end


# The search for a message.


MOST_STEPS = 4_000
"""The number of branches that are checked before the answer is UNKNOWN."""
MOST_NODES = 3_000
MOST_TRIES = 600
"""The number of messages that are tried for a branch."""

Message: TypeAlias = Mapping[str, str]
"""The properties of a message."""


class _Answer(Enum):
    NONE = "there is no such message"
    UNKNOWN = "no message was found, and no proof that there is none"


NONE, UNKNOWN = _Answer.NONE, _Answer.UNKNOWN
Answer: TypeAlias = Message | _Answer


def satisfying(predicate: Predicate, plain: bool = False) -> Answer:
    """A message for which the predicate is true; NONE if it is proven that there is none, else UNKNOWN.

    ``plain``: only messages whose numbers have the digits 0 to 9 count. For a predicate over tags codes, the answer
    is UNKNOWN.
    """
    nodes = list(islice(postorder([predicate]), MOST_NODES))
    if len(nodes) == MOST_NODES or any(isinstance(node, TagsCodeIn) for node in nodes):
        return UNKNOWN
    open_branches = False
    for steps, branch in enumerate(_branches(predicate, plain)):
        if branch is not None:
            open_branches = True
            for message in islice(_messages(branch, plain), MOST_TRIES):
                if holds(predicate, message):
                    return _shortened(predicate, message)
        if steps == MOST_STEPS:
            return UNKNOWN
    return UNKNOWN if open_branches else NONE


@frozen
class _Branch:
    """All ``terms`` (by property), all ``pairs`` (terms about two properties) and one term of each choice are true."""

    terms: Mapping[str, tuple[Predicate, ...]]
    pairs: tuple[Predicate, ...]
    choices: tuple[tuple[Predicate, ...], ...]


def _branches(predicate: Predicate, plain: bool) -> Iterator[_Branch | None]:
    """The branches without choices that no rule closes, and None for each step on the way to them."""
    stack = [(_Branch({}, (), ()), [predicate])]
    while stack:
        branch, todo = stack.pop()
        grown = _grown(branch, todo, plain)
        if grown is None:
            yield None
        elif not grown.choices:
            yield grown
        else:
            yield None
            choice = min(grown.choices, key=len)
            others = tuple(other for other in grown.choices if other is not choice)
            rest = _Branch(grown.terms, grown.pairs, others)
            stack += [(rest, [term]) for term in reversed(choice)]


def _grown(branch: _Branch, todo: list[Predicate], plain: bool) -> _Branch | None:
    """The branch with ``todo`` added; None if that is impossible."""
    terms, pairs, choices = dict(branch.terms), list(branch.pairs), list(branch.choices)
    changed = set()
    todo = list(todo)
    while todo:
        node = todo.pop()
        inner = without_not(node)
        negated = inner is not node
        match inner:
            case Constant(value=value):
                if value is negated:
                    return None
            case Not():
                todo.append(inner.operand)
            case And() if not negated:
                todo += inner.terms
            case Or() if negated:
                todo += [opposite(term) for term in inner.terms]
            case And():
                choices.append(tuple(opposite(term) for term in inner.terms))
            case Or():
                choices.append(inner.terms)
            case PropertyLeaf(name=name):
                terms[name] = (*terms.get(name, ()), node)
                changed.add(name)
            case _:
                if opposite(node) in pairs:
                    return None
                pairs.append(node)
                if not negated:
                    todo += _implied_terms(inner)
    if not all(can_hold(terms[name], plain) for name in changed):
        return None
    return _Branch(terms, tuple(pairs), tuple(choices))


def _implied_terms(pair: Predicate) -> list[Predicate]:
    """The terms about one property that a true leaf about two properties implies."""
    if isinstance(pair, DoublesCompare):
        return [IsNumber(name, NumberType.DOUBLE) for name in pair.properties]
    return [IsPresent(name) for name in pair.properties]


def _shortened(predicate: Predicate, message: Message) -> Message:
    """The message without properties that the predicate does not need."""
    needed = message
    for name in message:
        rest = {other: text for other, text in needed.items() if other != name}
        if holds(predicate, rest):
            needed = rest
    return needed


def _messages(branch: _Branch, plain: bool) -> Iterator[Message]:
    """Messages that satisfy the terms of each property, likely ones first."""
    together = {name for pair in branch.pairs for name in without_not(pair).properties}
    names = [*(name for name in branch.terms if name not in together), *sorted(together)]
    shared = likely_texts([term for name in together for term in branch.terms.get(name, ())], plain)
    texts = []
    for name in names:
        more = shared if name in together else ()
        likely = likely_texts(branch.terms.get(name, ()), plain, more)
        if not likely:
            return
        texts.append(likely if name in together else likely[:1])
    for combination in product(*texts):
        yield {name: text for name, text in zip(names, combination, strict=True) if text is not MISSING}


class Kind(Enum):
    """What is proven about the messages that the new filter delivers, compared with those of the old one."""

    EQUIVALENT = "equivalent"
    """It delivers the same messages."""
    WIDER = "wider"
    """It delivers all messages of the old one, and maybe more."""
    NARROWER = "narrower"
    """It delivers only messages of the old one."""
    DISJOINT = "disjoint"
    """It delivers no message of the old one."""
    OVERLAPPING = "overlapping"
    """It delivers some messages of the old one, and others. There is an example message for each case."""
    UNKNOWN = "unknown"
    """Nothing is proven."""


@frozen
class Relation:
    """The relation with example messages: delivered by one filter (``only_old``, ``only_new``) or by ``both``.

    An example is None if there is no such message, or if none was found. ``plain_numbers``: the kind is proven only
    for messages whose numbers have the digits 0 to 9. An int may have other digits, such as Arabic ones; a decimal
    may not.
    """

    kind: Kind
    only_old: Message | None
    only_new: Message | None
    both: Message | None
    plain_numbers: bool = False


def relation(old: Predicate, new: Predicate) -> Relation:
    """The relation of two predicates, as far as it can be proven in a short time."""
    for predicate in (old, new):
        check_type(predicate, Predicate, "a filter is a predicate, such as compile('price > 5').predicate")
    if old is new:
        return Relation(Kind.EQUIVALENT, None, None, _message(satisfying(new)))
    proven = _relation(old, new, plain=False)
    if any(message is not None and _has_other_digits(message) for message in (proven.only_old, proven.only_new)):
        return _relation(old, new, plain=True)
    return proven


def _relation(old: Predicate, new: Predicate, plain: bool) -> Relation:
    only_old = satisfying(And((old, Not(new))), plain)
    only_new = satisfying(And((new, Not(old))), plain)
    both = satisfying(And((old, new)), plain)
    if only_old is NONE:
        kind = Kind.EQUIVALENT if only_new is NONE else Kind.WIDER
    elif only_new is NONE:
        kind = Kind.NARROWER
    elif both is NONE:
        kind = Kind.DISJOINT
    else:
        examples = (only_old, only_new, both)
        kind = Kind.OVERLAPPING if None not in map(_message, examples) else Kind.UNKNOWN
    return Relation(kind, _message(only_old), _message(only_new), _message(both), plain)


def _message(answer: Answer) -> Message | None:
    return answer if isinstance(answer, dict) else None


def _has_other_digits(message: Message) -> bool:
    return any(character.isdigit() and not character.isascii() for text in message.values() for character in text)


# Traits.


SYSTEM_PROPERTIES = frozenset(
    {
        "WAIT", "DELAY", "RETRY_TOPIC", "REAL_TOPIC", "REAL_QID", "TRAN_MSG", "PGROUP", "MIN_OFFSET", "MAX_OFFSET",
        "BUYER_ID", "ORIGIN_MESSAGE_ID", "TRANSFER_FLAG", "CORRECTION_FLAG", "MQ2_FLAG", "RECONSUME_TIME",
        "MSG_REGION", "TRACE_ON", "UNIQ_KEY", "EXTEND_UNIQ_INFO", "MAX_RECONSUME_TIMES", "CONSUME_START_TIME",
        "INNER_NUM", "INNER_BASE", "DUP_INFO", "CHECK_IMMUNITY_TIME_IN_SECONDS", "TRAN_PREPARED_QUEUE_OFFSET",
        "__transactionId__", "TRANSACTION_CHECK_TIMES", "INSTANCE_ID", "CORRELATION_ID", "REPLY_TO_CLIENT", "TTL",
        "ARRIVE_TIME", "PUSH_REPLY_TIME", "CLUSTER", "MSG_TYPE", "POP_CK", "POP_CK_OFFSET", "1ST_POP_TIME",
        "PROPERTY_FORWARD_QUEUE_ID", "REDIRECT", "INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET", "TRACE_CONTEXT",
        "TIMER_DELAY_SEC", "TIMER_DELIVER_MS", "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS", "TIMER_ROLL_TIMES",
        "TIMER_OUT_MS", "TIMER_DEL_UNIQKEY", "TIMER_DELAY_LEVEL", "TIMER_DELAY_MS", "TIMER_ROLL_LABEL", "__BORNHOST",
        "BORN_TIMESTAMP", "ORIGIN_GROUP", "DLQ_ORIGIN_TOPIC", "DLQ_ORIGIN_MESSAGE_ID", "TRANS_OFFSET",
        "_SYS_MSG_PRIORITY_", "__LITE_TOPIC", "__CRC32#", "__RMQ.TRANSIENT.TOPIC_SYS_FLAG",
        "__RMQ.TRANSIENT.GROUP_SYS_FLAG",
    }
)  # fmt: skip
"""The names of MessageConst in RocketMQ 5.5 without TAGS, KEYS and __SHARDINGKEY, whose values the sender chooses."""
LEAST_SHARE = 0.5
LEAST_LIFT = 0.05
MOST_TRAITS = 3


@frozen
class Trait:
    """A condition on one property that ``share`` of the messages and ``share_of_others`` meet, from 0 to 1.

    ``values``: one text of the property ``name``, or the least and the greatest number; empty: it is missing.
    """

    name: str
    values: tuple[str, ...]
    share: float
    share_of_others: float

    @property
    def text(self) -> str:
        """As a condition: ``region = 'us-east'``."""
        if not self.values:
            return f"{self.name} is missing"
        if len(self.values) == 1:
            return f"{self.name} = {string_literal(self.values[0])}"
        return f"{self.name} is from {self.values[0]} to {self.values[1]}"


def common_traits(messages: Sequence[Mapping[str, str]], others: Sequence[Mapping[str, str]]) -> list[Trait]:
    """Traits that most messages have and fewer of the others. Those with the greatest difference come first.

    Properties that RocketMQ sets itself are left out. Without others there is nothing to compare with, and no trait.
    """
    if not messages or not others:
        return []
    names = dict.fromkeys(name for message in [*messages, *others] for name in message if name not in SYSTEM_PROPERTIES)
    traits = []
    for name in names:
        texts = Counter(message.get(name) for message in messages)
        other_texts = Counter(message.get(name) for message in others)
        text, count = texts.most_common(1)[0]
        share = count / len(messages)
        if share >= LEAST_SHARE:
            traits.append(Trait(name, () if text is None else (text,), share, other_texts[text] / len(others)))
        elif (numbers := _numbers(texts)) is not None:
            low, high = min(numbers, key=itemgetter(0)), max(numbers, key=itemgetter(0))
            inside = sum(low[0] <= number <= high[0] for number, _ in _numbers(other_texts, strict=False) or ())
            traits.append(Trait(name, (low[1], high[1]), 1.0, inside / len(others)))
    telling = [trait for trait in traits if trait.share - trait.share_of_others >= LEAST_LIFT]
    return sorted(telling, key=lambda trait: trait.share_of_others - trait.share)[:MOST_TRAITS]


def _numbers(texts: Counter[str | None], strict: bool = True) -> list[tuple[float, str]] | None:
    """The numbers among the texts, once for each message; None if ``strict`` and a text is not a number."""
    numbers = []
    for text, count in texts.items():
        number = parse_double(text) if text is not None else None
        if number is not None and number == number:
            numbers += [(number, text or "")] * count
        elif strict:
            return None
    return numbers
