"""The command lines in a report."""

from __future__ import annotations

import re

from schemas.answers.report.report import Report
from schemas.shell_command import PROGRAM, option

LONGEST = 600
"""Characters. Longer commands, with names that no broker accepts, are not shown."""
_PLAIN = re.compile(r"[\w%@.,:+/|-]+", re.ASCII)


def is_plain(text: str) -> bool:
    """Whether a shell and a job's command line take the text without quotes."""
    return _PLAIN.fullmatch(text) is not None and "|" not in text and not text.startswith("-")


class Commands:
    """The command lines about one broker of one warehouse."""

    def __init__(self, report: Report) -> None:
        self.where = option("warehouse", report.warehouse)
        if not report.broker_is_alone:
            self.where += f" {option('broker', report.broker_name)}"

    def command(self, job: str, *options: str) -> str:
        """``./spark-submit.sh JOB --warehouse … OPTIONS``, without the options if they are too long to show."""
        command = " ".join([PROGRAM, job, self.where, *options])
        return command if len(command) <= LONGEST + len(self.where) else f"{PROGRAM} {job} {self.where} …"

    def compare(self, run: str) -> str:
        return self.command("report", option("compare", run), "--output night.html")

    def export(self, table: str, *options: str) -> str:
        return self.command(f"export {table}", *options, "--output -")

    def export_topic(self, topic: str) -> str:
        return self.export("delivery_stats", option("topic", topic))

    def explain_group(self, consumer_group: str, topic: str, last_pulled: tuple[int, int] | None) -> str:
        """The command that explains an entry of a group, or simulates its pulls if it has not pulled yet."""
        whose = f"{option('group', consumer_group)} {option('topic', topic)}"
        if last_pulled is None:
            return self.command("pulls", whose)
        return self.command("explain", whose, f"--queue {last_pulled[0]} --offset {last_pulled[1]}")
