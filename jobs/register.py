"""register: adds subscription events to the history of subscriptions."""

from jobs.cli import application
from jobs.cli.application import Parser
from jobs.cli.options import night_parser, run_steps
from jobs.night import Step

STEPS = frozenset({Step.REGISTER})
EXAMPLES = (
    "--subscriptions events.jsonl --warehouse /data/mqsieve",
    "--subscriptions conf/subscriptions.example.yaml --warehouse /data/mqsieve",
)


def parser() -> Parser:
    return night_parser("register", __doc__, STEPS, EXAMPLES)


def main(arguments: list[str]) -> None:
    run_steps("register", STEPS, parser(), arguments)


if __name__ == "__main__":
    application.run(main)
