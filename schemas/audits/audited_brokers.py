"""The relation of the brokers that an audit looks at."""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc

from schemas.answers.facts import BrokerFacts
from schemas.answers.inconsistency import knows_clients
from schemas.arrow_batches import table_of
from schemas.audits.scope import Scope
from schemas.delta.table_rows import row_groups
from schemas.quarantine import QUARANTINE
from schemas.rocketmq_store.commitlog.segments import is_mapped_file

BROKERS = pa.schema(
    [
        ("broker_name", pa.string()),
        ("first_run", pa.string()),
        ("last_run", pa.string()),
        ("dispatched_to", pa.int64()),
        ("unreadable_bytes", pa.int64()),
        ("false_positive_rate", pa.int64()),
        ("knows_clients", pa.bool_()),
        ("has_windows", pa.bool_()),
    ]
)


def audited_brokers(scope: Scope) -> pa.Table:
    """A row of BROKERS for each broker."""
    rows = (
        (
            facts.name,
            max(scope.first_run, scope.first_kept(facts.name)),
            facts.last.run,
            facts.last.dispatched_to or 0,
            _unreadable_bytes(facts),
            facts.broker.max_error_rate_of_bloom_filter,
            knows_clients(facts),
            facts.has_windows,
        )
        for facts in scope.facts
    )
    return table_of(BROKERS, rows)


def _unreadable_bytes(facts: BrokerFacts) -> int:
    """Bytes of the log that are in quarantine, or were deleted before a night read them."""
    storage, quarantined = facts.warehouse.log(QUARANTINE).storage, 0
    for file in facts.warehouse.files(QUARANTINE, facts.name):
        for rows in row_groups(QUARANTINE, storage, file.path, ["source_file", "bytes"]):  # there may be gigabytes
            lengths = pc.binary_length(rows["bytes"]).to_pylist()
            names = rows["source_file"].to_pylist()
            quarantined += sum(
                length for name, length in zip(names, lengths, strict=True) if length and is_mapped_file(name)
            )
    deleted = sum(
        max(0, (entry.log_start or 0) - (before.ingested_to or 0)) for before, entry in pairwise(facts.entries)
    )
    return int(quarantined + deleted)
