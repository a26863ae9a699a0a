"""record: watches running brokers, and writes down who subscribes to what: what nightly --recorded needs."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from jobs.cli import application, options
from jobs.cli.application import Parser
from schemas.errors import UsageError, printable, time_text

if TYPE_CHECKING:
    from schemas.recording import Recorder

EXAMPLES = (
    "--namesrv 10.0.0.5:9876 --output /data/recorded   # all brokers of the cluster, until it is stopped",
    "--broker 10.0.0.7:10911 --output /data/recorded --interval 5",
)


def parser() -> Parser:
    parser = Parser("record", __doc__, EXAMPLES)
    parser.add_argument(
        "--broker",
        action="append",
        type=options.addresses,
        metavar="HOST:10911",
        help="a broker; the option may be repeated",
    )
    parser.add_argument(
        "--output", required=True, type=Path, metavar="DIR", help="the folder; an earlier recording goes on"
    )
    parser.add_argument(
        "--interval",
        type=_seconds,
        default=10.0,
        metavar="SECONDS",
        help="the longest time between two looks at a broker; they are down to a second apart, as long as they cost it "
        "at most 1 %% of a core; default: 10",
    )
    options.add_name_server(parser, "all brokers that it lists are recorded")
    return parser


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.1 <= seconds <= 3600:
        raise argparse.ArgumentTypeError(f"it must be a number of seconds from 0.1 to 3600, not {text}")
    return seconds


def main(arguments: list[str]) -> None:
    args = parser().parse_args(arguments)
    if args.namesrv is None and not args.broker:
        raise UsageError("give --namesrv with a name server, or --broker with a broker")
    from schemas.recording import Recorder, locked

    credentials = options.credentials_of(args)
    brokers = [address for listed in args.broker or () for address in listed]
    signal.signal(signal.SIGTERM, _stop)
    with locked(args.output):
        recorder = Recorder(args.output, brokers, args.namesrv or (), args.interval, credentials)
        try:
            _watch(recorder)
        except KeyboardInterrupt:
            print("stopped", file=sys.stderr)
        finally:
            recorder.close()


def _watch(recorder: Recorder) -> None:
    """Looks for ever. Says when a broker answers first, fails, and answers again."""
    failing: dict[str, str | None] = {}
    while True:
        began = time.monotonic()
        for name, result in recorder.look():
            error = result if isinstance(result, str) else None
            if failing.get(name, "") != error:
                failing[name] = error
                text = "recording" if error is None else f"{error}; trying again"
                print(
                    f"{time_text(time.time_ns() // 1_000_000)} {printable(name)}: {text}", file=sys.stderr, flush=True
                )
        time.sleep(max(0.0, began + recorder.pause - time.monotonic()))


def _stop(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    application.run(main)
