"""Prints the changes that another filter would make, as Markdown or JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from filtering.delivery.filter_changes import DAY
from filtering.findings.static import delivers
from filtering.predicate import postorder
from filtering.relation import Kind, Message, Relation
from filtering.subscriptions.history import SubscriptionRow
from jobs.cli.text import one_line, printable, time
from schemas.answers.what_if import ChangedMessages, WhatIf

QUEUES_SHOWN = 40
LONGEST_PROPERTIES = 160
_KINDS = {
    Kind.EQUIVALENT: "delivers the same messages as the old one",
    Kind.WIDER: "is wider: it delivers everything that the old one delivers",
    Kind.NARROWER: "is narrower: it delivers nothing that the old one does not deliver",
    Kind.DISJOINT: "is disjoint: it delivers nothing that the old one delivers",
    Kind.OVERLAPPING: "overlaps with the old one: each delivers messages that the other does not",
    Kind.UNKNOWN: "may relate to the old one in any way: no relation could be proven",
}


def print_markdown(found: Sequence[WhatIf], unmet: Sequence[str]) -> None:
    """Prints a section for each group and topic."""
    if len(found) > 1:
        print(f"# {len(found):,} filters: {_totals(found)}\n")
    if unmet:
        print("**Expectations that are not met**\n")
        print("".join(f"- {_text(line)}\n" for line in unmet))
    for change in found:
        print("\n".join(_section(change)))
        print()


def as_json(found: Sequence[WhatIf], unmet: Sequence[str]) -> str:
    """The changes as the JSON object that docs/JSON.md describes."""
    changes = [_object(change) for change in found]
    totals = {name: sum(change[name] for change in changes) for name in ("gained", "lost", "kept")}
    return json.dumps(totals | {"changes": changes, "unmet": list(unmet)}, ensure_ascii=False, indent=2)


def _totals(found: Iterable[WhatIf]) -> str:
    counts = [(len(change.gained), len(change.lost), change.kept) for change in found]
    gained, lost, kept = map(sum, zip(*counts, strict=True))
    return f"{gained:,} gained, {lost:,} lost, {kept:,} kept"


def _section(found: WhatIf) -> Iterator[str]:
    yield f"## {_text(found.new.consumer_group)} on {_text(found.new.topic)}: {_totals([found])}"
    yield ""
    yield f"- in force: {_filter(found.old)}"
    yield f"- instead: {_filter(found.new)}"
    if found.relation is not None:
        yield from _relation(found.relation)
    if found.pending:
        yield f"- {found.pending:,} messages that the group has not pulled yet match the new filter"
    yield f"- cost: {found.scanned:,} entries scanned, {found.passed_stage1:,} pass on the entry alone" + (
        f", the expression fails on {found.failed:,} messages" if found.failed else ""
    )
    for finding in found.findings:
        yield f"- {finding.severity}: {_text(finding.text)}"
    for kind, side in (("Gained", found.gained), ("Lost", found.lost)):
        if len(side):
            yield ""
            yield from _side(kind, side, _names(found))
    if found.by_queue:
        yield ""
        yield from _by_queue(found)


def _relation(relation: Relation) -> Iterator[str]:
    condition = ", if all numbers are written with the digits 0 to 9" if relation.plain_numbers else ""
    yield f"- the new filter {_KINDS[relation.kind]}{condition}"
    if relation.only_old is not None:
        yield f"- only the old one delivers {_message(relation.only_old)}"
    if relation.only_new is not None:
        yield f"- only the new one delivers {_message(relation.only_new)}"


def _names(found: WhatIf) -> list[str]:
    """The properties that the two filters read."""
    filters = [delivers(row) for row in (found.old, found.new) if row is not None]
    nodes = postorder(predicate for predicate in filters if predicate is not None)
    return list(dict.fromkeys(name for node in nodes for name in node.properties))


def _side(kind: str, side: ChangedMessages, names: Sequence[str]) -> Iterator[str]:
    yield f"**{kind}: {len(side):,} messages**"
    yield ""
    for trait in side.traits:
        yield f"- {trait.share:.0%} have {_code(trait.text)} ({trait.share_of_others:.0%} of the others)"
    if side.traits:
        yield ""
    rows = [
        (
            f"{row['queue_id']}/{row['queue_offset']}", time(row["store_timestamp"]), _text(row["keys"] or ""),
            _message({name: text for name, text in (row["properties"] or {}).items() if name in names}),
        )
        for row in side.samples
    ]  # fmt: skip
    yield from _table(("queue/offset", "stored", "keys", "properties"), rows)


def _by_queue(found: WhatIf) -> Iterator[str]:
    rows = [
        (time(row.day * DAY)[:10], str(row.queue_id), f"{row.kept:,}", f"{row.gained:,}", f"{row.lost:,}")
        for row in found.by_queue[:QUEUES_SHOWN]
    ]
    yield from _table(("day", "queue", "kept", "gained", "lost"), rows)
    if len(found.by_queue) > QUEUES_SHOWN:
        yield f"\n… and {len(found.by_queue) - QUEUES_SHOWN:,} more rows; --json shows all"


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(len(row[i]) for row in [titles, *rows]) for i in range(len(titles))]
    for row in [titles, ["-" * width for width in widths], *rows]:
        yield f"| {' | '.join(f'{cell:<{width}}' for cell, width in zip(row, widths, strict=True))} |"


def _filter(row: SubscriptionRow | None) -> str:
    return "no subscription" if row is None else f"{row.expression_type or 'TAG'} {_code(one_line(row.expression))}"


def _message(message: Message) -> str:
    text = ", ".join(f"{name}={text!r}" for name, text in message.items())
    shown = text if len(text) <= LONGEST_PROPERTIES else f"{text[: LONGEST_PROPERTIES - 1]}…"
    return _code(shown) if message else "none of the properties that the filters read"


def _text(text: str) -> str:
    """Text from outside, with the characters that are special in Markdown and HTML escaped."""
    return "".join(f"\\{character}" if character in "\\`*_[]<>|#" else character for character in printable(text))


def _code(text: str) -> str:
    """Text from outside, as Markdown code."""
    fence = "``" if "`" in text else "`"
    shown = printable(text).replace("|", "\\|")
    return f"{fence}{shown}{fence}"


def _object(found: WhatIf) -> dict[str, Any]:
    relation = found.relation
    return {
        "consumer_group": found.new.consumer_group,
        "topic": found.new.topic,
        "old": None if found.old is None else found.old.expression,
        "new": found.new.expression,
        "gained": len(found.gained),
        "lost": len(found.lost),
        "kept": found.kept,
        "pending": found.pending,
        "relation": None if relation is None else relation.kind.value,
        "relation_of_plain_numbers": relation is not None and relation.plain_numbers,
        "only_old": None if relation is None else relation.only_old,
        "only_new": None if relation is None else relation.only_new,
        "cost": {"scanned": found.scanned, "passed_stage1": found.passed_stage1, "errors": found.failed},
        "by_queue": [
            {"day": time(row.day * DAY)[:10], "queue_id": row.queue_id}
            | {"kept": row.kept, "gained": row.gained, "lost": row.lost}
            for row in found.by_queue
        ],
        "gained_messages": _side_object(found.gained),
        "lost_messages": _side_object(found.lost),
        "findings": [vars(finding) for finding in found.findings],
    }  # fmt: skip


def _side_object(side: ChangedMessages) -> dict[str, Any]:
    traits = [
        {"property": trait.name, "values": trait.values, "share": trait.share, "share_of_others": trait.share_of_others}
        for trait in side.traits
    ]
    places = side.rows.select(["queue_id", "queue_offset", "commitlog_offset", "store_timestamp"])
    return {"traits": traits, "samples": side.samples, "messages": places.to_pylist()}
