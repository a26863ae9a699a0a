"""What every job shares: its command line, its exit code, and one line for whatever goes wrong."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from filtering.broker_config import BrokerConfig
from schemas.warehouse import WarehouseBusy

DONE, FAILED, USAGE, AUDIT_FAILED, LOST_RACE = 0, 1, 2, 3, 4


class UsageError(Exception):
    """The command line or a file that it names is not usable; the message says what to do."""


class Differences(Exception):
    """A check found what should not be; the message counts it."""


class Parser(argparse.ArgumentParser):
    """argparse, with mqsieve's one-line errors."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; {self.prog} --help lists the options")


def parser(job: str, description: str | None) -> Parser:
    made = Parser(prog=f"./spark-submit.sh {job}", description=description)
    made.add_argument("--warehouse", required=True, metavar="DIR", help="folder of the tables, or catalog.schema")
    return made


def broker_parser(job: str, description: str | None) -> Parser:
    """A parser for jobs that write for one broker."""
    made = parser(job, description)
    made.add_argument("--broker-config", type=Path, metavar="FILE", help="the broker's broker.conf, or YAML")
    return made


def add_subscriptions(made: Parser) -> None:
    made.add_argument(
        "--subscriptions",
        type=Path,
        required=True,
        metavar="FILE",
        help="who subscribed to what: event lines, a consumerFilter.json, or a YAML list",
    )


def broker_config(options: argparse.Namespace, *, has_extension: bool = False) -> BrokerConfig:
    """The switches in ``--broker-config``; without it RocketMQ's, with the property filter on.

    ``has_extension``: the store has a consumequeue_ext, so bit maps count as on where no file says.
    """
    file = options.broker_config
    if file is None:
        return BrokerConfig(
            enable_property_filter=True,
            enable_consume_queue_ext=has_extension,
            enable_calc_filter_bit_map=has_extension,
        )
    text = file.read_text(encoding="utf-8")
    return BrokerConfig.from_yaml(text) if file.suffix in (".yaml", ".yml") else BrokerConfig.from_properties(text)


def run(main: Callable[[list[str]], None]) -> NoReturn:
    """Runs a job's main and exits: 0 done, 1 failed, 2 usage or configuration, 3 check failed, 4 lost a race."""
    try:
        main(sys.argv[1:])
        code = DONE
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else FAILED
    except (UsageError, ValueError, FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError) as error:
        code = _say(USAGE, str(error), error)
    except Differences as error:
        code = _say(AUDIT_FAILED, str(error), error)
    except WarehouseBusy as error:
        code = _say(LOST_RACE, str(error), error)
    except KeyboardInterrupt as error:
        code = _say(FAILED, "interrupted; nothing half-done is visible, run the same command again", error)
    except Exception as error:
        if "Concurrent" in type(error).__name__ or "DELTA_CONCURRENT" in str(error):
            code = _say(LOST_RACE, "another writer committed first: run the same command again", error)
        else:
            first_line = (str(error).strip() or type(error).__name__).splitlines()[0]
            code = _say(FAILED, f"failed: {first_line} (-v shows all)", error)
    sys.stdout.flush()
    sys.exit(code)


def _say(code: int, message: str, error: BaseException) -> int:
    print(f"mqsieve: {message}", file=sys.stderr)
    if os.environ.get("MQSIEVE_LOG_LEVEL") == "info":
        sys.excepthook(type(error), error, error.__traceback__)
    return code
