"""deliver: filters the messages that no earlier run has filtered, for each consumer group."""

from jobs.cli import application
from jobs.cli.options import night_command
from jobs.night import Step

EXAMPLES = ("--warehouse /data/mqsieve", "--warehouse /data/mqsieve --filter-hooks hooks.yaml")

parser, main = night_command("deliver", __doc__, frozenset({Step.DELIVER}), EXAMPLES)


if __name__ == "__main__":
    application.run(main)
