"""The command line of nightly, and of its steps one by one."""

from __future__ import annotations

from jobs.cli import options
from jobs.cli.application import Parser, input_file
from jobs.night.stages import ALL_STAGES, Stage
from schemas.messages.bodies import Bodies


def night_parser(job: str, description: str | None, stages: frozenset[Stage], examples: tuple[str, ...]) -> Parser:
    """The options of a job that does some stages of a night."""
    parser = Parser(job, description, examples)
    options.add_warehouse(parser)
    options.add_broker_config(parser)
    if Stage.INGEST in stages:
        options.add_store(parser, required=stages != ALL_STAGES)
        parser.add_argument(
            "--bodies", choices=[choice.value for choice in Bodies], default=Bodies.KEEP.value,
            help="bodies of messages to keep; default: keep (all of them)",
        )  # fmt: skip
        parser.add_argument(
            "--new-epoch",
            action="store_true",
            help="the broker was wiped: its new log replaces all that was stored of it",
        )
    if Stage.REGISTER in stages:
        options.add_subscriptions(parser, "the store's config/consumerFilter.json", required=stages == {Stage.REGISTER})
        parser.add_argument(
            "--redo-from", type=int, metavar="MS",
            help="run the nights from this instant (ms since the epoch) on again, after a corrected history",
        )  # fmt: skip
    if Stage.DELIVER in stages:
        parser.add_argument(
            "--filter-hooks", type=input_file, metavar="FILE",
            help="what clients drop: YAML list of group, topic, and predicate (Spark SQL) or function (module:name); "
            "the module is imported, and its code runs",
        )  # fmt: skip
    if stages == ALL_STAGES:
        parser.add_argument(
            "--brokers", type=input_file, metavar="FILE",
            help="YAML list of brokers, each with name, store, config and subscriptions: a night of each",
        )  # fmt: skip
        parser.add_argument(
            "--strict", action="store_true", help="exit 3 where the night met something that needs attention"
        )
    return parser
