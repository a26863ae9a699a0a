"""The messages of a broker's commitlog, one row a message, as stored."""

from schemas.table import Table

COMMITLOG = Table(
    "commitlog",
    "The messages of brokers' commitlogs, as stored. Key: broker_name, commitlog_offset.",
    """
    broker_name STRING NOT NULL COMMENT 'brokerName of broker.conf',
    commitlog_offset BIGINT NOT NULL COMMENT 'physical offset of the record, bytes from the start of the log',
    topic STRING NOT NULL,
    queue_id INT NOT NULL,
    queue_offset BIGINT NOT NULL COMMENT 'index in the consume queue',
    store_size INT NOT NULL COMMENT 'bytes of the whole record',
    msg_id STRING COMMENT 'upper-case hex of store host, port and physical offset',
    tags STRING COMMENT 'property TAGS',
    keys STRING COMMENT 'property KEYS',
    properties MAP<STRING, STRING> COMMENT 'null where the record has none',
    born_timestamp BIGINT COMMENT 'ms since the epoch, producer clock',
    store_timestamp BIGINT NOT NULL COMMENT 'ms since the epoch, broker clock',
    sys_flag INT COMMENT '0x1 compressed, 0x700 kind, 0xC transaction, 0x10 IPv6 born host, 0x20 IPv6 store host',
    flag INT,
    body_crc INT COMMENT 'crc32 of the stored body & 0x7fffffff, as the record claims',
    reconsume_times INT,
    prepared_transaction_offset BIGINT,
    born_host STRING,
    store_host STRING,
    magic_code INT COMMENT 'V1 -626843481, V2 -626843477',
    body_length INT COMMENT 'bytes of the body as stored',
    body_crc_computed INT COMMENT 'crc32 of the body as it is; differs from body_crc where it is damaged',
    body BINARY COMMENT 'as stored: compressed if sys_flag says so',
    store_date DATE
        GENERATED ALWAYS AS (date_add(DATE'1970-01-01', CAST(store_timestamp DIV 86400000 AS INT)))
        COMMENT 'day of store_timestamp, UTC'
    """,
    cluster_by=("broker_name", "topic", "store_date"),
    constraints={"offset_not_negative": "commitlog_offset >= 0", "size_positive": "store_size > 0"},
    statistics_on=(
        "broker_name", "commitlog_offset", "topic", "queue_id", "queue_offset", "store_timestamp", "store_date",
    ),
)  # fmt: skip
