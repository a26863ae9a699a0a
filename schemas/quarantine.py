"""Input that could not be decoded: where it is, why, and its bytes."""

from __future__ import annotations

import pyarrow as pa

from schemas.delta.table import Table, column

QUARANTINE = Table(
    "quarantine",
    "Input that could not be decoded. Key: broker_name, source_file, offset.",
    [
        column("broker_name", pa.string(), nullable=False),
        column("source_file", pa.string(), "name of the file", nullable=False),
        column("offset", pa.int64(), "physical offset in a commitlog, or line of a text file", nullable=False),
        column("reason", pa.string(), "why it could not be decoded", nullable=False),
        column("bytes", pa.binary(), "the input itself"),
        column("run", pa.string(), "the run that first read it", nullable=False),
    ],
    statistics_on=("source_file", "offset", "run"),
    dictionary_encoded=("source_file", "reason", "run"),
)
