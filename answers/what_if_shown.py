"""How a what-if is shown: as blocks, which become text, Markdown or HTML, and as JSON (docs/JSON.md)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from answers.rendering import Block, Code, Heading, Items, Line, Paragraph, Table, expression_line, time
from filtering.counted import counted, shortened
from filtering.delivery.message_filter import delivers
from filtering.predicate import postorder
from filtering.relation import Kind, Message, Relation
from filtering.subscriptions.subscription_row import SubscriptionRow
from filtering.time_spans import BEGINNING, DAY, FOREVER

if TYPE_CHECKING:
    from answers.what_if import AgainstInForce, ChangedMessages, WhatIf

QUEUES_SHOWN = 40
LONGEST_PROPERTIES = 160
NOTHING_TO_COMPARE = "there is no message to compare"
"""Said where the topic has no message in the period."""
NOT_KNOWN_OF_POPS = (
    "the group pops: what its pops read is compared. When others would have been popped is not known, nor what would "
    "have been acknowledged or come again"
)
_KINDS = {
    Kind.EQUIVALENT: "delivers the same messages as the old one",
    Kind.WIDER: "is wider: it delivers everything that the old one delivers",
    Kind.NARROWER: "is narrower: it delivers nothing that the old one does not deliver",
    Kind.DISJOINT: "is disjoint: it delivers nothing that the old one delivers",
    Kind.OVERLAPPING: "overlaps with the old one: each delivers messages that the other does not",
    Kind.UNKNOWN: "may relate to the old one in any way: no relation could be proven",
}


def totals(what_ifs: Iterable[WhatIf]) -> str:
    counts = [(len(change.gained), len(change.lost), change.kept) for change in what_ifs]
    gained, lost, kept = map(sum, zip(*counts, strict=True))
    return f"{gained:,} gained, {lost:,} lost, {kept:,} kept"


def blocks(change: WhatIf, broker: str | None = None) -> Iterator[Block]:
    """What another filter changes for a group and a topic. ``broker``: its name, where there are several."""
    where = "" if broker is None else f", {broker}"
    yield Heading(f"{change.new.consumer_group} on {change.new.topic}{where}: {totals([change])}", 2)
    yield Items(list(_facts(change)))
    for kind, side in (("Gained", change.gained), ("Lost", change.lost)):
        if len(side):
            yield Paragraph(f"{kind}: {counted(len(side), 'message')}", is_strong=True)
            yield from _side(side, _names(change))
    if change.by_queue:
        yield from _by_queue(change)


def _facts(change: WhatIf) -> Iterator[Line]:
    yield "in force: ", *_filter(change.old)
    yield "instead: no subscription: the file ends it" if change.ends else ("instead: ", *_filter(change.new))
    yield from _period(change)
    if change.is_popping:
        yield NOT_KNOWN_OF_POPS
    if change.relation is not None:
        yield from _relation(change.relation)
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
        yield f"{finding.severity}: {finding.text}"


def _period(change: WhatIf) -> Iterator[str]:
    begin, end = change.period
    limits = [f"from {time(begin)}"] * (begin != BEGINNING) + [f"before {time(end)}"] * (end != FOREVER)
    if limits:
        yield f"only messages stored {' and '.join(limits)}: {change.stored:,} of {change.new.topic}"
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


def _relation(relation: Relation) -> Iterator[Line]:
    condition = ", if all numbers are written with the digits 0 to 9" if relation.plain_numbers else ""
    yield f"the new filter {_KINDS[relation.kind]}{condition}"
    if relation.only_old is not None:
        yield "only the old one delivers ", _message(relation.only_old)
    if relation.only_new is not None:
        yield "only the new one delivers ", _message(relation.only_new)


def _names(change: WhatIf) -> list[str]:
    """The properties that the two filters read."""
    filters = [delivers(row) for row in (change.old, change.new) if row is not None]
    nodes = postorder(predicate for predicate in filters if predicate is not None)
    return list(dict.fromkeys(name for node in nodes for name in node.properties))


def _side(side: ChangedMessages, names: Sequence[str]) -> Iterator[Block]:
    """What the messages have in common, and some of them with these properties."""
    if side.traits:
        traits = (
            (f"{trait.share:.0%} have ", Code(trait.text), f" ({trait.share_of_others:.0%} of the others)")
            for trait in side.traits
        )
        yield Items(list(traits))
    rows = [
        (
            f"{row['queue_id']}/{row['queue_offset']}", time(row["store_timestamp"]), row["keys"] or "",
            _message({name: text for name, text in (row["properties"] or {}).items() if name in names}),
        )
        for row in side.samples
    ]  # fmt: skip
    yield Table(("queue/offset", "stored", "keys", "properties"), rows)


def _by_queue(change: WhatIf) -> Iterator[Block]:
    rows = [
        (time(row.day * DAY)[:10], str(row.queue_id), f"{row.kept:,}", f"{row.gained:,}", f"{row.lost:,}")
        for row in change.by_queue[:QUEUES_SHOWN]
    ]
    yield Table(("day", "queue", "kept", "gained", "lost"), rows)
    if len(change.by_queue) > QUEUES_SHOWN:
        yield Paragraph(f"… and {len(change.by_queue) - QUEUES_SHOWN:,} more rows; --json shows all")


def _filter(row: SubscriptionRow | None) -> tuple[str, ...]:
    if row is None:
        return ("no subscription",)
    return f"{row.expression_type or 'TAG'} ", Code(expression_line(row.expression))


def _message(message: Message) -> str:
    text = ", ".join(f"{name}={text!r}" for name, text in message.items())
    return Code(shortened(text, LONGEST_PROPERTIES)) if text else "none of the properties that the filters read"


def what_if_json(change: WhatIf) -> dict[str, Any]:
    """A what-if as a JSON object."""
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
