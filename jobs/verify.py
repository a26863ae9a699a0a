"""verify: compares a broker's consume queues, files or RocksDB, with the entries in the warehouse, byte for byte."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from filtering.counted import counted
from jobs.cli import application, options
from jobs.cli.application import CheckFailed, Parser
from jobs.cli.output import print_json
from schemas.errors import printable

if TYPE_CHECKING:
    from answers.verify import Verification

SHOWN = 50
EXAMPLES = (
    "--store /backup/broker-a/store --warehouse /data/mqsieve",
    "--store /backup/broker-a/store --broker-config broker.conf --warehouse /data/mqsieve",
)


def parser() -> Parser:
    parser = Parser("verify", __doc__, EXAMPLES)
    options.add_answer(parser)
    options.add_broker_config(parser)
    parser.add_argument("--store", required=True, metavar="DIR", help="the broker's store folder")
    options.add_json(parser)
    return parser


def main(arguments: list[str]) -> None:
    args = parser().parse_args(arguments)
    from answers.verify import check_store, verify
    from schemas.storage import Storage

    store = Storage.at(args.store)
    check_store(store)
    facts = options.facts_of(args)
    verification = verify(facts, store, options.broker_config_of(args, facts) if args.broker_config else None)
    if args.json:
        print_json(_json_object(verification))
    else:
        _print(verification)
    if verification.differences:
        hidden = len(verification.differences) > SHOWN and not args.json
        first = f", the first {SHOWN} above" if hidden else ""
        raise CheckFailed(f"{counted(len(verification.differences), 'difference')}{first}")


def _print(verification: Verification) -> None:
    if not verification.knows_bit_maps:
        print(
            "cannot judge the filter bit maps: the first subscriptions are not known, since the history begins with a "
            "snapshot, or the recording later than the log"
        )
    if verification.newer:
        newer = counted(verification.newer, "entry", "entries")
        print(
            f"cannot judge {newer} of messages that are not in the warehouse: run nightly on this store first; if it "
            "has read the store, the messages are not in the store's log"
        )
    if verification.database and not verification.differences and not verification.newer:
        print(
            f"identical: every entry in the database {verification.database} agrees with the warehouse; "
            "it has no bit maps"
        )
    elif not verification.differences and verification.knows_bit_maps and not verification.newer:
        print("identical: every consume queue and extension file agrees with the warehouse, byte for byte")
    elif not verification.differences:
        print("no difference in what could be judged")
    for (topic, queue_id), difference in verification.differences[:SHOWN]:
        entry = "" if difference.queue_offset is None else f", entry {difference.queue_offset}"
        print(f"{printable(topic)}/{queue_id}: {difference.file}{entry}: {difference.reason}")


def _json_object(verification: Verification) -> dict[str, Any]:
    differences = [
        {"topic": topic, "queue_id": queue_id} | asdict(difference)
        for (topic, queue_id), difference in verification.differences
    ]
    return asdict(verification) | {"differences": differences}


if __name__ == "__main__":
    application.run(main)
