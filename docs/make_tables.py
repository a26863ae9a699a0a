"""Prints docs/TABLES.md: ./spark-submit.sh python docs/make_tables.py > docs/TABLES.md"""

from __future__ import annotations

import pyarrow as pa

from schemas.commitlog import COMMITLOG, SLOTS, VIEW_COMMENTS, view
from schemas.deliveries import DELIVERY_COLUMNS
from schemas.delta.table import column
from schemas.run_ledger import RUN_LEDGER
from schemas.tables import TABLES, UNLEDGERED_TABLES

HEAD = """# Tables

Generated from `schemas/` by `docs/make_tables.py`. Times are ms since the epoch, UTC, unless a comment says otherwise.

Readers see two tables in another form than their files: first [deliveries](#deliveries) and [messages](#messages),
then the tables as they are stored. Use `mqsieve.open` (with `to_spark` in Spark), `./spark-submit.sh sql` or
`./spark-submit.sh export`, where messages are called `commitlog`. In a catalog, the views `messages` and `deliveries`
have these rows. Spark, pandas and CSV have a timestamp beside each time (`available_at_utc` beside `available_at`); in
`sql`, the times themselves are timestamps, and deliveries have the `keys` and `tags` of their message, too.
Elsewhere, [join](ANSWERS.md#in-a-notebook) the messages by `broker_name` and `commitlog_offset`.
"""


def page() -> str:
    """The page as Markdown."""
    parts = [
        HEAD,
        _table("deliveries", "One row for each message and group that received it, or dropped it.", DELIVERY_COLUMNS),
        _table(
            "messages",
            "The messages as readers see them. Key: broker_name, commitlog_offset. `sql`, `export` and "
            '`spark.read.format("mqsieve")` call this table `commitlog`.',
            _messages(),
        ),
    ]
    stored = (*TABLES, *UNLEDGERED_TABLES, RUN_LEDGER)
    parts += [_table(table.name, _stored_as(table.comment, table.name), table.schema) for table in stored]
    return "\n".join(parts)


def _messages() -> pa.Schema:
    stored = {field.name: _comment(field) for field in COMMITLOG.schema}
    fields = view(COMMITLOG.schema.empty_table()).schema
    return pa.schema(
        [column(field.name, field.type, VIEW_COMMENTS.get(field.name) or stored[field.name]) for field in fields]
    )


def _table(name: str, comment: str, schema: pa.Schema) -> str:
    fields = [field for field in schema if field.name not in SLOTS[1:]] if name == COMMITLOG.name else schema
    rows = [
        f"| `{_name(field)}` | {field.type if len(str(field.type)) < 40 else 'list'} | {_comment(field)} |"
        for field in fields
    ]
    return "\n".join([f"## {name}", "", comment, "", "| Column | Type | Meaning |", "|---|---|---|", *rows, ""])


def _stored_as(comment: str, name: str) -> str:
    return f"{comment} Readers see [messages](#messages)." if name == COMMITLOG.name else comment


def _name(field: pa.Field) -> str:
    return f"{SLOTS[0]} to {SLOTS[-1]}" if field.name == SLOTS[0] else field.name


def _comment(field: pa.Field) -> str:
    return field.metadata[b"comment"].decode().replace("|", "\\|")


if __name__ == "__main__":
    print(page(), end="")
