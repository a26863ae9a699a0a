"""inconsistency: groups whose clients subscribe differently: which subscription wins, what other clients lose."""

from __future__ import annotations

import sys
from collections.abc import Collection
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from answers.rendering import time
from filtering.counted import counted
from jobs.cli import application, options
from jobs.cli.application import Parser
from jobs.cli.output import output_file, print_json
from schemas.errors import UsageError, printable

if TYPE_CHECKING:
    from answers.inconsistency import Disagreements
    from filtering.subscriptions.events import GroupTopic
    from filtering.subscriptions.inconsistency import GroupClients, SeemingDisagreement

EXAMPLES = ("--warehouse /data/mqsieve", "--warehouse /data/mqsieve --output lost.jsonl")

_HOW = {
    "STOPPED_BY_BROKER": "lost to",
    "DROPPED_BY_CLIENT": "lost in the queues of",
    "WAITING": "held back from",
    "PASSED_OVER": "passed over by pops of others, and lost to",
}
"""What is said of a loss, by how it came."""


def parser() -> Parser:
    parser = Parser("inconsistency", __doc__, EXAMPLES)
    options.add_answer(parser)
    options.add_broker_config(parser)
    options.add_subscriptions(parser, "the subscriptions in the warehouse; a file may name only some of them")
    options.add_json(parser)
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the lost messages to this .jsonl file")
    return parser


def main(arguments: list[str]) -> None:
    args = parser().parse_args(arguments)
    from answers.inconsistency import disagreements, knows_clients, lost_rows
    from filtering.subscriptions.events import event_line
    from jobs.cli.batch_writers import write_batches

    subscriptions = options.subscriptions_of(args.subscriptions)
    facts = options.facts_of(args)
    if subscriptions is not None:
        known = {event_line(event) for event in facts.events}
        if any(event_line(event) not in known for event in subscriptions.events.events):
            raise UsageError("the subscriptions differ from those in the warehouse: run nightly with them first")
    on_brokers = disagreements(facts, options.session)
    if args.json:
        print_json(
            *(_json_object(on_brokers, state) for state in on_brokers.states),
            *(_seeming_object(on_brokers, seeming) for seeming in on_brokers.seeming),
        )
    else:
        _print(on_brokers, facts.pops.recorded.keys())
    if not knows_clients(facts):
        print(
            "no subscription event has a client_id, so the clients of a group cannot be distinguished: "
            "give events with client_id (docs/SUBSCRIPTIONS.md)",
            file=sys.stderr if args.json else sys.stdout,
        )
    elif not args.json and not on_brokers.states:
        print("all clients with a client_id have the same subscriptions as the other clients of their group")
    if args.output:
        rows = lost_rows(on_brokers)
        with output_file(args.output) as file:
            written = write_batches("jsonl", file, rows.to_batches(), rows.schema)
        print(f"{counted(written, 'row')} in {args.output}", file=sys.stderr)


def _print(disagreements: Disagreements, popping: Collection[GroupTopic]) -> None:
    from answers.inconsistency import describe

    before = None
    for state in disagreements.states:
        whose = f"{state.consumer_group} on {state.topic}"
        if whose != before:
            print(f"\n{printable(whose)}")
            before = whose
        text = printable(describe(state, pops=state.key in popping))
        print(f"  {time(state.valid_from)} – {time(state.valid_to)}  {text}")
        for loss, messages in disagreements.losses_in(state):
            print(f"    {counted(messages, 'message')} {_HOW[loss.how]} {printable(', '.join(loss.clients))}")
        if uncertain := disagreements.uncertain_in([state]):
            deliveries = counted(uncertain, "delivery is", "deliveries are")
            print(f"    {deliveries} uncertain: the messages have no queue ids, so their clients are not known")
    for seeming in disagreements.seeming:
        print(f"\n{printable(' on '.join(seeming.key))}")
        print(f"  {time(seeming.valid_from)} – {time(seeming.valid_to)}  {printable(seeming.text)}")
        print(f"    {counted(disagreements.uncertain_in([seeming]), 'delivery is', 'deliveries are')} uncertain")


def _seeming_object(disagreements: Disagreements, seeming: SeemingDisagreement) -> dict[str, Any]:
    group, topic = seeming.key
    return {
        "consumer_group": group,
        "topic": topic,
        "valid_from": seeming.valid_from,
        "valid_to": seeming.valid_to,
        "filters": [row.filter_text for row in seeming.rows],
        "uncertain": disagreements.uncertain_in([seeming]),
    }


def _json_object(disagreements: Disagreements, state: GroupClients) -> dict[str, Any]:
    losses = [
        {"clients": loss.clients, "messages": messages, "lost": loss.is_lost, "how": loss.how}
        for loss, messages in disagreements.losses_in(state)
    ]
    return asdict(state) | {"losses": losses, "uncertain": disagreements.uncertain_in([state])}


if __name__ == "__main__":
    application.run(main)
