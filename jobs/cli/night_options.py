"""The command line of nightly, and of the jobs for its single steps."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from jobs.cli import options
from jobs.cli.application import Parser, input_file
from jobs.night.steps import ALL_STEPS, Step
from schemas.messages.bodies import Bodies


def night_parser(job: str, description: str | None, steps: frozenset[Step], examples: tuple[str, ...]) -> Parser:
    """The parser of a job that runs some steps of a night."""
    parser = Parser(job, description, examples)
    parser.set_defaults(
        store=None, bodies=Bodies.KEEP.value, new_epoch=False, subscriptions=None, redo_from=None, filter_hooks=None,
        brokers=None, recorded=None, metrics=None, strict=False,
    )  # fmt: skip
    options.add_warehouse(parser)
    options.add_broker_config(parser)
    options.add_rocketmq_version(
        parser,
        "the broker's version, such as 4.9.7; default: that of the last run, unless the store shows another one",
    )
    if Step.INGEST in steps:
        parser.add_argument(
            "--store",
            action="append",
            required=steps != ALL_STEPS,
            metavar="DIR",
            help="a broker's store folder, or a message log: JSON lines (.jsonl) or Parquet; repeat the option for "
            "several snapshots of the broker: each becomes a night, in this order",
        )
        parser.add_argument(
            "--bodies", choices=[choice.value for choice in Bodies], default=Bodies.KEEP.value,
            help="which message bodies to store; default: keep (all of them)",
        )  # fmt: skip
        parser.add_argument(
            "--new-epoch",
            action="store_true",
            help="the broker was wiped: its new log replaces all of its stored rows",
        )
    if Step.REGISTER in steps:
        options.add_subscriptions(parser, "the store's config/consumerFilter.json", required=steps == {Step.REGISTER})
        parser.add_argument(
            "--redo-from", type=options.instant, metavar="TIME",
            help="repeat the nights from this time on, after the history was corrected: ms since 1970, or an ISO date "
            "or time (UTC)",
        )  # fmt: skip
    if Step.DELIVER in steps:
        parser.add_argument(
            "--filter-hooks", type=input_file, metavar="FILE",
            help="filter hooks of clients: a YAML list of group, topic, and predicate (Spark SQL) or function "
            "(module:name); the module is imported, and its code runs",
        )  # fmt: skip
    if steps == ALL_STEPS:
        parser.add_argument(
            "--brokers", type=input_file, metavar="FILE",
            help="YAML list of brokers, each with name, store, config and subscriptions; runs a night for each",
        )  # fmt: skip
        parser.add_argument(
            "--recorded", type=Path, metavar="DIR",
            help="what record wrote: the subscriptions, the configuration and the version of the broker of --store",
        )  # fmt: skip
        parser.add_argument(
            "--metrics", type=_prom_file, metavar="FILE",
            help="write gauges of nights and lags for Prometheus, when all nights have ended (docs/OPERATIONS.md)",
        )  # fmt: skip
        parser.add_argument(
            "--strict",
            action="store_true",
            help="exit 3 if a condition holds that is an error (docs/OPERATIONS.md); checks subscriptions as lint does",
        )
    return parser


def _prom_file(text: str) -> Path:
    """Raises ArgumentTypeError if node_exporter would not read the file, or it cannot be written."""
    if not text.endswith(".prom"):
        raise argparse.ArgumentTypeError(f"{text} does not end in .prom, and node_exporter reads no other files")
    folder = Path(text).absolute().parent
    if not folder.is_dir():
        raise argparse.ArgumentTypeError(f"the folder {folder} does not exist: create it first")
    if not os.access(folder, os.W_OK, effective_ids=True):
        raise argparse.ArgumentTypeError(f"you may not write to the folder {folder}: change its permissions, or owner")
    return Path(text)


def run_steps(job: str, steps: frozenset[Step], parser: Parser, arguments: list[str]) -> None:
    """Runs a job that runs some steps of a night. An error in its command line appears before slow imports."""
    args = parser.parse_args(arguments)
    from jobs.cli.night_job import run_job

    run_job(job, steps, args)
