"""Airflow 3: a night, then its audit and its page, in any case. Copy to the folder of DAGs.

mqsieve is installed in an environment of its own, /opt/mqsieve. Its exit codes decide what Airflow does: 2 (usage or
configuration) and 3 (a condition or an audit is an error) fail at once, since a repetition ends in the same way; all
others are tried again, such as 1 (failed) and 4 (another run was writing). A run that died leaves nothing behind.
"""

import subprocess
from datetime import datetime, timedelta

from airflow.sdk import dag, task
from airflow.sdk.exceptions import AirflowException, AirflowFailException

MQSIEVE = "/opt/mqsieve/bin/mqsieve"
NIGHTLY = "nightly --warehouse /data/mqsieve --store /copy/store --recorded /data/recorded --strict"
AUDIT = "audit --warehouse /data/mqsieve --fail-on error"
REPORT = "report --warehouse /data/mqsieve --output /www/night.html"
AT_ONCE = (2, 3)


def run(command: str) -> None:
    code = subprocess.run([MQSIEVE, *command.split()], check=False).returncode  # noqa: S603
    if code:
        raise (AirflowFailException if code in AT_ONCE else AirflowException)(f"mqsieve ended with exit code {code}")


@dag(
    schedule="10 2 * * *", start_date=datetime(2026, 1, 1), catchup=False, max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(minutes=10)},
)  # fmt: skip
def mqsieve() -> None:
    @task
    def nightly() -> None:
        run(NIGHTLY)

    @task(trigger_rule="all_done")
    def audit() -> None:
        run(AUDIT)

    @task(trigger_rule="all_done")
    def report() -> None:
        run(REPORT)

    @task(trigger_rule="one_failed", retries=0)
    def failed() -> None:
        """Airflow judges a run by its last tasks only: without this one, a written page would make it a success."""
        raise AirflowFailException("the night, its audit or its page failed")

    night, audited, reported, any_failed = nightly(), audit(), report(), failed()
    night >> audited >> reported >> any_failed
    night >> any_failed
    audited >> any_failed


mqsieve()
