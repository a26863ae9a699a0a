"""replay: what every group would receive if it read the whole log today, in a separate warehouse.

A night filters each message with the subscription of its time. A replay filters all stored messages with the
subscriptions that are in force now, or with those of a file.
"""

from __future__ import annotations

from filtering.counted import counted
from jobs.cli import application, options
from jobs.cli.application import Parser
from schemas.errors import printable

EXAMPLES = (
    "--warehouse /data/mqsieve --into /tmp/replay",
    "--warehouse /data/mqsieve --subscriptions new.yaml --from 1795237513466 --into /tmp/replay",
)


def parser() -> Parser:
    parser = Parser("replay", __doc__, EXAMPLES)
    options.add_answer(parser)
    options.add_subscriptions(parser, "the subscriptions in force at the end of the last night")
    options.add_period(parser)
    parser.add_argument(
        "--into",
        required=True,
        metavar="DIR",
        help="the warehouse to write; it replaces an older replay in this folder",
    )
    return parser


def main(arguments: list[str]) -> None:
    args = parser().parse_args(arguments)
    from jobs.night.replay import check_target, replay
    from schemas.ledger_check import check_folder

    period = options.period_of(args)
    subscriptions = options.filled_subscriptions_of("subscriptions", args.subscriptions)
    facts = options.facts_of(args)
    facts.check_has_messages()
    into = options.warehouse_of(args.into)
    check_folder(into)
    with into.writing():
        check_target(into, facts.warehouse)
        report = replay(facts, subscriptions, period, into, options.session)
        options.register_in_catalog(into)
    for line in subscriptions.rejected_lines if subscriptions is not None else ():
        print(f"rejected: {printable(line)}")
    if not report.scanned:
        print("nothing to filter: no topic with a subscription has messages in this period")
    deliveries = counted(report.deliveries, "delivery", "deliveries")
    print(f"{deliveries}; the tables are in {printable(into.location)}; to write one as JSON lines:")
    print(f"  {into.command('export deliveries')} --output deliveries.jsonl")


if __name__ == "__main__":
    application.run(main)
