"""what-if: the messages that a group would have gained or lost with another filter."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from answers.rendering import Block, Heading, Items, Paragraph, as_markdown, as_text
from filtering.counted import counted, did_you_mean, listed
from filtering.frozen import frozen
from jobs.cli import application, options
from jobs.cli.application import CheckFailed, Parser, given_name, input_file
from jobs.cli.output import print_json_of_brokers, terminal_width
from schemas.errors import UsageError

if TYPE_CHECKING:
    from answers.facts import BrokerFacts
    from answers.what_if import Tried, WhatIf
    from filtering.findings import Expectation

EXAMPLES = (
    "--warehouse /data/mqsieve --group cg_expensive_orders --sql 'price > 40.0'",
    "--warehouse /data/mqsieve --changes subscriptions.yaml --max-lost 0 --expect messages.yaml",
    "--warehouse /data/mqsieve --changes subscriptions.yaml --max-lost 0 --allow-ended cg_retired",
)
EVERY_GROUP = "*"
"""The value of --allow-ended without a name. No group may be named so."""
NAMED = 3
NOTHING_COMPARED = "there is no message to compare: --max-lost and --max-gained hold for nothing"


@frozen
class Check:
    """A limit that a user gave, and the ``value`` that must not be greater. ``text`` says both in one line."""

    name: str
    limit: int
    value: int
    text: str

    @property
    def passed(self) -> bool:
        return self.value <= self.limit


@frozen
class Verdict:
    """The checks that a change must pass; none if the user gave no limit. ``compares_nothing``: there is no message."""

    checks: Sequence[Check]
    compares_nothing: bool

    @property
    def passed(self) -> bool | None:
        """None: there is nothing to pass."""
        return all(check.passed for check in self.checks) if self.checks else None


def parser() -> Parser:
    parser = Parser("what-if", __doc__, EXAMPLES)
    options.add_answer(parser, all_brokers=True)
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
        help="a subscriptions file as for nightly; tries each subscription that differs from the one in force, and "
        "the end of those that a night with this file would end",
    )
    options.add_period(parser)
    parser.add_argument(
        "--max-lost",
        type=_limit,
        metavar="N",
        help="exit 3 if the change loses more messages, or ends a subscription",
    )
    parser.add_argument(
        "--allow-ended",
        nargs="?",
        const=EVERY_GROUP,
        type=given_name,
        action="append",
        metavar="GROUP",
        help="with --max-lost: --changes may end the subscriptions of this group, repeatable; without a name, those of "
        "every group",
    )
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
    args = parser().parse_args(arguments)
    _check(args)
    period = options.period_of(args)
    from answers.what_if import what_if_on_brokers

    expectations = _expectations(args)
    brokers = options.brokers_of(args)
    tried = _tried(args, brokers, expectations)
    known = {group for facts in brokers for group in facts.groups}
    known |= {row.consumer_group for each in tried for row in each.changed}
    _check_groups(expectations, set(args.allow_ended or ()) - {EVERY_GROUP}, known)
    _check_properties(expectations, tried)
    what_ifs = what_if_on_brokers(tried, period, options.session)
    lines = _unmet(expectations, tried)
    every_line = list(dict.fromkeys(line for broker_lines in lines.values() for line in broker_lines))
    verdict = _verdict(args, [change for _, change in what_ifs], expectations, every_line)
    if args.json:
        by_broker = {facts.name: [change for name, change in what_ifs if name == facts.name] for facts in brokers}
        objects = [(name, _json_object(changes, lines.get(name, ()), verdict)) for name, changes in by_broker.items()]
        print_json_of_brokers(objects)
    else:
        _print(what_ifs, every_line, verdict, len(brokers) > 1)
    if verdict.compares_nothing:
        print(f"mqsieve: {NOTHING_COMPARED}", file=sys.stderr)
    failed = [check for check in verdict.checks if not check.passed]
    if failed:
        raise CheckFailed("; ".join([*every_line, *(check.text for check in failed if check.name != "expect")]))


def _print(what_ifs: Sequence[tuple[str, WhatIf]], unmet: Sequence[str], verdict: Verdict, names_brokers: bool) -> None:
    """Prints a section for each broker, group and topic: plain text on a terminal, else Markdown."""
    blocks = list(_blocks(what_ifs, unmet, verdict, names_brokers))
    if not what_ifs:
        print("no subscription differs from what is in force", end="\n\n" if blocks else "\n")
    if blocks:
        width = terminal_width()
        print(as_text(blocks, width) if width else as_markdown(blocks), end="\n\n")


def _blocks(
    what_ifs: Sequence[tuple[str, WhatIf]], unmet: Sequence[str], verdict: Verdict, names_brokers: bool
) -> Iterator[Block]:
    from answers.what_if import blocks, totals

    if len(what_ifs) > 1:
        keys = {change.key for _, change in what_ifs}
        ended = len({change.key for _, change in what_ifs if change.new is None})
        parts = [counted(len(keys) - ended, "filter"), *[counted(ended, "ended subscription")] * bool(ended)]
        where = f" on {counted(len({broker for broker, _ in what_ifs}), 'broker')}" if names_brokers else ""
        yield Heading(f"{' and '.join(parts)}{where}: {totals(change for _, change in what_ifs)}", 1)
    if verdict.checks:
        yield Paragraph(f"Verdict: {_passed(verdict.passed)}", is_strong=True)
        lines = [f"{_passed(check.passed)}: {check.text}" for check in verdict.checks]
        yield Items([*lines, NOTHING_COMPARED] if verdict.compares_nothing else lines)
    if unmet:
        yield Paragraph("Expectations that are not met", is_strong=True)
        yield Items(unmet)
    for broker, change in what_ifs:
        yield from blocks(change, broker if names_brokers else None)


def _passed(passed: bool | None) -> str:
    return "passed" if passed else "FAILED"


def _json_object(what_ifs: Sequence[WhatIf], unmet: Sequence[str], verdict: Verdict) -> dict[str, Any]:
    """The changes as the JSON object that docs/JSON.md describes."""
    from answers.what_if import what_if_json

    changes = [what_if_json(change) for change in what_ifs]
    totals: dict[str, Any] = {name: sum(change[name] for change in changes) for name in ("gained", "lost", "kept")}
    checks = [asdict(check) | {"passed": check.passed} for check in verdict.checks]
    verdict_object = {"passed": verdict.passed, "compares_nothing": verdict.compares_nothing, "checks": checks}
    return {"verdict": verdict_object} | totals | {"changes": changes, "unmet": list(unmet)}


def _limit(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text} is not a number of messages")
    return int(text)


def _check(args: argparse.Namespace) -> None:
    """Raises UsageError if the options do not name a filter to try."""
    if args.changes:
        if args.group or args.topic or args.sql is not None or args.tags is not None:
            raise UsageError("--changes already names its groups: leave out --group, --topic, --sql and --tags")
    elif not args.group:
        raise UsageError("what-if needs --group with --sql or --tags, or --changes FILE")
    elif (args.sql is None) == (args.tags is None):
        raise UsageError("what-if needs --sql or --tags for the group, or --changes FILE instead of --group")
    if args.allow_ended and (not args.changes or args.max_lost is None):
        raise UsageError("--allow-ended is for --changes with --max-lost: nothing else is refused because it ends")


def _expectations(args: argparse.Namespace) -> list[Expectation]:
    from filtering.findings import expectations
    from schemas.yaml_input import load

    if args.expect is None:
        return []
    try:
        return expectations(load(args.expect.read_text("utf-8", "replace")))
    except ValueError as error:
        raise UsageError(f"{args.expect}: {error}") from None


def _check_groups(expectations: Sequence[Expectation], allowed: Collection[str], known: Collection[str]) -> None:
    """Raises UsageError if an expectation or --allow-ended names an unknown group."""
    named = [(f"--expect, entry {each.number}", each.consumer_group) for each in expectations]
    for option, group in [*named, *(("--allow-ended", group) for group in allowed)]:
        if group is not None and group not in known:
            raise UsageError(f"{option}: there is no group {group}{did_you_mean(group, sorted(known))}")


def _check_properties(expectations: Sequence[Expectation], tried: Sequence[Tried]) -> None:
    """Raises UsageError if an expectation has a property that no filter reads and no message has: it is misspelt."""
    from filtering.sql92.nodes import named_properties
    from schemas.messages.stored_messages import property_names

    given = {name for each in expectations for name in each.properties}
    known = {"TAGS", "KEYS", "UNIQ_KEY"}
    for each in tried:
        for row in (*each.changed, *each.kept):
            if row.compiled.expression is not None:
                known.update(named_properties(row.compiled.expression.syntax_tree))
    for each in tried if given - known else ():
        topics = {row.topic for row in (*each.changed, *each.kept)}
        names = property_names(each.facts.warehouse, each.facts.name, dict.fromkeys(topics, given - known))
        known.update(*(names.get(topic, ()) for topic in topics))
    for expected in expectations:
        for name in expected.properties.keys() - known:
            hint = did_you_mean(name, sorted(known))
            where = f"--expect, entry {expected.number}"
            raise UsageError(f"{where}: no filter reads the property {name}, and no message has it{hint}")


def _tried(
    args: argparse.Namespace, brokers: Sequence[BrokerFacts], expectations: Sequence[Expectation]
) -> list[Tried]:
    """The subscriptions to try on each broker. Raises UsageError."""
    from answers.what_if import Tried, brokers_that_know, changes_of_file, subscription_of, tried_on
    from filtering.subscription_data import SQL92, TAG

    group = args.group
    if args.changes:
        file = options.filled_subscriptions_of("changes", args.changes)
        assert file is not None
        if lines := file.rejected_lines:
            raise UsageError(lines[0])
        return tried_on(brokers, lambda facts: changes_of_file(facts, file.events, file.filters_only, file.digest))
    expected = {each.consumer_group for each in expectations if each.consumer_group is not None} - {group}

    def instead(facts: BrokerFacts) -> Tried:
        text, type_ = (args.tags, TAG) if args.sql is None else (args.sql, SQL92)
        row = subscription_of(facts, group, args.topic or facts.only_topic_of(group), text, type_)
        return Tried(facts, [row], kept=facts.in_force_of(expected))

    return tried_on(brokers_that_know(brokers, group), instead)


def _unmet(expectations: Sequence[Expectation], tried: Sequence[Tried]) -> dict[str, list[str]]:
    """By broker, a line for each expectation that is not met. One that names a group whose filter stays is checked."""
    from filtering.findings import unmet, unmet_without_subscription
    from filtering.names import is_retry_topic

    changed = {row.consumer_group for each in tried for row in each.changed}
    kept = {row.consumer_group for each in tried for row in each.kept}
    group_expectations = [each for each in expectations if each.consumer_group is not None]
    lines = {}
    for each in tried:
        unmet_lines = [line for row in each.changed for line in unmet(expectations, row)]
        others = [row for row in each.kept if row.consumer_group not in changed and not is_retry_topic(row.topic)]
        unmet_lines += [line for row in others for line in unmet(group_expectations, row)]
        lines[each.facts.name] = [*unmet_lines, *unmet_without_subscription(group_expectations, changed | kept)]
    return lines


def _verdict(
    args: argparse.Namespace, what_ifs: Sequence[WhatIf], expectations: Sequence[Expectation], unmet: Sequence[str]
) -> Verdict:
    """Whether the changes are within the limits that the user gave."""
    allowed = args.allow_ended or ()
    ended = [change for change in what_ifs if change.new is None]
    refused = [change for change in ended if EVERY_GROUP not in allowed and change.key[0] not in allowed]
    checks = []
    if args.max_lost is not None:
        lost = sum(change.lost_by_change for change in what_ifs if change.new is not None or change in refused)
        checks.append(_limit_check("max-lost", "loses", lost, args.max_lost))
        checks.append(_ended_check(ended, refused))
    if args.max_gained is not None:
        gained = sum(change.gained_by_change for change in what_ifs)
        checks.append(_limit_check("max-gained", "gains", gained, args.max_gained))
    if expectations:
        of = f"of {counted(len(expectations), 'expected message')}"
        checks.append(Check("expect", 0, len(unmet), f"{len(unmet):,} {of} not handled as expected"))
    has_limits = args.max_lost is not None or args.max_gained is not None
    return Verdict(checks, has_limits and bool(what_ifs) and not any(change.stored for change in what_ifs))


def _limit_check(name: str, verb: str, messages: int, limit: int) -> Check:
    than = f"more than --{name} {limit:,}" if messages > limit else f"within --{name} {limit:,}"
    return Check(name, limit, messages, f"the change {verb} {counted(messages, 'message')}, {than}")


def _ended_check(ended: Sequence[WhatIf], refused: Sequence[WhatIf]) -> Check:
    """``refused``: those of the ended subscriptions that --allow-ended does not allow."""
    names = [f"{group} on {topic}" for group, topic in dict.fromkeys(change.key for change in refused or ended)]
    text = f"the file ends {counted(len(names), 'subscription')}" if names else "no subscription ends"
    if names:
        text += f" ({listed(names, NAMED)})" + (
            "; --allow-ended GROUP allows it" if refused else ", as --allow-ended says"
        )
    return Check("ended", 0, len(names) if refused else 0, text)


if __name__ == "__main__":
    application.run(main)
