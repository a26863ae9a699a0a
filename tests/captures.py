"""Stores and deliveries of a real broker (tests/cases/captures)."""

import json
import tarfile
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

CAPTURES = Path(__file__).parent / "cases" / "captures"
PUBLIC = Path(__file__).parent / "cases" / "public"
"""Inputs that people wrote, of public reports and guides."""
UNDAMAGED = ("small", "dev", "plain", "otherbloom")
IN_DATABASES = ("rocks550", "single550", "configv2_533", "double533")
"""Of brokers with RocksDB: two of 5.5.0 with consume queues and configurations in it, and two of 5.3.3, one with its
configurations, one with its consume queues in both files and a database."""
DAMAGED = ("small_torn", "small_truncated", "small_corrupt")

_unpacked = tempfile.TemporaryDirectory(prefix="mqsieve-captures-", ignore_cleanup_errors=True)


@cache
def capture(name: str) -> Path:
    """The folder of a capture with store/, broker.conf, messages.jsonl, …; archives are unpacked first."""
    folder = CAPTURES / name
    if folder.is_dir():
        return folder
    (packed,) = CAPTURES.glob(f"{name}.tar.*")
    with tarfile.open(packed) as archive:
        archive.extractall(_unpacked.name, filter="data")
    return Path(_unpacked.name) / name


@cache
def rows(name: str, file: str) -> list[dict[str, Any]]:
    """The rows of ``<file>.jsonl`` in a capture."""
    text = (capture(name) / f"{file}.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.split("\n") if line]


MESSAGE_FIELDS = {
    "commitlog_offset": "physicalOffset", "store_size": "storeSize", "magic_code": "magicCode", "body_crc": "bodyCRC",
    "queue_id": "queueId", "flag": "flag", "queue_offset": "queueOffset", "sys_flag": "sysFlag",
    "born_timestamp": "bornTimestamp", "born_host": "bornHost", "store_timestamp": "storeTimestamp",
    "store_host": "storeHost", "reconsume_times": "reconsumeTimes",
    "prepared_transaction_offset": "preparedTransactionOffset", "body_length": "bodyLength", "topic": "topic",
    "msg_id": "msgId", "properties": "properties",
}  # fmt: skip


def delivered_in_force(name: str) -> list[dict[str, Any]]:
    """The rows of delivered.jsonl whose subscription is in the event file; the others were sent with the pull."""
    events = [
        (event["group"], event["topic"], event["expression"])
        for event in rows(name, "subscription_events")
        if "expression" in event
    ]
    return [row for row in rows(name, "delivered") if (row["group"], row["topic"], row["expression"]) in events]
