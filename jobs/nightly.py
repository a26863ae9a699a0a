"""nightly: replays a broker's store and subscriptions: which messages each group received."""

from jobs.cli import application
from jobs.cli.application import Parser
from jobs.cli.options import night_parser, run_steps
from jobs.night import ALL_STEPS

STEPS = ALL_STEPS
EXAMPLES = (
    "--store /backup/broker-a/store --subscriptions events.jsonl --warehouse /data/mqsieve",
    "--brokers brokers.yaml --warehouse /data/mqsieve --strict",
)


def parser() -> Parser:
    return night_parser("nightly", __doc__, STEPS, EXAMPLES)


def main(arguments: list[str]) -> None:
    run_steps("nightly", STEPS, parser(), arguments)


if __name__ == "__main__":
    application.run(main)
