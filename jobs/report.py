"""report: one HTML page about a night: what each group received, what changed, and what needs attention."""

from __future__ import annotations

import sys
from pathlib import Path

from filtering.counted import counted
from jobs.cli import application, options
from jobs.cli.application import Parser

EXAMPLES = (
    "--warehouse /data/mqsieve --output night.html",
    "--warehouse /data/mqsieve --output week.html --since 2026-11-15 --compare 2026-11-20",
)


def parser() -> Parser:
    parser = Parser("report", __doc__, EXAMPLES)
    options.add_answer(parser)
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
    chosen = parser().parse_args(arguments)
    from jobs.cli.json_lines import output_file, place_of
    from jobs.report_page.page import render_page
    from schemas.answers.report.report import report

    found = report(options.facts_of(chosen), options.session, chosen.since, chosen.compare)
    page = render_page(found)
    with output_file(chosen.output) as file:
        file.write(page)
    rows, nights = counted(len(found.groups), "row of groups", "rows of groups"), counted(len(found.nights), "night")
    print(f"report: {rows}, {nights}, {len(page):,} bytes {place_of(chosen.output)}", file=sys.stderr)


if __name__ == "__main__":
    application.run(main)
