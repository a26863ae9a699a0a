"""maintain: deletes old files, and on request old messages or bodies; rebuilds damaged tables."""

from __future__ import annotations

import argparse
from contextlib import nullcontext

from jobs.cli import application, options
from jobs.cli.application import Parser
from schemas.errors import UsageError, printable

EXAMPLES = (
    "--warehouse /data/mqsieve",
    "--warehouse /data/mqsieve --keep-days 90 --keep-bodies 7",
    "--warehouse /data/mqsieve --keep-bodies 7 --dry-run",
    "--warehouse /data/mqsieve --rebuild",
)


def parser() -> Parser:
    parser = Parser("maintain", __doc__, EXAMPLES)
    options.add_answer(parser, all_brokers=True)
    parser.add_argument(
        "--keep-days", type=_days, metavar="N",
        help="remove messages, entries and deliveries of nights that ended more than N days before the last one; "
        "messages that the broker still has are kept",
    )  # fmt: skip
    parser.add_argument(
        "--keep-bodies", type=_days, metavar="N",
        help="remove the bodies of messages of nights that ended more than N days before the last one",
    )  # fmt: skip
    parser.add_argument("--rebuild", action="store_true", help="rebuild damaged or missing tables from the others")
    parser.add_argument("--dry-run", action="store_true", help="change nothing; say what would be removed or rebuilt")
    return parser


def _days(text: str) -> int:
    if not text.isdecimal() or int(text) > 1_000_000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of days")
    return int(text)


def main(arguments: list[str]) -> None:
    args = parser().parse_args(arguments)
    if args.rebuild and (args.keep_days, args.keep_bodies) != (None, None):
        raise UsageError("--rebuild takes no --keep-days or --keep-bodies: run maintain twice")
    from jobs.cli.maintenance import maintain, rebuild_damaged
    from jobs.night.run import NightRunner
    from schemas.ledger_check import no_nights, read_runs

    warehouse = options.warehouse_of(args.warehouse)
    if not read_runs(warehouse):
        raise no_nights(warehouse)
    with nullcontext() if args.dry_run else warehouse.writing():
        runner = NightRunner(warehouse, "maintain", options.session)
        lines = (
            rebuild_damaged(runner, args.dry_run)
            if args.rebuild
            else maintain(runner, args.broker, args.keep_days, args.keep_bodies, args.dry_run)
        )
    for line in lines:
        print(printable(line))


if __name__ == "__main__":
    application.run(main)
