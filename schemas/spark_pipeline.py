"""The pipeline in Spark SQL: from messages, subscriptions and pull windows to deliveries, in the queries below.

Read them first. Each is a step that a broker or a client takes, in this order:

1. ``ENTRIES``: a message that is no open transaction gets a consume queue entry with its tags code.
2. ``BIT_MAPS``: every SQL92 filter that matches the message sets its Bloom bits (CommitLogDispatcherCalcBitMap).
3. ``WINDOWS`` and ``COVERED``: a group pulls the messages that its pull windows cover, under a subscription.
4. ``STAGE_1``: the broker checks the entry: its tags code, or the group's bits in its filter bit map.
5. ``STAGE_2``: the broker evaluates the SQL92 expression on the message's properties.
6. ``POPPED``: what the broker wrote down of pops needs no plan and no filter: it says what each handed out.
7. ``CLIENT`` and ``DELIVERIES``: the client compares the tag itself, not only its hash.

A name in braces is the result of another query, or a table (:func:`deliveries` passes them). The expressions are those
that ``subscriptions`` stores as predicates, evaluated in one projection for each topic (:func:`_matches`). The other
queries make small tables for these, which each worker gets. A night runs none of this: it matches 64 messages a machine
word and writes blocks. It shares only the predicates, the planned windows and the rows of ``pops`` with it, so
``audit --engine spark`` checks each with the other. The cost here is messages times groups: it is made for tens of
groups.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from filtering.pops.modes import PopGroups
from filtering.sql92 import Expressions
from filtering.subscriptions.inconsistency import differing_states
from filtering.subscriptions.subscription_row import compile_client_filter
from schemas.commitlog import COMMITLOG
from schemas.deliveries import RECORDED
from schemas.ledger_check import open_runs
from schemas.pull_windows import PULL_WINDOWS
from schemas.run_ledger import POP_GROUPS, by_broker, nights_of, unreplaced_runs
from schemas.spark_views import with_properties
from schemas.subscriptions import SUBSCRIPTIONS, read_events
from schemas.tables import CONSUMEQUEUE, POPS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from schemas.delta.warehouse import Warehouse
    from schemas.run_ledger import LedgerEntry

NIGHTS = """broker_name STRING, run STRING, began BIGINT, log_from BIGINT, bit_num INT, has_extension BOOLEAN,
  makes_bit_maps BOOLEAN, filters_retries BOOLEAN, filters_retries_by_tag BOOLEAN, delays ARRAY<BIGINT>,
  retry_max_times MAP<STRING, INT>"""

CLIENTS = """broker_name STRING, consumer_group STRING, topic STRING, valid_from BIGINT, valid_to BIGINT,
  subscriptions ARRAY<STRUCT<tags_set: ARRAY<STRING>, code_set: ARRAY<INT>>>"""

PLANNED = """
  SELECT *, mode = 'POP' AS pops, if(mode = 'POP', popped_topic, topic) AS subscribed FROM {windows}
  WHERE kind IN ('online', 'backlog', 'reset', 'late')"""

# A request that pops a retry topic brings the group's subscription to the original topic.
WITH_POPPED_TOPIC = """
  SELECT *, if(substr(topic, 1, length(consumer_group) + 8) IN
      (concat('%RETRY%', consumer_group, '_'), concat('%RETRY%', consumer_group, '+')),
    substr(topic, length(consumer_group) + 9), topic) AS popped_topic
  FROM {rows}"""

# An SQL92 filter may outlive its subscription: its predicate is that of the state which registered the expression.
STATES = """
  WITH s AS (
    SELECT s.*, coalesce(s.expression_type, '') IN ('', 'TAG') AS is_tag,
      max_by(r.predicate, r.valid_from) AS filter_predicate
    FROM {stored} s LEFT JOIN {stored} r ON r.broker_name = s.broker_name AND r.consumer_group = s.consumer_group
      AND r.topic = s.topic AND r.valid_from <= s.valid_from AND r.expression = s.filter_expression
      AND r.predicate IS NOT NULL
    GROUP BY ALL
  )
  SELECT broker_name, consumer_group, topic, valid_from, valid_to, is_tag, class_filter_mode, tags_set,
    CAST(code_set AS ARRAY<BIGINT>) AS code_set, born_time, bit_num, bit_pos, filter_predicate,
    class_filter_mode OR is_tag AND coalesce(expression, '') IN ('', '*') AS takes_every_message,
    if(sent_with_pull, NULL, bit_pos) AS checked_bits,
    predicate, if(sent_with_pull OR filter_expression IS NULL, predicate, filter_predicate) AS pull_predicate,
    is_consuming
  FROM s"""

# The messages of a retry topic are also filtered by the expressions of the group's other topics.
PREDICATES = """
  WITH used AS (SELECT *, explode(array(predicate, filter_predicate)) AS text FROM {subscriptions})
  SELECT topic, text, CAST(row_number() OVER (PARTITION BY topic ORDER BY text) - 1 AS INT) AS number FROM (
    SELECT topic, text FROM used UNION SELECT r.topic, u.text FROM used u JOIN {subscriptions} r
      ON r.broker_name = u.broker_name AND r.consumer_group = u.consumer_group AND startswith(r.topic, '%RETRY%')
    UNION SELECT w.topic, u.text FROM used u JOIN {planned} w
      ON w.broker_name = u.broker_name AND w.consumer_group = u.consumer_group AND w.subscribed = u.topic
  ) WHERE text IS NOT NULL"""

# sys_flag 0x4: a prepared or rolled back transaction. A late message lies in the log before what its night read. A
# message may have entries in several queues: those in LMQs have no bit map. A tags code is java.lang.String.hashCode:
# over UTF-16 units, as a signed integer of 32 bits.
ENTRIES = """
  SELECT m.* EXCEPT (topic, queue_id, queue_offset), q.topic, q.queue_id, q.queue_offset, q.run,
    m.commitlog_offset < n.log_from AS is_late, n.bit_num AS entry_bits,
    n.makes_bit_maps AND NOT startswith(q.topic, '%LMQ%') AS makes_bit_maps,
    if(delay_level > 0, m.store_timestamp + n.delays[least(delay_level, size(n.delays)) - 1],
      (aggregate(regexp_extract_all(hex(encode(coalesce(m.tags, ''), 'UTF-16BE')), '.{{4}}', 0), 0L, (hash, unit) ->
        (hash * 31 + CAST(conv(unit, 16, 10) AS BIGINT)) & 4294967295L) ^ 2147483648L) - 2147483648L) AS tags_code
  FROM {messages} m
  JOIN {stored} q ON q.broker_name = m.broker_name AND q.commitlog_offset = m.commitlog_offset
  JOIN {nights} n ON n.broker_name = q.broker_name AND n.run = q.run
  WHERE m.sys_flag & 4 = 0"""

FILTER_DATA = """
  SELECT s.broker_name, s.topic, collect_list(struct(s.valid_from, s.valid_to, s.bit_pos, p.number)) AS filter_data
  FROM {subscriptions} s JOIN {predicates} p ON p.topic = s.topic AND p.text = s.filter_predicate GROUP BY ALL"""
FILTERS_IN_FORCE = """
  SELECT e.*, filter(filter_data, f -> e.makes_bit_maps AND f.valid_from <= e.store_timestamp
    AND (f.valid_to IS NULL OR e.store_timestamp < f.valid_to)) AS filters
  FROM {entries} e LEFT JOIN {filter_data} d ON d.broker_name = e.broker_name AND d.topic = e.topic"""
BITS = """
  SELECT *, flatten(transform(filter(filters, f -> matches[f.number]), f -> f.bit_pos)) AS bits FROM {in_force}"""

# Bit b is bit b % 8 of byte b DIV 8. A word has eight bytes, the first of which is its highest: ^ 56 turns their order.
# Without a filter in force there is no bit map.
BIT_MAPS = """
  SELECT * EXCEPT (filters, bits), if(size(filters) > 0, unhex(left(array_join(transform(
    sequence(0, (entry_bits - 1) DIV 64), word -> lpad(hex(aggregate(filter(bits, b -> b DIV 64 = word), 0L,
      (set, b) -> set | shiftleft(1L, b % 64 ^ 56))), 16, '0')
  ), ''), entry_bits DIV 4)), NULL) AS filter_bit_map
  FROM {bits}"""

WINDOWS = """
  SELECT w.broker_name, w.topic, w.consumer_group, w.run AS decided_by, w.subscription_from, w.available_at,
    w.stored_from, w.stored_to, w.only_listed, map_from_entries(transform(w.queues, q -> (q.queue_id, q))) AS queues,
    w.kind = 'late' AS takes_late, w.kind IN ('backlog', 'reset') AS takes_stored, p.number, s.born_time, s.bit_num,
    if(s.is_tag AND NOT s.takes_every_message, s.code_set, NULL) AS code_set,
    if(p.number IS NOT NULL AND NOT w.pops AND n.has_extension AND s.bit_num = n.bit_num, s.checked_bits, NULL)
      AS bit_pos,
    coalesce(w.client_tags, if(s.takes_every_message, NULL, s.tags_set)) AS client_tags,
    if(w.pops, coalesce(n.retry_max_times[w.consumer_group], 16) + 1, NULL) AS most_attempts,
    NOT w.pops AND startswith(w.topic, '%RETRY%') AND NOT s.class_filter_mode AND n.filters_retries
      AND (n.filters_retries_by_tag OR NOT s.is_tag) AS takes_retries,
    coalesce(w.available_at, if(w.kind IN ('backlog', 'reset'), n.began, NULL),
      greatest(w.stored_from, w.subscription_from)) AS decided_at
  FROM {planned} w
  JOIN {nights} n ON n.broker_name = w.broker_name AND n.run = w.run
  JOIN {subscriptions} s ON s.broker_name = w.broker_name AND s.consumer_group = w.consumer_group
    AND s.topic = w.subscribed AND s.valid_from = w.subscription_from
  LEFT JOIN {predicates} p ON p.topic = w.topic AND p.text = if(w.pops, s.predicate, s.pull_predicate)
    AND NOT s.is_tag AND NOT s.class_filter_mode"""

# A redelivered message is filtered by what the group has for its original topic, if it has an expression there.
ORIGINALS = """
  SELECT w.broker_name, w.topic, w.consumer_group, w.decided_at,
    map_from_entries(collect_set(struct(s.topic, p.number))) AS originals
  FROM {windows} w
  JOIN {subscriptions} s ON s.broker_name = w.broker_name AND s.consumer_group = w.consumer_group
    AND s.valid_from <= w.decided_at AND (s.valid_to IS NULL OR w.decided_at < s.valid_to)
  JOIN {predicates} p ON p.topic = w.topic AND p.text = s.filter_predicate
  WHERE w.takes_retries GROUP BY ALL"""

# A null limits nothing. In a queue that it does not list, a window has all entries, or none with only_listed.
COVERED = """
  SELECT e.*, w.* EXCEPT (broker_name, topic), o.originals
  FROM {entries} e
  JOIN {windows} w ON w.broker_name = e.broker_name AND w.topic = e.topic
    AND (e.run = w.decided_by AND e.is_late = w.takes_late OR e.run < w.decided_by AND w.takes_stored)
    AND (w.stored_from IS NULL OR e.store_timestamp >= w.stored_from)
    AND (w.stored_to IS NULL OR e.store_timestamp < w.stored_to)
    AND CASE WHEN w.queues[e.queue_id] IS NULL THEN NOT w.only_listed ELSE
      e.queue_offset >= w.queues[e.queue_id].from_queue_offset
      AND e.queue_offset < coalesce(w.queues[e.queue_id].to_queue_offset, 9223372036854775807L)
      AND e.commitlog_offset >= coalesce(w.queues[e.queue_id].from_commitlog_offset, 0L)
      AND e.commitlog_offset < coalesce(w.queues[e.queue_id].to_commitlog_offset, 9223372036854775807L) END
  LEFT JOIN {originals} o ON o.broker_name = w.broker_name AND o.topic = w.topic
    AND o.consumer_group = w.consumer_group AND o.decided_at = w.decided_at"""

# A bit map counts for messages stored after the filter was born. Without one that can be read, a message passes.
STAGE_1 = """
  SELECT * FROM {covered}
  WHERE (code_set IS NULL OR array_contains(code_set, tags_code))
    AND (bit_pos IS NULL OR filter_bit_map IS NULL OR entry_bits <> bit_num OR store_timestamp <= born_time OR
      forall(bit_pos, b -> getbit(CAST(conv(hex(substr(filter_bit_map, CAST(b DIV 8 + 1 AS INT), 1)), 16, 10) AS INT),
        b % 8) = 1))"""
STAGE_2 = """
  SELECT * FROM {stage_1}
  WHERE if(takes_retries, retry_topic IS NOT NULL AND coalesce(matches[originals[retry_topic]], true),
    number IS NULL OR matches[number])"""

# A tag whose hash is not in the subscription in force was asked for by another one, which is not known. What a group
# pops while it is offline, its proxy holds for a client that left: unless it is acknowledged, nobody got it.
# A request carries the subscription in force, or that of another client of the group: the broker compares the hash of
# the tag with it, and its client the tag. Where both are possible and decide differently, that in force decides.
POPPED = """
  WITH in_force AS (
    SELECT e.*, p.consumer_group, p.popped_at, p.source, p.run AS decided_by, s.valid_from,
      coalesce(n.retry_max_times[p.consumer_group], 16) + 1 AS most_attempts,
      transform(concat(array(struct(s.tags_set, s.code_set)), coalesce(c.subscriptions, array())), carried -> struct(
        coalesce(size(carried.tags_set), 0) <= 0 OR array_contains(carried.code_set, e.tags_code) AS returns,
        coalesce(size(carried.tags_set), 0) <= 0 OR coalesce(array_contains(carried.tags_set, e.tags), false) AS keeps
      )) AS checks
    FROM {pops} p
    JOIN {entries} e ON e.broker_name = p.broker_name AND e.topic = p.topic AND e.commitlog_offset = p.commitlog_offset
    JOIN {nights} n ON n.broker_name = p.broker_name AND n.run = p.run
    LEFT JOIN {subscriptions} s ON s.broker_name = p.broker_name AND s.consumer_group = p.consumer_group
      AND s.topic = p.popped_topic AND s.valid_from <= p.popped_at AND (s.valid_to IS NULL OR p.popped_at < s.valid_to)
    LEFT JOIN {clients} c ON c.broker_name = p.broker_name AND c.consumer_group = p.consumer_group
      AND c.topic = s.topic AND c.valid_from <= p.popped_at AND (c.valid_to IS NULL OR p.popped_at < c.valid_to)
    WHERE coalesce(s.is_consuming, true) OR p.acknowledged_at IS NOT NULL
  ), judged AS (
    SELECT *, exists(checks, each -> each.returns AND each.keeps) AS may_be_kept,
      exists(checks, each -> each.returns AND NOT each.keeps) AS may_be_dropped
    FROM in_force
  )
  SELECT *, popped_at AS available_at,
    if(checks[0].returns AND may_be_kept <> may_be_dropped, coalesce(valid_from, 0), 0) AS subscription_from,
    if(may_be_kept = may_be_dropped, checks[0].returns AND NOT checks[0].keeps, may_be_dropped) AS is_dropped
  FROM judged"""

# The client compares the tag itself, and gives up what it got too often by pops.
CLIENT = """
  SELECT *, size(client_tags) > 0 AND NOT coalesce(array_contains(client_tags, tags), false) AS is_dropped,
    'PLANNED' AS source FROM {stage_2}"""
DELIVERIES = """
  SELECT consumer_group, broker_name, topic, queue_id, queue_offset, commitlog_offset,
    CASE WHEN is_dropped THEN 'DROPPED_BY_CLIENT' WHEN reconsume_times >= most_attempts THEN 'DEAD'
      ELSE 'DELIVERED' END AS outcome,
    coalesce(available_at, store_timestamp) AS available_at, subscription_from, source, decided_by AS run
  FROM {returned}"""


def deliveries(spark: SparkSession, warehouse: Warehouse, first_run: str = "") -> DataFrame:
    """The deliveries, computed from messages. The columns are those of :func:`schemas.deliveries.read`.

    ``first_run``: only those of runs from this one on. Filter hooks are not run: what they drop is DELIVERED here.
    What traces decided is inferred here, like the rest.
    """
    small = _small_tables(spark, warehouse, first_run)
    small["windows"] = _local(spark.sql(WINDOWS, **small))
    small["originals"] = _local(spark.sql(ORIGINALS, **small))
    stored = _entries(spark, warehouse, small)
    covered = spark.sql(COVERED, entries=stored, **small)
    stage_1 = spark.sql(STAGE_1, covered=covered)
    stage_2 = spark.sql(STAGE_2, stage_1=stage_1)
    pops = warehouse.read(spark, POPS).where((F.col("run") >= first_run) & (F.col("source") == RECORDED))
    pops = spark.sql(WITH_POPPED_TOPIC, rows=pops)
    popped = spark.sql(POPPED, entries=stored, pops=pops, **small)
    pulled = spark.sql(CLIENT, stage_2=stage_2)
    return spark.sql(DELIVERIES, returned=pulled.unionByName(popped, allowMissingColumns=True))


def entries(spark: SparkSession, warehouse: Warehouse) -> DataFrame:
    """The consume queue entries, computed from messages: columns of consumequeue, without size and store_date."""
    columns = [name for name in CONSUMEQUEUE.schema.names if name not in ("size", "store_date")]
    return _entries(spark, warehouse, _small_tables(spark, warehouse, "")).select(columns)


def _entries(spark: SparkSession, warehouse: Warehouse, small: dict[str, Any]) -> DataFrame:
    digits = "regexp_substr(if(topic = 'SCHEDULE_TOPIC_XXXX', properties['DELAY'], NULL), '^[0-9]+$')"
    messages = with_properties(warehouse.read(spark, COMMITLOG)).select(
        "broker_name", "topic", "queue_id", "queue_offset", "commitlog_offset", "store_timestamp", "sys_flag", "tags",
        "reconsume_times", "properties", F.col("properties")["RETRY_TOPIC"].alias("retry_topic"),
        F.expr(f"try_cast({digits} AS INT)").alias("delay_level"),
    )  # fmt: skip
    stored = spark.sql(ENTRIES, messages=messages, stored=warehouse.read(spark, CONSUMEQUEUE), **small)
    stored = stored.withColumn("matches", _matches(small["predicates"])).drop("properties")
    in_force = spark.sql(FILTERS_IN_FORCE, entries=stored, **small)
    return spark.sql(BIT_MAPS, bits=spark.sql(BITS, in_force=in_force))


def _matches(predicates: DataFrame) -> Column:
    """Which predicates of its topic are true for a message: booleans in the order of their numbers."""
    matches = F.lit(None).cast("array<boolean>")
    in_order = sorted(predicates.collect(), key=lambda row: (row["topic"], row["number"]))
    for topic, rows in groupby(in_order, key=lambda row: row["topic"]):
        matches = F.when(F.col("topic") == topic, F.array(*[F.expr(row["text"]) for row in rows])).otherwise(matches)
    return matches


def _small_tables(spark: SparkSession, warehouse: Warehouse, first_run: str) -> dict[str, Any]:
    small: dict[str, Any] = {"nights": spark.createDataFrame(_nights(warehouse), NIGHTS)}
    windows = warehouse.read(spark, PULL_WINDOWS).where(F.col("run") >= first_run)
    small["planned"] = _local(spark.sql(PLANNED, windows=spark.sql(WITH_POPPED_TOPIC, rows=windows)))
    small["clients"] = spark.createDataFrame(list(_clients(warehouse)), CLIENTS)
    small["subscriptions"] = _local(spark.sql(STATES, stored=warehouse.read(spark, SUBSCRIPTIONS)))
    small["predicates"] = _local(spark.sql(PREDICATES, **small))
    small["filter_data"] = _local(spark.sql(FILTER_DATA, **small))
    return small


def _local(rows: DataFrame) -> DataFrame:
    """The same rows, computed once and kept in the driver, which sends them to each worker."""
    return F.broadcast(rows.sparkSession.createDataFrame(rows.toArrow(), rows.schema))


def _clients(warehouse: Warehouse) -> Iterator[tuple[object, ...]]:
    """When clients of a group subscribed differently: the tags of each subscription, and their hashes."""
    for broker_name in by_broker(open_runs(warehouse)):
        for state in differing_states(read_events(warehouse, broker_name)):
            compiled = [compile_client_filter(state.topic, each, Expressions()) for each in state.filters]
            tags = [(subscription.tags_set, subscription.code_set) for subscription in compiled]
            yield broker_name, state.consumer_group, state.topic, state.valid_from, state.valid_to, tags


def _nights(warehouse: Warehouse) -> list[tuple[object, ...]]:
    """When the night before each night ended, where its part of the log began, and its broker's switches."""
    rows: list[tuple[object, ...]] = []
    for runs in by_broker(open_runs(warehouse)).values():
        before: LedgerEntry | None = None
        for night in nights_of(unreplaced_runs(runs)):
            broker = night.broker
            began, log_from = (before.as_of, before.delivered_to) if before else (None, 0)
            switches = (
                broker.bloom_filter.m, broker.enable_consume_queue_ext, broker.calculates_bit_maps,
                broker.filter_support_retry, broker.version.filters_redeliveries_to_tags, list(broker.delay_levels),
                PopGroups.from_text(night.inputs.get(POP_GROUPS, PopGroups().text)).retry_max_times,
            )  # fmt: skip
            rows.append((night.broker_name, night.run, began, log_from, *switches))
            before = night
    return rows
