"""The relation for the audits of conf/spark_audits.yaml: entries and deliveries, computed once more by Spark."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

import pyarrow as pa

from answers.audits.scope import Scope
from filtering.delivery.block_schema import Outcome
from schemas.pops import TRACED
from schemas.spark_tasks import Session
from schemas.tables import CONSUMEQUEUE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SPARK_CHECKS = pa.schema(
    [
        ("table_name", pa.string()),
        ("broker_name", pa.string()),
        ("run", pa.string()),
        ("topic", pa.string()),
        ("consumer_group", pa.string()),
        ("stored", pa.int64()),
        ("missing", pa.int64()),
        ("unexpected", pa.int64()),
    ]
)


def spark_checks(scope: Scope, session: Session) -> pa.Table:
    """Rows of SPARK_CHECKS, for each run and topic of consumequeue, and for each run, topic and group of deliveries.

    ``stored`` counts the rows of the table, ``missing`` those that Spark computes and that are not stored, and
    ``unexpected`` those that are stored only. Left out are messages that maintenance removed, and what traces of
    clients decided. Raises UsageError for a replay, which has no messages, and for nights without pull windows.
    """
    from pyspark.sql import functions as F

    from schemas import deliveries, spark_pipeline

    for facts in scope.facts:
        facts.check_has_messages()
        facts.check_has_windows()
    spark, warehouse = session(), scope.warehouse
    is_audited = reduce(
        or_,
        (
            (F.col("broker_name") == facts.name)
            & (F.col("commitlog_offset") >= scope.messages_from(facts.name))
            & (F.col("run") >= max(scope.first_run, scope.first_kept(facts.name)))
            for facts in scope.facts
        ),
    )
    stored = deliveries.read(spark, warehouse)
    pair = ["broker_name", "consumer_group", "commitlog_offset"]
    decided_by_traces = stored.where(F.col("source") == TRACED).select(pair)
    stored = stored.where(F.col("source") != TRACED).replace(
        {Outcome.DROPPED_BY_HOOK: Outcome.DELIVERED}, subset=["outcome"]
    )
    stored, computed = (
        each.join(decided_by_traces, pair, "left_anti").select(each.columns)
        for each in (stored, spark_pipeline.deliveries(spark, warehouse, scope.first_run))
    )
    differing_deliveries = _differences("deliveries", computed.where(is_audited), stored.where(is_audited))
    computed = spark_pipeline.entries(spark, warehouse).where(is_audited)
    stored = warehouse.read(spark, CONSUMEQUEUE).select(computed.columns).where(is_audited)
    no_group = F.lit(None).cast("string")
    differing_entries = _differences(
        CONSUMEQUEUE.name,
        computed.withColumn("consumer_group", no_group),
        stored.withColumn("consumer_group", no_group),
    )
    rows = differing_entries.unionByName(differing_deliveries).select(SPARK_CHECKS.names)
    return rows.toArrow().cast(SPARK_CHECKS)


def _differences(table_name: str, computed: DataFrame, stored: DataFrame) -> DataFrame:
    """The rows of SPARK_CHECKS for one table. Equal rows are counted."""
    from pyspark.sql import functions as F

    both = computed.withColumn("sign", F.lit(1)).unionByName(stored.withColumn("sign", F.lit(-1)))
    counted = both.groupBy(*computed.columns).agg(
        F.sum("sign").alias("surplus"), F.count_if(F.col("sign") < 0).alias("stored")
    )
    surplus, nothing = F.col("surplus"), F.lit(0)
    return (
        counted.groupBy("broker_name", "run", "topic", "consumer_group")
        .agg(
            F.sum("stored").alias("stored"),
            F.sum(F.greatest(surplus, nothing)).alias("missing"),
            F.sum(F.greatest(-surplus, nothing)).alias("unexpected"),
        )
        .withColumn("table_name", F.lit(table_name))
    )
