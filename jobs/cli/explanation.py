"""Prints explanations on a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from answers.explain import VERDICTS, Explanation, step_text
from answers.messages import StoredMessage
from filtering.delivery.block_schema import Outcome
from filtering.explanation import Stage, leaf_values
from filtering.sql92.trace import ExpressionPart, Result
from jobs.cli.text import print_table, short, time
from schemas.errors import option, printable

MARKS = {
    Result.TRUE: "✓", Result.FALSE: "✗", Result.NULL: "∅", Result.ERROR: "!", Result.NOT_EVALUATED: "·",
}  # fmt: skip
STAGES = {
    Stage.TAGS_CODE: "stage 1, tags code",
    Stage.BIT_MAP: "stage 1, filter bit map",
    Stage.EXPRESSION: "stage 2, expression",
}
SHOWN_LEAVES = 8
LONGEST_LEAF = 44


def print_explanation(explanation: Explanation, full: bool, broker: str | None = None) -> None:
    """Prints why one group received a message or not; ``full`` adds all details, ``broker`` names its broker."""
    message, decision = explanation.message, explanation.decision
    group = printable(explanation.consumer_group)
    print(f"{short(message.name)}  {_place(message, broker)} → {group}: {explanation.verdict}")
    if full:
        _print_full(explanation)
    stage = STAGES.get(decision.stage, str(decision.stage))
    stopped = explanation.outcome not in VERDICTS
    if not stopped:
        _line("because", decision.reason)
    elif explanation.trace is None:
        _line("stopped at", f"{stage}: {decision.reason}")
    else:
        _line("stopped at", f"{stage}: {decision.headline}")
    if explanation.start is not None and (full or explanation.is_from_before):
        _line("began", explanation.start.text)
    if explanation.filter_change is not None:
        _line("filter", explanation.filter_change)
    if explanation.preview is not None:
        would = "would be delivered" if explanation.preview.outcome is Outcome.DELIVERED else "would not be delivered"
        when = "then" if explanation.outcome is Outcome.WAITING else "today"
        _line(when, f"{would}: {explanation.preview.reason}")
    if explanation.trace is not None and (full or stopped):
        lines = list(_tree(explanation.trace)) if full else _decisive(explanation.trace)
        for number, line in enumerate(lines):
            _line("expression" if full and not number else "because" if not number else "", line)
    for finding in explanation.findings:
        _line("lint", finding)
    if explanation.uncertain is not None:
        _line("uncertain", explanation.uncertain)
    if explanation.nearest_miss is not None:
        print(f"  would match {printable(explanation.nearest_miss.would_match)}")
    if len(explanation.journey) > 1:
        for number, step in enumerate(explanation.journey):
            _line("" if number else "journey", step_text(step))


def print_every_group(
    explanations: Sequence[Explanation],
    message: StoredMessage,
    copies: Sequence[StoredMessage],
    nobody: str,
    broker: str | None = None,
) -> None:
    """Prints the outcome of a message for each group that ever subscribed to its topic, or the line ``nobody``."""
    print(f"{short(message.name)}  {_place(message, broker)}, stored {time(message.store_timestamp)} UTC")
    if not explanations:
        print(f"  {nobody}")
    rows = [
        (
            short(row.consumer_group),
            str(row.outcome),
            printable(row.summary) + "; uncertain (--group says why)" * (row.uncertain is not None),
        )
        for row in sorted(explanations, key=lambda row: (list(Outcome).index(row.outcome), row.consumer_group))
    ]
    if rows:
        print_table(("group", "outcome", "reason"), rows, left=3, indent="  ", last_is_text=True)
    if copies:
        _line("copies", ", ".join(copy.place for copy in copies))


def print_choices(messages: Sequence[tuple[str | None, StoredMessage]], group: str | None) -> None:
    """Lists messages with the options that choose each: its broker is one unless it is None."""
    print(f"{len(messages):,} messages match; choose one:")
    for broker, message in messages:
        place = {"topic": message.topic, "queue": str(message.queue_id), "offset": str(message.queue_offset)}
        named = {"message": message.msg_id} if message.msg_id is not None else place
        words = named | {"group": group, "broker": broker}
        options = " ".join(option(name, value) for name, value in words.items() if value is not None)
        print(f"  {options}  {printable(message.place)}, {time(message.store_timestamp)} UTC")


def _place(message: StoredMessage, broker: str | None) -> str:
    return printable(message.place if broker is None else f"{message.place} on {broker}")


def _print_full(explanation: Explanation) -> None:
    message, row, bit_map = explanation.message, explanation.subscription, explanation.filters.bit_map
    _line("message", f"msgId {message.msg_id or '-'}, unique key {message.uniq_key or '-'}, keys {message.keys or '-'}")
    _line("stored", f"{time(message.store_timestamp)} UTC, at physical offset {message.commitlog_offset:,}")
    if row is not None:
        born = f", filter born {time(row.born_time)}" if row.born_time else ""
        since = time(row.valid_from) if row.valid_from > 0 else "the beginning"
        _line("subscribed", f"{row.filter_text} (version {row.sub_version}{born})")
        _line("in force", f"{since} – {time(row.valid_to)}, {'online' if row.is_consuming else 'away'}")
    if explanation.pulled_at is not None:
        _line("pulled", time(explanation.pulled_at))
    for delivery in explanation.received:
        _line("received", f"{delivery.outcome} at {time(delivery.available_at)}")
    if message.entry is not None:
        _line("entry", f"tags code {message.entry.tags_code}")
    if bit_map is not None:
        asked = bit_map.not_asked or (f"unset {list(bit_map.unset)}" if bit_map.unset else "all set")
        _line("bit map", f"positions {list(bit_map.positions)}: {asked}")


def _decisive(trace: ExpressionPart) -> list[str]:
    """One line for each leaf, or for the first leaves that decide the result if there are many."""
    leaves = list(trace.leaves())
    decisive = [leaf for leaf in leaves if leaf.decides]
    shown = leaves if len(leaves) <= SHOWN_LEAVES else decisive[:SHOWN_LEAVES]
    width = max(len(short(leaf.text, LONGEST_LEAF)) for leaf in shown)
    lines = [_leaf(leaf, width) for leaf in shown]
    if len(shown) < len(leaves):
        lines.append(f"… {len(leaves) - len(shown):,} more parts; --full shows all")
    return lines


def _leaf(leaf: ExpressionPart, width: int) -> str:
    return f"{short(leaf.text, LONGEST_LEAF):<{width}}  {MARKS[leaf.result]}  {printable(leaf_values(leaf))}".rstrip()


def _tree(part: ExpressionPart, depth: int = 0) -> Iterator[str]:
    pad = "  " * depth
    arrow = "  ←" if part.decides and not part.parts else ""
    if not part.parts:
        values = printable(leaf_values(part))
        yield f"{pad}{printable(part.text)}  {MARKS[part.result]} {part.result.value}  {values}{arrow}"
        return
    yield f"{pad}{part.text}  {MARKS[part.result]} {part.result.value}"
    for child in part.parts:
        yield from _tree(child, depth + 1)


def _line(title: str, text: str) -> None:
    print(f"  {title:<10}  {printable(text)}")
