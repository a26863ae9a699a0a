"""deliver: filters the messages that no earlier run has filtered, for each consumer group."""

from jobs.cli import application
from jobs.cli.application import Parser
from jobs.cli.options import night_parser, run_steps
from jobs.night import Step

STEPS = frozenset({Step.DELIVER})
EXAMPLES = ("--warehouse /data/mqsieve", "--warehouse /data/mqsieve --filter-hooks hooks.yaml")


def parser() -> Parser:
    return night_parser("deliver", __doc__, STEPS, EXAMPLES)


def main(arguments: list[str]) -> None:
    run_steps("deliver", STEPS, parser(), arguments)


if __name__ == "__main__":
    application.run(main)
