"""register: subscription events into the history of subscriptions."""

from __future__ import annotations

import hashlib
from pathlib import Path

from filtering.subscriptions.history import subscription_history
from filtering.subscriptions.sources import parse_subscriptions
from jobs import application
from jobs.run import Run, Step
from jobs.summary import print_steps
from schemas import quarantine, subscriptions
from schemas.subscriptions import SUBSCRIPTIONS
from schemas.table import Table


def register(run: Run, source: Path) -> Step:
    """Replaces the history with that of the events in ``source``; what is no event goes to quarantine.

    Raises FileNotFoundError and the like.
    """
    content = source.read_bytes()

    def work() -> tuple[Table, ...]:
        events = parse_subscriptions(content.decode("utf-8", "replace"))
        history = subscription_history(events.events, run.broker)
        subscriptions.replace(run.spark, run.warehouse, history)
        rejected = [(run.broker.broker_name, source.name, e.line, e.reason, e.text.encode()) for e in events.rejected]
        lines = run.spark.createDataFrame(
            rejected, "broker_name string, source_file string, offset bigint, reason string, bytes binary"
        )
        quarantined = quarantine.replace(run.spark, run.warehouse, run.broker.broker_name, [source.name], lines)
        return SUBSCRIPTIONS, *quarantined

    return run.step("register", (hashlib.sha256(content).hexdigest(), run.broker), (), work)


def main(arguments: list[str]) -> None:
    parser = application.broker_parser("register", __doc__)
    application.add_subscriptions(parser)
    options = parser.parse_args(arguments)
    with Run.start("register", options) as run:
        register(run, options.subscriptions)
        print_steps(run)


if __name__ == "__main__":
    application.run(main)
