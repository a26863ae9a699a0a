"""A night on one message, for the classes that it loads: what Java archives them from."""

import json
import tempfile
from pathlib import Path

from jobs import nightly

MESSAGE = {"topic": "T", "queue_id": 0, "queue_offset": 0, "commitlog_offset": 0, "store_timestamp": 0}
SUBSCRIPTIONS = "- {group: g, topic: T, sql: a = 1}"

with tempfile.TemporaryDirectory() as folder:
    log, subscriptions = Path(folder) / "log.jsonl", Path(folder) / "subscriptions.yaml"
    log.write_text(json.dumps(MESSAGE))
    subscriptions.write_text(SUBSCRIPTIONS)
    nightly.main(
        ["--store", str(log), "--subscriptions", str(subscriptions), "--warehouse", str(Path(folder) / "warehouse")]
    )
