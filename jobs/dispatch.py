"""dispatch: writes consume queue entries and their filter bit maps for messages without an entry."""

from jobs.cli import application
from jobs.cli.options import night_command
from jobs.night import Step

EXAMPLES = ("--warehouse /data/mqsieve", "--warehouse /data/mqsieve --broker-config broker.conf")

parser, main = night_command("dispatch", __doc__, frozenset({Step.DISPATCH}), EXAMPLES)


if __name__ == "__main__":
    application.run(main)
