"""register: adds subscription events to the history of subscriptions."""

from jobs.cli import application
from jobs.cli.options import night_command
from jobs.night import Step

EXAMPLES = (
    "--subscriptions events.jsonl --warehouse /data/mqsieve",
    "--subscriptions conf/subscriptions.example.yaml --warehouse /data/mqsieve",
)

parser, main = night_command("register", __doc__, frozenset({Step.REGISTER}), EXAMPLES)


if __name__ == "__main__":
    application.run(main)
