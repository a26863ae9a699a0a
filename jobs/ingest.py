"""ingest: reads new messages of a broker's store, or of a message log, into commitlog and quarantine."""

from jobs.cli import application
from jobs.cli.options import night_command
from jobs.night import Step

EXAMPLES = (
    "--store /backup/broker-a/store --warehouse /data/mqsieve",
    "--store messages.jsonl --warehouse /data/mqsieve",
)

parser, main = night_command("ingest", __doc__, frozenset({Step.INGEST}), EXAMPLES)


if __name__ == "__main__":
    application.run(main)
