"""What every job shares: its command line, its exit code, and one line for whatever goes wrong."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from filtering.broker_config import BrokerConfig, InvalidBrokerConfig
from schemas.store.consume_queue_ext import has_extension
from schemas.warehouse import Warehouse, WarehouseBusy

ADVICE: dict[type[OSError], str] = {
    FileNotFoundError: "check the path",
    PermissionError: "change its permissions, or run as a user who may",
    IsADirectoryError: "give a file",
    NotADirectoryError: "give a folder",
}
_CAUSE = re.compile(r"^(?:Caused by: |: )?((?:[\w$]+\.)*[A-Z][\w$]*(?:Error|Exception): .+)$", re.MULTILINE)
DONE, FAILED, USAGE, AUDIT_FAILED, LOST_RACE = 0, 1, 2, 3, 4


class UsageError(Exception):
    """The command line or a file that it names is not usable; the message says what to do."""


class NotYetWritten(UsageError):
    """A job needs a table that no run has written."""

    def __init__(self, warehouse: Warehouse, table: str) -> None:
        super().__init__(f"{warehouse.location} has no {table} yet; run ./spark-submit.sh nightly first")


class Differences(Exception):
    """A check found what should not be; the message counts it."""


class Parser(argparse.ArgumentParser):
    """argparse, with mqsieve's one-line errors."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; {self.prog} --help lists the options")


def input_file(text: str) -> Path:
    """The type of an option that names a file to read."""
    try:
        with open(text, "rb"):
            return Path(text)
    except OSError as error:
        raise argparse.ArgumentTypeError(told(error)) from None


def told(error: OSError) -> str:
    """What is wrong with a file, and what to do."""
    what = (error.strerror or str(error)).lower()
    advice = next((advice for kind, advice in ADVICE.items() if isinstance(error, kind)), None)
    return ": ".join(filter(None, (error.filename, what))) + (f"; {advice}" if advice else "")


def parser(job: str, description: str | None) -> Parser:
    made = Parser(prog=f"./spark-submit.sh {job}", description=description)
    made.add_argument("--warehouse", required=True, metavar="DIR", help="folder of the tables, or catalog.schema")
    return made


def broker_parser(job: str, description: str | None) -> Parser:
    """A parser for jobs that write for one broker."""
    made = parser(job, description)
    made.add_argument("--broker-config", type=input_file, metavar="FILE", help="the broker's broker.conf, or YAML")
    return made


def broker_config(options: argparse.Namespace) -> tuple[BrokerConfig, str] | None:
    """The switches in ``--broker-config``, and where they come from.

    Without it the property filter counts as on, and the bit map as on where the ``--store`` has a
    consumequeue_ext. None for a job without either option: see :func:`remembered`.
    """
    file = options.broker_config
    if file is not None:
        return _read_broker_config(file), str(file)
    store = getattr(options, "store", None)
    if store is None:
        return None
    on = has_extension(store)
    why = f"on, since {store} has a consumequeue_ext" if on else f"off, since {store} has no consumequeue_ext"
    return _assumed(on), f"no --broker-config: the property filter counts as on, the bit map as {why}"


def remembered(last: Sequence[BrokerConfig]) -> tuple[BrokerConfig, str]:
    """The switches of a job that is told none: those of the last run of the warehouse's only broker.

    Raises UsageError where there are several.
    """
    if len(last) > 1:
        names = ", ".join(broker.broker_name for broker in last)
        raise UsageError(f"the warehouse holds the brokers {names}: say which with --broker-config")
    if last:
        return last[0], "no --broker-config: as in the last run"
    return _assumed(bit_map=False), "no --broker-config: the property filter counts as on, the bit map as off"


def _assumed(bit_map: bool) -> BrokerConfig:
    return BrokerConfig(
        enable_property_filter=True, enable_consume_queue_ext=bit_map, enable_calc_filter_bit_map=bit_map
    )


def _read_broker_config(file: Path) -> BrokerConfig:
    try:
        if file.suffix in (".yaml", ".yml"):
            return BrokerConfig.from_yaml(file.read_text(encoding="utf-8"))
        return BrokerConfig.from_properties(file.read_text(encoding="latin-1"))  # as Java reads properties
    except (InvalidBrokerConfig, UnicodeDecodeError) as error:
        raise UsageError(f"{file}: {error}") from None


def run(main: Callable[[list[str]], None]) -> NoReturn:
    """Runs a job's main and exits: 0 done, 1 failed, 2 usage or configuration, 3 check failed, 4 lost a race."""
    _find_stderr()
    try:
        main(sys.argv[1:])
        code = DONE
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else FAILED
    except (UsageError, ValueError) as error:
        code = _say(USAGE, str(error), error)
    except tuple(ADVICE) as error:
        code = _say(USAGE, told(error), error)
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
            code = _say(FAILED, f"failed: {_cause(error)} (-v shows all)", error)
    sys.stdout.flush()
    sys.exit(code)


def _cause(error: Exception) -> str:
    """The line that names what went wrong first: an error of Spark quotes whole stack traces."""
    text = str(error).strip() or type(error).__name__
    causes = _CAUSE.findall(text)
    return str(causes[-1]) if causes else text.splitlines()[0]


def _find_stderr() -> None:
    """spark-submit merges what a Python job writes to stderr into its stdout; spark-submit.sh tells the real one."""
    real = os.environ.get("MQSIEVE_STDERR")
    if real is not None:
        with suppress(OSError):
            os.dup2(os.open(real, os.O_WRONLY | os.O_APPEND), sys.stderr.fileno())


def _say(code: int, message: str, error: BaseException) -> int:
    print("mqsieve:", " ".join(message.split()), file=sys.stderr)
    if os.environ.get("MQSIEVE_LOG_LEVEL") == "info":
        sys.excepthook(type(error), error, error.__traceback__)
    return code
