"""export: writes a table, a part of it, or what a group missed, as JSON lines, CSV or Parquet."""

from __future__ import annotations

import argparse
import sys
from itertools import chain
from pathlib import Path

from filtering.counted import counted
from jobs.cli import application, options
from jobs.cli.application import Parser, given_name
from jobs.cli.output import output_file, place_of
from schemas.errors import UsageError

NAMES = (
    "commitlog", "consumequeue", "delivery_stats", "pull_windows", "consumer_offsets", "current_offsets",
    "queue_progress", "subscriptions", "subscription_events", "quarantine", "run_ledger", "quality_results",
    "deliveries", "pops", "pop_records", "consumptions", "missed",
)  # fmt: skip
FORMATS = ("jsonl", "csv", "parquet")
EXAMPLES = (
    "deliveries --warehouse /data/mqsieve --output deliveries.jsonl",
    "deliveries --with keys,tags,msg_id --group cg_paid --output deliveries.csv --warehouse /data/mqsieve",
    "missed --group cg_paid --topic OrderEvents --output missed.csv --warehouse /data/mqsieve",
    "commitlog --topic OrderEvents --columns keys,msg_id,properties --output - --warehouse /data/mqsieve",
)


def parser() -> Parser:
    parser = Parser("export", __doc__, EXAMPLES)
    tables = f"{', '.join(NAMES)} (the messages that a --group did not receive, and why)"
    parser.add_argument("table", choices=NAMES, metavar="TABLE", help=tables)
    options.add_warehouse(parser)
    parser.add_argument("--broker", type=given_name, metavar="NAME", help="only rows of this broker")
    parser.add_argument(
        "--group", type=given_name, action="append", metavar="NAME", help="only rows of this consumer group; repeatable"
    )
    parser.add_argument(
        "--topic", type=given_name, action="append", metavar="NAME", help="only rows of this topic; repeatable"
    )
    parser.add_argument("--columns", type=_names, metavar="A,B", help="only these columns, in this order")
    parser.add_argument(
        "--with",
        dest="message_columns",
        type=_names,
        default=(),
        metavar="A,B",
        help="for deliveries: also these columns of their messages, as in commitlog",
    )
    parser.add_argument(
        "--format",
        choices=FORMATS,
        help="jsonl (binary as hex), csv (with timestamps beside milliseconds, unless --columns is given) or parquet; "
        "default: the extension of the output file, without one jsonl",
    )
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="the file to write; - is stdout")
    return parser


def main(arguments: list[str]) -> None:
    args = parser().parse_args(arguments)
    from answers.export import Selection, batches_of, check_groups, check_topics, schema_of
    from answers.facts import check_broker
    from jobs.cli.batch_writers import write_batches
    from schemas.ledger_check import open_runs
    from schemas.run_ledger import by_broker
    from schemas.tables import with_times, with_times_schema

    kind = args.format or _format_of(args.output)
    warehouse = options.warehouse_of(args.warehouse)
    brokers = by_broker(open_runs(warehouse))
    if args.broker is not None:
        check_broker(args.broker, list(brokers))
    check_groups(warehouse, args.group or ())
    selection = Selection(args.broker, args.group, args.topic, args.columns, args.message_columns)
    batches = batches_of(warehouse, args.table, selection)
    first = next(batches, None)  # before the file exists: a user's error leaves none
    check_topics(warehouse, args.table, args.topic or ())
    with output_file(args.output) as file:
        schema = schema_of(args.table, args.columns, args.message_columns)
        rows = batches if first is None else chain([first], batches)
        if kind == "csv" and args.columns is None:
            schema, rows = with_times_schema(schema), map(with_times, rows)
        written = write_batches(kind, file, rows, schema)
    print(f"{args.table}: {counted(written, 'row')} {place_of(args.output)}", file=sys.stderr)


def _format_of(output: Path) -> str:
    """The format that a file's extension names. Raises UsageError if it names none."""
    extension = output.suffix[1:].lower()
    if extension and extension not in FORMATS:
        known = ", ".join(f".{name}" for name in FORMATS)
        raise UsageError(f"{output}: the extension names no format; give one of {known}, or --format")
    return extension or FORMATS[0]


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names or len(set(names)) < len(names):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of different columns, such as topic,queue_id")
    return names


if __name__ == "__main__":
    application.run(main)
