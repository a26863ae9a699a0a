"""nightly: replays a broker's store and subscriptions: which messages each group received."""

from jobs.cli import application
from jobs.cli.options import night_command
from jobs.night import ALL_STEPS

EXAMPLES = (
    "--store /backup/broker-a/store --subscriptions events.jsonl --warehouse /data/mqsieve",
    "--brokers brokers.yaml --warehouse /data/mqsieve --strict",
)

parser, main = night_command("nightly", __doc__, ALL_STEPS, EXAMPLES)


if __name__ == "__main__":
    application.run(main)
