"""nightly: replays a broker's store and subscriptions: which messages each group received."""

from jobs.cli import application
from jobs.cli.application import Parser
from jobs.cli.night_options import night_parser
from jobs.night.inputs.steps import ALL_STEPS

STEPS = ALL_STEPS
EXAMPLES = (
    "--store /backup/broker-a/store --subscriptions events.jsonl --warehouse /data/mqsieve",
    "--brokers brokers.yaml --warehouse /data/mqsieve --strict",
)


def parser() -> Parser:
    return night_parser("nightly", __doc__, STEPS, EXAMPLES)


def main(arguments: list[str]) -> None:
    options = parser().parse_args(arguments)
    from jobs.cli.night_job import run_job

    run_job("nightly", STEPS, options)


if __name__ == "__main__":
    application.run(main)
