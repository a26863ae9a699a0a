"""ingest: reads new messages of a broker's store, or of a message log, into commitlog and quarantine."""

from jobs.cli import application
from jobs.cli.application import Parser
from jobs.cli.options import night_parser, run_steps
from jobs.night import Step

STEPS = frozenset({Step.INGEST})
EXAMPLES = (
    "--store /backup/broker-a/store --warehouse /data/mqsieve",
    "--store messages.jsonl --warehouse /data/mqsieve",
)


def parser() -> Parser:
    return night_parser("ingest", __doc__, STEPS, EXAMPLES)


def main(arguments: list[str]) -> None:
    run_steps("ingest", STEPS, parser(), arguments)


if __name__ == "__main__":
    application.run(main)
