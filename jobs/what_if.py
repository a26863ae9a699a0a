"""what-if: the messages that a group would have gained or lost with another filter."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from filtering.counted import counted
from jobs.cli import application, options
from jobs.cli.application import Parser, given_name, input_file
from jobs.cli.exit_code import CheckFailed
from schemas.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from filtering.findings.expectations import Expectation
    from schemas.answers.facts import BrokerFacts
    from schemas.answers.what_if.tried_subscriptions import Tried
    from schemas.answers.what_if.what_if import WhatIf

EXAMPLES = (
    "--warehouse /data/mqsieve --group cg_expensive_orders --sql 'price > 40.0'",
    "--warehouse /data/mqsieve --changes subscriptions.yaml --max-lost 0 --expect messages.yaml",
)


def parser() -> Parser:
    parser = Parser("what-if", __doc__, EXAMPLES)
    options.add_answer(parser, of_every_broker=True)
    parser.add_argument("--group", type=given_name, help="the consumer group")
    parser.add_argument(
        "--topic", type=given_name, help="a topic that the group subscribes to; may be left out if there is only one"
    )
    parser.add_argument("--sql", metavar="EXPR", help="the SQL92 expression to try")
    parser.add_argument("--tags", metavar="EXPR", help="the tags to try, such as 'paid || shipped'")
    parser.add_argument(
        "--changes",
        type=input_file,
        action="append",
        metavar="FILE",
        help="a subscriptions file as for nightly; tries each subscription that differs from the one in force",
    )
    options.add_period(parser)
    parser.add_argument("--max-lost", type=_limit, metavar="N", help="exit 3 if the change loses more messages")
    parser.add_argument("--max-gained", type=_limit, metavar="N", help="exit 3 if the change gains more messages")
    parser.add_argument(
        "--expect",
        type=input_file,
        metavar="FILE",
        help="messages that must pass or be stopped (docs/WHAT_IF.md); exit 3 if one is not as expected",
    )
    options.add_json(parser)
    return parser


def main(arguments: list[str]) -> None:
    chosen = parser().parse_args(arguments)
    _check(chosen)
    period = options.period_of(chosen)
    from filtering.findings.expectations import unmet
    from jobs.cli.json_lines import print_json_of_brokers
    from jobs.cli.what_if_text import json_object, print_changes
    from schemas.answers.what_if.tried_subscriptions import what_if_on_brokers

    expectations = _expectations(chosen)
    brokers = options.brokers_of(chosen)
    tried = _tried(chosen, brokers)
    known = {group for facts in brokers for group in facts.groups}
    new = {row.consumer_group for _, rows in tried for row in rows}
    _check_groups(expectations, sorted(known | new), chosen.expect)
    found = what_if_on_brokers(tried, period, options.session)
    lines = {
        facts.name: [f"{row.consumer_group}: {line}" for row in rows for line in unmet(expectations, row)]
        for facts, rows in tried
    }
    every_line = list(dict.fromkeys(line for of_broker in lines.values() for line in of_broker))
    if chosen.json:
        by_broker = {facts.name: [change for name, change in found if name == facts.name] for facts in brokers}
        objects = [(name, json_object(changes, lines.get(name, ()))) for name, changes in by_broker.items()]
        print_json_of_brokers(objects)
    else:
        print_changes(found, every_line, len(brokers) > 1)
    _check_limits(chosen, [change for _, change in found], every_line)


def _limit(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text} is not a number of messages")
    return int(text)


def _check(chosen: argparse.Namespace) -> None:
    """Raises UsageError if the options do not name a filter to try."""
    if chosen.changes:
        if chosen.group or chosen.topic or chosen.sql is not None or chosen.tags is not None:
            raise UsageError("--changes already names its groups: leave out --group, --topic, --sql and --tags")
    elif not chosen.group:
        raise UsageError("what-if needs --group with --sql or --tags, or --changes FILE")
    elif (chosen.sql is None) == (chosen.tags is None):
        raise UsageError("what-if needs either --sql or --tags")


def _expectations(chosen: argparse.Namespace) -> list[Expectation]:
    from filtering.findings.expectations import parse_expectations

    if chosen.expect is None:
        return []
    try:
        return parse_expectations(chosen.expect.read_text("utf-8", "replace"))
    except ValueError as error:
        raise UsageError(f"{chosen.expect}: {error}") from None


def _check_groups(expectations: Sequence[Expectation], known: Sequence[str], file: Path) -> None:
    """Raises UsageError if an expectation names an unknown group."""
    for expected in expectations:
        if (group := expected.consumer_group) is not None and group not in known:
            hint = did_you_mean(group, known)
            raise UsageError(f"{file}, entry {expected.number}: there is no group {group}{hint}")


def _tried(chosen: argparse.Namespace, brokers: Sequence[BrokerFacts]) -> Tried:
    """The subscriptions to try on each broker. Raises UsageError."""
    from filtering.subscription_data import SQL92, TAG
    from schemas.answers.what_if.tried_subscriptions import (
        brokers_that_know,
        changed_subscriptions,
        only_topic,
        subscription_of,
        tried_on,
    )

    group = chosen.group
    if not chosen.changes:
        text, type_ = (chosen.tags, TAG) if chosen.sql is None else (chosen.sql, SQL92)
        return tried_on(
            brokers_that_know(brokers, group),
            lambda facts: [subscription_of(group, chosen.topic or only_topic(facts, group), text, type_, facts.broker)],
        )
    file = options.filled_subscriptions_of("changes", chosen.changes)
    assert file is not None
    if lines := file.rejected_lines:
        raise UsageError(lines[0])
    events = file.events.events
    return tried_on(brokers, lambda facts: changed_subscriptions(facts, events))


def _check_limits(chosen: argparse.Namespace, found: Sequence[WhatIf], unmet_lines: Sequence[str]) -> None:
    from schemas.answers.what_if.page import NOTHING_TO_COMPARE

    gained = sum(change.gained_by_change for change in found)
    lost = sum(change.lost_by_change for change in found)
    failed = list(unmet_lines)
    has_limits = chosen.max_lost is not None or chosen.max_gained is not None
    if has_limits and found and not any(change.stored for change in found):
        print(f"mqsieve: {NOTHING_TO_COMPARE}: --max-lost and --max-gained hold for nothing", file=sys.stderr)
    if chosen.max_lost is not None and lost > chosen.max_lost:
        failed.append(f"the change loses {counted(lost, 'message')}, more than --max-lost {chosen.max_lost:,}")
    if chosen.max_gained is not None and gained > chosen.max_gained:
        failed.append(f"the change gains {counted(gained, 'message')}, more than --max-gained {chosen.max_gained:,}")
    if failed:
        raise CheckFailed("; ".join(failed))


if __name__ == "__main__":
    application.run(main)
