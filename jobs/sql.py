"""sql: answers a query in SQL over all tables, as readers see them."""

from __future__ import annotations

import json

from jobs.audit import AUDITS
from jobs.cli import application, options
from jobs.cli.application import Parser
from jobs.cli.output import json_text, print_json, print_table

EXAMPLES = (
    '"SELECT consumer_group, count(*) AS messages FROM deliveries GROUP BY consumer_group" --warehouse /data/mqsieve',
    "\"SELECT keys, available_at FROM deliveries WHERE tags = 'paid'\" --json --warehouse /data/mqsieve",
)


def parser() -> Parser:
    parser = Parser("sql", __doc__, EXAMPLES)
    parser.add_argument("query", metavar="QUERY", help="a SELECT, in DataFusion's SQL (docs/ANSWERS.md)")
    options.add_warehouse(parser)
    options.add_json(parser)
    return parser


def main(arguments: list[str]) -> None:
    args = parser().parse_args(arguments)
    from answers.audits.audit import parse_audits
    from answers.sql import answer
    from schemas.errors import printable

    listed = parse_audits(AUDITS.read_text("utf-8"), str(AUDITS))
    answer_rows = answer(options.warehouse_of(args.warehouse), args.query, listed, options.session)
    rows = answer_rows.to_pylist(maps_as_pydicts="strict")
    if args.json:
        print_json(*rows)
        return

    def cell(value: object) -> str:
        if value is None:
            return "-"
        text = json.dumps(value, default=json_text, ensure_ascii=False)
        plain = json.loads(text)
        return printable(plain if isinstance(plain, str) else text)

    titles = answer_rows.column_names
    print_table(titles, [[cell(row[title]) for title in titles] for row in rows], left=len(titles))


if __name__ == "__main__":
    application.run(main)
