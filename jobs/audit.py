"""audit: checks the tables of new nights with the queries for bad rows in conf/audits.yaml."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from jobs.cli import application, options
from jobs.cli.application import CheckFailed, Parser, input_file

# A driver on a cluster runs this file alone; conf/ is beside the package.
CONF = Path(application.__file__).parents[2] / "conf"
AUDITS, SPARK_AUDITS = CONF / "audits.yaml", CONF / "spark_audits.yaml"
EXAMPLES = (
    "--warehouse /data/mqsieve",
    "--warehouse /data/mqsieve --json > known.jsonl",
    "--warehouse /data/mqsieve --baseline known.jsonl --fail-on warn --junit audits.xml",
    "--warehouse /data/mqsieve --audits our_audits.yaml --all",
    "--warehouse /data/mqsieve --engine spark",
)


def parser() -> Parser:
    parser = Parser("audit", __doc__, EXAMPLES)
    options.add_warehouse(parser)
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--audits",
        type=input_file,
        default=AUDITS,
        metavar="FILE",
        help="the audits to run, written as conf/audits.yaml (docs/QUALITY.md); default: that file",
    )
    which.add_argument(
        "--engine",
        choices=("spark",),
        help="compute entries and deliveries once more in Spark SQL, and compare (conf/spark_audits.yaml); "
        "slow for more than tens of groups",
    )
    parser.add_argument(
        "--fail-on",
        choices=("error", "warn"),
        default="error",
        help="the lowest severity that exits 3; default: %(default)s",
    )
    parser.add_argument(
        "--baseline", type=input_file, metavar="FILE",
        help="a file of known failures, written by --json; they exit 3 only if there are more bad rows now",
    )  # fmt: skip
    parser.add_argument(
        "--all", action="store_true", help="audit all nights; default: the nights since the last audit that passed"
    )
    parser.add_argument("--junit", type=Path, metavar="FILE", help="also write the results as JUnit XML")
    parser.add_argument("--show-values", action="store_true", help="show values of messages in samples of bad rows")
    parser.add_argument("--json", action="store_true", help="write the results as JSON lines, one for each audit")
    return parser


def main(arguments: list[str]) -> None:
    args = parser().parse_args(arguments)
    from answers.audits.audit import Severity, parse_audits, scope_of
    from answers.audits.auditor import run_audits, store
    from jobs.cli import audit_formats as formats
    from schemas.ledger_check import open_runs

    file = args.audits if args.engine is None else SPARK_AUDITS
    listed = parse_audits(file.read_text("utf-8", "replace"), str(file))
    known = formats.read_baseline(args.baseline) if args.baseline is not None else {}
    warehouse = options.warehouse_of(args.warehouse)
    entries = open_runs(warehouse)
    report = run_audits(scope_of(warehouse, entries, args.all), listed, known, options.session)
    failures = report.failures(Severity(args.fail_on))
    try:
        # Nights that passed other audits have yet to pass those of conf/audits.yaml.
        store(report, passed=not failures and file == AUDITS)
    except OSError as error:
        print(f"mqsieve: the results were not stored in quality_results: {error}", file=sys.stderr)
    if args.junit is not None:
        formats.write_junit(args.junit, report, args.show_values)
    if (summary := os.environ.get("GITHUB_STEP_SUMMARY")) is not None:
        formats.add_summary(Path(summary), report, args.show_values)
    if args.json:
        formats.print_json_lines(report, args.show_values)
    else:
        formats.print_report(report, args.show_values)
    if failures:
        raise CheckFailed(f"audits failed: {', '.join(failure.audit.name for failure in failures)}")


if __name__ == "__main__":
    application.run(main)
