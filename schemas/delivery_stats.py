"""What the filters did for each group, queue by queue."""

from schemas.table import Table

DELIVERY_STATS = Table(
    "delivery_stats",
    "Counts of one deliver run. Key: run, consumer_group, broker_name, topic, queue_id.",
    """
    run STRING NOT NULL,
    broker_name STRING NOT NULL,
    consumer_group STRING NOT NULL,
    topic STRING NOT NULL,
    queue_id INT NOT NULL,
    scanned BIGINT NOT NULL COMMENT 'entries of the queue',
    passed_stage1 BIGINT NOT NULL COMMENT 'passed on the consume queue entry',
    passed_stage2 BIGINT NOT NULL COMMENT 'passed on the message too: returned by the broker',
    delivered BIGINT NOT NULL COMMENT 'passed the tag check of the client and its filter hooks too',
    dropped_by_hook BIGINT NOT NULL COMMENT 'passed the tag check, dropped by a filter hook of the client',
    bit_map_false_positives BIGINT NOT NULL COMMENT 'passed stage 1 by the bit map, failed stage 2',
    hash_collisions BIGINT NOT NULL COMMENT 'passed by the tag hash, dropped by the client',
    evaluation_errors BIGINT NOT NULL COMMENT 'the expression failed on a message that had passed stage 1'
    """,
)
