"""Bad rows as a report shows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

HIDDEN = "(hidden)"
SHOWN = frozenset(
    {
        "broker_name", "topic", "entry_topic", "consumer_group", "run", "first_run", "last_run", "table_name",
        "column_name", "declared", "found", "path", "source_file", "damage", "remedy", "reason",
        "job", "expression_type",
    }
)  # fmt: skip
"""Text columns without values of messages. Numbers, times and booleans are always shown."""
LONGEST = 200


def shown_rows(rows: Sequence[Mapping[str, object]], show_values: bool) -> list[dict[str, object]]:
    """Rows for JSON, without nulls; columns that may hold values of messages are HIDDEN unless ``show_values``."""
    return [
        {name: _shown(name, value, show_values) for name, value in row.items() if value is not None} for row in rows
    ]


def _shown(name: str, value: object, show_values: bool) -> object:
    if isinstance(value, (bool, int, float)):
        return value
    if name not in SHOWN and not show_values:
        return HIDDEN
    text = value.hex() if isinstance(value, bytes) else str(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
