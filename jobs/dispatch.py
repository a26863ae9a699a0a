"""dispatch: writes consume queue entries and their filter bit maps for messages without an entry."""

from jobs.cli import application
from jobs.cli.application import Parser
from jobs.cli.options import night_parser, run_steps
from jobs.night import Step

STEPS = frozenset({Step.DISPATCH})
EXAMPLES = ("--warehouse /data/mqsieve", "--warehouse /data/mqsieve --broker-config broker.conf")


def parser() -> Parser:
    return night_parser("dispatch", __doc__, STEPS, EXAMPLES)


def main(arguments: list[str]) -> None:
    run_steps("dispatch", STEPS, parser(), arguments)


if __name__ == "__main__":
    application.run(main)
