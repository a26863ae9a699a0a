"""explain: why a message reached a group or not: the stage, the rule and the values that decided it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from answers.rendering import facts_as_text, short, time
from jobs.cli import application, options
from jobs.cli.application import Parser, given_name
from jobs.cli.output import print_json, print_table
from schemas.errors import option, printable

if TYPE_CHECKING:
    from answers.explain import Why
    from answers.messages import StoredMessage

EXAMPLES = (
    "--group cg_paid --message ord-47 --warehouse /data/mqsieve",
    "--where \"orderId = '7'\" --group cg_paid --warehouse /data/mqsieve",
    "--topic OrderEvents --queue 0 --offset 3 --warehouse /data/mqsieve",
    "--group cg_paid --message ord-47 --warehouse /data/mqsieve --namesrv 10.0.0.5:9876",
)


def parser() -> Parser:
    parser = Parser("explain", __doc__, EXAMPLES)
    options.add_answer(parser, all_brokers=True)
    parser.add_argument(
        "--group", type=given_name, metavar="NAME", help="the consumer group; default: every group, one line for each"
    )
    parser.add_argument(
        "--message", metavar="ID", help="the message's msgId, unique key (UNIQ_KEY), or one of its KEYS"
    )
    parser.add_argument(
        "--where", metavar="EXPR", help="the message's properties, in RocketMQ's SQL92, such as \"orderId = '7'\""
    )
    parser.add_argument("--topic", type=given_name, metavar="NAME", help="its topic, with --queue and --offset")
    parser.add_argument("--queue", type=int, metavar="N", help="its queue id")
    parser.add_argument("--offset", type=int, metavar="N", help="its queue offset")
    options.add_name_server(parser, "pending messages by the offsets and subscriptions of now")
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--full", action="store_true", help="show everything: the whole expression, the bit map, …")
    options.add_json(output)
    return parser


def main(arguments: list[str]) -> None:
    given = parser()
    args = given.parse_args(arguments)
    place = (args.topic, args.queue, args.offset)
    ways = [args.message is not None, args.where is not None, place != (None, None, None)]
    if sum(ways) != 1 or (ways[2] and None in place):
        given.error("choose a message: give either --where, or --message, or --topic, --queue and --offset")
    from answers.explain import explanation_facts, only_broker_with, title, why_at, why_on_brokers, why_where
    from filtering.sql92 import compile

    group = args.group
    facts = options.brokers_of(args)
    brokers = len(facts)
    if args.where is not None:
        whys = why_where(facts, args.where, group)
        for finding in compile(args.where).findings:
            print(f"--where: {finding.sentence} {finding.suggestion}", file=sys.stderr)
    elif args.message is None:
        whys = [why_at(only_broker_with(facts, *place) or options.facts_of(args), *place, group)]
    else:
        whys = why_on_brokers(facts, args.message, group)
    messages = [(each, message) for each in whys for message in each.messages]
    if args.json:
        for each in whys:
            for row in _json_objects(each, brokers):
                print_json(row)
    elif len(messages) > 1:
        _print_choices([(each.facts.name if brokers > 1 else None, message) for each, message in messages], group)
    else:
        ((each, message),) = messages
        broker = each.facts.name if brokers > 1 else None
        if group is None:
            _print_every_group(each, message, broker)
        else:
            (explanation,) = each
            print(facts_as_text(title(explanation, broker), explanation_facts(explanation, args.full)))


def _print_every_group(explanations: Why, message: StoredMessage, broker: str | None) -> None:
    """Prints the outcome of a message for each group that ever subscribed to its topic, or why there is none."""
    from answers.explain import place_on
    from filtering.delivery import Outcome

    place = printable(place_on(message, broker))
    print(f"{short(message.name)}  {place}, stored {time(message.store_timestamp)} UTC")
    order = list(Outcome)
    rows = [
        (
            short(row.consumer_group),
            str(row.outcome),
            printable(row.summary) + "; uncertain (--group says why)" * (row.uncertain is not None),
        )
        for row in sorted(explanations, key=lambda row: (order.index(row.outcome), row.consumer_group))
    ]
    if rows:
        print_table(("group", "outcome", "reason"), rows, left=3, indent="  ", last_is_text=True)
    else:
        print(f"  {explanations.nobody}")
    if copies := explanations.copies(message):
        print(f"  {'copies':<11} {printable(', '.join(copy.place for copy in copies))}")


def _print_choices(messages: Sequence[tuple[str | None, StoredMessage]], group: str | None) -> None:
    """Lists messages with the options that choose each: its broker is one unless it is None."""
    print(f"{len(messages):,} messages match; choose one:")
    for broker, message in messages:
        place = {"topic": message.topic, "queue": str(message.queue_id), "offset": str(message.queue_offset)}
        named = {"message": message.msg_id} if message.msg_id is not None else place
        words = named | {"group": group, "broker": broker}
        options = " ".join(option(name, value) for name, value in words.items() if value is not None)
        print(f"  {options}  {printable(message.place)}, {time(message.store_timestamp)} UTC")


def _json_objects(explanations: Why, brokers: int) -> Iterator[dict[str, Any]]:
    """An object for each message found on a broker and group. It names the broker if there are several."""
    from answers.explain import explanation_json, message_json

    name = {"broker_name": explanations.facts.name} if brokers > 1 else {}
    copies = {
        message.commitlog_offset: [message_json(copy) for copy in explanations.copies(message)]
        for message in explanations.messages
    }
    for explanation in explanations:
        yield name | explanation_json(explanation) | {"copies": copies[explanation.message.commitlog_offset]}


if __name__ == "__main__":
    application.run(main)
