"""The results of audits. Each audit adds its rows in one commit, which nights and the ledger ignore."""

from __future__ import annotations

import pyarrow as pa

from schemas.delta.table import Table, column

QUALITY_RESULTS = Table(
    "quality_results",
    "Results of audits. Key: run, audited_at, audit.",
    [
        column("run", pa.string(), "the last run of the ledger that was audited", nullable=False),
        column("first_run", pa.string(), "the first run that was audited", nullable=False),
        column("audited_at", pa.int64(), "ms since the epoch", nullable=False),
        column("audit", pa.string(), "name of the audit", nullable=False),
        column("severity", pa.string(), "ok, skipped, warn or error", nullable=False),
        column("bad_rows", pa.int64(), "rows that break its rule", nullable=False),
        column("rows", pa.int64(), "rows that the audit checked", nullable=False),
        column("cause", pa.string(), "the failed audit that explains this failure"),
        column("known", pa.bool_(), "whether the baseline has this failure", nullable=False),
        column("sample", pa.string(), "some bad rows as JSON lines, without values of messages"),
        column("query", pa.string(), "SQL that returns the bad rows", nullable=False),
        column("passed", pa.bool_(), "whether all audits of conf/audits.yaml ran and passed", nullable=False),
        column("versions", pa.map_(pa.string(), pa.int64()), "Delta versions of the tables that were audited"),
    ],
    partition_by=(),
    statistics_on=("run", "audited_at"),
    dictionary_encoded=("run", "first_run", "audited_at", "severity", "cause"),
)
