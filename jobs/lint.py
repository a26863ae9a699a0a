"""lint: what is wrong with the subscriptions of a file or a warehouse, also on the warehouse's messages."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from answers.rendering import short
from filtering.counted import counted, listed
from jobs.cli import application, options
from jobs.cli.application import CheckFailed, Parser, input_file
from jobs.cli.output import BROKERS_NAMED, print_json_of_brokers
from schemas.errors import UsageError, printable

if TYPE_CHECKING:
    from answers.lint import FindingsOfBrokers
    from filtering.findings import Finding
    from filtering.subscriptions.events import GroupTopic

EXAMPLES = (
    "--subscriptions subscriptions.yaml",
    "--warehouse /data/mqsieve",
    "--subscriptions subscriptions.yaml --broker-config broker.conf",
    "--subscriptions subscriptions.yaml --warehouse /data/mqsieve --fail-on warn",
    "--subscriptions subscriptions.yaml --warehouse /data/mqsieve --baseline known.json --fail-on error",
    "--warehouse /data/mqsieve --rocketmq-version 5.5.0",
)
FAIL_ON = ("error", "warn")


def parser() -> Parser:
    parser = Parser("lint", __doc__, EXAMPLES)
    options.add_answer(parser, required=False, all_brokers=True)
    options.add_subscriptions(parser, "the subscriptions in force in the warehouse")
    parser.add_argument(
        "--broker-config",
        type=input_file,
        metavar="FILE",
        help="without --warehouse: the broker.conf, which shows whether the broker refuses the subscriptions",
    )
    parser.add_argument(
        "--baseline", type=input_file, metavar="FILE",
        help="leave out the findings of this file, which --json wrote: each code of a group and topic",
    )  # fmt: skip
    parser.add_argument("--fail-on", choices=FAIL_ON, help="exit 3 if a finding has this severity or a worse one")
    options.add_rocketmq_version(
        parser,
        "what would change if the brokers had this version; without a warehouse: the broker's version; default: the "
        "newest",
    )
    options.add_json(parser)
    return parser


def main(arguments: list[str]) -> None:
    args = parser().parse_args(arguments)
    if args.warehouse is None and not args.subscriptions:
        raise UsageError("lint needs --subscriptions FILE, --warehouse DIR, or both")
    if args.warehouse is None and args.broker is not None:
        raise UsageError("--broker names a broker of a warehouse: give --warehouse DIR as well")
    if args.warehouse is not None and args.broker_config is not None:
        raise UsageError("--warehouse already has the broker's configuration: leave out --broker-config")
    findings = _findings(args)
    if args.baseline is not None:
        before, findings = findings, findings.without(read_baseline(args.baseline))
        if known := len(before.all) - len(findings.all):
            print(f"left out, as {args.baseline} has them: {counted(known, 'finding')}", file=sys.stderr)
    if args.json:
        print_json_of_brokers(
            [(name, json_object(broker_findings)) for name, broker_findings in findings.by_broker.items()]
        )
    else:
        print_findings(findings)
    if args.fail_on is not None:
        severities = FAIL_ON[: FAIL_ON.index(args.fail_on) + 1]
        bad = [finding for finding in findings.all if finding.severity in severities]
        if bad:
            raise CheckFailed(f"{counted(len(bad), 'finding is', 'findings are')} {' or '.join(severities)}")


def _findings(args: argparse.Namespace) -> FindingsOfBrokers:
    """The findings on each broker; without a warehouse, those of a file under an empty name."""
    from answers.lint import FindingsOfBrokers, findings_of_brokers
    from filtering.findings import Finding, refused_findings, static_findings, worst_first
    from filtering.pops.modes import PopGroups, PopModes, as_consumed
    from filtering.rocketmq_version import version_of
    from filtering.subscriptions.history import in_force_after, states_by_key, subscription_history

    version = version_of(args.rocketmq_version)
    file = options.filled_subscriptions_of("subscriptions", args.subscriptions)
    if file is None:
        from answers.facts import NO_SUBSCRIPTIONS
        from answers.lint import findings

        brokers = options.brokers_of(args)
        if not any(facts.in_force for facts in brokers):
            raise UsageError(f"{args.warehouse} has no subscription to check: {NO_SUBSCRIPTIONS}")
        return findings_of_brokers(brokers, lambda facts: findings(facts, options.session, version))
    rejected = [Finding("error", "", "", "invalid-subscription", line) for line in file.rejected_lines]
    events = file.events.events
    if not any(event.subscriptions for event in events):
        raise UsageError(f"--subscriptions: no entry of {', '.join(map(str, args.subscriptions))} is a subscription")
    if args.warehouse is None:
        from filtering.broker_config import BrokerConfig
        from jobs.night.inputs import read_broker_config

        if args.broker_config is None:
            static = static_findings(in_force_after(events, BrokerConfig(rocketmq_version=str(version))))
        else:
            read = read_broker_config(args.broker_config, version)
            for line in read.misread:
                print(f"mqsieve: {printable(line)}", file=sys.stderr)
            config = replace(read.config, rocketmq_version=str(version))
            rows = in_force_after(events, config)
            pops = PopModes().pops(states_by_key(subscription_history(events, config)), events, PopGroups(), config)
            consumed = (as_consumed(row, pops) for row in rows)
            static = [*static_findings(rows), *refused_findings(consumed, config, read.misread)]
        return FindingsOfBrokers({"": worst_first([*rejected, *static])})
    from answers.lint import findings_of_rows

    return findings_of_brokers(
        options.brokers_of(args),
        lambda facts: worst_first([*rejected, *findings_of_rows(facts, in_force_after(events, facts.broker), version)]),
    )


# Findings as text, and as JSON; advise shows them, too.


_MARKS = {"error": ("✗", "31"), "warn": ("!", "33"), "info": ("·", "2")}
NARROWEST = 40


def json_object(findings: Sequence[Finding]) -> dict[str, Any]:
    """The findings as the JSON object that docs/JSON.md describes."""
    return {"findings": [asdict(finding) for finding in findings]}


def read_baseline(file: Path) -> set[tuple[GroupTopic, str]]:
    """The keys and codes of findings that ``--json`` wrote. Raises UsageError for another file."""
    decoder, findings = json.JSONDecoder(), []
    try:
        text = file.read_text("utf-8", "surrogatepass").lstrip()
        while text:  # an object for each broker
            row, end = decoder.raw_decode(text)
            findings += row["findings"]
            text = text[end:].lstrip()
        return {((each["consumer_group"], each["topic"]), each["code"]) for each in findings}
    except (ValueError, KeyError, TypeError, RecursionError):
        raise UsageError(f"{file} has no findings: lint --json writes them") from None


def print_findings(on_brokers: FindingsOfBrokers) -> None:
    """Prints the findings and their number. A finding that not all brokers have names those that have it."""
    findings = on_brokers.all
    width = max((len(_whose(finding)) for finding in findings), default=0)
    for finding in findings:
        mark, color = _MARKS[finding.severity]
        brokers = on_brokers.only_on(finding)
        where = f" ({listed(brokers, BROKERS_NAMED)})" if brokers else ""
        first, *more = _lines(printable(finding.text + where), width + 4)
        print(f"{_colored(mark, color)} {_whose(finding):<{width}}  {first}")
        for line in more:
            print(f"{'':{width + 4}}{line}")
    counts = Counter(finding.severity for finding in findings)
    by_severity = ", ".join(f"{counts[severity]:,} {severity}" for severity in _MARKS if counts[severity])
    print(f"{counted(len(findings), 'finding')}: {by_severity}" if findings else "no findings")
    if findings and len(on_brokers.by_broker) > 1:
        print(f"a finding that names no broker is on all {len(on_brokers.by_broker):,} of them")


def _whose(finding: Finding) -> str:
    return f"{short(finding.consumer_group)} on {short(finding.topic)}" if finding.consumer_group else ""


def _lines(text: str, used: int) -> list[str]:
    """The text; on a terminal, as lines that fit beside or below the ``used`` columns."""
    if not sys.stdout.isatty():
        return [text]
    room = max(NARROWEST, shutil.get_terminal_size().columns - used)
    return textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False)


def _colored(text: str, color: str) -> str:
    plain = "NO_COLOR" in os.environ or not sys.stdout.isatty()
    return text if plain else f"\033[{color}m{text}\033[0m"


if __name__ == "__main__":
    application.run(main)
