"""Input that could not be decoded: where it is, why, and its bytes."""

from __future__ import annotations

import pyarrow as pa

from filtering.pops.record import is_record_topic
from schemas.delta.table import Table, column
from schemas.rocketmq_store.segments import is_mapped_file

TRACE_SOURCE = " (trace)"
"""What follows the topic in ``source_file`` of what is in a trace."""

QUARANTINE = Table(
    "quarantine",
    "Input that could not be decoded. Key: broker_name, source_file, offset.",
    [
        column("broker_name", pa.string(), nullable=False),
        column(
            "source_file",
            pa.string(),
            "name of the file; of a record of pops, its topic; of what is in a trace, TOPIC (trace)",
            nullable=False,
        ),
        column("offset", pa.int64(), "physical offset in a commitlog, or line of a text file", nullable=False),
        column("reason", pa.string(), "why it could not be decoded", nullable=False),
        column("bytes", pa.binary(), "the input itself"),
        column("run", pa.string(), "the run that first read it", nullable=False),
    ],
    statistics_on=("source_file", "offset", "run"),
    dictionary_encoded=("source_file", "reason", "run"),
)


def is_of_log(source_file: str) -> bool:
    """Whether it was in a broker's log: bytes of a segment, a record of pops or a trace. Others are lines of files."""
    return is_mapped_file(source_file) or is_record_topic(source_file) or source_file.endswith(TRACE_SOURCE)
