"""The frame of every job: its command-line parser, its exit code, and its one-line errors."""

from __future__ import annotations

import argparse
import gc
import io
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import IntEnum
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import ModuleType
from typing import NoReturn

from filtering.counted import did_you_mean
from filtering.java import has_half_a_pair
from jobs.cli.start import INTERRUPTED
from schemas.errors import CALLED, PROGRAM, UsageError, WarehouseBusy, printable

# Exit codes of jobs.


class ExitCode(IntEnum):
    """0 done · 1 failed · 2 usage or configuration · 3 a check failed · 4 lost a commit race · 130 interrupted.

    141: the reader of the output closed it, as ``head`` does; a shell has this code for other programs then.
    """

    DONE = 0
    FAILED = 1
    USAGE = 2
    CHECK_FAILED = 3
    LOST_RACE = 4
    INTERRUPTED = 130
    OUTPUT_CLOSED = 141


class CheckFailed(Exception):
    """A check found failures. The message says how many."""


ADVICE: dict[type[OSError], str] = {
    FileNotFoundError: "check the path",
    PermissionError: "change its permissions, or run as a user who may",
    IsADirectoryError: "give a file",
    NotADirectoryError: "give a folder",
}
_CAUSE = re.compile(r"^(?:Caused by: |: )?((?:[\w$]+\.)*[A-Z][\w$]*(?:Error|Exception): .+)$", re.MULTILINE)
_ARROW_ERROR = re.compile(r"(?:'(.+?)')?\. Detail: \[errno \d+\] (.+)")
_FULL = "no space left on device"
_DELTA_CHAIN = re.compile(r"(?:\x1b\[\d+m)?↳(?:\x1b\[0m)?")
"""Stands before each cause in an error of deltalake, between the codes of a colour."""
_NO_FILE_SYSTEM = re.compile(r"Class org\.apache\.hadoop\.fs\.(\w+)\.\w+ not found")
_GRAVEST_FIRST = (ExitCode.FAILED, ExitCode.USAGE, ExitCode.CHECK_FAILED, ExitCode.LOST_RACE)
_LINE_BREAKS = re.compile(r"\s*\n\s*")
_INVALID_CHOICE = re.compile(r"argument ([^:]+): invalid choice: '(.+?)'")
_UNRECOGNISED = re.compile(r"unrecognized arguments: (--[\w-]+|[^-].*)")
_MEANT = {
    "--expression": "--sql",
    "--fail-on": "--strict",
    "--format": "--json",
    "--id": "--message",
    "--key": "--message",
    "--keys": "--message",
    "--msg-id": "--message",
    "--since": "--from",
    "--strict": "--fail-on",
    "--until": "--to",
}
"""Options that a job does not have, and what another one is called that does the same."""


class Parser(argparse.ArgumentParser):
    """An argparse parser without abbreviations, whose one-line errors suggest the option that was meant."""

    def __init__(self, job: str, description: str | None, examples: tuple[str, ...]) -> None:
        shown = "\n".join(f"  {PROGRAM} {job} {example}" for example in examples)
        super().__init__(
            prog=f"{PROGRAM} {job}",
            description=description,
            epilog=f"examples:\n{shown}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )

    def error(self, message: str) -> NoReturn:
        hint = ""
        if unknown := _UNRECOGNISED.search(message):
            known = [name for action in self._actions for name in action.option_strings]
            meant = _MEANT.get(unknown[1])
            if "--message" in known and not unknown[1].startswith("-"):
                meant = f"--message {unknown[1]}"
            is_meant = meant is not None and meant.split()[0] in known
            hint = f"; did you mean {meant}?" if is_meant else did_you_mean(unknown[1], known, 0.7)
        if invalid := _INVALID_CHOICE.match(message):
            named = (each for each in self._actions if invalid[1] in (each.metavar, "/".join(each.option_strings)))
            choices = [str(choice) for action in named for choice in action.choices or ()]
            message = f"{invalid[0]}; it is one of {', '.join(choices)}"
            hint = did_you_mean(CALLED.get(invalid[2], invalid[2]), choices)
        raise UsageError(f"{message}; {self.prog} --help lists the options{hint}")


def input_file(text: str) -> Path:
    """The type of an option that names a file to read."""
    try:
        with open(text, "rb"):
            return Path(text)
    except OSError as error:
        raise argparse.ArgumentTypeError(describe(error)) from None


def given_name(text: str) -> str:
    """The type of an option that names a group, a topic or a broker."""
    if not text:
        raise argparse.ArgumentTypeError("the name is empty")
    return text


def describe(error: OSError) -> str:
    """One line: the file, its problem, and advice."""
    filename, problem = error.filename, error.strerror or str(error)
    if filename is None and (arrow_error := _ARROW_ERROR.search(problem)):
        filename, problem = arrow_error.groups()
    advice = next((advice for kind, advice in ADVICE.items() if isinstance(error, kind)), None)
    return _with_space(": ".join(filter(None, (filename, problem.lower()))) + (f"; {advice}" if advice else ""))


def _with_space(problem: str) -> str:
    """A problem, with advice if a disk is full."""
    if _FULL not in problem.lower():
        return problem
    import tempfile

    return (
        f"{problem}; free some space (temporary files are in {tempfile.gettempdir()}), and run the same command again"
    )


def collect_rarely() -> None:
    """Sets when Python collects garbage. Its defaults cost a night of 10,000 groups a sixth of its time.

    A night of 10,000 groups makes two million objects. A thousand are in cycles that nothing else refers to.
    """
    gc.set_threshold(10_000_000, 50, 100)


def run(main: Callable[[list[str]], None]) -> NoReturn:
    """Runs a job's main and exits with its ExitCode."""
    _find_stderr()
    _open_closed_outputs()
    _print_every_character()
    collect_rarely()
    os.umask(os.umask(0) | 0o002)  # Files of a warehouse are not writable for all users.
    try:
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, signal.default_int_handler)  # start.py has ended with what it is for
            signal.signal(signal.SIGALRM, signal.default_int_handler)
            if sys.unraisablehook is sys.__unraisablehook__:
                sys.unraisablehook = _interrupt_later
        with without_pandas():
            main(_arguments())
        code = ExitCode.DONE
    except SystemExit as stop:
        code = ExitCode(stop.code) if isinstance(stop.code, int) else ExitCode.FAILED
    except BrokenPipeError:
        code = ExitCode.OUTPUT_CLOSED
    except BaseException as error:
        code = _report(error)
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        code = code or ExitCode.OUTPUT_CLOSED
        # Python flushes once more when it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError:
        code = code or ExitCode.FAILED
    sys.exit(code)


def _interrupt_later(dropped: sys.UnraisableHookArgs) -> None:
    """Python drops what is raised in a callback, such as an import's or llvmlite's: an interrupt comes once more."""
    if issubclass(dropped.exc_type, KeyboardInterrupt):
        signal.setitimer(signal.ITIMER_REAL, 0.01)
    else:
        sys.__unraisablehook__(dropped)


def _open_closed_outputs() -> None:
    """Sends to nowhere what is printed to a closed output, as a shell makes it with >&-."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115


def _arguments() -> list[str]:
    """The arguments of the command line. Raises UsageError if one is not UTF-8, and so in no table."""
    for argument in sys.argv[1:]:
        if has_half_a_pair(argument):
            raise UsageError(f"not UTF-8: the argument {argument}")
    return sys.argv[1:]


def _report(error: BaseException) -> ExitCode:
    """Writes one line to stderr. Returns the exit code."""
    code, message = _code_and_message(error)
    with suppress(OSError):
        sys.stdout.flush()  # In the log of cron, it is the last line.
    print("mqsieve:", printable(_LINE_BREAKS.sub(" ", message.strip())), file=sys.stderr)
    if os.environ.get("MQSIEVE_LOG_LEVEL") == "info":
        sys.excepthook(type(error), error, error.__traceback__)
    return code


def _code_and_message(error: BaseException) -> tuple[ExitCode, str]:
    match error:
        case ExceptionGroup():
            codes, messages = zip(*map(_code_and_message, error.exceptions), strict=True)
            names = (part.__notes__[-1] for part in error.exceptions)
            parts = "; ".join(f"{name}: {message}" for name, message in zip(names, messages, strict=True))
            return min(codes, key=_GRAVEST_FIRST.index), f"{error.message}: {parts}"
        case KeyboardInterrupt():
            return ExitCode.INTERRUPTED, INTERRUPTED
        case CheckFailed():
            return ExitCode.CHECK_FAILED, str(error)
        case WarehouseBusy():
            return ExitCode.LOST_RACE, str(error)
        case OSError() if isinstance(error, tuple(ADVICE)):
            return ExitCode.USAGE, describe(error)
        case UsageError():
            return ExitCode.USAGE, str(error)
        case OSError() if error.strerror:
            return ExitCode.FAILED, f"failed: {describe(error)}"
    if missing := _NO_FILE_SYSTEM.search(str(error)):
        return ExitCode.USAGE, (
            f"Spark lacks the jars of the file system {missing[1]}: add them with --packages, those of s3a with "
            "--packages org.apache.hadoop:hadoop-aws:3.5.0 (docs/CLUSTER.md)"
        )
    if "DELTA_CONCURRENT" in str(error) or "concurrent transaction" in str(error):
        return ExitCode.LOST_RACE, "another writer committed first: run the same command again"
    return ExitCode.FAILED, f"failed: {_with_space(_cause(error))} (-v shows all)"


def _cause(error: BaseException) -> str:
    """The line with the first cause; Spark's errors quote whole stack traces."""
    text = str(error).strip() or type(error).__name__
    causes = _CAUSE.findall(text)
    chain = _DELTA_CHAIN.split(text)
    return str(causes[-1]) if causes else ": ".join(part.strip() for part in chain[1:]) or text.splitlines()[0]


def _print_every_character() -> None:
    """Lets stdout show an escape, such as ``\\u2717``, for a character that the terminal's encoding does not have."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _find_stderr() -> None:
    """Restores stderr, which spark-submit merges into stdout of a Python job; spark-submit.sh passes the real one."""
    real = os.environ.get("MQSIEVE_STDERR")
    if real is not None:
        with suppress(OSError):
            os.dup2(os.open(real, os.O_WRONLY | os.O_APPEND), sys.stderr.fileno())


# Jobs do without pandas, which takes longer to import than most answers take.


class _WithoutPandas(MetaPathFinder):
    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("this job does without pandas", name=name)


_FINDER = _WithoutPandas()


@contextmanager
def without_pandas() -> Iterator[None]:
    """In this context, pandas cannot be imported, unless it was before, or :func:`allow_pandas` is called."""
    sys.meta_path.insert(0, _FINDER)
    try:
        yield
    finally:
        allow_pandas()


def allow_pandas() -> None:
    """Ends the effect of :func:`without_pandas`: before user code or Spark runs in this process."""
    if _FINDER in sys.meta_path:
        sys.meta_path.remove(_FINDER)
