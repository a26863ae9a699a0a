"""lint: what is wrong with the subscriptions of a file or a warehouse, also on the warehouse's messages."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from filtering.counted import counted
from jobs.cli import application, options
from jobs.cli.application import Parser
from jobs.cli.exit_code import CheckFailed
from schemas.errors import UsageError

if TYPE_CHECKING:
    from filtering.findings import Finding

EXAMPLES = (
    "--subscriptions subscriptions.yaml",
    "--warehouse /data/mqsieve",
    "--subscriptions subscriptions.yaml --warehouse /data/mqsieve --fail-on warn",
)
FAIL_ON = ("error", "warn")


def parser() -> Parser:
    parser = Parser("lint", __doc__, EXAMPLES)
    options.add_answer(parser, required=False)
    options.add_subscriptions(parser, "the subscriptions in force in the warehouse")
    parser.add_argument("--fail-on", choices=FAIL_ON, help="exit 3 if a finding has this severity or a worse one")
    options.add_json(parser)
    return parser


def main(arguments: list[str]) -> None:
    chosen = parser().parse_args(arguments)
    if chosen.warehouse is None and not chosen.subscriptions:
        raise UsageError("lint needs --subscriptions FILE, --warehouse DIR, or both")
    if chosen.warehouse is None and chosen.broker is not None:
        raise UsageError("--broker names a broker of a warehouse: give --warehouse DIR as well")
    from jobs.cli.findings import json_object, print_findings
    from jobs.cli.json_lines import print_json

    found = _findings(chosen)
    if chosen.json:
        print_json(json_object(found), indent=2)
    else:
        print_findings(found)
    if chosen.fail_on is not None:
        severities = FAIL_ON[: FAIL_ON.index(chosen.fail_on) + 1]
        bad = [finding for finding in found if finding.severity in severities]
        if bad:
            raise CheckFailed(f"{counted(len(bad), 'finding is', 'findings are')} {' or '.join(severities)}")


def _findings(chosen: argparse.Namespace) -> list[Finding]:
    """The findings, the worst first."""
    from filtering.findings import Finding, static_findings, worst_first
    from filtering.subscriptions.in_force import in_force_after

    file = options.filled_subscriptions_of("subscriptions", chosen.subscriptions)
    if file is None:
        from schemas.answers.findings import findings

        return findings(options.facts_of(chosen), options.session)
    rejected = [Finding("error", "", "", "invalid-subscription", line) for line in file.rejected_lines]
    if chosen.warehouse is None:
        from filtering.broker_config import BrokerConfig

        return worst_first([*rejected, *static_findings(in_force_after(file.events.events, BrokerConfig()))])
    from schemas.answers.findings import findings_of_rows

    facts = options.facts_of(chosen)
    return worst_first([*rejected, *findings_of_rows(facts, in_force_after(file.events.events, facts.broker))])


if __name__ == "__main__":
    application.run(main)
