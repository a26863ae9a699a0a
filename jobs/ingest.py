"""ingest: reads new messages of a broker's store, or of a message log, into commitlog and quarantine."""

from jobs.cli import application
from jobs.cli.application import Parser
from jobs.cli.night_options import night_parser
from jobs.night.inputs.steps import Step

STEPS = frozenset({Step.INGEST})
EXAMPLES = (
    "--store /backup/broker-a/store --warehouse /data/mqsieve",
    "--store messages.jsonl --warehouse /data/mqsieve",
)


def parser() -> Parser:
    return night_parser("ingest", __doc__, STEPS, EXAMPLES)


def main(arguments: list[str]) -> None:
    options = parser().parse_args(arguments)
    from jobs.cli.night_job import run_job

    run_job("ingest", STEPS, options)


if __name__ == "__main__":
    application.run(main)
