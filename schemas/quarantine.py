"""What could not be decoded: where it is, why, and its bytes."""

from schemas.table import Table

QUARANTINE = Table(
    "quarantine",
    "Input that could not be decoded. Key: source_file, offset.",
    """
    broker_name STRING NOT NULL,
    source_file STRING NOT NULL,
    offset BIGINT NOT NULL COMMENT 'of a commitlog: the physical offset; of a text log: the line',
    reason STRING NOT NULL,
    bytes BINARY COMMENT 'at most the first MiB'
    """,
)
