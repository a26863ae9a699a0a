"""register: subscription events into the history of subscriptions."""

from __future__ import annotations

import argparse
import hashlib
from dataclasses import dataclass

from filtering.subscriptions.events import SubscriptionEvents
from filtering.subscriptions.history import subscription_history
from filtering.subscriptions.sources import parse_subscriptions
from jobs import application
from jobs.run import Run, Step
from jobs.summary import print_steps
from schemas import quarantine, subscriptions
from schemas.python_rows import data_frame
from schemas.subscriptions import SUBSCRIPTIONS
from schemas.table import Table


@dataclass(frozen=True)
class SubscriptionFile:
    """A file of subscriptions, read; ``digest`` is of its bytes."""

    name: str
    digest: str
    events: SubscriptionEvents


def register(run: Run, file: SubscriptionFile) -> Step:
    """Replaces the history with that of the events in ``file``; what is no event goes to quarantine."""

    def work() -> tuple[Table, ...]:
        history = subscription_history(file.events.events, run.broker)
        subscriptions.replace(run.spark, run.warehouse, history)
        run.history = history
        rejected = [
            {
                "broker_name": run.broker.broker_name,
                "source_file": file.name,
                "offset": each.line,
                "reason": each.reason,
                "bytes": each.text.encode(),
            }
            for each in file.events.rejected
        ]
        lines = data_frame(run.spark, rejected, quarantine.ROW_TYPES)
        quarantined = quarantine.replace(run.spark, run.warehouse, run.broker.broker_name, [file.name], lines)
        return SUBSCRIPTIONS, *quarantined

    return run.step("register", (file.digest, run.broker), (), work)


def add_subscriptions(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--subscriptions",
        type=_subscription_file,
        required=True,
        metavar="FILE",
        help="who subscribed to what: event lines, a consumerFilter.json, or a YAML list",
    )


def _subscription_file(text: str) -> SubscriptionFile:
    """The type of --subscriptions: a file of which something can be used, or that is empty."""
    path = application.input_file(text)
    content = path.read_bytes()
    events = parse_subscriptions(content.decode("utf-8", "replace"))
    if events.rejected and not events.events:
        first = events.rejected[0]
        raise argparse.ArgumentTypeError(
            f"{path} has no subscription (line {first.line}: {first.reason}); see conf/subscriptions.example.yaml"
        )
    return SubscriptionFile(path.name, hashlib.sha256(content).hexdigest(), events)


def main(arguments: list[str]) -> None:
    parser = application.broker_parser("register", __doc__)
    add_subscriptions(parser)
    options = parser.parse_args(arguments)
    with Run.start("register", options) as run:
        register(run, options.subscriptions)
        print_steps(run)


if __name__ == "__main__":
    application.run(main)
