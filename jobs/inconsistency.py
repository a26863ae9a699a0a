"""inconsistency: clients of one group that subscribe differently: which subscription wins, and what the others lose."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from filtering.replay.lost_messages import Loss
from filtering.subscriptions.inconsistency import SubscriptionInForce
from jobs import application
from jobs.export import write_json_lines
from jobs.lost_messages import counts, inconsistencies, losses_of, lost_messages, told, who
from jobs.register import add_subscriptions
from jobs.run import Run
from schemas.consumequeue import CONSUMEQUEUE
from schemas.python_rows import data_frame


def _time(milliseconds: int | None) -> str:
    if milliseconds is None:
        return "now"
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(sep=" ", timespec="milliseconds")[:-6]


def _print(intervals: Sequence[SubscriptionInForce], all_losses: Sequence[Loss], lost: Sequence[int]) -> None:
    before = None
    for interval in intervals:
        whose = f"{interval.consumer_group} on {interval.topic}"
        if whose != before:
            print(f"\n{whose}")
            before = whose
        print(f"  {_time(interval.valid_from)} – {_time(interval.valid_to)}  {told(interval)}")
        for loss, count in zip(all_losses, lost, strict=True):
            if loss.interval == interval:
                what = "lost to" if loss.in_force is not None else "held back from"
                print(f"    {count:,} messages {what} {who(loss.clients)}")


def _write(output: Path, lost: DataFrame, all_losses: Sequence[Loss], run: Run) -> None:
    of_losses = data_frame(
        run.spark,
        [
            {
                "loss": i,
                "consumer_group": loss.interval.consumer_group,
                "clients": loss.clients,
                "valid_from": loss.interval.valid_from,
                "valid_to": loss.interval.valid_to,
                "lost": loss.in_force is not None,
            }
            for i, loss in enumerate(all_losses)
        ],
        "loss int, consumer_group string, clients array<string>, valid_from bigint, valid_to bigint, lost boolean",
    )
    rows = lost.join(F.broadcast(of_losses), "loss").orderBy("loss", "topic", "queue_id", "queue_offset").drop("loss")
    written = write_json_lines(rows, output)
    print(f"\n{written:,} rows in {output}")


def main(arguments: list[str]) -> None:
    parser = application.broker_parser("inconsistency", __doc__)
    add_subscriptions(parser)
    parser.add_argument("--output", type=Path, metavar="FILE", help="a .jsonl file for the messages")
    options = parser.parse_args(arguments)
    events = options.subscriptions.events.events
    intervals = inconsistencies(events)
    if not intervals:
        print("every client of every group subscribes to the same (only events with a client_id tell clients apart)")
        return
    with Run.start("inconsistency", options) as run:
        if not CONSUMEQUEUE.exists(run.spark, run.warehouse):
            raise application.NotYetWritten(run.warehouse, CONSUMEQUEUE.name)
        all_losses = losses_of(run, events, intervals)
        lost = lost_messages(run, all_losses)
        _print(intervals, all_losses, counts(lost, all_losses))
        if options.output:
            _write(options.output, lost, all_losses, run)


if __name__ == "__main__":
    application.run(main)
