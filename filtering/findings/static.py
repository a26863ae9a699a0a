"""Findings from subscriptions alone, without messages."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

from filtering.broker_config import BrokerConfig, why_property_filter_is_off
from filtering.counted import listed
from filtering.delivery.message_filter import delivers
from filtering.findings.finding import ERROR, INFO, WARN, Finding
from filtering.predicate import FALSE, TRUE, Predicate
from filtering.pulls.pull import ResponseCode, refused
from filtering.sql92 import CompiledExpression, on_one_line
from filtering.sql92.linter import PLACEHOLDER
from filtering.sql92.syntax.recognition import looks_like_sql92
from filtering.subscription_data import SUB_ALL, is_tag_type
from filtering.subscriptions.subscription_row import SubscriptionRow

NAMED = 3
"""The number of groups that a line names; other groups are counted."""
_SHOWN = 60
_OTHER_SEPARATORS = re.compile(r"[|,;｜¦，；、]|\bor\b", re.IGNORECASE)
_AND = re.compile(r"&&|^[\w.-]+ +and +[\w.-]+$", re.IGNORECASE)
_QUOTES = frozenset("'\"`‘’“”")
ABOUT_TAGS = frozenset({"one-tag", "sql-as-tag", "negated-tag", "wildcard-tag", "quoted-tag", "placeholder"})
"""Findings of tags that were meant as they are if messages have them."""
_INFO = frozenset({"integer-literal", "reversed-not-between"})


def static_findings(in_force: Iterable[SubscriptionRow]) -> list[Finding]:
    """The findings of subscriptions that are in force at one instant, in the order of the subscriptions."""
    rows = list(in_force)
    return [*(finding for row in rows for finding in own_findings(row)), *_equivalent(rows)]


def refused_findings(
    rows: Iterable[SubscriptionRow], broker: BrokerConfig, misread: Iterable[str] = ()
) -> Iterator[Finding]:
    """Subscriptions that compile, and whose every pull the broker refuses.

    ``misread``: the texts on settings in broker.conf that mean something else to the broker than they seem to.
    """
    off = why_property_filter_is_off(misread)
    how = f": {off}" if off is not None else "; set it to true in broker.conf"
    for row, code in refused(rows, broker):
        if row.compile_error is None:
            advice = f"{how}, and restart the broker" * (code is ResponseCode.SYSTEM_ERROR)
            text = f"the broker refuses every pull with {code.text}{advice}"
            yield Finding(ERROR, *row.key, "refused-pulls", text)


def own_findings(row: SubscriptionRow) -> Iterator[Finding]:
    def finding(severity: str, code: str, text: str) -> Finding:
        return Finding(severity, *row.key, code, text)

    if row.compile_error is not None:
        yield finding(ERROR, "does-not-compile", on_one_line(row.compile_error))
    elif is_tag_type(row.expression_type):
        if delivers(row) is FALSE:
            yield finding(ERROR, "never-matches", "the list has no tag: no message matches; write tags, or * for all")
        elif row.expression != SUB_ALL and SUB_ALL in (row.tags_set or ()):
            yield finding(WARN, "literal-star", "* among tags is the tag named *, not every tag; write * alone for all")
        for tag in sorted(row.tags_set or ()):
            if (problem := _problem_of_tag(tag)) is not None:
                yield finding(WARN, *problem)
    elif row.compiled.expression is not None:
        for severity, code, text in expression_findings(row.compiled.expression):
            yield finding(severity, code, text)


def _problem_of_tag(tag: str) -> tuple[str, str] | None:
    """The code and the text of what is wrong with a tag, which is compared as it is; None if nothing seems wrong."""
    shown = _shown(tag)
    if PLACEHOLDER.search(tag):
        return "placeholder", f"{shown} is a placeholder that nothing replaced: it is the tag itself; write the value"
    if _AND.search(tag):
        return "one-tag", f"{shown} is one tag here; a message has one tag, and || separates tags"
    if _OTHER_SEPARATORS.search(tag) and not _is_comparison(tag):
        return "one-tag", f"{shown} is one tag here; || separates tags"
    if tag.startswith("!") or (tag.lower().startswith("not ") and not _is_comparison(tag)):
        return "negated-tag", f"{shown} is the tag with this name: tags cannot be excluded; SQL92 can, TAGS <> 'x'"
    if looks_like_sql92(tag):
        return (
            "sql-as-tag",
            f"{shown} is a tag here, not SQL92: only messages with exactly this tag match; "
            "subscribe with MessageSelector.bySql, or write sql: in a YAML list",
        )
    if "*" in tag and tag != SUB_ALL:
        return "wildcard-tag", f"{shown} is the tag with this name: tags have no wildcards; SQL92 has STARTSWITH"
    if tag[:1] in _QUOTES or tag[-1:] in _QUOTES:
        return "quoted-tag", f"{shown} is a tag with quotes in it; write tags without quotes"
    return None


def _is_comparison(tag: str) -> bool:
    return looks_like_sql92(tag) and any(operator in tag for operator in "=<>")


def _shown(tag: str) -> str:
    """A tag on one line, cut."""
    text = " ".join(tag.split())
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def expression_findings(expression: CompiledExpression) -> Iterator[tuple[str, str, str]]:
    """The severity, the code and the text of each finding of an expression."""
    for found in expression.findings:
        severity = ERROR if found.delivers_nothing else INFO if found.code in _INFO else WARN
        yield severity, found.code, f"{found.sentence} {found.suggestion}"


def _equivalent(rows: Iterable[SubscriptionRow]) -> Iterator[Finding]:
    """Groups that get the same messages. Groups that get all messages of a topic, or none, are not listed."""
    by_predicate: defaultdict[tuple[str, Predicate], list[SubscriptionRow]] = defaultdict(list)
    for row in rows:
        predicate = delivers(row)
        if predicate not in (None, TRUE, FALSE):
            by_predicate[row.topic, predicate].append(row)
    for equivalent in by_predicate.values():
        first, *others = equivalent
        if others:
            named = listed([row.consumer_group for row in others], NAMED, "group")
            texts = {" ".join((row.expression or "").split()) for row in equivalent}
            written = "" if len(texts) == 1 else ", though their filters are written differently"
            yield Finding(INFO, *first.key, "equivalent-groups", f"gets the same messages as {named}{written}")
