"""Prints docs/TABLES.md: ./spark-submit.sh python docs/make_tables.py > docs/TABLES.md"""

from __future__ import annotations

import pyarrow as pa

from schemas.commitlog import COMMITLOG, SLOTS
from schemas.deliveries import DELIVERY_COLUMNS
from schemas.run_ledger import RUN_LEDGER
from schemas.tables import TABLES, UNLEDGERED_TABLES

HEAD = """# Tables

Generated from `schemas/` by `docs/make_tables.py`. Times are ms since the epoch, UTC, unless a comment says otherwise.

Readers see two tables in another form than their files: `commitlog` has `properties` (a map), `msg_id` and
`body_crc` instead of the columns that properties are cut into, and `deliveries` has one row for each message and
group of `delivery_blocks`. Use `mqsieve.open` (with `to_spark` in Spark) or `./spark-submit.sh export`. In a
catalog, the views `messages` and `deliveries` have these rows. Spark, pandas and CSV have a timestamp beside each time.
To have the keys, tags and properties of deliveries, [join](ANSWERS.md#in-a-notebook) the messages by `broker_name` and
`commitlog_offset`.
"""


def page() -> str:
    """The page as Markdown."""
    parts = [
        HEAD,
        _table("deliveries", "One row for each message and group that received it, or dropped it.", DELIVERY_COLUMNS),
    ]
    parts += [_table(table.name, table.comment, table.schema) for table in (*TABLES, *UNLEDGERED_TABLES, RUN_LEDGER)]
    return "\n".join(parts)


def _table(name: str, comment: str, schema: pa.Schema) -> str:
    fields = [field for field in schema if field.name not in SLOTS[1:]] if name == COMMITLOG.name else schema
    rows = [
        f"| `{_name(field)}` | {field.type if len(str(field.type)) < 40 else 'list'} | {_comment(field)} |"
        for field in fields
    ]
    return "\n".join([f"## {name}", "", comment, "", "| Column | Type | Meaning |", "|---|---|---|", *rows, ""])


def _name(field: pa.Field) -> str:
    return f"{SLOTS[0]} to {SLOTS[-1]}" if field.name == SLOTS[0] else field.name


def _comment(field: pa.Field) -> str:
    return field.metadata[b"comment"].decode().replace("|", "\\|")


if __name__ == "__main__":
    print(page(), end="")
