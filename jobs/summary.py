"""What a person reads at the end of a nightly run."""

from __future__ import annotations

import argparse

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from filtering.replay.message_filter import refusal
from filtering.subscriptions.in_force import in_force_at_the_end
from jobs.run import Run
from schemas import message_log, subscriptions
from schemas.commitlog import COMMITLOG
from schemas.delivery_stats import DELIVERY_STATS
from schemas.quarantine import QUARANTINE
from schemas.store.recovery import Recovery, recovery
from schemas.table import sql_text

COLUMNS = (
    ("scanned", "scanned"),
    ("passed_stage1", "stage 1"),
    ("passed_stage2", "stage 2"),
    ("delivered", "delivered"),
    ("hash_collisions", "client drops"),
    ("bit_map_false_positives", "false pos."),
    ("evaluation_errors", "errors"),
)
LONGEST_NAME = 40


def print_summary(run: Run, options: argparse.Namespace) -> None:
    """Per group what each filter passed, then what needs attention, then where everything is."""
    _print_groups(run)
    _print_attention(run, options)
    print_steps(run)


def _print_groups(run: Run) -> None:
    stats = DELIVERY_STATS.read(run.spark, run.warehouse).where(F.col("broker_name") == run.broker.broker_name)
    latest = stats.where(F.col("run") == stats.agg(F.max("run")).scalar())
    sums = [F.sum(name).alias(name) for name, _ in COLUMNS]
    rows = latest.groupBy("consumer_group", "topic").agg(*sums).orderBy("topic", "consumer_group").collect()
    width = max([len(_short(row["consumer_group"])) for row in rows], default=5)
    topic = None
    for row in rows:
        if row["topic"] != topic:
            topic = row["topic"]
            print(f"\n{_short(topic)}")
            print(f"  {'group':<{width}}" + "".join(f"{title:>14}" for _, title in COLUMNS))
        print(f"  {_short(row['consumer_group']):<{width}}" + "".join(f"{row[name]:>14,}" for name, _ in COLUMNS))
    print()


def _print_attention(run: Run, options: argparse.Namespace) -> None:
    history = subscriptions.rows(run.spark, run.warehouse)
    of_broker = f"broker_name = {sql_text(run.broker.broker_name)}"
    messages = COMMITLOG.read(run.spark, run.warehouse).where(of_broker)
    (log,) = messages.agg(
        F.max("store_timestamp").alias("end"),
        F.count_if(F.col("body_crc") != F.col("body_crc_computed")).alias("damaged_bodies"),
    ).collect()
    for subscription in in_force_at_the_end(history, log["end"] or 0, run.broker):
        whose = f"{subscription.consumer_group} on {subscription.topic}"
        code = refusal(subscription, run.broker)
        if code is not None:
            print(f"refused: the broker answers pulls of {whose} with {code.name}")
        if subscription.compile_error is not None:
            print(f"invalid: {whose}: {subscription.compile_error}")
    if log["damaged_bodies"]:
        print(f"damaged: {log['damaged_bodies']:,} messages whose body is not the one that was stored (crc32); kept")
    quarantined = QUARANTINE.read(run.spark, run.warehouse).where(of_broker)
    counted = quarantined.groupBy("source_file", "reason").count().orderBy("source_file", "reason").collect()
    for row in counted:
        print(f"quarantined: {row['count']:,} × {row['reason']} in {row['source_file']}")
    if (log["damaged_bodies"] or counted) and not message_log.is_message_log(options.store):
        size = run.broker.mapped_file_size_commit_log if options.broker_config else None
        _print_recovery(recovery(str(options.store), size), messages)


def _print_recovery(would: Recovery, messages: DataFrame) -> None:
    """What the broker itself would make of the log."""
    if would.refused is not None:
        print(f"the broker itself would not start on this store: {would.refused}")
        return
    ends = {
        "a clean shutdown": would.end_after_clean_shutdown or 0,
        "a crash": would.end_after_crash or 0,
    }
    kept = [F.count_if(F.col("commitlog_offset") < end) for end in ends.values()]
    (counts,) = messages.agg(F.count("*"), *kept).collect()
    for (after, end), kept_count in zip(ends.items(), counts[1:], strict=True):
        print(
            f"the broker itself, restarted after {after}, would end its log at offset {end:,}: "
            f"{kept_count:,} of these {counts[0]:,} messages"
        )


def print_steps(run: Run) -> None:
    """The switches that were replayed, what each step wrote, and where."""
    bit_map = "on" if run.broker.enable_calc_filter_bit_map and run.broker.enable_consume_queue_ext else "off"
    sql92 = "on" if run.broker.enable_property_filter else "off"
    print(f"broker {run.broker.broker_name} ({run.broker_source}): property filter {sql92}, filter bit map {bit_map}")
    for step in run.steps:
        done = "nothing new" if step.rows is None else f"{step.rows:,} rows in {', '.join(step.wrote) or 'no table'}"
        print(f"  {step.job:<9}{step.seconds:>6.1f} s  {done}")
    if all(step.rows is None for step in run.steps):
        print("There was nothing new: no table changed.")
    print(f"Everything is in {run.warehouse.location}; ./spark-submit.sh export TABLE writes one as JSON lines.")


def _short(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME // 2 - 1]}…{name[-LONGEST_NAME // 2 :]}"
