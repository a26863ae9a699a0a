"""pulls: simulates the pulls with which a group reads its queues, and what the filters cost the broker."""

from __future__ import annotations

from argparse import ArgumentTypeError
from dataclasses import asdict
from typing import TYPE_CHECKING

from filtering.counted import counted
from filtering.pulls import DEFAULT_BATCH
from jobs.cli import application, options
from jobs.cli.application import Parser, given_name
from jobs.cli.output import print_json

if TYPE_CHECKING:
    from answers.pulls import PullTotals

EXAMPLES = (
    "--group cg_paid --topic OrderEvents --warehouse /data/mqsieve",
    "--group cg_paid --topic OrderEvents --offset 5000 --batch 64 --warehouse /data/mqsieve",
)


def parser() -> Parser:
    parser = Parser("pulls", __doc__, EXAMPLES)
    options.add_answer(parser)
    options.add_broker_config(parser)
    parser.add_argument("--group", type=given_name, required=True, help="the consumer group")
    parser.add_argument(
        "--topic", type=given_name, help="a topic that the group subscribes to; may be left out if there is only one"
    )
    parser.add_argument("--offset", type=int, help="the first queue offset; default: where each queue begins")
    parser.add_argument(
        "--batch", type=_batch, metavar="N", default=DEFAULT_BATCH, help="pullBatchSize; default: %(default)s"
    )
    options.add_json(parser)
    return parser


def _batch(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"{text} is not a number of messages, 1 or more")
    return int(text)


def main(arguments: list[str]) -> None:
    args = parser().parse_args(arguments)
    from answers.pulls import pulls_of

    facts = options.facts_of(args)
    broker = options.broker_config_of(args, facts)
    topic = args.topic or facts.only_topic_of(args.group)
    totals = pulls_of(facts, broker, args.group, topic, args.offset, args.batch, options.session)
    for number, queue in enumerate(totals):
        if args.json:
            print_json(asdict(queue))
        else:
            if number:
                print()
            _print_pulls(queue.queue_id, queue.as_configured, queue.without_bit_map)


def _print_pulls(queue_id: int, with_bit_map: PullTotals, without: PullTotals) -> None:
    offsets = with_bit_map.first[0]
    print(f"queue {queue_id}: MIN_OFFSET {offsets.min_offset:,}, MAX_OFFSET {offsets.max_offset:,}")
    print(f"  {'from':>12}{'next':>12}{'scanned':>10}{'read':>8}{'found':>8}  status")
    for pull in with_bit_map.first:
        print(
            f"  {pull.begin_offset:>12,}{pull.next_begin_offset:>12,}{pull.scanned:>10,}{pull.read:>8,}"
            f"{pull.found:>8,}  {pull.status.value}"
        )
    if (more := with_bit_map.pulls - len(with_bit_map.first)) > 0:
        print(f"  … and {more:,} more")
    for name, totals in (("as configured", with_bit_map), ("without bit map", without)):
        print(
            f"  {name}: {counted(totals.pulls, 'pull')}, {totals.scanned:,} scanned, {totals.read:,} read, "
            f"{totals.found:,} found"
        )


if __name__ == "__main__":
    application.run(main)
