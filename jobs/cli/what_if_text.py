"""Prints the changes that another filter would make, as plain text, Markdown or JSON."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from answers.results import NOT_KNOWN_OF_POPS, NOTHING_TO_COMPARE
from answers.what_if import AgainstInForce, ChangedMessages, WhatIf
from filtering.counted import counted, shortened
from filtering.delivery.message_filter import delivers
from filtering.frozen import frozen
from filtering.predicate import postorder
from filtering.relation import Kind, Message, Relation
from filtering.subscriptions.subscription_row import SubscriptionRow
from filtering.time_spans import BEGINNING, DAY, FOREVER
from jobs.cli.text import expression_line, print_table, time
from schemas.errors import printable

# Markup of an answer: Markdown, or plain text for a terminal.


SPECIAL = frozenset("\\`*_[]<>#")
"""Characters that Markdown and HTML interpret everywhere. A bar ends the cell of a table, even inside code."""
_FENCES = re.compile("`+")


@frozen
class Markup:
    """Formats text from outside as Markdown, or for a terminal."""

    is_markdown: bool

    @classmethod
    def for_stdout(cls) -> Markup:
        """Plain text on a terminal, otherwise Markdown."""
        return cls(not sys.stdout.isatty())

    def text(self, text: str) -> str:
        """The text, with the characters escaped that Markdown interprets."""
        shown = printable(text)
        return "".join(f"\\{each}" if each in SPECIAL else each for each in shown) if self.is_markdown else shown

    def code(self, text: str) -> str:
        if not self.is_markdown:
            return printable(text)
        fence = "`" * (1 + max(map(len, _FENCES.findall(text)), default=0))
        pad = " " if text.startswith("`") or text.endswith("`") else ""
        return f"{fence}{pad}{printable(text)}{pad}{fence}"

    def heading(self, level: int, text: str) -> str:
        """A heading of a line of formatted text."""
        return f"{'#' * level} {text}" if self.is_markdown else text

    def strong(self, text: str) -> str:
        """A line of formatted text that introduces a list or a table."""
        return f"**{text}**" if self.is_markdown else text

    def print_table(self, titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Prints a table of formatted cells. On a terminal, the last column is cut to its width."""
        if not self.is_markdown:
            print_table(titles, rows, left=len(titles), indent="  ", last_is_text=True)
            return
        cells = [[cell.replace("|", "\\|") for cell in row] for row in rows]
        widths = [max(len(row[i]) for row in [titles, *cells]) for i in range(len(titles))]
        for row in [titles, ["-" * width for width in widths], *cells]:
            print(f"| {' | '.join(f'{cell:<{width}}' for cell, width in zip(row, widths, strict=True))} |")


QUEUES_SHOWN = 40
LONGEST_PROPERTIES = 160
NOTHING_COMPARED = f"{NOTHING_TO_COMPARE}: --max-lost and --max-gained hold for nothing"
_KINDS = {
    Kind.EQUIVALENT: "delivers the same messages as the old one",
    Kind.WIDER: "is wider: it delivers everything that the old one delivers",
    Kind.NARROWER: "is narrower: it delivers nothing that the old one does not deliver",
    Kind.DISJOINT: "is disjoint: it delivers nothing that the old one delivers",
    Kind.OVERLAPPING: "overlaps with the old one: each delivers messages that the other does not",
    Kind.UNKNOWN: "may relate to the old one in any way: no relation could be proven",
}


@frozen
class Check:
    """A limit that a user gave, and the ``value`` that must not be greater. ``text`` says both in one line."""

    name: str
    limit: int
    value: int
    text: str

    @property
    def passed(self) -> bool:
        return self.value <= self.limit


@frozen
class Verdict:
    """The checks that a change must pass; none if the user gave no limit. ``compares_nothing``: there is no message."""

    checks: Sequence[Check]
    compares_nothing: bool

    @property
    def passed(self) -> bool | None:
        """None: there is nothing to pass."""
        return all(check.passed for check in self.checks) if self.checks else None


def print_changes(
    what_ifs: Sequence[tuple[str, WhatIf]], unmet: Sequence[str], verdict: Verdict, names_brokers: bool
) -> None:
    """Prints a section for each broker, group and topic: Markdown, or plain text on a terminal."""
    markup = Markup.for_stdout()
    changes = [change for _, change in what_ifs]
    if not what_ifs:
        print("no subscription differs from what is in force")
    if len(what_ifs) > 1:
        ended = len({change.new.key for change in changes if change.ends})
        parts = [counted(len({change.new.key for change in changes}) - ended, "filter")]
        parts += [counted(ended, "ended subscription")] * bool(ended)
        where = f" on {counted(len({broker for broker, _ in what_ifs}), 'broker')}" if names_brokers else ""
        print(markup.heading(1, f"{' and '.join(parts)}{where}: {_totals(changes)}") + "\n")
    _print_verdict(verdict, markup, after_text=not what_ifs)
    if unmet:
        print(markup.strong("Expectations that are not met") + "\n")
        print("".join(f"- {markup.text(line)}\n" for line in unmet))
    for broker, change in what_ifs:
        _print_section(change, broker if names_brokers else None, markup)
        print()


def _print_verdict(verdict: Verdict, markup: Markup, after_text: bool) -> None:
    if verdict.checks:
        print("\n" * after_text + markup.strong(f"Verdict: {'passed' if verdict.passed else 'FAILED'}") + "\n")
        for check in verdict.checks:
            print(f"- {'passed' if check.passed else 'FAILED'}: {markup.text(check.text)}")
        if verdict.compares_nothing:
            print(f"- {NOTHING_COMPARED}")
        print()


def json_object(what_ifs: Sequence[WhatIf], unmet: Sequence[str], verdict: Verdict) -> dict[str, Any]:
    """The changes as the JSON object that docs/JSON.md describes."""
    changes = [_object(change) for change in what_ifs]
    totals: dict[str, Any] = {name: sum(change[name] for change in changes) for name in ("gained", "lost", "kept")}
    checks = [asdict(check) | {"passed": check.passed} for check in verdict.checks]
    verdict_object = {"passed": verdict.passed, "compares_nothing": verdict.compares_nothing, "checks": checks}
    return {"verdict": verdict_object} | totals | {"changes": changes, "unmet": list(unmet)}


def _totals(what_ifs: Iterable[WhatIf]) -> str:
    counts = [(len(change.gained), len(change.lost), change.kept) for change in what_ifs]
    gained, lost, kept = map(sum, zip(*counts, strict=True))
    return f"{gained:,} gained, {lost:,} lost, {kept:,} kept"


def _print_section(change: WhatIf, broker: str | None, markup: Markup) -> None:
    group, topic = markup.text(change.new.consumer_group), markup.text(change.new.topic)
    where = "" if broker is None else f", {markup.text(broker)}"
    print(markup.heading(2, f"{group} on {topic}{where}: {_totals([change])}") + "\n")
    for line in _facts(change, markup):
        print(f"- {line}")
    for kind, side in (("Gained", change.gained), ("Lost", change.lost)):
        if len(side):
            _print_side(kind, side, _names(change), markup)
    if change.by_queue:
        _print_by_queue(change, markup)


def _facts(change: WhatIf, markup: Markup) -> Iterator[str]:
    yield f"in force: {_filter(change.old, markup)}"
    yield "instead: no subscription: the file ends it" if change.ends else f"instead: {_filter(change.new, markup)}"
    yield from _period(change, markup)
    if change.is_popping:
        yield NOT_KNOWN_OF_POPS
    if change.relation is not None:
        yield from _relation(change.relation, markup)
    if change.against_in_force is not None and change.deliveries_differ:
        yield from _against_in_force(change.against_in_force)
    if change.pending:
        matching = counted(change.pending, "pending message matches", "pending messages match")
        yield f"{matching} the new filter; the group has not pulled them yet"
    if change.ends:
        return
    yield (
        f"cost: {counted(change.scanned, 'entry', 'entries')} scanned, {change.passed_stage1:,} pass on the entry alone"
        + (f", the expression fails on {counted(change.failed, 'message')}" if change.failed else "")
    )
    for finding in change.findings:
        yield f"{finding.severity}: {markup.text(finding.text)}"


def _period(change: WhatIf, markup: Markup) -> Iterator[str]:
    begin, end = change.period
    limits = [f"from {time(begin)}"] * (begin != BEGINNING) + [f"before {time(end)}"] * (end != FOREVER)
    if limits:
        yield f"only messages stored {' and '.join(limits)}: {change.stored:,} of {markup.text(change.new.topic)}"
    if not change.stored:
        yield NOTHING_TO_COMPARE


def _against_in_force(against: AgainstInForce) -> Iterator[str]:
    yield (
        f"against the filter in force, as if it had always been: {against.gained:,} gained, {against.lost:,} lost; "
        "--max-gained and --max-lost count these"
    )
    if against.same_gains:
        yield (
            f"{against.same_gains:,} of the gained messages pass the filter in force, too: the group did not receive "
            "them for another reason, such as an earlier filter, or a message deleted before it was pulled"
        )
    if against.same_losses:
        yield (
            f"{against.same_losses:,} of the lost messages do not pass the filter in force either: the group received "
            "them under an earlier filter"
        )


def _relation(relation: Relation, markup: Markup) -> Iterator[str]:
    condition = ", if all numbers are written with the digits 0 to 9" if relation.plain_numbers else ""
    yield f"the new filter {_KINDS[relation.kind]}{condition}"
    if relation.only_old is not None:
        yield f"only the old one delivers {_message(relation.only_old, markup)}"
    if relation.only_new is not None:
        yield f"only the new one delivers {_message(relation.only_new, markup)}"


def _names(change: WhatIf) -> list[str]:
    """The properties that the two filters read."""
    filters = [delivers(row) for row in (change.old, change.new) if row is not None]
    nodes = postorder(predicate for predicate in filters if predicate is not None)
    return list(dict.fromkeys(name for node in nodes for name in node.properties))


def _print_side(kind: str, side: ChangedMessages, names: Sequence[str], markup: Markup) -> None:
    print("\n" + markup.strong(f"{kind}: {counted(len(side), 'message')}") + "\n")
    for trait in side.traits:
        print(f"- {trait.share:.0%} have {markup.code(trait.text)} ({trait.share_of_others:.0%} of the others)")
    if side.traits:
        print()
    rows = [
        (
            f"{row['queue_id']}/{row['queue_offset']}", time(row["store_timestamp"]), markup.text(row["keys"] or ""),
            _message({name: text for name, text in (row["properties"] or {}).items() if name in names}, markup),
        )
        for row in side.samples
    ]  # fmt: skip
    markup.print_table(("queue/offset", "stored", "keys", "properties"), rows)


def _print_by_queue(change: WhatIf, markup: Markup) -> None:
    rows = [
        (time(row.day * DAY)[:10], str(row.queue_id), f"{row.kept:,}", f"{row.gained:,}", f"{row.lost:,}")
        for row in change.by_queue[:QUEUES_SHOWN]
    ]
    print()
    markup.print_table(("day", "queue", "kept", "gained", "lost"), rows)
    if len(change.by_queue) > QUEUES_SHOWN:
        print(f"\n… and {len(change.by_queue) - QUEUES_SHOWN:,} more rows; --json shows all")


def _filter(row: SubscriptionRow | None, markup: Markup) -> str:
    if row is None:
        return "no subscription"
    return f"{row.expression_type or 'TAG'} {markup.code(expression_line(row.expression))}"


def _message(message: Message, markup: Markup) -> str:
    text = ", ".join(f"{name}={text!r}" for name, text in message.items())
    return (
        markup.code(shortened(text, LONGEST_PROPERTIES)) if message else "none of the properties that the filters read"
    )


def _object(change: WhatIf) -> dict[str, Any]:
    relation = change.relation
    return {
        "consumer_group": change.new.consumer_group,
        "topic": change.new.topic,
        "old": None if change.old is None else change.old.expression,
        "new": None if change.ends else change.new.expression,
        "ends": change.ends,
        "gained": len(change.gained),
        "lost": len(change.lost),
        "kept": change.kept,
        "pending": change.pending,
        "against_in_force": None if change.against_in_force is None else asdict(change.against_in_force),
        "from": None if change.period[0] == BEGINNING else change.period[0],
        "to": None if change.period[1] == FOREVER else change.period[1],
        "stored": change.stored,
        "is_popping": change.is_popping,
        "relation": None if relation is None else relation.kind.value,
        "relation_of_plain_numbers": relation is not None and relation.plain_numbers,
        "only_old": None if relation is None else relation.only_old,
        "only_new": None if relation is None else relation.only_new,
        "cost": {"scanned": change.scanned, "passed_stage1": change.passed_stage1, "errors": change.failed},
        "by_queue": [
            {"day": time(row.day * DAY)[:10], "queue_id": row.queue_id}
            | {"kept": row.kept, "gained": row.gained, "lost": row.lost}
            for row in change.by_queue
        ],
        "gained_messages": _side_object(change.gained),
        "lost_messages": _side_object(change.lost),
        "findings": [vars(finding) for finding in change.findings],
    }  # fmt: skip


def _side_object(side: ChangedMessages) -> dict[str, Any]:
    traits = [
        {"property": trait.name, "values": trait.values, "share": trait.share, "share_of_others": trait.share_of_others}
        for trait in side.traits
    ]
    places = side.rows.select(["queue_id", "queue_offset", "commitlog_offset", "store_timestamp"])
    return {"traits": traits, "samples": side.samples, "messages": places.to_pylist()}
