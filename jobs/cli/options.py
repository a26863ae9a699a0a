"""Options that several jobs have, and functions that turn their values into objects.

At the end, the command line of nightly, of which the jobs for its single steps have a part. Slow imports are inside the
functions, so that errors in the command line appear at once.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from jobs.cli.application import Parser, given_name, input_file
from jobs.night import ALL_STEPS, Step
from schemas.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from answers.facts import BrokerFacts
    from filtering.broker_config import BrokerConfig
    from filtering.rocketmq_version import RocketMQVersion
    from jobs.night.inputs import SubscriptionFile
    from schemas.delta.warehouse import Warehouse
    from schemas.remoting import Credentials

_SUBSCRIPTIONS_HELP = (
    "subscriptions: event lines, a consumerFilter.json, or a YAML list (docs/SUBSCRIPTIONS.md); repeat the option for "
    "several files"
)


def add_warehouse(parser: Parser, required: bool = True) -> None:
    parser.add_argument("--warehouse", required=required, metavar="DIR", help="folder of the tables, or catalog.schema")


def add_answer(parser: Parser, required: bool = True, all_brokers: bool = False) -> None:
    """The options of a job that answers from the tables of one broker, or of every one if none is named."""
    add_warehouse(parser, required)
    several = "default: every one in the warehouse" if all_brokers else "if the warehouse holds several brokers"
    parser.add_argument("--broker", type=given_name, metavar="NAME", help=f"the brokerName, {several}")


def add_name_server(parser: Parser, help: str) -> None:
    """The options of a job that asks running brokers, which :func:`credentials_of` reads, too."""
    parser.add_argument(
        "--namesrv", type=addresses, metavar="HOST:9876",
        help=f"a name server: {help}; several with ; between them, of which the first that answers counts",
    )  # fmt: skip
    parser.add_argument(
        "--access-key", metavar="KEY", help="the access key of a user who may read, for brokers with ACL"
    )
    parser.add_argument(
        "--secret-key-file", type=input_file, metavar="FILE", help="a file that has nothing but the user's secret key"
    )


def addresses(text: str) -> list[str]:
    """The addresses, HOST:PORT with ; between them, in an option."""
    from schemas.remoting import host_and_port

    listed = [each.strip() for each in text.split(";") if each.strip()]
    try:
        for each in listed:
            host_and_port(each)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return listed


def credentials_of(options: argparse.Namespace) -> Credentials | None:
    """The credentials in the options, if any. Raises UsageError if one half is missing."""
    if (options.access_key is None) != (options.secret_key_file is None):
        raise UsageError("--access-key and --secret-key-file belong together")
    if options.access_key is None:
        return None
    from schemas.remoting import Credentials

    return Credentials(options.access_key, options.secret_key_file.read_text(encoding="utf-8").strip())


def add_json(parser: argparse._ActionsContainer) -> None:
    parser.add_argument("--json", action="store_true", help="answer as JSON (docs/JSON.md)")


def add_broker_config(parser: Parser) -> None:
    parser.add_argument("--broker-config", type=input_file, metavar="FILE", help="the broker's broker.conf, or YAML")


def version(text: str) -> RocketMQVersion:
    """The version of RocketMQ in an option."""
    from filtering.rocketmq_version import RocketMQVersion

    try:
        return RocketMQVersion.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def add_rocketmq_version(parser: Parser, help: str) -> None:
    parser.add_argument("--rocketmq-version", type=version, metavar="X.Y.Z", help=help)


def add_subscriptions(parser: Parser, default: str, required: bool = False) -> None:
    """``default``: the subscriptions that are used without the option, for the help."""
    parser.add_argument(
        "--subscriptions",
        type=input_file,
        action="append",
        required=required,
        metavar="FILE",
        help=_SUBSCRIPTIONS_HELP if required else f"{_SUBSCRIPTIONS_HELP}; default: {default}",
    )


def instant(text: str) -> int:
    """The time (ms) in an option."""
    from filtering.subscriptions.events import instant as parse

    try:
        return parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def add_period(parser: Parser) -> None:
    """The options --from and --to, which :func:`period_of` reads."""
    parser.add_argument(
        "--from",
        dest="begin",
        type=instant,
        metavar="TIME",
        help="only messages stored from this time on: ms since 1970, or an ISO date or time (UTC)",
    )
    parser.add_argument("--to", dest="end", type=instant, metavar="TIME", help="only messages stored before this time")


def period_of(options: argparse.Namespace) -> tuple[int, int]:
    """The store times (ms, the second exclusive) from --from to --to. Raises UsageError if there is none between."""
    from filtering.time_spans import BEGINNING, FOREVER

    begin = BEGINNING if options.begin is None else options.begin
    end = FOREVER if options.end is None else options.end
    if end <= begin:
        raise UsageError("--to must be later than --from")
    return begin, end


def warehouse_of(text: str) -> Warehouse:
    """The warehouse that an option names: a folder, or a schema of a catalog if there is no such folder."""
    from schemas.delta.warehouse import Warehouse
    from schemas.spark_views import catalog_warehouse, is_catalog_name

    is_in_catalog = is_catalog_name(text) and not Path(text).exists()
    return catalog_warehouse(session(), text) if is_in_catalog else Warehouse.at(text)


def register_in_catalog(warehouse: Warehouse) -> None:
    """Registers the tables in the catalog, if the warehouse is in one."""
    from schemas.spark_views import register_tables

    if warehouse.catalog is not None:
        register_tables(session(), warehouse)


def session() -> SparkSession:
    """The Spark session of a job: the active one, or a new one."""
    from jobs.cli.session import spark_session

    return spark_session("mqsieve")


def facts_of(options: argparse.Namespace) -> BrokerFacts:
    """The tables of the broker that the options name. Raises UsageError if there is no such broker."""
    from answers.facts import open_facts

    name = options.broker
    config = getattr(options, "broker_config", None)
    warehouse = warehouse_of(options.warehouse)
    if name is None and config is not None:
        from jobs.night.inputs import DEFAULT_NAME, read_broker_config
        from schemas.ledger_check import open_warehouse
        from schemas.run_ledger import by_broker

        name = read_broker_config(config).config.broker_name
        known = by_broker(open_warehouse(warehouse))
        if name == DEFAULT_NAME and name not in known and len(known) == 1:
            (name,) = known
    return open_facts(warehouse, name)


def brokers_of(options: argparse.Namespace) -> list[BrokerFacts]:
    """The tables of the broker that --broker names, or else of each broker of the warehouse, by name.

    With --namesrv, each has its present state. Raises UsageError if the name server or a broker does not answer.
    """
    from answers.facts import open_brokers, open_facts, with_present_state

    warehouse = warehouse_of(options.warehouse)
    brokers = open_brokers(warehouse) if options.broker is None else [open_facts(warehouse, options.broker)]
    if getattr(options, "namesrv", None) is None:
        return brokers
    from schemas.live_broker import live_brokers
    from schemas.remoting import RemotingError, reason

    try:
        running = live_brokers(options.namesrv, credentials_of(options))
    except (OSError, RemotingError) as error:
        advice = "give a name server that runs and can be reached from here, mostly at port 9876"
        raise UsageError(f"--namesrv {';'.join(options.namesrv)}: {reason(error)}; {advice}") from None
    asked = []
    for facts in brokers:
        if facts.name not in running:
            listed = ", ".join(sorted(running)) or "none"
            raise UsageError(f"the name server lists no broker {facts.name} (it lists {listed}): say which (--broker)")
        broker = running[facts.name]
        try:
            asked.append(with_present_state(facts, broker))
        except (OSError, RemotingError) as error:
            where = f"{facts.name} at {broker.connection.address}"
            advice = "; the name server lists this address, which must be reached from here"
            raise UsageError(f"{where}: {reason(error)}{advice if isinstance(error, OSError) else ''}") from None
        finally:
            broker.connection.close()
    return asked


def broker_config_of(options: argparse.Namespace, facts: BrokerFacts) -> BrokerConfig:
    """The broker configuration in --broker-config, or the one of the last run."""
    from jobs.night.inputs import read_broker_config

    if options.broker_config is None:
        return facts.broker
    read = read_broker_config(options.broker_config, facts.broker.version)
    for line in (*read.misread, *read.ignored):
        print(line, file=sys.stderr)
    return replace(read.config, broker_name=facts.name, rocketmq_version=facts.broker.rocketmq_version)


def subscriptions_of(paths: list[Path] | None) -> SubscriptionFile | None:
    """The subscriptions in some files. Raises UsageError if no line of a file can be used."""
    from jobs.night.inputs import combine, read_file

    return combine([read_file(path) for path in paths or ()])


def filled_subscriptions_of(option: str, paths: list[Path] | None) -> SubscriptionFile | None:
    """As :func:`subscriptions_of`, but raises UsageError if there is no subscription in the files of an option, too."""
    file = subscriptions_of(paths)
    if file is not None and not file.events.events:
        raise UsageError(f"--{option}: there is no subscription in {', '.join(map(str, paths or ()))}")
    return file


# The command line of nightly, and of the jobs for its single steps.


def _night_parser(job: str, description: str | None, steps: frozenset[Step], examples: tuple[str, ...]) -> Parser:
    """The parser of a job that runs some steps of a night."""
    parser = Parser(job, description, examples)
    parser.set_defaults(
        store=None, bodies="keep", new_epoch=False, subscriptions=None, redo_from=None, filter_hooks=None,
        brokers=None, recorded=None, metrics=None, strict=False,
    )  # fmt: skip
    add_warehouse(parser)
    add_broker_config(parser)
    add_rocketmq_version(
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
            "--bodies", choices=("keep", "damaged", "none"), default="keep",  # schemas.messages.commitlog_rows.Bodies
            help="which message bodies to store; default: keep (all of them)",
        )  # fmt: skip
        parser.add_argument(
            "--new-epoch",
            action="store_true",
            help="the broker was wiped: its new log replaces all of its stored rows",
        )
    if Step.REGISTER in steps:
        add_subscriptions(parser, "the store's config/consumerFilter.json", required=steps == {Step.REGISTER})
        parser.add_argument(
            "--redo-from", type=instant, metavar="TIME",
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
            help="what record wrote: the subscriptions, the configuration and the version of the broker of --store; "
            "--subscriptions adds what it has not",
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


def night_command(
    job: str, description: str | None, steps: frozenset[Step], examples: tuple[str, ...]
) -> tuple[Callable[[], Parser], Callable[[list[str]], None]]:
    """The functions ``parser`` and ``main`` of a job that runs some steps of a night."""

    def parser() -> Parser:
        return _night_parser(job, description, steps, examples)

    def main(arguments: list[str]) -> None:
        args = parser().parse_args(arguments)
        from jobs.cli.night_job import run_job

        run_job(job, steps, args)

    return parser, main
