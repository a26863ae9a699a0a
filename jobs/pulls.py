"""pulls: the pulls that a group needs to read its queues, and what the filters cost the broker, step by step."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from filtering.pulls.pull_simulation import DEFAULT_BATCH, Pull, Queue, simulate_pulls
from filtering.replay.delivery import Delivery
from filtering.replay.message_filter import message_filters, refusal
from filtering.replay.stage_flags import ENTRY_COLUMNS, FLAG_TYPES, StageFlags
from filtering.subscriptions.in_force import in_force_at_the_end
from jobs import application
from jobs.run import Run
from schemas.consumequeue import CONSUMEQUEUE, log_end

SHOWN = 20


def pulls_of(run: Run, group: str, topic: str, begin_offset: int | None, batch: int) -> dict[int, list[list[Pull]]]:
    """By queue: the pulls as the broker is, and as they would be without bit maps, from an offset (None: the first)."""
    of_broker = CONSUMEQUEUE.read(run.spark, run.warehouse).where(F.col("broker_name") == run.broker.broker_name)
    entries = of_broker.where(F.col("topic") == topic)
    in_force = in_force_at_the_end(run.history, lambda: log_end(of_broker), run.broker)
    wanted = [row for row in in_force if (row.consumer_group, row.topic) == (group, topic)]
    if not wanted:
        raise application.UsageError(f"{group} has no subscription to {topic}; export subscriptions lists them")
    code = refusal(wanted[0], run.broker)
    if code is not None:
        raise application.UsageError(f"the broker answers every pull of {group} on {topic} with {code.name}")
    filters = [f for f in message_filters(in_force, run.broker) if (f.consumer_group, f.topic) == (group, topic)]
    kernel = StageFlags(Delivery(filters, run.broker.bloom_filter.m))
    flags = entries.select(*ENTRY_COLUMNS).mapInArrow(kernel, FLAG_TYPES).toArrow()
    flags = flags.sort_by([("queue_id", "ascending"), ("queue_offset", "ascending")])
    return {
        queue_id: [
            list(simulate_pulls(queue, queue.min_offset if begin_offset is None else begin_offset, run.broker, batch))
            for queue in (_queue(of_queue, "stage1"), _queue(of_queue, "tags"))
        ]
        for queue_id in pc.unique(flags["queue_id"]).to_pylist()
        for of_queue in [flags.filter(pc.equal(flags["queue_id"], queue_id))]
    }


def _queue(flags: pa.Table, stage1: str) -> Queue:
    sizes = flags["size"].to_numpy().astype(np.int64)
    return Queue(sizes, flags[stage1].to_numpy(), flags["stage2"].to_numpy(), flags["queue_offset"][0].as_py())


def _print_pulls(queue_id: int, with_bit_map: Sequence[Pull], without: Sequence[Pull]) -> None:
    offsets = with_bit_map[0]
    print(f"\nqueue {queue_id}: MIN_OFFSET {offsets.min_offset:,}, MAX_OFFSET {offsets.max_offset:,}")
    print(f"  {'from':>12}{'next':>12}{'scanned':>10}{'read':>8}{'found':>8}  status")
    for pull in with_bit_map[:SHOWN]:
        print(
            f"  {pull.begin_offset:>12,}{pull.next_begin_offset:>12,}{pull.scanned:>10,}{pull.read:>8,}"
            f"{pull.found:>8,}  {pull.status.value}"
        )
    if len(with_bit_map) > SHOWN:
        print(f"  … and {len(with_bit_map) - SHOWN:,} more")
    for name, all_pulls in (("as configured", with_bit_map), ("without bit map", without)):
        totals = [sum(getattr(pull, field) for pull in all_pulls) for field in ("scanned", "read", "found")]
        print(f"  {name}: {len(all_pulls):,} pulls, {totals[0]:,} scanned, {totals[1]:,} read, {totals[2]:,} found")


def main(arguments: list[str]) -> None:
    parser: argparse.ArgumentParser = application.broker_parser("pulls", __doc__)
    parser.add_argument("--group", required=True, help="the consumer group")
    parser.add_argument("--topic", required=True, help="a topic that it subscribes to")
    parser.add_argument("--offset", type=int, help="queue offset to begin at; default: each queue's first")
    parser.add_argument("--batch", type=int, default=DEFAULT_BATCH, help="pullBatchSize; default: %(default)s")
    options = parser.parse_args(arguments)
    with Run.start("pulls", options) as run:
        if not CONSUMEQUEUE.exists(run.spark, run.warehouse):
            raise application.NotYetWritten(run.warehouse, CONSUMEQUEUE.name)
        for queue_id, (with_bit_map, without) in pulls_of(
            run, options.group, options.topic, options.offset, options.batch
        ).items():
            _print_pulls(queue_id, with_bit_map, without)


if __name__ == "__main__":
    application.run(main)
