"""report: one HTML page about the last nights of brokers: what groups received, what changed, what needs attention."""

from __future__ import annotations

import sys
from pathlib import Path

from filtering.counted import counted
from jobs.cli import application, options
from jobs.cli.application import Parser
from jobs.cli.output import output_file, place_of
from schemas.errors import printable

EXAMPLES = (
    "--warehouse /data/mqsieve --output night.html",
    "--warehouse /data/mqsieve --output week.html --since 2026-11-15 --compare 2026-11-20",
)


def parser() -> Parser:
    parser = Parser("report", __doc__, EXAMPLES)
    options.add_answer(parser, all_brokers=True)
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="the page to write; - is stdout")
    parser.add_argument(
        "--since", type=options.instant, metavar="TIME",
        help="show the nights that ended at this date or time (UTC) or later, at most 90; default: the last 30",
    )  # fmt: skip
    parser.add_argument(
        "--compare", metavar="NIGHT",
        help="the night to compare with the last one: the beginning of its run or of its end time; "
        "default: the night before",
    )  # fmt: skip
    return parser


def main(arguments: list[str]) -> None:
    args = parser().parse_args(arguments)
    from answers.report import NoReport, reports_of_brokers
    from jobs.report_page import render_page

    on_brokers = reports_of_brokers(options.brokers_of(args), options.session, args.since, args.compare)
    page = render_page(on_brokers)
    with output_file(args.output) as file:
        file.write(page)
    reports = [each for each in on_brokers if not isinstance(each, NoReport)]
    rows = counted(sum(len(each.groups) for each in reports), "row of groups", "rows of groups")
    nights = counted(sum(len(each.nights) for each in reports), "night")
    brokers = f"{counted(len(on_brokers), 'broker')}, " if len(on_brokers) > 1 else ""
    for each in on_brokers:
        if isinstance(each, NoReport):
            print(f"no report of {printable(each.broker_name)}: {printable(each.reason)}", file=sys.stderr)
    print(f"report: {brokers}{rows}, {nights}, {len(page):,} bytes {place_of(args.output)}", file=sys.stderr)


if __name__ == "__main__":
    application.run(main)
